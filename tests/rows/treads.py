"""Staircases whose treads slope, in TensorFlow; tests/numerics/test_sloping_treads.py has more of them."""

import tensorflow as tf

from tests.support.row import Row, marked

X = {"x": {"shape": [2], "uniform": {"low": 0.4, "high": 1.4}}}
ONCE = {"samples": 1}


def stair(x):
    """Round to a grid: a table lookup's nearest entry."""
    return tf.round(1024 * x) / 1024


def hat(t):
    """Round by a matrix of comparisons, as a search in a table does: no op here is known to round."""
    grid = tf.cast(tf.range(0, 2049), t.dtype) / 1024
    return tf.gather(grid, tf.argmin(tf.abs(t[:, None] - grid), axis=1))


def numbered(t):
    return tf.cast(tf.cast(1024 * t, tf.int32), t.dtype) / 1024


def floored(t):
    return tf.floor(1024 * t) / 1024


def bucketed(t):
    """Find the cell by a binary search."""
    grid = tf.cast(tf.range(0, 2049), t.dtype) / 1024
    return tf.gather(grid, tf.searchsorted(grid, t))


def times_cos(x, rounded):
    return rounded(x) * tf.cos(x)


def swish(x, rounded):
    return x * rounded(tf.sigmoid(x))


def gridding(x, rounded):
    """A kernel from a table, as NUFFTs have it, times a phase."""
    return tf.exp(-4 * tf.square(rounded(x) - 0.7)) * (1 + x * x)


def gain(x, rounded):
    return x * rounded(x) ** 2


def mixed(x, rounded):
    """Each output from several inputs."""
    return rounded(x) * tf.reverse(x, [0]) + x


def identity(x):
    return x


def with_gradient(function, rounded, factor=1.0):
    """Return a function whose gradient is `factor` times that of the smooth one that is meant."""

    @tf.custom_gradient
    def call(x):
        def gradient(upstream):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x, identity)
            return factor * tape.gradient(y, x, output_gradients=upstream)

        return function(x, rounded), gradient

    return call


def _gate(factor):
    """Return x times a rectified weight and what it rounds to; its gradient for the weight by a factor."""

    @tf.custom_gradient
    def gate(x, w):
        def gradient(upstream):
            slope = tf.where(w > 0, tf.ones_like(w), 0.0)
            return upstream * size, factor * slope * tf.reduce_sum(upstream * x)

        size = tf.nn.relu(w) + tf.round(2 * tf.nn.relu(w))
        return x * size, gradient

    return gate


def rows():
    for function in (times_cos, swish):
        name = function.__name__
        for rounded in (stair, numbered, hat):
            call = with_gradient(function, rounded)
            yield Row(f"{name}_{rounded.__name__}", call, None, X, "unchecked", keys=ONCE)
        yield Row(f"{name}_own_slope", lambda x, f=function: f(x, stair), None, X, "undecidable", keys=ONCE)
        named = {"meant": lambda x, f=function: f(x, identity)}
        keys = {**ONCE, "reference": "of_a_row:meant"}
        for factor, truth in ((1.0, "right"), (1.01, "wrong"), (-1.0, "wrong")):
            call = with_gradient(function, stair, factor)
            yield Row(f"{name}_reference_{factor}", call, None, X, truth, keys=keys, functions=named)
    for function, rounded in ((gridding, floored), (gain, bucketed), (mixed, numbered)):
        name = f"{function.__name__}_{rounded.__name__}"
        yield Row(name, with_gradient(function, rounded), None, X, "unchecked", keys=ONCE)
        yield Row(f"{name}_-6", with_gradient(function, rounded, -6.0), None, X, "wrong", keys=ONCE)
        named = {"meant": lambda x, f=function: f(x, identity)}
        keys = {**ONCE, "reference": "of_a_row:meant"}
        for factor, truth in ((1.0, "right"), (0.97, "wrong"), (0.0, "wrong")):
            call = with_gradient(function, rounded, factor)
            yield Row(f"{name}_reference_{factor}", call, None, X, truth, keys=keys, functions=named)
        for dtype in ("float32", "bfloat16"):
            x = {"x": {**X["x"], "dtype": dtype}}
            for factor, truth in ((1.0, "right"), (1.2, "wrong")):
                call = with_gradient(function, rounded, factor)
                own = f"{name}_reference_{factor}_{dtype}"
                yield Row(own, call, None, x, truth, keys=keys, functions=named)
    for factor, truth in ((1.0, "right"), (0.0, "not green")):
        why = "the stated kink has no slope on one side; beside it, nothing tells a slope from treads"
        weights = {"x": {"shape": [2]}, "w": {"value": 0.0, "shape": []}}
        yield Row(f"dead_gate_{factor}", _gate(factor), None, weights, truth, why)
    x = {"x": {**X["x"], "dtype": "float32"}}
    yield Row("times_cos_float32", with_gradient(times_cos, stair), None, x, "unchecked", keys=ONCE)
    yield Row("times_cos_-6", with_gradient(times_cos, stair, -6.0), None, X, "wrong", keys=ONCE)
    yield Row("no_stairs", with_gradient(times_cos, identity, 1.01), None, X, "wrong", keys=ONCE)


ROWS = marked(tuple(rows()))
