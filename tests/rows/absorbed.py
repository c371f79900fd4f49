"""Terms that a sum inside the forward absorbs: differences see what is left, which may be far smaller.

`log(1 + exp(x))` at -39 is 0 in float64, and its gradient 1e-17 right to 16 digits. A difference sees nothing
but what is added afterwards, and says so exactly.
"""

import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked


def _op(forward, derivative, factor):
    """An elementwise op with its derivative by hand; `factor` makes some elements wrong."""

    @tf.custom_gradient
    def call(x):
        scale = tf.constant(factor, x.dtype)
        return forward(x), lambda upstream: upstream * scale * derivative(x)

    return call


def _sigmoid(x):
    return tf.exp(x) / (1 + tf.exp(x))


# Elementwise: a forward, its derivative, where a term is absorbed, and where none is.
_ELEMENTWISE = {
    "softplus": (lambda x: tf.math.log(1 + tf.exp(x)) - 4e-21 * x, lambda x: _sigmoid(x) - 4e-21, -39.0, 0.7),
    "softplus further": (
        lambda x: tf.math.log(1 + tf.exp(x)) - 4e-25 * x,
        lambda x: _sigmoid(x) - 4e-25,
        -45.0,
        0.7,
    ),
    "softplus of 2": (
        lambda x: tf.math.log(2 + tf.exp(x)) - np.log(2) - 4e-21 * x,
        lambda x: tf.exp(x) / (2 + tf.exp(x)) - 4e-21,
        -39.0,
        0.7,
    ),
    "log cosh": (
        lambda x: tf.math.log(tf.cosh(x)) + 3e-20 * x,
        lambda x: tf.tanh(x) + 3e-20,
        1e-10,
        0.7,
    ),
    "log of 1 - exp": (
        lambda x: tf.math.log(1 - tf.exp(-x)) - 1e-20 * x,
        lambda x: tf.exp(-x) / (1 - tf.exp(-x)) - 1e-20,
        40.0,
        0.7,
    ),
    "log sigmoid": (
        lambda x: tf.math.log(1 / (1 + tf.exp(-x))) + 1e-21 * x,
        lambda x: _sigmoid(-x) + 1e-21,
        40.0,
        0.7,
    ),
    "log of sigmoid": (
        lambda x: tf.math.log(tf.sigmoid(x)) + 1e-21 * x,
        lambda x: tf.sigmoid(-x) + 1e-21,
        40.0,
        0.7,
    ),
    "log tanh": (
        lambda x: tf.math.log(tf.tanh(x)) + 1e-24 * x,
        lambda x: 2 / tf.sinh(2 * x) + 1e-24,
        25.0,
        0.7,
    ),
    "log of 1 + square": (
        lambda x: tf.math.log(1 + x * x) + 1e-25 * x,
        lambda x: 2 * x / (1 + x * x) + 1e-25,
        1e-10,
        0.7,
    ),
    "root of 1 + square": (
        lambda x: tf.sqrt(1 + x * x) - 1 + 1e-25 * x,
        lambda x: x / tf.sqrt(1 + x * x) + 1e-25,
        1e-10,
        0.7,
    ),
    "log of root": (
        lambda x: tf.math.log(tf.sqrt(1 + x * x)) + 1e-25 * x,
        lambda x: x / (1 + x * x) + 1e-25,
        1e-10,
        0.7,
    ),
    "log of a power": (
        lambda x: tf.math.log((1 + tf.exp(x)) ** 3) - 4e-21 * x,
        lambda x: 3 * _sigmoid(x) - 4e-21,
        -39.0,
        0.7,
    ),
    "square of log": (
        lambda x: tf.sqrt(tf.square(tf.math.log(1 + tf.exp(x)) - 4e-21 * x)),
        lambda x: _sigmoid(x) - 4e-21,
        -39.0,
        0.7,
    ),
    "log of a product": (
        lambda x: tf.math.log((1 + tf.exp(x)) * (1 + tf.exp(2 * x))) - 4e-21 * x,
        lambda x: _sigmoid(x) + 2 * _sigmoid(2 * x) - 4e-21,
        -39.0,
        0.7,
    ),
    "own log1p": (
        lambda x: tf.math.log1p(1 + tf.exp(x) - 1) - 4e-21 * x,
        lambda x: _sigmoid(x) - 4e-21,
        -39.0,
        0.7,
    ),
    "own expm1": (
        lambda x: tf.exp(x * x) - 1 + 1e-25 * x,
        lambda x: 2 * x * tf.exp(x * x) + 1e-25,
        1e-10,
        0.7,
    ),
    "tanh of a remainder": (
        lambda x: tf.tanh(tf.math.log(1 + tf.exp(x)) - 4e-21 * x),
        lambda x: (_sigmoid(x) - 4e-21) * (1 - tf.tanh(tf.math.softplus(x)) ** 2),
        -39.0,
        0.7,
    ),
    "scaled remainder": (
        lambda x: 1e9 * (tf.math.log(1 + tf.exp(x)) - 4e-21 * x),
        lambda x: 1e9 * (_sigmoid(x) - 4e-21),
        -39.0,
        0.7,
    ),
    "sine of 1 + exp": (
        lambda x: tf.sin(tf.math.log(1 + tf.exp(x))) - 4e-21 * x,
        lambda x: _sigmoid(x) * tf.cos(tf.math.softplus(x)) - 4e-21,
        -39.0,
        0.7,
    ),
    "elu of a remainder": (
        lambda x: tf.nn.elu(-tf.exp(x)) - 4e-21 * x,
        lambda x: -tf.exp(x) * tf.exp(-tf.exp(x)) - 4e-21,
        -39.0,
        0.7,
    ),
}


