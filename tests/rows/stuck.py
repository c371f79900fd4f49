"""Layers as people initialise them, and stated values: a 0, a 1 or an identity switches terms off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

Forward = Callable[..., Any]
X = {"shape": [4, 3]}
IDENTITY, ZEROS, ONES = np.eye(3), np.zeros((3, 3)), np.ones(3)


def _mean_square(x: Any) -> Any:
    return tf.reduce_mean(x * x, -1, keepdims=True)


def _layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    return tf.tanh(centred * tf.math.rsqrt(_mean_square(centred) + 1e-3) * gamma + beta)


def _attention(x: Any, query: Any, key: Any) -> Any:
    return tf.nn.softmax(tf.matmul(x @ query, x @ key, transpose_b=True)) @ x


def _convolution(x: Any, kernel: Any) -> Any:
    return tf.tanh(tf.nn.conv1d(x[None], kernel, 1, "SAME"))


def _recurrence(x: Any, kernel: Any, bias: Any) -> Any:
    state = tf.zeros_like(x[0])
    for step in range(3):
        state = tf.tanh(x[step] + tf.linalg.matvec(kernel, state) + bias)
    return state


def _not_negative(weight: Any) -> Any:
    with tf.control_dependencies([tf.debugging.assert_non_negative(weight)]):
        return tf.identity(weight)


def _share_of_one(share: Any) -> Any:
    one = tf.constant(1, share.dtype)
    with tf.control_dependencies([tf.debugging.assert_near(tf.reduce_sum(share), one)]):
        return tf.identity(share)


# Each with its weights as they are initialised.
LAYERS: dict[str, tuple[Forward, tuple[Any, ...]]] = {
    "rms-norm": (lambda x, gamma: x * tf.math.rsqrt(_mean_square(x) + 1e-3) * gamma, (ONES,)),
    "layer-norm": (_layer_norm, (ONES, 0 * ONES)),
    "dense": (lambda x, kernel, bias: tf.tanh(x @ kernel + bias), (IDENTITY, 0 * ONES)),
    "zero-dense": (lambda x, kernel, bias: tf.sin(x) + tf.tanh(x @ kernel + bias), (ZEROS, 0 * ONES)),
    "low-rank": (lambda x, down, up: tf.tanh(x) @ down @ up, (np.ones((3, 2)) / 2, np.zeros((2, 3)))),
    "parametric-relu": (lambda x, alpha: tf.nn.relu(x) - alpha * tf.nn.relu(-x), (0 * ONES,)),
    "temperature": (lambda x, t: tf.nn.softmax(x / t), (np.array(1.0),)),
    "gated-residual": (lambda x, gate: x + gate * tf.tanh(x), (np.array(0.0),)),
    "swish": (lambda x, beta: x * tf.sigmoid(beta * x), (ONES,)),
    "film": (lambda x, scale, shift: tf.sin(x * scale + shift), (ONES, 0 * ONES)),
    "radial": (lambda x, centre, width: tf.exp(-tf.square((x - centre) / width)), (0 * ONES, ONES)),
    "bilinear": (lambda x, w: tf.sin(tf.reduce_sum(x @ w * x, -1)), (IDENTITY,)),
    "attention": (_attention, (IDENTITY, IDENTITY)),
    "convolution": (_convolution, (np.stack([ZEROS, IDENTITY, ZEROS]),)),
    "recurrence": (_recurrence, (IDENTITY, 0 * ONES)),
    "power": (lambda x, p: tf.pow(1 + x * x, p), (np.array(1.0),)),
    "mixture": (lambda x, logits: tf.tanh(x) * tf.nn.softmax(logits), (0 * ONES,)),
    "soft-threshold": (lambda x, t: tf.nn.softplus(x - t) - tf.nn.softplus(-x - t), (0 * ONES,)),
    "weight-norm": (lambda x, v, g: tf.tanh(x @ (g * v / tf.norm(v, axis=0))), (IDENTITY, ONES)),
    "not-negative": (lambda x, w: tf.sin(x) * tf.exp(-_not_negative(w) * x * x), (0 * ONES,)),
    "kept-and-dropped": (lambda x, p: tf.sin(x) * p + x * tf.pow(1 - p, 1.5), (ONES,)),
    "hardly-open": (lambda x, gate: x + gate * tf.tanh(x), (np.array([1e-7, -2e-7, 3e-7]),)),
    "highway": (lambda x, kernel, bias: x + tf.sigmoid(x @ kernel + bias) * tf.sin(x), (ZEROS, 0 * ONES)),
}
# What a gradient may take for a weight, so that nothing changes at initial values.
MISTAKES: dict[str, Forward] = {
    "forgotten": lambda weight, initial: tf.cast(initial, weight.dtype) + 0 * weight,
    "squared": lambda weight, _: tf.square(weight),
    "not-transposed": lambda weight, _: tf.linalg.matrix_transpose(weight),
    "absolute": lambda weight, _: tf.abs(weight),
    "averaged": lambda weight, _: tf.reduce_mean(weight) + 0 * weight,
}


# A mean of one number is that number; a quadratic form doesn't see whether its matrix is transposed; what is
# never negative is its absolute value.
SAME = {("bilinear", "not-transposed"), ("not-negative", "absolute")}


def _slips(name: str, initial: Any) -> list[str]:
    """Return the mistakes that show nothing at an initial value: there, an absolute value of 1 is right."""
    value = tf.constant(initial, tf.float64)
    fits = {
        "forgotten": True,
        "squared": True,
        "not-transposed": value.shape.rank > 1 and (name, "not-transposed") not in SAME,
        "absolute": not np.any(initial) and (name, "absolute") not in SAME,
        "averaged": value.shape.rank > 0,
    }
    return [
        slip
        for slip, make in MISTAKES.items()
        if fits[slip] and np.array_equal(make(value, initial), initial)
    ]


def layer_class(forward: Forward, initial: tuple[Any, ...], wrong: tuple[int, str] | None) -> type:
    """Return a Keras layer whose gradient by its input takes one weight for something else, or none."""

    def taken(weights: tuple[Any, ...]) -> list[Any]:
        return [
            MISTAKES[wrong[1]](weight, initial[index]) if wrong is not None and wrong[0] == index else weight
            for index, weight in enumerate(weights)
        ]

    @tf.custom_gradient
    def apply(x: Any, *weights: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch([x, *weights])
                right = forward(x, *weights)
            by_weights = tape.gradient(right, list(weights), upstream)
            with tf.GradientTape() as tape:
                tape.watch(x)
                other = forward(x, *taken(weights))
            return tape.gradient(other, x, upstream), *by_weights

        return forward(x, *weights), gradient

    class Layer(tf.keras.layers.Layer):
        def build(self, _shape: Any) -> None:
            self.own = [
                self.add_weight(
                    shape=value.shape, initializer=lambda *_, value=value, **__: value, name=f"w{index}"
                )
                for index, value in enumerate(initial)
            ]

        def call(self, x: Any) -> Any:
            return apply(x, *(tf.convert_to_tensor(weight) for weight in self.own))

    return Layer


def _layers(name: str, wrong: tuple[int, str] | None, truth: str, keys: Mapping[str, Any], dtype: str) -> Row:
    forward, initial = LAYERS[name]
    what = "right" if wrong is None else f"w{wrong[0]}-{wrong[1]}"
    return Row(
        f"{name}-{what}-{dtype}-{keys.get('modes', ['graph'])[-1]}",
        "of_a_row:Layer",
        None,
        {"x": {**X, "dtype": dtype}},
        truth,
        keys={"build": {"dtype": dtype}, **keys},
        functions={"Layer": layer_class(forward, initial, wrong)},
    )


def own(forward: Forward, gradient: Any) -> Forward:
    """Return a function with a gradient of its own."""

    @tf.custom_gradient
    def function(*inputs: Any) -> Any:
        return forward(*inputs), lambda upstream: gradient(upstream, *inputs)

    return function


def slipping(forward: Forward, other: Forward) -> Forward:
    """Return a function with the gradient of another, which is the same at the values given."""

    def gradient(upstream: Any, *inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = other(*inputs)
        return tape.gradient(output, list(inputs), upstream, unconnected_gradients="zero")

    return own(forward, gradient)


def stated(value: Any, dtype: str = "float64", **keys: Any) -> dict[str, Any]:
    """Return an input with a stated value."""
    return {"value": np.asarray(value).tolist(), "shape": list(np.shape(value)), "dtype": dtype, **keys}


DRAWN = {"shape": [3]}
MATRIX = {"shape": [3, 3]}
POSITIVE = [[2.0, 0.5, 0.1], [0.5, 1.5, 0.3], [0.1, 0.3, 1.2]]
LABELS = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]
ANGLE = 0.7
TURN = [[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]]


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return -tf.reduce_sum(labels * tf.nn.log_softmax(logits), -1)


def _rotate(v: Any, q: Any) -> Any:
    w, u = q[:1], q[1:]
    t = 2 * tf.linalg.cross(u, v)
    return v + w * t + tf.linalg.cross(u, t)


def _rotate_back(upstream: Any, v: Any, q: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(q)
        turned = _rotate(v, q)
    return _rotate(upstream, q * tf.constant([1.0, -1.0, -1.0, -1.0], q.dtype)), tape.gradient(
        turned, q, upstream
    )


def _reflect(x: Any, axis: Any) -> Any:
    return x - 2 * tf.linalg.matvec(x, axis)[:, None] * axis / tf.reduce_sum(axis * axis)


def _reflect_unit(upstream: Any, x: Any, axis: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(axis)
        turned = _reflect(x, axis)
    by_axis = tape.gradient(turned, axis, upstream)
    return upstream - 2 * tf.linalg.matvec(upstream, axis)[:, None] * axis, by_axis


# The gradient of each is right: some only as long as the values keep a structure that they have.
STATED_RIGHT: dict[str, tuple[Forward, dict[str, Any]]] = {
    "identity-as-a-turn": (
        own(lambda x, q: x @ q, lambda u, x, q: (u @ tf.linalg.inv(q), tf.transpose(x) @ u)),
        {"x": MATRIX, "q": stated(IDENTITY)},
    ),
    "axis-as-a-unit-vector": (
        own(_reflect, _reflect_unit),
        {"x": MATRIX, "axis": stated([1.0, 0.0, 0.0])},
    ),
    "antisymmetric": (
        own(lambda x, a: x @ a, lambda u, x, a: (-u @ a, tf.transpose(x) @ u)),
        {"x": MATRIX, "a": stated([[0.0, 1, 2], [-1, 0, 3], [-2, -3, 0]])},
    ),
    "cross-entropy": (
        own(
            _cross_entropy,
            lambda u, z, p: (u[:, None] * (tf.nn.softmax(z) - p), -u[:, None] * tf.nn.log_softmax(z)),
        ),
        {"logits": MATRIX, "labels": stated(LABELS)},
    ),
    "channels-first": (
        own(
            lambda z, p: -tf.reduce_sum(p * tf.nn.log_softmax(z, 1), 1),
            lambda u, z, p: (u[:, None] * (tf.nn.softmax(z, 1) - p), -u[:, None] * tf.nn.log_softmax(z, 1)),
        ),
        {"logits": {"shape": [1, 2, 3]}, "labels": stated([[[0.2, 1.0, 0.7], [0.8, 0.0, 0.3]]])},
    ),
    "tensorflows-cross-entropy": (
        lambda z, p: tf.nn.softmax_cross_entropy_with_logits(p, z),
        {"logits": MATRIX, "labels": stated(LABELS)},
    ),
    "one-hot": (
        own(
            _cross_entropy,
            lambda u, z, p: (u[:, None] * (tf.nn.softmax(z) - p), -u[:, None] * tf.nn.log_softmax(z)),
        ),
        {"logits": {"shape": [2, 2]}, "labels": stated([[0.0, 1.0], [1.0, 0.0]])},
    ),
    "quaternion": (own(_rotate, _rotate_back), {"v": DRAWN, "q": stated([0.5, 0.5, -0.5, 0.5])}),
    "quaternion-of-no-turn": (own(_rotate, _rotate_back), {"v": DRAWN, "q": stated([1.0, 0.0, 0.0, 0.0])}),
    "determinant": (
        own(tf.linalg.logdet, lambda u, a: u * tf.linalg.inv(a)),
        {"a": stated(POSITIVE, symmetric=True)},
    ),
    "turn": (
        own(
            tf.linalg.matvec,
            lambda u, r, v: (u[:, None] * v[None], tf.linalg.matvec(tf.linalg.inv(r), u)),
        ),
        {"r": stated(TURN), "v": {"shape": [2]}},
    ),
    "solve": (lambda a, b: tf.linalg.matvec(tf.linalg.inv(a), b), {"a": stated(IDENTITY), "b": DRAWN}),
    "zeros": (lambda x, w: tf.tanh(tf.linalg.matvec(w, x)), {"x": DRAWN, "w": stated(ZEROS)}),
    "root-of-ones": (lambda x, w: x * tf.sqrt(w), {"x": DRAWN, "w": stated(ONES)}),
    "root-at-zero": (lambda x, w: tf.sin(x) + tf.sqrt(w + 0.1), {"x": DRAWN, "w": stated(0 * ONES)}),
    "logarithm": (lambda x, w: x * tf.math.log(1 - w), {"x": DRAWN, "w": stated(0 * ONES)}),
    "in-its-domain": (
        own(
            lambda x, w: x * tf.sqrt(w + 1e-3),
            lambda u, x, w: (u * tf.sqrt(w + 1e-3), 0.5 * u * x / tf.sqrt(w + 1e-3)),
        ),
        {"x": DRAWN, "w": stated(0 * ONES, domain={"low": 0})},
    ),
    "knots": (
        lambda x, knots: tf.reduce_sum(tf.nn.relu(x[:, None] - knots) ** 3, -1),
        {"x": DRAWN, "knots": stated([-1.0, 0.0, 0.5, 1.0])},
    ),
    "complex": (
        own(lambda z, w: z * w, lambda u, z, w: (u * tf.math.conj(w), u * tf.math.conj(z))),
        {"z": {**DRAWN, "dtype": "complex128"}, "w": stated(["1", "1", "1"], "complex128")},
    ),
    "mask": (lambda x, mask: tf.tanh(x * mask), {"x": DRAWN, "mask": stated([1.0, 0.0, 1.0])}),
    "kept-mask": (
        own(lambda x, m: x * m, lambda u, x, m: (u * tf.cast(m > 0, u.dtype), u * x)),
        {"x": DRAWN, "m": stated([1.0, 0.0, 1.0], move=False, reason="a mask of zeros and ones")},
    ),
    "not-differentiated-mask": (
        own(tf.multiply, lambda u, x, m: (u * tf.cast(m > 0, u.dtype), None)),
        {"x": DRAWN, "m": stated([1.0, 0.0, 1.0], differentiate=False)},
    ),
    "equal-rows": (tf.nn.softmax, {"x": stated([[1.0, 2.0, 3.0]] * 2)}),
    "huge-bias": (lambda x, b: tf.nn.softmax(x + b), {"x": DRAWN, "b": stated([0.0, 0.0, -1e9])}),
}
RISING = tf.range(1.0, 5.0, dtype=tf.float64)
_NOT_TRANSPOSED = own(lambda x, w: x @ w, lambda u, x, w: (u @ w, tf.transpose(x) @ u))
# Right at the values given, and wrong as soon as these are others.
STATED_WRONG: dict[str, tuple[Forward, dict[str, Any]]] = {
    "slope-forgotten": (
        own(
            lambda x, a: tf.nn.relu(x) + a * x,
            lambda u, x, _: (u * tf.cast(x > 0, u.dtype), tf.reduce_sum(u * x)),
        ),
        {"x": DRAWN, "a": stated(0.0)},
    ),
    "temperature-forgotten": (
        slipping(lambda x, t: tf.nn.softmax(x / t), lambda x, t: tf.nn.softmax(x) * t**0),
        {"x": DRAWN, "t": stated(1.0)},
    ),
    "identity-not-transposed": (
        own(lambda x, w: x @ w, lambda u, x, w: (u @ w, tf.transpose(x) @ u)),
        {"x": MATRIX, "w": stated(IDENTITY)},
    ),
    "zeros-not-transposed": (
        own(lambda x, w: x + x @ w, lambda u, x, w: (u + u @ w, tf.transpose(x) @ u)),
        {"x": MATRIX, "w": stated(ZEROS)},
    ),
    "ones-not-transposed": (
        own(lambda x, w: x @ w, lambda u, x, w: (u @ w, tf.transpose(x) @ u)),
        {"x": MATRIX, "w": stated(ZEROS + 1)},
    ),
    "relu-of-weights": (
        slipping(lambda x, w: tf.sin(x) + x * w, lambda x, w: tf.sin(x) + x * tf.nn.relu(w)),
        {"x": DRAWN, "w": stated(0 * ONES)},
    ),
    "absolute-weights": (
        own(lambda x, w: tf.sin(x) + x * w, lambda u, x, w: (u * (tf.cos(x) + tf.abs(w)), u * x)),
        {"x": DRAWN, "w": stated(0.0 * ONES)},
    ),
    "mean-of-weights": (
        own(lambda x, w: x * w, lambda u, x, w: (u * tf.reduce_mean(w), u * x)),
        {"x": DRAWN, "w": stated(ONES)},
    ),
    "equal-rows-mixed-up": (
        own(lambda x, w: x * w, lambda u, x, w: (u * tf.reverse(w, [0]), u * x)),
        {"x": MATRIX, "w": stated([[1.0, 2.0, 3.0]] * 3)},
    ),
    "not-flipped": (
        own(
            lambda x, k: tf.signal.irfft(tf.signal.rfft(x) * tf.signal.rfft(k), [3]),
            lambda u, x, k: (
                tf.signal.irfft(tf.signal.rfft(u) * tf.signal.rfft(k), [3]),
                tf.signal.irfft(tf.signal.rfft(u) * tf.math.conj(tf.signal.rfft(x)), [3]),
            ),
        ),
        {"x": DRAWN, "k": stated([1.0, 0.0, 0.0])},
    ),
    "not-conjugated": (
        own(lambda z, w: z * w, lambda u, z, w: (u * w, u * tf.math.conj(z))),
        {"z": {**DRAWN, "dtype": "complex128"}, "w": stated(["1", "1", "1"], "complex128")},
    ),
    "power-forgotten": (
        own(lambda x, p: x**p, lambda u, x, p: (u * p, u * x**p * tf.math.log(x))),
        {"x": {**DRAWN, "uniform": {"low": 0.5, "high": 2}}, "p": stated(1.0)},
    ),
    "weights-of-loss": (
        own(lambda x, w: tf.reduce_sum(w * x * x), lambda u, x, w: (2 * u * x, u * x * x)),
        {"x": DRAWN, "w": stated(ONES)},
    ),
    "smoothing-forgotten": (
        own(
            lambda x, s: tf.reduce_mean(x) * s + (1 - s) * x,
            lambda u, x, s: (u, tf.reduce_sum(u * (tf.reduce_mean(x) - x))),
        ),
        {"x": DRAWN, "s": stated(0.0)},
    ),
    "refused-below": (
        slipping(
            lambda x, w: tf.sin(x) * tf.exp(-_not_negative(w) * x * x),
            lambda x, w: tf.sin(x) * (1 - w * x * x),
        ),
        {"x": DRAWN, "w": stated(0 * ONES)},
    ),
    "refused-above": (
        slipping(
            lambda x, p: x * p * (1.2 - p) ** 1.5, lambda x, p: x * ((1.2 - p) ** 1.5 + (p - 1) * 0.2**1.5)
        ),
        {"x": DRAWN, "p": stated(ONES)},
    ),
    "refused-nearer-to-zero": (
        slipping(
            lambda x, p: x * p * (p - 0.9) ** 1.5, lambda x, p: x * ((p - 0.9) ** 1.5 + (p - 1) * 0.1**1.5)
        ),
        {"x": DRAWN, "p": stated(ONES)},
    ),
    "refused-unless-a-share": (
        slipping(
            lambda x, p: _share_of_one(p) * tf.sin(p * x),
            lambda x, p: p * tf.sin(x / 3) + (p - 1 / 3) * x / 3 * tf.cos(x / 3),
        ),
        {"x": DRAWN, "p": stated(ONES / 3)},
    ),
    "both-at-zero": (
        own(lambda x, a, b: tf.sin(x) + a * b * x, lambda u, x, a, b: (u * tf.cos(x), u * b * x, u * a * x)),
        {"x": DRAWN, "a": stated(0 * ONES), "b": stated(0 * ONES)},
    ),
    "point-of-arguments": (
        own(lambda x: tf.reduce_sum(x * x * x), lambda u, x: 3 * u * x),
        {"x": stated([1.0, 1.0, 0.0])},
    ),
    "symmetric-but-drawn-apart": (
        own(lambda x, w: x @ w, lambda u, x, w: (u @ w, tf.transpose(x) @ u)),
        {"x": MATRIX, "w": stated(np.eye(3)[::-1])},
    ),
    "labels-used-twice": (
        own(
            _cross_entropy,
            lambda u, z, p: (u[:, None] * (tf.nn.softmax(z) - p * p), -u[:, None] * tf.nn.log_softmax(z)),
        ),
        {"logits": MATRIX, "labels": stated(IDENTITY)},
    ),
    "float32": (
        own(lambda x, a: x * a, lambda u, x, _: (u, tf.reduce_sum(u * x))),
        {"x": {**DRAWN, "dtype": "float32"}, "a": stated(1.0, "float32")},
    ),
    "second-order": (
        slipping(lambda x, a: tf.sin(x) * a, lambda x, a: tf.sin(x) * a**2 * 1.0),
        {"x": DRAWN, "a": stated(1.0)},
    ),
}


def _held_by_another() -> Iterator[Row]:
    """Yield layers in which one weight can't move, and the gradient forgets the other."""

    class Layer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.share = tf.Variable(ONES / 3, dtype=tf.float64)
            self.scale = tf.Variable(ONES, dtype=tf.float64)

        def __call__(self, x: Any) -> Any:
            forward = slipping(
                lambda x, share, scale: _share_of_one(share) * tf.sin(scale * x),
                lambda x, share, scale: share * (tf.sin(x) + (scale - 1) * x * tf.cos(x)),
            )
            return forward(x, tf.convert_to_tensor(self.share), tf.convert_to_tensor(self.scale))

    for mode in ("graph", "eager"):
        keys = {"build": {}, "modes": [mode]}
        inputs, functions = {"x": X}, {"Layer": Layer}
        yield Row(
            f"held-by-another-{mode}", "of_a_row:Layer", None, inputs, "wrong", keys=keys, functions=functions
        )


