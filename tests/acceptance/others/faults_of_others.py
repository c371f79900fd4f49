"""Ops on which a well-known checker says the wrong thing, one for each test."""

import tensorflow as tf


def _with_gradient(forward, gradient):
    @tf.custom_gradient
    def call(*inputs):
        return forward(*inputs), lambda upstream: gradient(upstream, *inputs)

    return call


nan_gradient = _with_gradient(tf.square, lambda u, x: u * tf.constant(float("nan"), x.dtype))


def _busted(u, x):
    # Of all slopes only the first is there: fast modes project the rest away.
    return u * 2 * x * tf.one_hot(0, tf.size(x), dtype=x.dtype)


mostly_zero_gradient = _with_gradient(tf.square, _busted)


def doubled_in_float32(x):
    """Has no float64 form: it casts down, as a float32 Keras layer does."""
    return tf.cast(x, tf.float32) * 2


def no_gradient_for_b(a, b):
    return _with_gradient(tf.multiply, lambda u, _, other: (u * other, None))(a, b)


one_percent_off = _with_gradient(tf.sin, lambda u, x: u * tf.cos(x) * 1.01)
tiny_and_doubled = _with_gradient(lambda x: 1e-9 * x * x, lambda u, x: u * 4e-9 * x)
off_by_1e_8 = _with_gradient(tf.square, lambda u, x: u * (2 * x + 1e-8))


def first_of_three_wrong(a, b, c):
    return _with_gradient(lambda a, b, c: a * b * c, lambda u, a, b, c: (-u * b * c, u * a * c, u * a * b))(
        a, b, c
    )


slightly_off_factor = _with_gradient(tf.square, lambda u, x: u * 2.001 * x)
