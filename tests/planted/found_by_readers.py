"""Ops by which a fresh reader led gradcheck astray once; each is held to its right verdict from then on."""

import numpy as np
import tensorflow as tf


def dense_with_random_weights(units):
    """Build a function with weights that no seed fixes: a factory is called once per case."""
    weights = tf.Variable(np.random.default_rng().normal(size=(4, units)), dtype=tf.float64)
    return lambda x: tf.tanh(x @ weights)


def hundredfold(x):
    return x * 100


def cancelling_sum(x):
    """Lose the slope among terms that cancel: its rows don't show how much."""
    return tf.reduce_sum(x * 1e3) + tf.reduce_sum(-x * 1e3) + tf.reduce_mean(x)


def cross_entropy(logits, labels):
    return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def ctc_loss(logits):
    labels = tf.constant([[1, 2]])
    return tf.nn.ctc_loss(labels, logits, tf.constant([2]), tf.constant([4]), logits_time_major=False)


@tf.custom_gradient
def none_where_flat(x, w):
    """Return None for an input that only matters where nobody looked."""
    return x + tf.nn.relu(w - 50.0), lambda upstream: (upstream, None)


def constant(x):
    return tf.constant([1.0, 2.0], tf.float64)


@tf.custom_gradient
def wrong_in_float32_alone(x):
    factor = 1.0 if x.dtype == tf.float64 else 1.08
    return tf.sin(x), lambda upstream: upstream * tf.cos(x) * factor


@tf.custom_gradient
def clipped_at_ten_thousand(x):
    return tf.sin(x), lambda upstream: tf.clip_by_value(upstream, -1e4, 1e4) * tf.cos(x)


def mask(x):
    """Compare: the None for the second half is right, since a comparison carries no slope."""
    return x * tf.cast(x > 0, x.dtype)


def strings_only(name):
    return tf.strings.length(name)
