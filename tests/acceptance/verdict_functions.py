"""Functions for `test_one_verdict`: what each command has to say the same of."""

import tensorflow as tf

WEIGHT = tf.Variable([1.0, 2.0], dtype=tf.float64, name="weight")


@tf.custom_gradient
def conjugated(z):
    """z², with a gradient that is right for real upstreams alone."""
    return z * z, lambda u: tf.math.conj(2 * z) * tf.math.conj(u)


@tf.custom_gradient
def _lossy(x):
    big = tf.constant(3e7, x.dtype)
    return x * x, lambda u: u * ((2 * x + big) - big)


def lossy(x):
    """sin x², with a gradient that is right in float64 alone."""
    return tf.sin(_lossy(x))


@tf.custom_gradient
def _weighted(x):
    def grad(u, variables=None):
        del variables
        return u * WEIGHT, [u * x * 1.5]

    return x * WEIGHT, grad


def weighted(x):
    """exp(w x), with a gradient of w that is half as much again as it should be."""
    return tf.exp(_weighted(x))


@tf.custom_gradient
def _of_wrong_shape(x):
    return x * 2.0, lambda u: tf.reduce_sum(u)[None]


def of_wrong_shape(x):
    """exp 2x, with a gradient of another shape."""
    return tf.exp(_of_wrong_shape(x))


@tf.custom_gradient
def deaf(x):
    """x², with a gradient that ignores its upstream."""
    return tf.reduce_sum(x * x), lambda _: 2 * x


@tf.custom_gradient
def unclipped(x):
    """x between -0.5 and 0.5, with a gradient that forgets the clip."""
    return tf.clip_by_value(x, -0.5, 0.5), lambda u: u


def stopped(x):
    """exp x with its argument taken for a constant."""
    return 2.0 * tf.exp(tf.stop_gradient(x))


def counted(x):
    """x to whole numbers and back."""
    return tf.cast(tf.cast(x, tf.int32), tf.float64) * 2.0


def infinity_less_infinity(x):
    """Two infinite gradients of opposite sign, added up."""
    return tf.exp(1000.0 * x) - tf.exp(2000.0 * x)


@tf.custom_gradient
def remainder(x, y):
    """x modulo y, with the sign flipped for y."""
    return x - y * tf.floor(x / y), lambda u: (u, tf.floor(x / y) * u)
