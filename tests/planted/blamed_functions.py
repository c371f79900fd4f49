"""Forwards of several ops with a wrong gradient among them, for `blame` to find; and what it mustn't name."""

import numpy as np
import tensorflow as tf

import gradcheck_cli

# How ops are made whose gradient is wrong by a registered override.


@tf.RegisterGradient("BlamedExp")
def bad_exp_grad(op, upstream):
    return 1.01 * op.outputs[0] * upstream


@tf.RegisterGradient("BlamedNan")
def nan_grad(op, upstream):
    return upstream * tf.cast(np.nan, upstream.dtype)


@tf.RegisterGradient("BlamedInfinity")
def infinite_grad(op, upstream):
    return tf.cos(op.inputs[0]) * upstream / tf.zeros_like(upstream)


@tf.RegisterGradient("BlamedNone")
def none_grad(op, upstream):
    return None


@tf.RegisterGradient("BlamedIgnoring")
def ignoring_grad(op, upstream):
    return tf.cos(op.inputs[0])


@tf.RegisterGradient("BlamedDouble")
def double_grad(op, upstream):
    return 2 * tf.cos(op.inputs[0]) * upstream


@tf.RegisterGradient("BlamedHalf")
def half_grad(op, upstream):
    return 0.5 * tf.cos(op.inputs[0]) * upstream


@tf.RegisterGradient("BlamedNothing")
def right_sin_grad(op, upstream):
    return tf.cos(op.inputs[0]) * upstream


def overridden(x, name, function=tf.sin, op_type="Sin", label=None):
    with tf.compat.v1.get_default_graph().gradient_override_map({op_type: name}):
        return function(x, name=label)


def chain(x):
    """Fifty ops, of which the 31st has a wrong gradient."""
    with tf.name_scope("chain"):
        for number in range(1, 51):
            if number == 31:
                x = overridden(x, "BlamedExp", tf.exp, "Exp", "op31")
            elif number % 3 == 0:
                x = tf.exp(-x, name=f"op{number}")
            else:
                x = tf.sin(x, name=f"op{number}") + 0.1
    return x


def registered(x):
    return tf.tanh(overridden(tf.square(x), "BlamedExp", tf.exp, "Exp"))


@tf.custom_gradient
def bad_square(x):
    def bad_square_grad(upstream):
        return 2.02 * x * upstream

    return tf.square(x), bad_square_grad


@tf.custom_gradient
def right_square(x):
    return tf.square(x), lambda upstream: 2 * x * upstream


@tf.function
def inner(x):
    return tf.tanh(bad_square(x))


def in_function(x):
    return tf.exp(inner(tf.sin(x)))


def nan_in_the_middle(x):
    return tf.exp(overridden(tf.tanh(right_square(x)), "BlamedNan"))


def infinity_in_the_middle(x):
    return tf.exp(overridden(tf.tanh(right_square(x)), "BlamedInfinity"))


def none_in_the_middle(x):
    return tf.exp(overridden(tf.tanh(right_square(x)), "BlamedNone"))


def ignoring(x):
    return 3.0 * tf.exp(overridden(tf.tanh(x), "BlamedIgnoring"))


def cancelling(x):
    """Two wrong gradients that make a right one together."""
    return tf.exp(overridden(tf.tanh(overridden(x, "BlamedDouble")), "BlamedHalf"))


ONE = tf.Variable(tf.ones([], tf.float64), trainable=False)


def beside_a_weight_that_stays(x):
    """A forward that accepts no other value of a variable."""
    with tf.control_dependencies([tf.debugging.assert_near(ONE, tf.ones([], tf.float64))]):
        return tf.exp(tf.sin(x) * tf.identity(ONE))


def closing_over(x):
    """A custom gradient that knows nothing of what its forward closes over."""
    outer = tf.sin(x)

    @tf.custom_gradient
    def times_outer(y):
        return y * outer, lambda upstream: outer * upstream

    return tf.exp(times_outer(tf.cos(x)))


