"""The harness itself: a right gradient, a wrong one, and one that the numbers can't decide."""

import tensorflow as tf
from attacking import Attack


def _halved(op, upstream):
    return upstream * op.inputs[0]


ATTACKS = (
    Attack("square", "right", {"x": {"shape": [3]}}, "tensorflow:square"),
    Attack("halved", "wrong", {"x": {"shape": [3]}}, tf.square, _halved),
    Attack("jump", "unclear", {"x": {"value": [0.0], "shape": [1]}}, "tensorflow:sign"),
)
