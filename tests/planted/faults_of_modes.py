"""Gradients that are wrong in one mode alone, or for one variable alone."""

from __future__ import annotations

import tensorflow as tf


@tf.custom_gradient
def mean_by_static_rows(x):
    """Take the mean over rows; the gradient divides by how many there are, if the trace knows."""
    rows = x.shape[0] or 1
    return tf.reduce_mean(x**2, axis=0), lambda upstream: 2 * x * upstream / rows


def tanh_but(condition):
    """Return tanh with a gradient that is twice too large where a condition holds."""

    @tf.custom_gradient
    def tanh(x):
        factor = tf.where(condition(x), tf.constant(2, x.dtype), tf.constant(1, x.dtype))
        return tf.tanh(x), lambda upstream: factor * upstream * (1 - tf.tanh(x) ** 2)

    return tanh


def tanh_but_eagerly():
    """Return tanh with a gradient that is wrong where nothing is traced."""
    return tanh_but(lambda _: tf.executing_eagerly())


def tanh_but_in_graphs():
    """Return tanh with a gradient that is right only where nothing is traced."""
    return tanh_but(lambda _: not tf.executing_eagerly())


def tanh_but_under_xla():
    """Return tanh with a gradient that relies on what a cast out of range gives: XLA gives something else."""
    return tanh_but(lambda x: tf.cast(tf.reduce_sum(x) + tf.constant(1e20, x.dtype), tf.int32) > 0)


def tanh_or_sine(x):
    """Return another function where nothing is traced, each with its right gradient."""
    return tf.sin(x) if tf.executing_eagerly() else tf.tanh(x)


def affine(gradients):
    """Return x * scale + tanh(shift) with gradients for its variables by name, by position, or one wrong."""
    scale = tf.Variable([1.0, 2.0, 0.5], name="scale", dtype=tf.float64)
    shift = tf.Variable([0.1, 0.2, 0.3], name="shift", dtype=tf.float64)

    @tf.custom_gradient
    def forward(x):
        def gradient(upstream, variables=None):
            by_scale = tf.reduce_sum(upstream * x, axis=0)
            by_shift = tf.reduce_sum(upstream * (1 - tf.tanh(shift) ** 2), axis=0)
            if gradients == "by_position":
                return upstream * scale, [by_scale, by_shift]
            own = {"scale:0": by_scale, "shift:0": by_shift * (1.01 if gradients == "one_wrong" else 1)}
            return upstream * scale, [own[variable.name] for variable in variables]

        return x * scale + tf.tanh(shift), gradient

    return forward
