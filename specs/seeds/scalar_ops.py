"""The smallest custom gradients: a square applied three times, and a product of two scalars."""

import tensorflow as tf


@tf.custom_gradient
def square(x):
    """Square `x`, with the gradient written by hand."""
    return tf.square(x), lambda upstream: 2 * x * upstream


@tf.custom_gradient
def multiply(x, y):
    """Multiply two scalars, with both gradients written by hand."""
    return x * y, lambda upstream: (y * upstream, x * upstream)


def chain(x):
    """Raise `x` to the power of eight: its derivative at 2 is 8 * 2**7 = 1024."""
    return square(square(square(x)))


def product_and_square(x, y):
    """Return `x * y` and a second output that `x` has no path to."""
    return multiply(x, y), square(y)
