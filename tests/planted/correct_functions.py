"""Correct functions that a careless checker calls wrong: kinks, ties, bad scaling, control flow and more."""

import keras
import tensorflow as tf

# --- kinks, ties, saturation, scale ---


def bad_scaling(x):
    return tf.reduce_sum(x * tf.constant([1e-6, 1.0, 1e6], x.dtype)), x**2


def huge_and_small(x):
    return x * x, 1 / x


def logistic_of_itself(x):
    y = tf.sigmoid(x)
    return y * (1 - y)


def safe_sqrt(x):
    positive = x > 0
    return tf.where(positive, tf.sqrt(tf.where(positive, x, 1)), 0)


def oscillation(x):
    return tf.sin(1000 * x)


def large_offset(x):
    return x**2 + 1e6


# --- complex ---


def real_and_imaginary(z):
    return tf.math.real(z), tf.math.imag(z)


def squared_modulus(z):
    return tf.math.real(z * tf.math.conj(z))


# --- sparse gradients and integer side inputs ---


def gather_and_sum(table, rows):
    # IndexedSlices from the lookup meet a dense gradient from the sum.
    return tf.gather(table, rows) + tf.reduce_sum(table, axis=0)


def masked(x, mask):
    return tf.where(mask, x, 0)


# --- control flow ---


def cond(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x**2, lambda: -3 * x)


def while_loop(x):
    def body(i, y):
        return i + 1, y * tf.sin(x) + x

    _, y = tf.while_loop(lambda i, _: i < 4, body, (0, x), maximum_iterations=10)
    return y


def autograph_if(x):
    y = -3 * x
    if tf.reduce_sum(x) > 0:
        y = x**2
    return y


def autograph_while(x):
    y = x
    steps = tf.constant(0)
    while steps < 3:
        y = tf.tanh(y) * 2
        steps += 1
    return y


def autograph_for(x):
    total = tf.zeros([], x.dtype)
    for value in x:
        if value > 0:
            total += value**2
    return total


def scan(x):
    return tf.scan(lambda total, value: total * 0.5 + value**2, x)


@tf.function
def _inner(x):
    return tf.exp(-x) * x


@tf.function
def _outer(x):
    return _inner(x) + _inner(2 * x)


def nested_functions(x):
    return _outer(x) ** 2


# --- shapes, lists, unused inputs ---


def double(x):
    return 2 * x


def unused_input(x, y):
    del y
    return x**2


def constant_output(x):
    return x**2, tf.ones([2], x.dtype)


def zero_derivative(x):
    return x**2, x * 0


def side_inputs(x, flag, power, name):
    y = tf.where(flag, x, -x) ** tf.cast(power, x.dtype)
    return y * tf.cast(tf.strings.length(name), x.dtype)


# --- made by a factory ---


def make_leaky_relu(slope):
    """Return a custom gradient that closes over `slope`."""

    @tf.custom_gradient
    def leaky_relu(x):
        return tf.where(x > 0, x, slope * x), lambda upstream: tf.where(x > 0, upstream, slope * upstream)

    return leaky_relu


def make_dense(units, features, dtype):
    """Return a Keras Dense layer that is built already: a trace must not create variables."""
    layer = keras.layers.Dense(
        units,
        activation="tanh",
        dtype=dtype,
        kernel_initializer=keras.initializers.GlorotUniform(seed=1),
        bias_initializer=keras.initializers.RandomUniform(seed=2),
    )
    layer.build((None, features))
    return layer


def make_layer_normalization(features, dtype):
    """Return a Keras LayerNormalization layer that is built already."""
    layer = keras.layers.LayerNormalization(
        dtype=dtype,
        beta_initializer=keras.initializers.RandomUniform(seed=1),
        gamma_initializer=keras.initializers.RandomUniform(0.5, 1.5, seed=2),
    )
    layer.build((None, features))
    return layer


# --- gradients by hand that are right ---


def gather_op_grad(op, upstream):
    table, rows = op.inputs
    return tf.IndexedSlices(upstream, rows, tf.shape(table)), None


@tf.custom_gradient
def stable_softplus(x):
    return tf.math.log1p(tf.exp(-tf.abs(x))) + tf.nn.relu(x), lambda upstream: upstream * tf.sigmoid(x)


@tf.custom_gradient
def linear_in_upstream_with_while(x):
    def grad(upstream):
        _, total = tf.while_loop(
            lambda i, _: i < 3, lambda i, t: (i + 1, t * x), (0, upstream), maximum_iterations=3
        )
        return 4 * total

    return x**4, grad
