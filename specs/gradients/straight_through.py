"""Straight-through estimators: quantisers that let the gradient pass as if they weren't there."""

import tensorflow as tf


@tf.custom_gradient
def round_straight_through(x):
    """Round to the nearest integer; the gradient is the identity's.

    References:
        Bengio, Léonard and Courville, "Estimating or propagating gradients through stochastic neurons", 2013.
    """
    return tf.round(x), lambda upstream: upstream


def identity(x):
    """Return `x`: the reference of `round_straight_through`."""
    return tf.identity(x)


def rounded_by_stop_gradient(x):
    """Return the same without a gradient by hand: what is stopped is a constant to the gradient."""
    return x + tf.stop_gradient(tf.round(x) - x)


def fake_quantizer(*, bits, low, high):
    """Make a quantiser to 2**bits levels on [low, high]; within, the gradient passes, outside it is zero."""
    step = (high - low) / (2**bits - 1)

    @tf.custom_gradient
    def quantize(x):
        inside = (x >= low) & (x <= high)
        level = tf.round((tf.clip_by_value(x, low, high) - low) / step)
        return low + step * level, lambda upstream: tf.where(inside, upstream, tf.zeros_like(upstream))

    return quantize


def clip(x):
    """Clip to [-1, 1]: the reference of the quantiser on that range."""
    return tf.clip_by_value(x, -1.0, 1.0)


def learned_step(x, step, *, levels):
    """Quantise to multiples of a learned step, at most `levels` of them to each side.

    Args:
        x: any shape.
        step: distance between levels, a scalar tensor.
        levels: how many levels there are to each side of zero.

    References:
        Esser et al., "Learned step size quantization", 2020.
    """

    @tf.custom_gradient
    def quantize(x, step):
        scaled = x / step
        inside = tf.abs(scaled) <= levels
        level = tf.round(tf.clip_by_value(scaled, -levels, levels))

        def gradient(upstream):
            by_x = tf.where(inside, upstream, tf.zeros_like(upstream))
            by_step = tf.where(inside, level - scaled, level)
            return by_x, tf.reduce_sum(upstream * by_step)

        return level * step, gradient

    return quantize(x, step)


def learned_step_reference(x, step, *, levels):
    """Return what has the gradients of `learned_step`: rounding errors and clipped levels are constants."""
    scaled = x / step
    clipped = tf.clip_by_value(scaled, -levels, levels)
    return (clipped + tf.stop_gradient(tf.round(clipped) - clipped)) * step
