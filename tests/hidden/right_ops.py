"""`python -m tests.hidden.right_ops [kin | NAME ...]`: right gradients of inputs without a stated range.

None may be called wrong, and few may lead to a question. Each is a case in float64 and one in float32.
`BY_HAND` are custom gradients, for which nothing is excused that TensorFlow's own ops do at single values.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

from gradcheck_cli.results import Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.load import load_mapping

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


# Elementwise: name, function.
ELEMENTWISE: dict[str, Function] = {
    "exp": tf.exp,
    "expm1": tf.math.expm1,
    "exp of square": lambda x: tf.exp(-x * x),
    "log of 1 + exp": lambda x: tf.math.log(1.0 + tf.exp(x)),
    "log1p of square": lambda x: tf.math.log1p(x * x),
    "sin": tf.sin,
    "cos of square": lambda x: tf.cos(x * x),
    "tan of tanh": lambda x: tf.tan(tf.tanh(x)),
    "atan": tf.atan,
    "asinh": tf.asinh,
    "sinh": tf.sinh,
    "cosh": tf.cosh,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "softplus": tf.nn.softplus,
    "softsign": lambda x: x / (1.0 + tf.abs(x)),
    "relu": tf.nn.relu,
    "relu6": tf.nn.relu6,
    "elu": tf.nn.elu,
    "selu": tf.nn.selu,
    "gelu": tf.nn.gelu,
    "gelu by tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "swish": lambda x: x * tf.sigmoid(x),
    "mish": lambda x: x * tf.tanh(tf.nn.softplus(x)),
    "hard swish": lambda x: x * tf.nn.relu6(x + 3.0) / 6.0,
    "erf": tf.math.erf,
    "erfc": tf.math.erfc,
    "erfcx": lambda x: tf.exp(-x * x / 9.0) * tf.math.erfc(x / 3.0),
    "lgamma of 1 + square": lambda x: tf.math.lgamma(1.0 + x * x),
    "digamma of 1 + square": lambda x: tf.math.digamma(1.0 + x * x),
    "bessel_i0e": tf.math.bessel_i0e,
    "bessel_i1e": tf.math.bessel_i1e,
    "bessel_j0": tf.math.special.bessel_j0,
    "bessel_j1": tf.math.special.bessel_j1,
    "dawsn": tf.math.special.dawsn,
    "expint of 1 + square": lambda x: tf.math.special.expint(1.0 + x * x),
    "fresnel_sin": tf.math.special.fresnel_sin,
    "spence of 1 + square": lambda x: tf.math.special.spence(1.0 + x * x),
    "ndtri of sigmoid": lambda x: tf.math.ndtri(tf.sigmoid(x)),
    "igamma": lambda x: tf.math.igamma(2.0 * tf.ones_like(x), 0.1 + x * x),
    "polygamma": lambda x: tf.math.polygamma(tf.ones_like(x), 1.0 + x * x),
    "zeta": lambda x: tf.math.zeta(3.0 * tf.ones_like(x), 1.0 + x * x),
    "square": tf.square,
    "cube": lambda x: x * x * x,
    "sqrt of 1 + square": lambda x: tf.sqrt(1.0 + x * x),
    "rsqrt of 1 + square": lambda x: tf.math.rsqrt(1.0 + x * x),
    "reciprocal of 1 + square": lambda x: 1.0 / (1.0 + x * x),
    "abs": tf.abs,
    "clip": lambda x: tf.clip_by_value(x, -1.0, 1.0),
    "huber": lambda x: tf.where(tf.abs(x) < 1.0, 0.5 * x * x, tf.abs(x) - 0.5),
    "sinc": lambda x: tf.where(
        tf.abs(x) < 1e-3, 1.0 - x * x / 6.0, tf.sin(x) / tf.where(x == 0.0, tf.ones_like(x), x)
    ),
    "logit of sigmoid": lambda x: tf.math.log(tf.sigmoid(x)) - tf.math.log(tf.sigmoid(-x)),
    "log sigmoid": tf.math.log_sigmoid,
    "polynomial": lambda x: ((x - 0.5) * x + 0.25) * x + 2.0,
    "Gaussian mixture": lambda x: tf.exp(-((x - 1.0) ** 2)) + 0.5 * tf.exp(-2.0 * (x + 1.0) ** 2),
    "Hermite": lambda x: (x**3 - 3.0 * x) * tf.exp(-x * x / 2.0),
    "wavelet": lambda x: (1.0 - x * x) * tf.exp(-x * x / 2.0),
    "chirp": lambda x: tf.sin(1.0 + x * x / 4.0),
    "Newton": _newton,
    "Euler": _euler,
    "logistic map": _logistic_map,
    "loop of sines": _loop(tf.sin, 6),
    "loop of halves": _loop(lambda y: y / 2.0 + tf.cos(y), 8),
}
# Others: name, function, the shapes of its inputs.
OTHERS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
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
EVERY: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    name: (function, VECTOR) for name, function in ELEMENTWISE.items()
} | OTHERS
# What has a kink or a singular point may be right by TensorFlow's rules alone.
NOT_BY_HAND = (
    *("abs", "relu", "relu6", "elu", "selu", "hard swish", "clip", "larger", "sorted", "largest", "top_k"),
    *("max_pool", "norm", "cosine", "largest eigenvalue", "largest singular value", "product", "cumprod"),
    *("huber", "masked", "softsign", "power iteration", "kernel", "xlogy", "determinant"),
)
BY_HAND = {f"{name} by hand": own for name, own in EVERY.items() if name not in NOT_BY_HAND}
ROWS = EVERY | BY_HAND


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


def make(name: str) -> Function:
    """Return a function: what `build` calls."""
    function = KIN[name][0] if name in KIN else ROWS[name][0]
    return _by_hand(function) if name in BY_HAND else function


def said(name: str, dtype: str) -> str:
    """Run a function; return what is said of its gradient."""
    _, shapes, values, keys = KIN[name] if name in KIN else (*ROWS[name], {}, {})
    inputs: dict[str, Any] = {
        f"x{index}": {"shape": list(shape), "dtype": dtype} | values.get(f"x{index}", {})
        for index, shape in enumerate(shapes)
    }
    spec = {
        "op": name.replace(" ", "-"),
        "forward": "tests.hidden.right_ops:make",
        "build": {"name": name},
        "inputs": inputs,
        **keys,
    }
    (case,) = load_mapping(spec)
    result = run_case(case)
    if any(pair.undecided == "range" for pair in result.pairs):
        return "asked"
    told = {f"{pair.label} {pair.undecided}" for pair in result.pairs if pair.undecided}
    told |= {check.name for check in result.checks if check.status is Status.MISMATCHED}
    text = " ".join(sorted(told)) or (result.error.message[:90] if result.error else "")
    is_beside = any("at the sample points" in line for pair in result.pairs for line in pair.cause.diagnosis)
    return f"{result.status}{' beside the sample points' if is_beside else ''} {text}".strip()


def main() -> None:
    every: Counter[str] = Counter()
    names = list(KIN) if sys.argv[1:] == ["kin"] else sys.argv[1:] or list(ROWS)
    for name in names:
        for dtype in ("float64", "float32"):
            told = said(name, dtype)
            every[told.split(" ")[0]] += 1
            if told != "passed":
                print(f"{name}, {dtype}: {told}", flush=True)  # noqa: T201
    print(f"{len(names)} functions: {dict(every)}")  # noqa: T201


if __name__ == "__main__":
    main()
