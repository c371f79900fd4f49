"""Gradients that are right but in one branch, one round, one variable, one op of fifty, or taken twice."""

from __future__ import annotations

import tensorflow as tf


@tf.custom_gradient
def cube(x):
    def cube_grad(upstream):
        return 3 * x**2 * upstream

    return x**3, cube_grad


@tf.custom_gradient
def bad_cube(x):
    def bad_cube_grad(upstream):
        return 2.9 * x**2 * upstream

    return x**3, bad_cube_grad


def in_one_branch(x):
    """Wrong only where the sum is negative: the other branch's gradient is right."""
    return tf.exp(0.1 * tf.cond(tf.reduce_sum(x) > 0, lambda: cube(x), lambda: bad_cube(x)))


def in_one_round(x):
    """Wrong only in the last of four rounds of a loop."""

    @tf.custom_gradient
    def sine(x, number):
        def sine_grad(upstream):
            return upstream * tf.cos(x) * (1 + 0.05 * tf.cast(number == 3, x.dtype)), None

        return tf.sin(x), sine_grad

    return tf.while_loop(
        lambda number, _: number < 4, lambda number, y: (number + 1, sine(y, number)), [0, x]
    )[1]


def in_one_output(x):
    """Of three outputs, the last alone is wrong."""

    @tf.custom_gradient
    def powers(x):
        def powers_grad(first, second, third):
            return first + 2 * x * second + 3.1 * x**2 * third

        return (tf.identity(x), x**2, x**3), powers_grad

    return powers(x)


def three_layers(wrong):
    """Return three dense layers, of which one has a gradient for its bias that forgets an example."""
    kernels = [tf.Variable(tf.random.normal([2, 2], dtype=tf.float64), name=f"kernel{n}") for n in range(3)]
    biases = [tf.Variable(tf.random.normal([2], dtype=tf.float64), name=f"bias{n}") for n in range(3)]

    def layer(number):
        kernel, bias = kernels[number], biases[number]

        @tf.custom_gradient
        def dense(x):
            def dense_grad(upstream, variables=None):
                examples = upstream[1:] if number == wrong else upstream
                own = {
                    kernel.ref(): tf.matmul(x, upstream, transpose_a=True),
                    bias.ref(): tf.reduce_sum(examples, axis=0),
                }
                return tf.matmul(upstream, kernel, transpose_b=True), [own[v.ref()] for v in variables]

            return x @ kernel + bias, dense_grad

        return dense

    layers = [layer(number) for number in range(3)]

    def forward(x):
        for one in layers:
            x = tf.tanh(one(x))
        return x

    return forward


def sine_of(slope, label):
    """Return a sine with its gradient by some function for the slope, named `label` in the graph."""

    @tf.custom_gradient
    def sine(x):
        def sine_grad(upstream):
            return upstream * slope(x)

        return tf.sin(x, name=label), sine_grad

    return sine


def fifty(slope):
    """Return a chain of fifty sines, of which the 31st has its gradient by another slope."""

    def chain(x):
        for number in range(1, 51):
            with tf.name_scope(f"op{number}"):
                # Steps to and fro, small enough that the slope of all fifty is neither lost nor large.
                x += (-1) ** number * 0.1 * sine_of(slope if number == 31 else tf.cos, "sin")(x)
        return x

    return chain


def fifty_of_which_one_element():
    """Wrong in one element of the 31st op alone."""
    return fifty(lambda x: tf.cos(x) * tf.one_hot(2, 4, 1.01, 1.0, dtype=x.dtype))


def fifty_of_which_one_stops():
    """Right at first order; the 31st op's gradient is a constant to the second."""
    return fifty(lambda x: tf.stop_gradient(tf.cos(x)))


# Right once, wrong twice.


@tf.custom_gradient
def stopped(x):
    return x**3, lambda upstream: upstream * tf.stop_gradient(3 * x**2)


@tf.custom_gradient
def stopped_in_part(x):
    """Of 3 x * x, one factor is held: half of the second derivative is lost."""
    return x**3, lambda upstream: upstream * 3 * x * tf.stop_gradient(x)


@tf.custom_gradient
def stopped_upstream(x):
    return x**3, lambda upstream: tf.stop_gradient(upstream) * 3 * x**2


@tf.custom_gradient
def of_the_forwards_point(x):
    """The slope is a NumPy array from the forward: a constant, though the point moves."""
    slope = 3 * x.numpy() ** 2
    return x**3, lambda upstream: upstream * slope


@tf.custom_gradient
def of_bits(x):
    """The slope goes through an integer's bits, which have no gradient."""
    slope = tf.bitcast(tf.bitcast(3 * x**2, tf.int64), tf.float64)
    return x**3, lambda upstream: upstream * slope


@tf.custom_gradient
def _bad_slope(x):
    return 3 * x**2, lambda upstream: upstream * 6.06 * x


@tf.custom_gradient
def nested(x):
    """The gradient is itself a custom gradient, one per cent too large."""
    return x**3, lambda upstream: upstream * _bad_slope(x)


@tf.custom_gradient
def nested_right(x):
    """The same, with both gradients right."""

    @tf.custom_gradient
    def slope(x):
        return 3 * x**2, lambda upstream: upstream * 6 * x

    return x**3, lambda upstream: upstream * slope(x)


@tf.custom_gradient
def mixed(x, b):
    """The gradient for `x` takes `b` for a constant: the mixed derivative alone is lost."""
    return x * b**2, lambda upstream: (upstream * tf.stop_gradient(b) ** 2, upstream * 2 * x * b)


def scale_that_stops():
    """Return a layer whose gradient for `scale` takes `x` for a constant."""
    scale = tf.Variable([1.5, -0.5, 1.0], name="scale", dtype=tf.float64)

    @tf.custom_gradient
    def forward(x):
        def gradient(upstream, variables=None):
            by_scale = tf.reduce_sum(upstream * tf.stop_gradient(tf.sin(x)), axis=0)
            return upstream * scale * tf.cos(x), [by_scale for _ in variables]

        return scale * tf.sin(x), gradient

    return forward


def penalty(x):
    """A gradient penalty in the forward: its own gradient is of second order."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(nested(x))
    return tf.reduce_sum(tape.gradient(value, x) ** 2)
