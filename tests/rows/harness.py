"""The harness itself: a right gradient, a wrong one, and one that the numbers can't decide."""

import tensorflow as tf

from tests.support.row import Row, marked


def _halved(op, upstream):
    return upstream * op.inputs[0]


ROWS = marked(
    (
        Row("square", "tensorflow:square", None, {"x": {"shape": [3]}}, "right"),
        Row("halved", tf.square, _halved, {"x": {"shape": [3]}}, "wrong"),
        Row("jump", "tensorflow:sign", None, {"x": {"value": [0.0], "shape": [1]}}, "undecidable"),
    )
)
