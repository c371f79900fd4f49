"""Functions of seven kinds, whose traces and calls `test_work` counts."""

import numpy as np
import tensorflow as tf


def square(x):
    return tf.square(x)


@tf.custom_gradient
def tanh_by_hand(x):
    y = tf.tanh(x)
    return y, lambda upstream: upstream * (1 - y * y)


def in_proportion(x):
    return x * tf.reduce_sum(x * x)


def two_outputs(a, b):
    return tf.matmul(a, b), tf.reduce_sum(a * a, axis=1)


def loop(x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y) + x), (0, x))[1]


def numpy_square(x):
    return np.square(x)


def numpy_square_grad(op, upstream):
    return 2 * op.inputs[0] * upstream


def normalisation():
    """Return a layer that writes to variables of its own while it reads others."""
    layer = tf.keras.layers.BatchNormalization(dtype="float64")
    layer.build([6, 4])
    return lambda x: layer(x, training=True)