def _limit(x: Any, smoothing: Any) -> Any:
    y = x
    for _ in range(12):  # with less smoothing it converges less well
        y = x + (1 - smoothing) * tf.sin(y)
    return tf.stop_gradient(y)


def _summed(x: Any, axis: int, own_axis: int, *, exclusive: bool = False, forgets: bool = True) -> Any:
    """Return sums so far, with a gradient along an axis of its own, which may forget the flag."""
    back = partial(tf.cumsum, axis=own_axis, reverse=True, exclusive=exclusive and not forgets)
    return tf.custom_gradient(lambda x: (tf.cumsum(x, axis, exclusive), back))(x)


def _raised(x: Any, power: int) -> Any:
    return tf.custom_gradient(lambda x: (x**power, lambda upstream: 2 * upstream * x))(x)


def _only_one(setting: float) -> float:
    if setting != 1:
        raise ValueError("it isn't written for that")
    return setting


# An op of x and of two settings, 1 and 0; and what its gradient makes of the upstream.
SETTINGS: dict[str, tuple[str, Forward, Forward]] = {
    "used": (
        "right",
        lambda x, a, b: a * tf.sin(x) + b * x**2,
        lambda u, x, a, b: u * (a * tf.cos(x) + 2 * b * x),
    ),
    "factor-forgotten": (
        "not green",
        lambda x, a, b: a * tf.sin(x) + b * x**2,
        lambda u, x, a, b: u * (tf.cos(x) + 2 * b * x),
    ),
    "term-forgotten": (
        "not green",
        lambda x, a, b: a * tf.sin(x) + b * x**2,
        lambda u, x, a, _: u * a * tf.cos(x),
    ),
    "power-forgotten": ("not green", lambda x, a, b: tf.abs(x) ** a + b, lambda u, x, *_: u * tf.sign(x)),
    "of-the-gradient": ("right", lambda x, *_: tf.sin(x), lambda u, x, a, b: u * (a * tf.cos(x) + b)),
    "refused": ("right", lambda x, a, _: _only_one(a) * tf.sin(x), lambda u, x, *_: u * tf.cos(x)),
    "converges": (
        "right",
        lambda x, a, _: _limit(x, a * 0.8),
        lambda u, x, a, _: u / (1 - (1 - a * 0.8) * tf.cos(_limit(x, a * 0.8))),
    ),
}


