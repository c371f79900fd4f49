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


@tf.custom_gradient
def square_above(x):
    y = tf.where(x > 3.5, x * x, tf.sin(x))  # line 85

    def grad(dy):
        return dy * tf.where(x > 3.5, 2 * x, tf.cos(x))  # line 88

    return y, grad


def in_loop(x):
    for _ in tf.range(2):
        x = square_above(x)
    return x


def in_data_loop(x):
    while tf.reduce_sum(x) < 3.0:
        x = tf.maximum(x, -1.0) + 1.0
    return x


def in_branch(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.nn.relu(x - 9.0), lambda: square_above(x))


@tf.function
def called(x):
    return square_above(x) + tf.abs(x)


def in_function(x):
    return called(x)


def counted_in_loop(x):
    for count in tf.range(4):
        x = tf.where(count > 2, x * x, x)
    return x


@tf.function(jit_compile=True)
def compiled(x):
    return tf.abs(x)


def in_compiled(x):
    return compiled(x)


def where_in_where(x):
    return tf.where(x > 1.0, tf.where(x > 3.5, x * x, 2.0 * x), x)


def guarded(x):
    safe = tf.where(x > 1.0, x, tf.ones_like(x))
    return tf.where(x > 1.0, tf.math.log(safe), x)


def log_sum(x):
    return tf.reduce_logsumexp(x) * x


def own_guard(x):
    return tf.where(tf.math.is_finite(x), x, 2.0 * x)


def never_entered(x):
    return tf.while_loop(lambda i, _: i < 0, lambda i, x: (i + 1, x * x), [0, x])[1]


def entered_twice(x):
    return tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, x * x), [0, x])[1]
