"""Right functions whose gradients could be wrong where a spec's points show nothing; see `test_mutate`."""

from __future__ import annotations

import tensorflow as tf


def dense(x, weights, bias):
    """A layer: a batch of 1 hides a mean for a sum."""
    return x @ weights + bias


def masked(x, mask):
    """A mask of ones hides that it is left out."""
    return tf.exp(x) * mask


def over_batch(x):
    """A size that is always the same hides its number."""
    return tf.reduce_mean(x * x, axis=0)


def leaky(x):
    """Points above 0 hide the other slope."""
    return tf.nn.leaky_relu(x)


def segments(x, ids):
    """Segments of one hide that they aren't added up."""
    return tf.math.segment_sum(x * x, ids)


def huber(x):
    """Points near 0 hide the far branch."""
    return tf.where(tf.abs(x) < 3.0, 0.5 * x * x, 3.0 * tf.abs(x) - 4.5)


def gather(x, ids):
    """Indices that never repeat hide that a gradient is assigned, not added."""
    return tf.gather(x * x, ids)


def clip(x):
    """Points inside hide both ends."""
    return tf.clip_by_value(tf.sin(x), -0.5, 0.5)


def scaled(x, scale):
    """A scale of 1 hides that it isn't divided by."""
    return tf.exp(x) / scale


def convolution(x, filters):
    """A batch of 1 hides a mean for a sum."""
    return tf.nn.conv2d(x, filters, 1, "SAME")


def along(x):
    """An axis of size 1 hides a mean for a sum."""
    return tf.reduce_sum(x * x, axis=1)


def chosen(mask, x):
    """A mask that is true throughout hides what else there is."""
    return tf.where(mask, x * x, x)


def log_of(x):
    """Points above the floor hide it."""
    return tf.math.log(tf.maximum(x, 0.1))
