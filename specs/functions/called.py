"""Functions of TensorFlow's and Keras' that a spec can't name by themselves."""

import keras
import tensorflow as tf


def einsum(a, b):
    """Multiply matrices by `tf.linalg.einsum`."""
    return tf.linalg.einsum("ij,jk->ik", a, b)


def numpy_einsum(a, b):
    """Multiply matrices by `tf.experimental.numpy.einsum`."""
    return tf.experimental.numpy.einsum("ij,jk->ik", a, b)


def keras_einsum(a, b):
    """Multiply matrices by `keras.ops.einsum`."""
    return keras.ops.einsum("ij,jk->ik", a, b)


def weighted_moments(x, weights):
    """Return the weighted mean and variance by `tf.nn.weighted_moments`."""
    return tf.nn.weighted_moments(x, [0], weights)


def sufficient_statistics(x, shift):
    """Return shifted sums of values and of squares by `tf.nn.sufficient_statistics`."""
    return tf.nn.sufficient_statistics(x, [0], shift)[1:3]


def eigvals_of_dense(alpha, beta):
    """Return the eigenvalues of a symmetric tridiagonal matrix, from the whole matrix."""
    return tf.linalg.eigvalsh(tf.linalg.diag(alpha) + tf.linalg.diag(beta, k=1) + tf.linalg.diag(beta, k=-1))


def sobel_edges(image):
    """Return `tf.image.sobel_edges` without its border, where mirrored pixels cancel but for rounding."""
    return tf.image.sobel_edges(image)[:, 1:-1, 1:-1]


def sparse_concat(a, b):
    """Return two sparse tensors, one under the other, by `tf.sparse.concat`."""
    return tf.sparse.concat(0, [a, b])
