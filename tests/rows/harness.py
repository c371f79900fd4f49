"""The harness itself: right and wrong gradients by each method, large ones, and one that is open."""

import tensorflow as tf

from tests.support.row import Row, marked


def _halved(op, upstream):
    return upstream * op.inputs[0]


def _curved(x):
    return tf.exp(tf.sin(9 * x)) / 9


def _pull_curved(op, upstream):
    return upstream * tf.cos(9 * op.inputs[0]) * op.outputs[0] * 9


def _wrong_at_end(op, upstream):
    return _pull_curved(op, upstream) * [1.0, 1.0, 1.0, 1.01]


def _spread(x):
    """Return as many outputs as inputs, each of which all inputs move."""
    size = x.shape[0]
    return tf.linalg.matvec(tf.sin(tf.reshape(tf.range(size * size, dtype=x.dtype), [size, size])), x**3)


def _pull_spread(factor):
    def pull(op, upstream):
        (x,) = op.inputs
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = _spread(x)
        return tape.gradient(y, x, upstream) * tf.concat([factor, tf.ones_like(x)[1:]], 0)

    return pull


METHODS = ("auto", "central", "ladder", "full", "probe")
LARGE = {"x": {"shape": [150]}}  # more elements than are looked at closely at once
ROWS = marked(
    (
        Row("square", "tensorflow:square", None, {"x": {"shape": [3]}}, "right"),
        Row("halved", tf.square, _halved, {"x": {"shape": [3]}}, "wrong"),
        Row("jump", "tensorflow:sign", None, {"x": {"value": [0.0], "shape": [1]}}, "undecidable"),
        *(
            Row(f"{name}-{method}", _curved, gradient, {"x": {"shape": [4]}}, truth, keys={"method": method})
            for method in METHODS
            for name, gradient, truth in (
                ("curved", _pull_curved, "right"),
                ("at-end", _wrong_at_end, "wrong"),
            )
        ),
        Row("large", _spread, _pull_spread([1.0]), LARGE, "right"),
        Row("large-one-column", _spread, _pull_spread([1.01]), LARGE, "wrong"),
        Row("large-not-finite", _spread, _pull_spread([float("nan")]), LARGE, "wrong"),
    ),
    "*",
)
