"""What a forward keeps for its gradient: per call, or where the next call overwrites it."""

from __future__ import annotations

import types

import keras
import tensorflow as tf

from tests.support.row import Row, marked

X = {"x": {"shape": [2, 3]}}
KEPT: dict[str, object] = {}
SLOPES = {
    "sin": (tf.sin, tf.cos),
    "square": (tf.square, lambda x: 2.0 * x),
    "tanh": (tf.tanh, lambda x: 1.0 - tf.tanh(x) ** 2),
}


def on_call(value, slope):
    """The context belongs to the call, as a closure's variable does."""

    @tf.custom_gradient
    def call(x):
        kept = types.SimpleNamespace(x=x)
        return value(x), lambda u: u * slope(kept.x)

    return lambda x: call(x)  # noqa: PLW0108 (AutoGraph is to leave the custom gradient alone)


def on_self(value, slope):
    class Op:
        def __call__(self, x):
            @tf.custom_gradient
            def call(x):
                self.x = x
                return value(x), lambda u: u * slope(self.x)

            return call(x)

    op = Op()
    return lambda x: op(x)  # noqa: PLW0108 (as above)


def in_global(value, slope):
    @tf.custom_gradient
    def call(x):
        KEPT["x"] = x
        return value(x), lambda u: u * slope(KEPT["x"])

    return lambda x: call(x)  # noqa: PLW0108 (as above)


def in_list(value, slope):
    """The last of a list that each call appends to."""
    kept = []

    @tf.custom_gradient
    def call(x):
        kept.append(x)
        return value(x), lambda u: u * slope(kept[-1])

    return lambda x: call(x)  # noqa: PLW0108 (as above)


def on_layer(value, slope):
    class Layer(keras.layers.Layer):
        def call(self, x):
            @tf.custom_gradient
            def own(x):
                self.kept = slope(x)
                return value(x), lambda u: u * self.kept

            return own(x)

    return Layer(dtype="float64")


def by_number(value, slope):
    """A context for each call, found again by a number that the call closes over."""
    kept = {}

    @tf.custom_gradient
    def call(x):
        number = len(kept)
        kept[number] = x
        return value(x), lambda u: u * slope(kept[number])

    return lambda x: call(x)  # noqa: PLW0108 (as above)


def pushed(value, slope):
    """A stack: right where the calls go back in reverse order, as backpropagation takes them."""
    kept = []

    @tf.custom_gradient
    def call(x):
        kept.append(x)
        return value(x), lambda u: u * slope(kept[-1])

    return lambda x: call(tf.sin(x))


def _variable(*shape):
    return tf.Variable(tf.zeros(shape, tf.float64), trainable=False)


def in_variable(value, slope):
    kept = _variable(2, 3)

    @tf.custom_gradient
    def call(x):
        kept.assign(x)
        return value(x), lambda u: u * slope(kept)

    return lambda x: call(x)  # noqa: PLW0108 (as above)


def along_trajectory(value, slope):
    """The states of a loop, in the rows of a variable."""
    states = _variable(3, 2, 3)

    @tf.custom_gradient
    def call(x):
        def step(index, x):
            states.scatter_nd_update([[index]], x[None])
            return index + 1, value(x)

        def grad(u):
            return tf.while_loop(lambda i, _: i >= 0, lambda i, u: (i - 1, u * slope(states[i])), [2, u])[1]

        return tf.while_loop(lambda i, _: i < 3, step, [0, x])[1], grad

    return tf.function(call)


def read_at_once(value, slope):
    """A variable is written and read by the forward; its gradient takes what was read."""
    kept = _variable(2, 3)

    @tf.custom_gradient
    def call(x):
        kept.assign(x)
        read = kept.read_value()
        return value(x), lambda u: u * slope(read)

    return lambda x: call(x)  # noqa: PLW0108 (as above)


def averaged(value, slope):
    """A running mean is written, and nothing of it is the gradient's."""
    mean = _variable(3)

    @tf.custom_gradient
    def call(x):
        mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, 0))
        return value(x), lambda u: u * slope(x)

    return lambda x: call(x)  # noqa: PLW0108 (as above)


RIGHT = (on_call, by_number, read_at_once, averaged)
WRONG = (on_self, in_global, in_list, on_layer, pushed, in_variable, along_trajectory)


def _rows():
    for makers, truth in ((RIGHT, "right"), (WRONG, "wrong")):
        for make in makers:
            for name, (value, slope) in SLOPES.items():
                for mode in ("graph", "eager"):

                    def build(make=make, value=value, slope=slope):
                        return make(value, slope)

                    keys = {"build": {}, "modes": [mode]}
                    yield Row(f"{make.__name__}_{name}_{mode}", build, None, X, truth, keys=keys)


ROWS = marked(
    tuple(_rows()),
    "along_trajectory_*_*",
    "averaged_*_*",
    "in_variable_*_*",
    "on_layer_tanh_graph",
    "read_at_once_*_*",
)
