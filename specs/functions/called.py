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


def ssim_multiscale(image, difference, **arguments):
    """Compare an image with a similar one by `tf.image.ssim_multiscale`."""
    return tf.image.ssim_multiscale(image, image + difference, **arguments)


def sparse_concat(a, b):
    """Return two sparse tensors, one under the other, by `tf.sparse.concat`."""
    return tf.sparse.concat(0, [a, b])


def pad(tensor, constant_values):
    """Pad a matrix by `tf.pad`, with a value that is given last."""
    return tf.pad(tensor, [[0, 1], [1, 0]], constant_values=constant_values)


def ctc_greedy_score(logits):
    """Return the score of `tf.nn.ctc_greedy_decoder`, whose other outputs change their shape."""
    return tf.nn.ctc_greedy_decoder(logits, [3])[1]


def ctc_beam_score(logits):
    """Return the score of `tf.nn.ctc_beam_search_decoder`, whose other outputs change their shape."""
    return tf.nn.ctc_beam_search_decoder(logits, [3], top_paths=1)[1]


def keras_ctc_score(logits):
    """Return the score of `keras.ops.ctc_decode`."""
    return keras.ops.ctc_decode(tf.transpose(logits, [1, 0, 2]), [3])[1]


def conjugate_gradient(matrix, rhs):
    """Solve an equation by `tf.linalg.experimental.conjugate_gradient`."""
    operator = tf.linalg.LinearOperatorFullMatrix(matrix, is_self_adjoint=True, is_positive_definite=True)
    return tf.linalg.experimental.conjugate_gradient(operator, rhs, tol=1e-14).x


def range_of_four(start, step):
    """Return four numbers by `tf.range`, of which the ranges of NumPy's and Keras' are made."""
    return tf.range(start, start + 3.5 * step, step)
