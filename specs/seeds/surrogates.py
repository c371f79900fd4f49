"""Gradients that are wrong on purpose: surrogates for steps and draws, and the functions they stand for."""

import tensorflow as tf


@tf.custom_gradient
def differentiable_sign(x):
    """Take the sign of `x`, and let the gradient of the logistic function through.

    The sign is flat, so its true gradient teaches nothing; the surrogate is 0.0451766551 at x = 3.
    """
    logistic = tf.sigmoid(x)
    return tf.sign(x), lambda upstream: logistic * (1 - logistic) * upstream


def sigmoid(x):
    """Return the logistic function: the reference of `differentiable_sign`."""
    return tf.sigmoid(x)


def sign_loss(x):
    """Return the l2 loss of the sign of `x` against -1; its surrogate gradient is 0.0903533101 at x = 3."""
    return tf.nn.l2_loss(differentiable_sign(x) - (-1.0))


def sign_loss_reference(x):
    """Return the function that has the surrogate gradient of `sign_loss`, wherever `x` isn't 0.

    By the chain rule, the gradient is (sign(x) + 1) * sigmoid'(x): the loss's own factor comes from the sign,
    which stays what it is near `x`, and only the sign's derivative is replaced.
    """
    return tf.reduce_sum((tf.sign(x) + 1.0) * tf.sigmoid(x))


@tf.custom_gradient
def bernoulli_mask(p, z):
    """Turn uniform draws `z` into a mask that is 1 with probability `p`; straight through in `p`."""
    mask = tf.cast(z < p, p.dtype)
    # Straight through: as if the mask were p itself. The draw has no gradient.
    return mask, lambda upstream: (upstream, None)


def bernoulli_attention(p, features, z):
    """Keep each place of a feature map with probability `p`.

    Args:
        p: probability per place, shape (height, width).
        features: shape (height, width, channels).
        z: uniform draws on [0, 1), one per place: an argument, so that every call draws the same mask.
    """
    return bernoulli_mask(p, z)[..., tf.newaxis] * features


def straight_through(mask, p):
    """Return `mask` with the derivative of `p`: what is stopped is a constant to the gradient."""
    return p + tf.stop_gradient(mask - p)


def straight_through_attention(p, features, z):
    """Return the same as `bernoulli_attention`, with no gradient but TensorFlow's own."""
    return straight_through(tf.cast(z < p, p.dtype), p)[..., tf.newaxis] * features


def drawn_attention(p, features):
    """Keep each place of a feature map with probability `p`, by a draw of its own."""
    mask = tf.cast(tf.random.uniform(p.shape, dtype=p.dtype) < p, p.dtype)
    return straight_through(mask, p)[..., tf.newaxis] * features


def product_with_constant_self(a, b):
    """Return c * stop_gradient(c) for c = a @ b: an upstream of ones reaches the MatMul as c."""
    c = tf.matmul(a, b)
    return c * tf.stop_gradient(c)