def _elementwise():
    for name, (forward, derivative, lost, seen) in _ELEMENTWISE.items():

        def inputs(*value):
            return {"x": {"shape": [len(value)], "value": list(value)}}

        yield Row(name, _op(forward, derivative, 1.0), None, inputs(lost), "undecidable")
        beside = inputs(lost, seen)
        yield Row(f"{name}, beside", _op(forward, derivative, 1.0), None, beside, "undecidable")
        wrong = _op(forward, derivative, [1.0, 1.001])
        yield Row(f"{name}, beside, times 1.001", wrong, None, beside, "wrong")
        yield Row(f"{name}, times 0", _op(forward, derivative, 0.0), None, inputs(lost), "not green")


def _nearly():
    """Where a term is absorbed in part, what differences still see is judged by that."""
    forward, derivative = _ELEMENTWISE["softplus"][:2]
    for at in (-10.0, -15.0, -20.0, -25.0):
        inputs = {"x": {"shape": [2], "value": [at, 0.5]}}
        truth = "right" if at > -25 else "undecidable"  # treads of rounding, as wide as the first steps
        yield Row(f"partly at {at:g}", _op(forward, derivative, 1.0), None, inputs, truth)
        for change in (1.01, -1.0, 0.0):
            wrong = _op(forward, derivative, [change, 1.0])
            truth = "wrong" if at > -20 or change < 0 or (at > -25 and change > 0) else "not green"
            yield Row(f"partly at {at:g}, times {change:g}", wrong, None, inputs, truth)


def _scaled(loss, factor):
    """A loss whose gradient TensorFlow knows, times `factor` in each element."""

    @tf.custom_gradient
    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loss(x)
        found = tape.gradient(y, x)
        return y, lambda upstream: upstream[..., None] * found * tf.constant(factor, x.dtype)

    return call


