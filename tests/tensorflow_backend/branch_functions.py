"""Forwards and gradients that branch, imported as a spec's code is: see `test_branches.py`."""

import tensorflow as tf


@tf.custom_gradient
def hidden(x):
    y = tf.where(x > 3.5, x * x, tf.sin(x))  # line 8

    def grad(dy):
        return dy * tf.where(x > 3.5, 3 * x, tf.cos(x))  # line 11

    return y, grad


@tf.custom_gradient
def clipped_upstream(x):
    return x * 2, lambda dy: tf.where(dy > 0.0, 2 * dy, 2 * dy)


def masked(x):
    return x * tf.cast(x < -9.0, x.dtype) + x


def functions(x):
    return tf.maximum(x, 0.1) + tf.nn.relu(x - 10.0) + tf.abs(x) + tf.nn.relu6(x)


def clipped(x):
    return tf.clip_by_value(x, -9.0, 0.5)


def conditional(x):
    return tf.cond(tf.reduce_sum(x) > 100.0, lambda: x, lambda: 2 * x)


def loop(x):
    while tf.reduce_sum(x) < 30.0:
        x = x + 1.0
    return x


def by_shape(x):
    rows = tf.shape(x)[0]
    return tf.cond(rows > 3, lambda: x, lambda: 2 * x)


def dead(x):
    tf.where(x > 3.5, x, 2 * x)
    return x * x


def tensorflows_own(x):
    return tf.reduce_prod(x) + tf.reduce_max(x)


def switched(x):
    return tf.switch_case(tf.cast(x[0], tf.int32), [lambda: x, lambda: 2 * x, lambda: 3 * x])


def numpy_forward(x):
    total = float(x.sum())
    if total > 100.0:
        return x * x
    if total > -100.0:
        total += 1.0
    while total < 50.0:
        total += 20.0
    return 2.0 * x


def numpy_gradient(dy, x):
    def unused(value):
        if value:
            return 0
        return unused

    if x.sum() > 100.0:
        return 2 * dy * x
    return 2 * dy