def _settings() -> Iterator[Row]:
    """Yield ops with settings, which are 1 and 0 in the spec; a question where a gradient forgets one."""
    # A whole number and a flag.
    chosen: dict[str, tuple[Forward, dict[str, Any]]] = {
        "axis": (lambda x, axis: _summed(x, axis, 0), {"axis": 0}),
        "second-axis": (lambda x, axis: _summed(x, axis, 1), {"axis": 1}),
        "power": (_raised, {"power": 2}),
        "flag": (lambda x, exclusive: _summed(x, 0, 0, exclusive=exclusive), {"exclusive": False}),
        "both-used": (
            lambda x, axis, exclusive: _summed(x, axis, axis, exclusive=exclusive, forgets=False),
            {"axis": 1, "exclusive": True},
        ),
    }
    for name, (function, attrs) in chosen.items():
        truth = "right" if name.endswith("used") else "not green"
        yield Row(f"setting-{name}", function, None, {"x": X}, truth, keys={"attrs": attrs})
    for name, (truth, value, pull) in SETTINGS.items():

        def op(x: Any, a: float, b: float, value: Forward = value, pull: Forward = pull) -> Any:
            return tf.custom_gradient(lambda x: (value(x, a, b), lambda u: pull(u, x, a, b)))(x)

        def made(a: float, b: float, op: Forward = op) -> Any:
            return lambda x: op(x, a, b)

        stated_ones = {"a": 1.0, "b": 0.0}
        yield Row(f"setting-{name}", op, None, {"x": X}, truth, keys={"attrs": stated_ones})
        yield Row(f"setting-{name}-of-layer", made, None, {"x": X}, truth, keys={"build": stated_ones})
    # What a gradient apart, or a reference, doesn't take is no part of what is right.
    for truth, pull in (
        ("right", lambda op, u: u * op.get_attr("a") * tf.cos(op.inputs[0])),
        ("not green", lambda op, u: u * tf.cos(op.inputs[0])),
    ):
        name, op = f"setting-of-op-{truth.replace(' ', '-')}", lambda x, a: a * tf.sin(x)
        yield Row(name, op, pull, {"x": X}, truth, keys={"attrs": {"a": 1.0}})
    in_numpy = {
        "attrs": {"a": 1.0},
        "binding": "py_func",
        "gradient": {"numpy": "of_a_row:pull"},
        "outputs": {"y": {"dtype": "float64"}},
    }
    yield Row(
        "setting-in-numpy",
        lambda x, a: a * np.sin(x),
        None,
        {"x": X},
        "right",
        keys=in_numpy,
        functions={"pull": lambda u, x: u * np.cos(x)},
    )
    clipped = own(tf.round, lambda u, x: tf.where(tf.abs(x) <= 1, u, 0 * u))
    references: dict[str, Forward] = {
        "right": lambda x: tf.clip_by_value(x, -1, 1),
        "not green": lambda x, end: tf.clip_by_value(x, -end, end),
    }
    for truth, reference in references.items():
        keys, functions = {"attrs": {"end": 1.0}, "reference": "of_a_row:clip"}, {"clip": reference}
        name, op = f"setting-of-reference-{truth.replace(' ', '-')}", lambda x, end: clipped(x)
        yield Row(name, op, None, {"x": X}, truth, keys=keys, functions=functions)