def converted(x):
    """A custom gradient defined in a function that AutoGraph converts."""
    if tf.reduce_sum(x) > -1000.0:
        x = tf.sin(x)

    @tf.custom_gradient
    def cube(y):
        def bad_cube_grad(upstream):
            return 2 * y**2 * upstream

        return y**3, bad_cube_grad

    return tf.tanh(cube(x))


def in_loop(x):
    def body(number, value):
        return number + 1, tf.sin(bad_square(value))

    return tf.exp(tf.while_loop(lambda number, _: number < 3, body, [0, x], maximum_iterations=3)[1])


@tf.custom_gradient
def bad_halves(x):
    """Two outputs; the second one's upstream has the wrong sign."""

    def bad_halves_grad(first, second):
        return tf.cos(x) * first + tf.sin(x) * second

    return (tf.sin(x), tf.cos(x)), bad_halves_grad


def several_outputs(x):
    sine, cosine = bad_halves(tf.exp(x))
    return sine * cosine


def with_py_func(x):
    cubed = gradcheck_cli.py_func(
        lambda value: value**3, [tf.sin(x)], tf.float64, grad=bad_numpy_grad, shapes=x.shape
    )
    return tf.exp(cubed)


def bad_numpy_grad(op, upstream):
    return 3.3 * op.inputs[0] ** 2 * upstream


@tf.custom_gradient
def bad_lookup(table, rows):
    """Rows of a table, whose gradient forgets that a row may be looked up twice."""

    def bad_lookup_grad(upstream):
        first = tf.cast(tf.range(tf.size(rows)) < 2, upstream.dtype)[:, None]
        return tf.IndexedSlices(upstream * first, rows, tf.shape(table, out_type=tf.int64)), None

    return tf.gather(table, rows), bad_lookup_grad


def embedding(table):
    return tf.exp(bad_lookup(tf.sin(table), tf.constant([0, 1, 1])))


def recomputed(x):
    return tf.exp(tf.recompute_grad(lambda y: tf.tanh(bad_square(y)))(tf.sin(x)))


@tf.custom_gradient
def bad_scaled(x):
    """Large, with one element wrong."""

    def bad_scaled_grad(upstream):
        wrong = tf.one_hot(137, tf.size(x), 1.05, 1.0, dtype=x.dtype)
        return wrong * tf.cos(x) * upstream

    return tf.sin(x), bad_scaled_grad


def large(x):
    return tf.reduce_sum(tf.exp(bad_scaled(tf.tanh(x)))[None], axis=0)


@tf.custom_gradient
def clipped(x):
    """An upstream clipped by its norm: not linear."""
    return tf.sin(x), lambda upstream: tf.clip_by_norm(tf.cos(x) * upstream, 1.0)


def nonlinear(x):
    return tf.exp(clipped(2.0 * x)) * 5.0


# What is right, though a careless blame would name it.


def of_symmetric(x):
    """A Cholesky factor reads one triangle, and its gradient shares what it got among both."""
    square = tf.matmul(x, x, transpose_b=True) + 3.0 * tf.eye(3, dtype=x.dtype)
    return tf.linalg.cholesky(square)


@tf.custom_gradient
def on_the_simplex(p):
    """log(p / sum p), with a gradient that relies on the sum being 1."""
    return tf.math.log(p / tf.reduce_sum(p)), lambda upstream: upstream / p - tf.reduce_sum(upstream)


def simplex_and_wrong(x):
    return on_the_simplex(tf.nn.softmax(bad_square(x)))


def rounding(x):
    return tf.exp(tf.round(x) + overridden(x, "BlamedNothing"))


def jump(x):
    """A forward that jumps where it is checked: nobody's gradient is at fault."""
    return tf.exp(tf.where(tf.sin(x) > 0, tf.cos(x), x))


@tf.custom_gradient
def straight_through(x):
    return tf.round(x), lambda upstream: upstream


def surrogate(x):
    return tf.sin(straight_through(tf.exp(x)))