_LABELS = [1.0, 4e-21]
_LOSSES = {
    "cross entropy": lambda x: tf.nn.softmax_cross_entropy_with_logits(tf.constant(_LABELS, x.dtype), x),
    "sparse cross entropy": lambda x: (
        tf.nn.sparse_softmax_cross_entropy_with_logits(0, x) - 4e-21 * tf.reduce_sum(x, -1)
    ),
    "logsumexp": lambda x: tf.reduce_logsumexp(x, -1) - tf.reduce_sum(tf.constant(_LABELS, x.dtype) * x, -1),
    "log softmax": lambda x: -tf.reduce_sum(tf.constant(_LABELS, x.dtype) * tf.nn.log_softmax(x), -1),
    "log of softmax": lambda x: (
        -tf.reduce_sum(tf.constant(_LABELS, x.dtype) * tf.math.log(tf.nn.softmax(x)), -1)
    ),
    "log of a sum": lambda x: tf.math.log(tf.reduce_sum(tf.exp(x), -1)) - 4e-21 * tf.reduce_sum(x, -1),
    "log of a product of matrices": lambda x: (
        tf.math.log(tf.squeeze(tf.matmul(tf.exp(x)[None], tf.ones([2, 1], x.dtype))))
        - 4e-21 * tf.reduce_sum(x, -1)
    ),
    "log of a mean": lambda x: tf.math.log(tf.reduce_mean(2 * tf.exp(x), -1)) - 4e-21 * tf.reduce_sum(x, -1),
    "binary cross entropy": lambda x: tf.reduce_sum(
        tf.nn.sigmoid_cross_entropy_with_logits(tf.constant([1.0, 1.0], x.dtype), 39 + 0 * x) + 4e-21 * x, -1
    ),
}

# Of probabilities, the largest of which is 1 to rounding, by ops that are no sums.
_OF_PROBABILITIES = {
    "entropy": lambda p: -tf.reduce_sum(tf.math.xlogy(p, p), -1),
    "entropy by xlog1py": lambda p: -tf.reduce_sum(tf.math.xlog1py(p, p - 1), -1),
    "remainder": lambda p: tf.reduce_sum(tf.pow(1 - p, 3), -1) + 4e-21 * tf.reduce_sum(tf.math.log(p), -1),
    "log gamma": lambda p: tf.reduce_sum(tf.math.lgamma(p), -1) * tf.reduce_min(p, -1),
    "product of logs": lambda p: tf.reduce_sum(tf.math.log(tf.math.cumprod(p, -1)), -1) * tf.reduce_min(p),
    "arc cosine": lambda p: tf.reduce_sum(tf.math.asinh(tf.math.log(p)[..., :1]), -1) + tf.reduce_min(p),
    "cube of log": lambda p: tf.reduce_sum(tf.math.xdivy(tf.math.log(p)[..., :1], p[..., :1]), -1),
    "gathered": lambda p: -tf.math.log(tf.gather(p, 0, axis=-1)) + tf.gather(p, 1, axis=-1),
    "padded": lambda p: tf.reduce_sum(tf.math.log(tf.pad(p[..., :1], [[0, 1]])[..., :1]), -1),
    "einsum": lambda p: tf.einsum("i,i->", -tf.math.log(p), p),
}


def _probabilities():
    for name, of in _OF_PROBABILITIES.items():

        def loss(x, of=of):
            return of(tf.nn.softmax(x))

        lost = {"x": {"shape": [3], "value": [0.0, -41.0, -42.0]}}
        seen = {"x": {"shape": [3], "value": [0.0, 1.0, -0.5]}}
        yield Row(name, loss, None, lost, "undecidable")
        yield Row(f"{name}, seen", loss, None, seen, "right")
        yield Row(f"{name}, seen, 1.001 times one", _scaled(loss, [1.0, 1.001, 1.0]), None, seen, "wrong")


def _losses():
    inputs = {"x": {"shape": [2], "value": [0.0, -39.0]}}
    for name, loss in _LOSSES.items():
        yield Row(name, loss, None, inputs, "undecidable")
        yield Row(f"{name}, times 0", _scaled(loss, 0.0), None, inputs, "not green")
        seen = {"x": {"shape": [2], "value": [0.0, 1.0]}}
        if name != "binary cross entropy":
            yield Row(f"{name}, seen", loss, None, seen, "right")
            yield Row(f"{name}, seen, doubled", _scaled(loss, 2.0), None, seen, "wrong")