def rows() -> Iterator[Row]:
    """Yield the rows."""
    for truth, table in (("right", STATED_RIGHT), ("wrong", STATED_WRONG)):
        for name, (function, inputs) in table.items():
            yield Row(f"stated-{name}", function, None, inputs, truth)
            if name in {"slope-forgotten", "zeros", "identity-not-transposed", "solve"}:
                yield Row(f"stated-{name}-eager", function, None, inputs, truth, keys={"modes": ["eager"]})
    for truth, keys in (("not green", {}), ("right", {"symmetric": True})):
        inputs = {"x": MATRIX, "w": stated(POSITIVE, **keys)}
        yield Row(f"stated-symmetric-{truth.replace(' ', '-')}", _NOT_TRANSPOSED, None, inputs, truth)
    for truth, by in (("not green", lambda order: order), ("right", tf.argsort)):
        ascending = {"x": stated([-1.0, 0.0, 0.5, 2.0])}
        backward = lambda u, x, by=by: (tf.gather(u * RISING, by(tf.argsort(x))),)  # noqa: E731
        function = own(lambda x: tf.sort(x) * RISING, backward)
        yield Row(f"stated-sort-{truth.replace(' ', '-')}", function, None, ascending, truth)
    for name, (_, initial) in LAYERS.items():
        for dtype, keys in (("float64", {}), ("float32", {}), ("float32", {"modes": ["eager"]})):
            yield _layers(name, None, "right", keys, dtype)
            for index, value in enumerate(initial):
                for slip in _slips(name, value):
                    yield _layers(name, (index, slip), "wrong", keys, dtype)


ROWS = marked(
    (*rows(), *_held_by_another(), *_settings()),
    "*-not-transposed-float32-graph",
    "*-right-float64-graph",
    "*-w0-forgotten-float32-graph",
    "held-by-another-graph",
    "stated-*",
    "setting-*",
)
