"""References for what has no float64 kernel: the same function of ordinary ops, in any dtype."""

from __future__ import annotations

import tensorflow as tf


def local_response_normalization(
    x: tf.Tensor, *, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5
) -> tf.Tensor:
    """Return x / (bias + alpha * s)**beta, s the sum of squares of channels up to `depth_radius` away."""
    channel = tf.range(tf.shape(x)[-1])
    near = tf.cast(tf.abs(channel[:, None] - channel[None, :]) <= depth_radius, x.dtype)
    squares = tf.tensordot(x * x, near, axes=[[-1], [0]])
    return x / (tf.cast(bias, x.dtype) + tf.cast(alpha, x.dtype) * squares) ** tf.cast(beta, x.dtype)
