"""A forward that the tests of searches search."""

import numpy as np
import tensorflow as tf


def _gelu(x, factor):
    share = 0.5 * (1.0 + tf.math.erf(x / 2.0**0.5))  # exactly 0 from -8.3 on
    # The terms of a sum aren't looked for behind Python code (`paths.terms`).
    hidden = tf.ensure_shape(tf.numpy_function(lambda value: value, [share], share.dtype), share.shape)
    slope = share + x * tf.exp(-x * x / 2.0) / (2.0 * np.pi) ** 0.5
    return x * hidden, lambda dy: dy * tf.where(x < -5.0, factor * slope, slope)


@tf.custom_gradient
def gelu(x):
    return _gelu(x, 1.0)


@tf.custom_gradient
def turned_gelu(x):
    return _gelu(x, -1.0)


def rare(x):
    return tf.where(tf.reduce_sum(x) > 1e4, x * x, tf.where(x > 4.0, tf.sin(x), tf.cos(x)))


SCALE = tf.Variable([1.5, -2.0], dtype=tf.float64)


@tf.custom_gradient
def _wrong_for_one(x):
    rows = tf.cast(tf.shape(x)[0], x.dtype)
    return x * x, lambda upstream: upstream * x * tf.minimum(rows, 2)


def scaled_rows(x):
    """Multiply by a variable; the gradient is wrong for a batch of one."""
    return _wrong_for_one(x) * SCALE
