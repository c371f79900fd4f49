"""Gradients that are wrong, or not finite, at special values alone, in each dtype; the inputs are drawn."""

from __future__ import annotations

import tensorflow as tf

from tests.rows.fresh import HALF, ln, prefixed, sqrt  # noqa: F401 (the tables' text uses them)
from tests.support.row import marked
from tests.support.variants import BOTH, rows_of

total = tf.reduce_sum


def others(x):
    """Return, for each of three numbers, the product of the other two."""
    return tf.stack([x[1] * x[2], x[0] * x[2], x[0] * x[1]])


# Not finite at zero, where the derivative is.
AT_ZERO = """
square (x=[4]) = x ** 2.0
    right: 2 * u * x
    wrong_by_division: 2 * u * tf.pow(x, 2.0) / x
product (x=[3]) = tf.reduce_prod(x)
    right: u * others(x)
    wrong_by_division: u * tf.reduce_prod(x) / x
    wrong_guarded: u * tf.math.divide_no_nan(tf.reduce_prod(x), x)
cubed_size (x=[2, 3]) = tf.norm(x, axis=1) ** 3
    right: 3 * u[:, None] * x * tf.norm(x, axis=1, keepdims=True)
    wrong_by_division: u[:, None] * 3 * x * (tf.norm(x, axis=1) ** 3 / total(x * x, 1))[:, None]
"""
# Finite in float64, and not in float16: no fault of the formula.
IN_FLOAT64 = """
root_of_squares (x=[3]) = sqrt(total(x * x) + 1e-3)
    right: u * x / sqrt(total(x * x) + 1e-3)
steep (x={'shape': [3], 'uniform': {'low': 0.01, 'high': 1}}) = ln(x)
    right: u / x
"""

ROWS = marked(
    [
        *prefixed("at_zero", rows_of(AT_ZERO, globals(), dtypes=("float64",))),
        *prefixed("at_zero_32", rows_of(AT_ZERO, globals(), dtypes=("float32",))),
        *prefixed("at_zero_half", rows_of(AT_ZERO, globals(), dtypes=HALF)),
        *prefixed("in_float64", rows_of(IN_FLOAT64, globals(), dtypes=(*BOTH, *HALF))),
    ],
    "at_zero_32_square_wrong_by_division",
    "at_zero_32_product_right",
)
