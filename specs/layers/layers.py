"""Layers as users have them; `build` in the specs makes each of them once per case."""

from __future__ import annotations

import keras
import tensorflow as tf


def batch_normalization(*, training, **settings):
    """Return batch normalization for training, or for inference with statistics that aren't 0 and 1."""
    layer = keras.layers.BatchNormalization(**settings)
    if training:
        return lambda x: layer(x, training=True)
    layer.build((None, 3))
    layer.moving_mean.assign([0.5, -1.0, 0.25])
    layer.moving_variance.assign([2.0, 0.5, 1.5])
    return lambda x: layer(x, training=False)


def attention(**settings):
    """Return self-attention: query, key and value are the same."""
    layer = keras.layers.MultiHeadAttention(**settings)
    return lambda x: layer(x, x)


class Affine(tf.Module):
    """A layer without Keras."""

    def __init__(self, size, dtype="float64"):
        """Draw the weights."""
        super().__init__()
        self.weights = tf.Variable(tf.random.normal([3, size], dtype=dtype))
        self.shift = tf.Variable(tf.zeros([size], dtype))

    @tf.function
    def __call__(self, x):
        """Return x W + b, for x of shape (n, 3)."""
        return x @ self.weights + self.shift


def scaled_softplus():
    """Return a softplus with a learnt scale and shift, whose gradients are written by hand, by name."""
    scale = tf.Variable([1.5, -0.5, 1.0], name="scale", dtype=tf.float64)
    shift = tf.Variable([0.25, 0.5, -1.0], name="shift", dtype=tf.float64)

    @tf.custom_gradient
    def forward(x):
        inner = x + shift

        def gradient(upstream, variables=None):
            slope = upstream * scale * tf.sigmoid(inner)
            of = {
                scale.ref(): tf.reduce_sum(upstream * tf.math.softplus(inner), axis=0),
                shift.ref(): tf.reduce_sum(slope, axis=0),
            }
            return slope, [of[variable.ref()] for variable in variables]

        return scale * tf.math.softplus(inner), gradient

    return forward


def recomputed(units):
    """Return a dense layer whose values are computed anew for the gradient."""
    layer = keras.layers.Dense(units, activation="tanh", dtype="float64")
    layer.build((None, 3))
    return tf.recompute_grad(layer)
