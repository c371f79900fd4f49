"""Gradients near the smallest numbers of their dtype: right ones that kernels flush, and wrong ones there."""

from functools import partial

import tensorflow as tf

from tests.support.row import Row, marked

# What an element of the gradient is about, by dtype: just above what is flushed, and on the way there.
SIZES = {
    "float32": (1e-24, 1e-28, 1e-31, 1e-34, 1e-36),
    "float64": (1e-280, 1e-295, 1e-300, 1e-303),
}


def like(value, tensor):
    return tf.constant(value, tensor.dtype)


def likelihood(x):
    """A product of probabilities, one after the other."""
    return tf.reduce_prod(x)


def cumulative(x):
    return tf.math.cumprod(x)[-1]


def gauss(x):
    return tf.exp(-like(0.5, x) * x * x)


def scaled_sum(size):
    return lambda x: tf.reduce_sum(like(size, x) * tf.sin(x))


def in_two_steps(size):
    """Two factors, neither of them small for its dtype."""
    root = size**0.5
    return lambda x: like(root, x) * (tf.tanh(x) * like(root, x))


def divided_again(size):
    """Products that are flushed for small upstreams, and multiplied up after."""

    def forward(x):
        return (tf.sin(x) * like(size * 1e-3, x)) / like(1e-3, x)

    return forward


def softmax_tail(x):
    return tf.nn.softmax(x)[0]


def wrongly(forward, change):
    @tf.custom_gradient
    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)
        return y, lambda u: change(tape, y, x, u)

    return call


CHANGES = {
    "half": lambda tape, y, x, u: like(0.5, x) * tape.gradient(y, x, output_gradients=u),
    "absolute": lambda tape, y, x, u: tape.gradient(y, x, output_gradients=tf.abs(u)),
    "clipped": lambda tape, y, x, u: tape.gradient(
        y, x, output_gradients=tf.clip_by_value(u, like(-1, u), like(1, u))
    ),
    "plus_a_constant": lambda tape, y, x, u: tape.gradient(y, x, output_gradients=u) + like(1e-20, x),
    "ones": lambda tape, y, x, u: tape.gradient(y, x, output_gradients=tf.ones_like(u)),
}


def right():
    for dtype, sizes in SIZES.items():
        for size in sizes:
            inputs = {"x": {"shape": [4], "dtype": dtype}}
            yield Row(f"sum_{size}_{dtype}", scaled_sum(size), None, inputs, "right")
            yield Row(f"two_steps_{size}_{dtype}", in_two_steps(size), None, inputs, "right")
            # A thousandth of the last one is nothing in float32.
            truth = "undecidable" if (dtype, size) == ("float32", 1e-36) else "right"
            yield Row(f"divided_{size}_{dtype}", divided_again(size), None, inputs, truth)
            count = 20
            each = size ** (1 / count)
            spec = {"uniform": {"low": 0.9 * each, "high": 1.1 * each}, "shape": [count], "dtype": dtype}
            yield Row(f"likelihood_{size}_{dtype}", likelihood, None, {"x": spec}, "right")
            yield Row(f"cumulative_{size}_{dtype}", cumulative, None, {"x": spec}, "right")
    for at in (8.0, 10.0, 11.5, 12.4):
        inputs = {"x": {"value": [0.5, at], "shape": [2], "dtype": "float32"}}
        yield Row(f"gauss_{at}_float32", gauss, None, inputs, "right")
        inputs = {"x": {"value": [at], "shape": [1], "dtype": "float32"}}
        yield Row(f"gauss_alone_{at}_float32", gauss, None, inputs, "right")
    for at in (30.0, 36.0, 37.2):
        inputs = {"x": {"value": [at], "shape": [1]}}
        yield Row(f"gauss_alone_{at}_float64", gauss, None, inputs, "right")
    for at in (-60.0, -75.0, -82.0):
        inputs = {"x": {"value": [at, 0.3, -0.2], "shape": [3], "dtype": "float32"}}
        yield Row(f"softmax_tail_{at}_float32", softmax_tail, None, inputs, "right")
        inputs = {"x": {"value": [0.0, at, at - 6.0], "shape": [3], "dtype": "float32"}}
        yield Row(f"softmax_of_tails_{at}_float32", tf.nn.softmax, None, inputs, "right")


def wrong():
    for dtype, size in (("float32", 1e-30), ("float64", 1e-298), ("float64", 1e-285), ("float32", 1e-26)):
        for name, change in CHANGES.items():
            inputs = {"x": {"shape": [4], "dtype": dtype}}
            yield Row(f"sum_{name}_{size}_{dtype}", wrongly(scaled_sum(size), change), None, inputs, "wrong")


def steep():
    """A slope far below the values half of x further in, which must not widen what it is held to."""
    for name, forward, points in (
        ("gauss", gauss, (30.0, 33.0, 35.0, 36.5)),
        ("exponential", lambda x: tf.exp(-x), (300.0, 500.0, 650.0)),
        ("power", lambda x: x ** like(-40, x), (1e4, 1e6)),
    ):
        for at in points:
            inputs = {"x": {"value": [at], "shape": [1]}}
            yield Row(f"{name}_{at:g}", forward, None, inputs, "right")
            for factor in (1.001, 1.1):
                change = partial(_times, factor)
                yield Row(f"{name}_{at:g}_times_{factor}", wrongly(forward, change), None, inputs, "wrong")


def _times(factor, tape, y, x, u):
    return like(factor, x) * tape.gradient(y, x, output_gradients=u)


def cubes():
    """A forward whose float32 loses what it computes, at tiny values that nobody states."""
    for power in (3, 4, 6):

        def norm(x, power=power):
            return tf.reduce_sum(tf.abs(x) ** power) ** (1 / power)

        @tf.custom_gradient
        def by_hand(x, norm=norm, power=power):
            y = norm(x)
            return y, lambda u: u * tf.sign(x) * (tf.abs(x) / y) ** (power - 1)

        inputs = {"x": {"shape": [6], "dtype": "float32"}}
        yield Row(f"norm_{power}", by_hand, None, inputs, "right")
        yield Row(f"norm_{power}_of_tensorflow", norm, None, inputs, "right")
        for name, change in CHANGES.items():
            yield Row(f"norm_{power}_{name}", wrongly(norm, change), None, inputs, "wrong")


ROWS = marked(
    (*right(), *wrong(), *steep(), *cubes()),
    "cumulative_1e-300_float64",
    "exponential_500_times_1.001",
    "norm_3",
    "norm_6_clipped",
    "power_10000_times_1.1",
    "softmax_of_tails_-75.0_float32",
    "sum_1e-300_float64",
    "two_steps_1e-36_float32",
)