def _tied(count, share):
    @tf.custom_gradient
    def call(x):
        y = tf.reduce_max(x, -1)
        is_largest = tf.cast(tf.equal(x, y[..., None]), x.dtype)
        return y, lambda upstream: upstream[..., None] * share(is_largest)

    return call, {"x": {"shape": [count], "value": 0.7}}


_SHARES = {
    "shared": ("right", lambda tied: tied / tf.reduce_sum(tied, -1, keepdims=True)),
    "first": ("right", lambda tied: tied * tf.cast(tf.equal(tf.cumsum(tied, -1), 1), tied.dtype)),
    "full": ("wrong", lambda tied: tied),
    "none": ("wrong", lambda tied: 0 * tied),
    "nine tenths": ("wrong", lambda tied: 0.9 * tied / tf.reduce_sum(tied, -1, keepdims=True)),
}


def _ties():
    for count in (8, 12, 16, 30):
        for name, (truth, share) in _SHARES.items():
            forward, inputs = _tied(count, share)
            # The pieces of thirty are narrow: their slopes are rounded by as much as a tenth of a share.
            is_lost = name == "nine tenths" and count > 16
            label = f"maximum of {count} equal elements, {name}"
            yield Row(label, forward, None, inputs, "not green" if is_lost else truth)


@tf.custom_gradient
def _tanh_without_conjugate(z):
    y = tf.tanh(z)
    return y, lambda upstream: upstream * (1 - y * y)


def _saturated():
    """Complex tails: the kernels of the gradients absorb the real part in a 1, and not the imaginary one."""
    for name, function in (
        ("tanh", tf.tanh),
        ("sigmoid", tf.sigmoid),
        ("wrong tanh", _tanh_without_conjugate),
    ):
        for real in (3.0, 19.5, 24.0, 40.0):

            def forward(a, b, function=function):
                return function(tf.complex(a, b))

            inputs = {"a": {"shape": [2], "value": [real, 0.4]}, "b": {"shape": [2], "value": [0.3, -0.2]}}
            truth = "wrong" if "wrong" in name else "right"
            yield Row(
                f"{name} at {real:.0f}, twice", forward, None, inputs, truth, keys={"second_order": True}
            )


# Inside a kernel, or in NumPy, where no graph shows what absorbs a small input: forward, derivative.
_UNSEEN = {
    "own log1p": (lambda x: np.log(1 + x), lambda x: 1 / (1 + x)),
    "own expm1": (lambda x: np.exp(x) - x.dtype.type(1), tf.exp),
    "one less cosine": (lambda x: 1 - np.cos(x), tf.sin),
}


def _log_of_bell(x):
    """Return a value that is 0 far out, where the exponential is still 1e-32."""
    return np.log(1 + np.exp(-2 * x * x))


def _slope_of_bell(factor, x):
    return -4 * factor * x * tf.exp(-2 * x * x)


# What doesn't move there, and shouldn't by its formula, either.
_FLAT = {"zero": lambda x: 0 * x, "relu below zero": lambda x: np.maximum(-x, 0)}
_SMALL = {"float64": (1e-40, 1e-30, 1e-20, 1e-17, 1e-16), "float32": (1e-20, 1e-12, 1e-8, 5e-8)}


