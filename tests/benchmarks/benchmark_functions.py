"""The functions that are compared, in TensorFlow; `rival_functions.py` has the same in PyTorch and in JAX."""

# An op's inputs are its arguments, however many there are.
# ruff: noqa: PLR0913, PLR0917

import tensorflow as tf


def matmul(a, b):
    return tf.matmul(a, b)


def softmax(x):
    return tf.nn.softmax(x)


def conv2d(x, w):
    return tf.nn.conv2d(x, w, strides=1, padding="SAME")


def cholesky(x):
    # Of both halves: a difference along one element alone would leave the symmetric matrices.
    return tf.linalg.cholesky((x + tf.transpose(x)) / 2)


def lstm(x, h, c, w, u, b):
    i, f, g, o = tf.split(tf.matmul(x, w) + tf.matmul(h, u) + b, 4, axis=1)
    new_c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(new_c), new_c


# What grows with n


@tf.custom_gradient
def tanh(x):
    y = tf.tanh(x)
    return y, lambda upstream: upstream * (1 - y * y)


def rows_matmul(x, w):
    return tf.matmul(x, w)


def sort(x):
    return tf.sort(x)
