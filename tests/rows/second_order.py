"""The gradient's own gradient: of each binding, beside a reference, and of what moves with x or doesn't."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked
from tests.support.variants import rows_of

OPS = """
exp (x=[3]) = tf.exp(x)
    right: None
relu (x=[3]) = tf.nn.relu(x)
    right: None
drawn (x=[3]) = x * x * tf.random.uniform([3], dtype=x.dtype)
    right: None
surrogate (x=[3]) = tf.sign(x)
    reference: tf.sigmoid(x)
    right: u * tf.sigmoid(x) * (1 - tf.sigmoid(x))
    wrong_slope: u * tf.stop_gradient(tf.sigmoid(x) * (1 - tf.sigmoid(x)))
kept (x=[3]) = x * x
    keys: {"modes": ["eager"]}
    wrong: u * tf.constant(2 * x.numpy())
recomputed (x=[2]) = tf.recompute_grad(lambda x: tf.sin(x) * x)(x)
    open: None
conjugated (x=dict(shape=[2])) = x * x * tf.math.conj(x)
    keys: {"dtypes": ["complex128"]}
    right: None
"""
X, OUTPUT = {"x": {"shape": [3]}}, {"outputs": {"y": {"dtype": "float64"}}}


def _square(op, upstream):
    return 2 * op.inputs[0] * upstream


def _exp(op, upstream):
    return op.outputs[0] * upstream


BOUND = {
    "py_func": (np.square, _square, OUTPUT),
    "py_func_of_outputs": (np.exp, _exp, {"binding": "py_func", **OUTPUT}),
    "custom_gradient": (tf.square, _square, {}),
    "defun": (tf.square, _square, OUTPUT),
    "override": (tf.square, _square, {"op_type": "Square"}),
}


def _least_squares(a, b):
    """Solve by the normal equations, whose matrix is singular where rows are zero."""
    inverse = tf.linalg.inv(tf.matmul(a, a, transpose_a=True))
    return tf.linalg.matvec(inverse, tf.linalg.matvec(a, b, transpose_a=True))


def _least_squares_gradient(op, upstream):
    (a, b), x = op.inputs, op.outputs[0]
    inverse = tf.linalg.inv(tf.matmul(a, a, transpose_a=True))
    of_residual = tf.linalg.matvec(inverse, upstream)
    along = tf.linalg.matvec(a, of_residual)
    rest = b - tf.linalg.matvec(a, x)
    return rest[:, None] * of_residual[None] - along[:, None] * x[None], along


def _rows():
    # Named so that a point beside the samples has rows of zeros, from whose pole nothing is concluded.
    inputs = {"a": {"shape": [4, 3]}, "b": {"shape": [4]}}
    pair, keys = (_least_squares, _least_squares_gradient), {"second_order": True}
    yield Row("least_squares_7", *pair, inputs, "right", keys=keys)
    yield from rows_of(OPS, {"tf": tf}, second_order=True)
    for name, (forward, gradient, more) in BOUND.items():
        keys = {"binding": name, "second_order": True, **more}
        yield Row(f"bound_by_{name}", forward, gradient, X, "right", keys=keys)
    keys = {"reference": "of_a_row:sigmoid", "second_order": True, **OUTPUT}
    for name, factor in (("right", 1.0), ("wrong", 1.1)):
        slope = lambda op, u, factor=factor: factor * u * (s := tf.sigmoid(op.inputs[0])) * (1 - s)  # noqa: E731
        known = {"sigmoid": lambda x: 1 / (1 + np.exp(-x))}
        yield Row(f"reference_in_numpy_{name}", tf.sign, slope, X, name, keys=keys, functions=known)


ROWS = marked(
    _rows(), "exp_right", "bound_by_override", "surrogate_wrong_slope", "kept_wrong", "least_squares_7"
)