def _gelu(x):
    """Return the gelu as NumPy code writes it: far out, 1 + erf(x) has few digits, and its treads slope."""
    return x * (0.5 + 0.5 * np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def _slope_of_gelu(factor, x):
    density = tf.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return factor * (tf.math.erfc(-x / math.sqrt(2)) / 2 + x * density)


def _slope_of_hyperbola(factor, x):
    root = tf.sqrt(x * x - 1)
    return -factor / (root * (x + root))


# Where x itself is what cancels, or a 1 of which treads are seen: forward, slope, values.
_FAR_OUT = {
    "gelu": (_gelu, _slope_of_gelu, (-7.3, -7.6, -8.0, -8.2)),
    "hyperbola": (lambda x: x - np.sqrt(np.abs(x * x - 1)), _slope_of_hyperbola, (1e6, 2.45e8, 3e10)),
}


def _in_numpy(forward, derivative):
    @tf.custom_gradient
    def call(x):
        y = tf.numpy_function(forward, [x], x.dtype)
        y.set_shape(x.shape)
        return y, lambda upstream: upstream * derivative(x)

    return call


def _unseen():
    for dtype, values in _SMALL.items():
        for value in values:
            inputs = {"x": {"value": [value, 2 * value], "dtype": dtype}}
            for name, (forward, derivative) in _UNSEEN.items():
                call = _in_numpy(forward, derivative)
                yield Row(f"{name} at {value:g} in {dtype}", call, None, inputs, "undecidable")
            for name, forward in _FLAT.items():
                call = _in_numpy(forward, tf.ones_like)
                yield Row(f"{name} at {value:g} in {dtype}", call, None, inputs, "wrong")
    for name, truth, factor in (("bell", "undecidable", 1), ("bell, times 1e30", "wrong", 1e30)):
        call = _in_numpy(_log_of_bell, partial(_slope_of_bell, factor))
        yield Row(f"{name} far out", call, None, {"x": {"value": [6.0, 9.9]}}, truth)
    for name, (forward, slope, values) in _FAR_OUT.items():
        for value, (truth, factor) in itertools.product(values, (("undecidable", 1), ("wrong", 1e30))):
            call, own = _in_numpy(forward, partial(slope, factor)), f"{name} in NumPy at {value:g}"
            # The other one stays beyond 1 wherever it moves: the hyperbola's gradient isn't a number below.
            yield Row(f"{own} times {factor:g}", call, None, {"x": {"value": [value, 3.0]}}, truth)
    inputs = {"x": {"value": [1e-30, 1e-16], "dtype": "float64"}}
    yield Row("erfinv near zero", tf.math.erfinv, None, inputs, "undecidable")


def _sharp_softmax(factor):
    @tf.custom_gradient
    def call(x):
        y = tf.nn.log_softmax(8 * x)
        return (
            y,
            lambda upstream: 8 * factor * (upstream - tf.exp(y) * tf.reduce_sum(upstream, -1, keepdims=True)),
        )

    return call


def _saturated_in_eager_mode():
    """Yield what a trace shows the terms of, where calls are differenced."""
    values = [[1.0, -9.0, 12.0, 3.0], [0.0, -2.0, 6.0, 8.0]]
    for truth, factor in (("right", 1), ("wrong", 1.001)):
        call = _op(tf.tanh, lambda x: 1 / tf.cosh(x) ** 2, factor)
        for name, op in (("tanh", call), ("sharp log softmax", _sharp_softmax(factor))):
            own = f"{name} in eager mode {truth}"
            yield Row(own, op, None, {"x": {"value": values}}, truth, keys={"modes": ["eager"]})


def _at_a_zero():
    """Yield a function that crosses zero: its noise there is as large as its value, and its slope is sure."""
    for truth, factor in (("right", 1), ("wrong", -1)):
        op = _op(lambda x: tf.math.log(10.000000000000002 * x), lambda x: 1 / x, factor)
        yield Row(f"log of nearly 1 {truth}", op, None, {"x": {"value": [0.1]}}, truth)


def _named(one):
    return replace(one, name=one.name.replace(",", "").replace(" ", "_"))


ROWS = marked(
    tuple(
        map(
            _named,
            (
                *_elementwise(),
                *_nearly(),
                *_losses(),
                *_probabilities(),
                *_ties(),
                *_saturated(),
                *_saturated_in_eager_mode(),
                *_unseen(),
                *_at_a_zero(),
            ),
        )
    ),
    "log_of_nearly_1_wrong",
    "maximum_of_16_equal_elements_none",
    "own_expm1_at_5e-08_in_float32",
    "own_log1p_at_1e-16_in_float64",
    "one_less_cosine_at_1e-30_in_float64",
    "softplus",
    "tanh_in_eager_mode_right",
)
