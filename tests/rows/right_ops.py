"""Right gradients of inputs without a stated range: none may be called wrong, and few lead to a question.

Those by hand are custom gradients: nothing is excused there that TensorFlow does at single values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tests.support.row import Row, marked

Function = Callable[..., Any]
VECTOR, MATRIX, SQUARE = ((5,),), ((3, 4),), ((3, 3),)


def _spd(x: Any) -> Any:
    return tf.matmul(x, x, transpose_b=True) + tf.eye(3, dtype=x.dtype)


def _by_hand(function: Function) -> Function:
    """Return a function with a gradient of its own, which is right: that of its parts."""

    @tf.custom_gradient
    def own(*inputs: Any) -> Any:
        def gradient(*upstream: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = function(*inputs)
            return tape.gradient(outputs, inputs, upstream[0])

        return function(*inputs), gradient

    return own


def _fixed_point(weights: Any) -> Any:
    state = tf.zeros([3], weights.dtype)
    for _ in range(40):
        state = tf.tanh(tf.linalg.matvec(weights, state) / (1.0 + tf.norm(weights)) + 0.5)
    return state


def _newton(x: Any) -> Any:
    """The root of y^3 + y = x."""
    y = x / (1.0 + x * x)
    for _ in range(60):
        y -= (y * y * y + y - x) / (3.0 * y * y + 1.0)
    return y


def _loop(body: Function, rounds: int) -> Function:
    return lambda x: tf.while_loop(
        lambda count, _: count < rounds, lambda count, y: (count + 1, body(y)), [0, x]
    )[1]


def _recurrence(w: Any, x: Any) -> Any:
    state = tf.zeros_like(x[0])
    for step in range(4):
        state = tf.tanh(tf.linalg.matvec(w, state) + x[step])
    return state


def _euler(x: Any) -> Any:
    for _ in range(20):
        x += 0.05 * (tf.sin(x) - 0.1 * x)
    return x


def _logistic_map(x: Any) -> Any:
    y = tf.sigmoid(x)
    for _ in range(6):
        y = 3.2 * y * (1.0 - y)
    return y


def _power_iteration(x: Any) -> Any:
    own, vector = _spd(x), tf.ones([3, 1], x.dtype)
    for _ in range(8):
        vector = tf.matmul(own, vector)
        vector /= tf.norm(vector)
    return tf.matmul(vector, tf.matmul(own, vector), transpose_a=True)


def _conjugate_gradients(x: Any, b: Any) -> Any:
    own, y = _spd(x), tf.zeros_like(b)
    rest = direction = b
    for _ in range(2):
        moved = tf.linalg.matvec(own, direction)
        step = tf.reduce_sum(rest * rest) / (tf.reduce_sum(direction * moved) + 1e-12)
        y, before, rest = y + step * direction, rest, rest - step * moved
        share = tf.reduce_sum(rest * rest) / (tf.reduce_sum(before * before) + 1e-12)
        direction = rest + share * direction
    return y


def _jacobi(x: Any, b: Any) -> Any:
    own = _spd(x) + 8.0 * tf.eye(3, dtype=x.dtype) * (1.0 + tf.reduce_sum(x * x))
    diagonal, y = tf.linalg.diag_part(own), tf.zeros_like(b)
    for _ in range(30):
        y = (b - tf.linalg.matvec(own, y) + diagonal * y) / diagonal
    return y


def _sinkhorn(x: Any) -> Any:
    log = -x / 2.0
    for _ in range(10):
        log -= tf.reduce_logsumexp(log, 1, keepdims=True)
        log -= tf.reduce_logsumexp(log, 0, keepdims=True)
    return tf.exp(log)


# Name: function, the shapes of its inputs. Elementwise ones are in `fresh`.
EVERY: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "Newton": (_newton, VECTOR),
    "Euler": (_euler, VECTOR),
    "logistic map": (_logistic_map, VECTOR),
    "loop of sines": (_loop(tf.sin, 6), VECTOR),
    "loop of halves": (_loop(lambda y: y / 2.0 + tf.cos(y), 8), VECTOR),
    "softmax": (tf.nn.softmax, MATRIX),
    "log_softmax": (tf.nn.log_softmax, MATRIX),
    "logsumexp": (tf.reduce_logsumexp, VECTOR),
    "cross entropy": (lambda x: tf.nn.softmax_cross_entropy_with_logits([0.2, 0.3, 0.5], x), ((2, 3),)),
    "norm": (lambda x: tf.norm(x, axis=1), MATRIX),
    "l2_normalize": (lambda x: tf.math.l2_normalize(x, axis=1, epsilon=1e-3), MATRIX),
    "layer norm": (
        lambda x: (
            (x - tf.reduce_mean(x, 1, keepdims=True))
            * tf.math.rsqrt(tf.math.reduce_variance(x, 1, keepdims=True) + 1e-3)
        ),
        MATRIX,
    ),
    "variance": (lambda x: tf.math.reduce_variance(x, 0), MATRIX),
    "product": (tf.reduce_prod, VECTOR),
    "cumsum": (tf.cumsum, VECTOR),
    "cumprod": (tf.math.cumprod, VECTOR),
    "cumulative_logsumexp": (tf.math.cumulative_logsumexp, VECTOR),
    "largest": (lambda x: tf.reduce_max(x, 1), MATRIX),
    "sorted": (tf.sort, VECTOR),
    "top_k": (lambda x: tf.math.top_k(x, 3).values, ((6,),)),
    "matmul": (tf.matmul, ((2, 3), (3, 4))),
    "outer": (lambda a, b: a[:, None] * b, ((3,), (4,))),
    "einsum": (lambda a, b: tf.einsum("bi,bij->bj", a, b), ((2, 3), (2, 3, 2))),
    "attention": (
        lambda q, k, v: tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True)), v),
        ((2, 3), (4, 3), (4, 2)),
    ),
    "division": (lambda a, b: a / (1.0 + b * b), ((4,), (4,))),
    "hypotenuse": (lambda a, b: tf.sqrt(a * a + b * b + 0.1), ((4,), (4,))),
    "atan2": (lambda a, b: tf.atan2(a, 1.0 + b * b), ((4,), (4,))),
    "power": (lambda a, b: tf.pow(1.0 + a * a, tf.tanh(b)), ((4,), (4,))),
    "xlogy": (lambda a, b: tf.math.xlogy(a, 1.0 + b * b), ((4,), (4,))),
    "squared difference": (tf.math.squared_difference, ((4,), (4,))),
    "larger": (tf.maximum, ((4,), (4,))),
    "bilinear": (lambda a, w, b: tf.reduce_sum(a * tf.linalg.matvec(w, b)), ((3,), (3, 3), (3,))),
    "gather": (lambda x: tf.gather(x, [0, 2, 2, 1]), MATRIX),
    "segment_sum": (lambda x: tf.math.segment_sum(x, [0, 0, 1]), MATRIX),
    "conv1d": (lambda x, w: tf.nn.conv1d(x, w, 1, "SAME"), ((1, 5, 2), (3, 2, 2))),
    "avg_pool": (lambda x: tf.nn.avg_pool1d(x, 2, 2, "VALID"), ((1, 6, 2),)),
    "max_pool": (lambda x: tf.nn.max_pool1d(x, 2, 2, "VALID"), ((1, 6, 2),)),
    "inverse": (lambda x: tf.linalg.inv(_spd(x)), SQUARE),
    "solve": (lambda x, b: tf.linalg.solve(_spd(x), b), ((3, 3), (3, 2))),
    "triangular solve": (
        lambda x, b: tf.linalg.triangular_solve(tf.linalg.cholesky(_spd(x)), b),
        ((3, 3), (3, 2)),
    ),
    "cholesky": (lambda x: tf.linalg.cholesky(_spd(x)), SQUARE),
    "logdet": (lambda x: tf.linalg.logdet(_spd(x)), SQUARE),
    "determinant": (tf.linalg.det, SQUARE),
    "trace of exp": (lambda x: tf.linalg.trace(tf.linalg.expm(x / (1.0 + tf.norm(x)))), SQUARE),
    "largest eigenvalue": (lambda x: tf.linalg.eigvalsh(_spd(x))[-1], SQUARE),
    "largest singular value": (lambda x: tf.linalg.svd(x, compute_uv=False)[0], SQUARE),
    "least squares": (lambda x, b: tf.linalg.lstsq(x, b, l2_regularizer=0.1), ((4, 3), (4, 1))),
    "power iteration": (_power_iteration, SQUARE),
    "conjugate gradients": (_conjugate_gradients, ((3, 3), (3,))),
    "Jacobi": (_jacobi, ((3, 3), (3,))),
    "fixed point": (_fixed_point, SQUARE),
    "recurrence": (_recurrence, ((3, 3), (4, 3))),
    "Sinkhorn": (_sinkhorn, SQUARE),
    "scan": (lambda x: tf.scan(lambda state, own: tf.tanh(state + own), x), VECTOR),
    "cond": (lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * x, lambda: tf.sin(x)), VECTOR),
    "masked": (lambda x: tf.where(x > 0.5, x * x, 0.25 + (x - 0.5)), VECTOR),
    "kernel": (lambda x: tf.exp(-tf.reduce_sum((x[:, None] - x[None]) ** 2, -1)), ((3, 2),)),
    "distances": (lambda x: tf.sqrt(tf.reduce_sum((x[:, None] - x[None]) ** 2, -1) + 1e-2), ((3, 2),)),
    "cosine": (lambda a, b: tf.reduce_sum(a * b) / (tf.norm(a) * tf.norm(b) + 1e-3), ((4,), (4,))),
    "quaternion": (lambda x: x / tf.sqrt(tf.reduce_sum(x * x) + 1e-2), ((4,),)),
    "angle": (lambda x: tf.atan2(x[0], 1.0 + x[1] ** 2), ((2,),)),
    "moments": (lambda x: tf.stack(tf.nn.moments(x, [0])), MATRIX),
    "free energy": (lambda x: -tf.reduce_sum(tf.nn.softmax(x) * tf.nn.log_softmax(x)), VECTOR),
    "KL": (
        lambda a, b: tf.reduce_sum(tf.nn.softmax(a) * (tf.nn.log_softmax(a) - tf.nn.log_softmax(b))),
        ((4,), (4,)),
    ),
    "focal loss": (lambda x: -((1.0 - tf.sigmoid(x)) ** 2) * tf.math.log_sigmoid(x), VECTOR),
    "Student's t": (lambda x: -2.5 * tf.math.log1p(x * x / 4.0), VECTOR),
    "von Mises": (lambda x: 3.0 * tf.cos(x - 0.5) - math.log(2.0 * math.pi), VECTOR),
}
# What has a kink or a singular point may be right by TensorFlow's rules alone.
NOT_BY_HAND = (
    *("larger", "sorted", "largest", "top_k", "max_pool", "norm", "cosine", "largest eigenvalue"),
    *("largest singular value", "product", "cumprod", "masked", "power iteration", "kernel", "xlogy"),
    "determinant",
)


# The five that were once called wrong at such a point, and their kin: a Hessian-vector product, a recurrence
# at second order, a layer whose output solves an equation, the adjoint of an ODE, and conjugate gradients.


def _hessian_product(function: Function) -> Function:
    def product(x: Any, v: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                total = tf.reduce_sum(function(x))
            slope = tf.reduce_sum(inner.gradient(total, x) * v)
        return outer.gradient(slope, x)

    return product


def _recurrent(activation: Function, rounds: int) -> Function:
    return lambda w, x: tf.while_loop(
        lambda count, _: count < rounds,
        lambda count, state: (count + 1, activation(tf.linalg.matvec(w, state) + x)),
        [0, tf.zeros_like(x)],
    )[1]


def _implicit(activation: Function, slope: Function, offset: float) -> Function:
    @tf.custom_gradient
    def layer(weights: Any) -> Any:
        state = tf.zeros([3], weights.dtype)
        for _ in range(300):
            state = activation(tf.linalg.matvec(weights, state) + offset)

        def gradient(upstream: Any) -> Any:
            slopes = slope(tf.linalg.matvec(weights, state) + offset)
            jacobian = tf.eye(3, dtype=weights.dtype) - slopes[:, None] * weights
            adjoint = tf.linalg.solve(jacobian, upstream[:, None], adjoint=True)[:, 0]
            return (adjoint * slopes)[:, None] * state

        return state, gradient

    return layer


def _adjoint(field: Function, steps: int) -> Function:
    """Return x(1) for dx/dt = field(w x), with a gradient by the adjoint equation; both in Euler steps."""

    @tf.custom_gradient
    def solve(w: Any, x: Any) -> Any:
        states = [x]
        for _ in range(steps):
            states.append(states[-1] + field(tf.linalg.matvec(w, states[-1])) / steps)

        def gradient(upstream: Any) -> Any:
            of_w = tf.zeros_like(w)
            for state in reversed(states[:-1]):
                with tf.GradientTape() as tape:
                    tape.watch([w, state])
                    moved = field(tf.linalg.matvec(w, state))
                step_w, step_x = tape.gradient(moved, [w, state], upstream)
                of_w, upstream = of_w + step_w / steps, upstream + step_x / steps
            return of_w, upstream

        return states[-1], gradient

    return solve


def _unguarded_conjugate_gradients(rounds: int, size: int) -> Function:
    """Return a solver for a diagonal matrix, with its implicit gradient. It ends early if all are equal."""

    def solve(diagonal: Any, b: Any) -> Any:
        y, rest = tf.zeros_like(b), b
        direction = b
        for _ in range(rounds):
            moved = diagonal * direction
            step = tf.math.divide_no_nan(tf.reduce_sum(rest * rest), tf.reduce_sum(direction * moved))
            y, before, rest = y + step * direction, rest, rest - step * moved
            share = tf.math.divide_no_nan(tf.reduce_sum(rest * rest), tf.reduce_sum(before * before))
            direction = rest + share * direction
        return y

    @tf.custom_gradient
    def function(x: Any, b: Any) -> Any:
        diagonal = 1.0 + x * x
        y = solve(diagonal, b)

        def gradient(upstream: Any) -> Any:
            adjoint = upstream / diagonal
            return -adjoint * y * 2.0 * x, adjoint

        return y, gradient

    assert rounds >= size  # as many rounds as there are elements are exact
    return function


_SLOPES: dict[str, tuple[Function, Function]] = {
    "tanh": (tf.tanh, lambda x: 1.0 - tf.tanh(x) ** 2),
    "sigmoid": (tf.sigmoid, lambda x: tf.sigmoid(x) * tf.sigmoid(-x)),
    "sin": (tf.sin, tf.cos),
    "atan": (tf.atan, lambda x: 1.0 / (1.0 + x * x)),
    "erf": (tf.math.erf, lambda x: 2.0 / math.sqrt(math.pi) * tf.exp(-x * x)),
}
_CLOSE_TO_ZERO = {"x0": {"normal": [0, 0.25]}}
# By name: the function, the shapes of its inputs, what else its spec says of them, and of the whole.
Kin = tuple[Function, tuple[tuple[int, ...], ...], dict[str, Any], dict[str, Any]]
KIN: dict[str, Kin] = {}
for _name, (_function, _slope) in _SLOPES.items():
    KIN |= {
        f"Hessian of {_name}": (_hessian_product(_function), ((4,), (4,)), {}, {}),
        f"recurrence of {_name}": (_recurrent(_function, 3), ((2, 2), (2,)), {}, {"second_order": True}),
        f"long recurrence of {_name}": (_recurrent(_function, 12), ((3, 3), (3,)), {}, {}),
        f"layer of {_name}": (_implicit(_function, _slope, 0.5), SQUARE, _CLOSE_TO_ZERO, {}),
        f"layer of less {_name}": (_implicit(_function, _slope, -0.2), SQUARE, _CLOSE_TO_ZERO, {}),
        f"adjoint of {_name}": (_adjoint(_function, 8), ((2, 2), (2,)), {}, {"tolerance": {"rtol": 1e-3}}),
    }
for _size in (2, 3, 4, 5, 6):
    _solver = _unguarded_conjugate_gradients(_size, _size)
    KIN[f"conjugate gradients of {_size}"] = (_solver, ((_size,), (_size,)), {}, {})
for _name, _function in {"exp": tf.exp, "softplus": tf.nn.softplus, "cosh": tf.cosh}.items():
    KIN[f"Hessian of {_name}"] = (_hessian_product(_function), ((4,), (4,)), {}, {})


def rows() -> Iterator[Row]:
    every = {
        name if name in NOT_BY_HAND else f"{name} by hand": (
            function if name in NOT_BY_HAND else _by_hand(function),
            shapes,
            {},
            {},
        )
        for name, (function, shapes) in EVERY.items()
    }
    for name, (function, shapes, values, keys) in (every | KIN).items():
        for dtype in ("float64", "float32"):
            inputs: dict[str, Any] = {
                f"x{index}": {"shape": list(shape), "dtype": dtype} | values.get(f"x{index}", {})
                for index, shape in enumerate(shapes)
            }
            yield Row(f"{name} {dtype}".replace(" ", "_"), function, None, inputs, "undecidable", keys=keys)


ROWS = marked(rows())
