"""A forward that the tests of searches search."""

import tensorflow as tf


def rare(x):
    return tf.where(tf.reduce_sum(x) > 1e4, x * x, tf.where(x > 4.0, tf.sin(x), tf.cos(x)))
