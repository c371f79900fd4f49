"""A batched function of two matrices with a gradient by hand: the Kronecker product."""

import tensorflow as tf


def kronecker(a, b):
    """Return the Kronecker product of each pair of matrices in a batch.

    Args:
        a: shape (batch, m, m).
        b: shape (batch, n, n).

    Returns:
        Shape (batch, m * n, m * n); element (i * n + k, j * n + l) is a[i, j] * b[k, l].
    """
    blocks = tf.einsum("zij,zkl->zikjl", a, b)
    size = a.shape[1] * b.shape[1]
    return tf.reshape(blocks, [-1, size, size])


def kronecker_grad(op, upstream):
    """Pull an upstream back to both matrices.

    The Jacobian of a matrix by a matrix has four indices, but a gradient function never returns it: it
    returns one tensor per input, of that input's shape, summed over the output with the upstream as weights.
    The conjugates are TensorFlow's convention for complex numbers, and change nothing in real ones.
    """
    a, b = op.inputs
    m, n = a.shape[1], b.shape[1]
    blocks = tf.reshape(upstream, [-1, m, n, m, n])
    grad_a = tf.einsum("zikjl,zkl->zij", blocks, tf.math.conj(b))
    grad_b = tf.einsum("zikjl,zij->zkl", blocks, tf.math.conj(a))
    return grad_a, grad_b
