"""Hand-written gradients of each kind, imported as a spec's code is: see `test_private_sites.py`."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.framework import function

import gradcheck_cli


@tf.custom_gradient
def square(x):
    return x * x, lambda dy: 2 * dy * x


def make(k):
    @tf.custom_gradient
    def scaled(x):
        return k * x, lambda dy: k * dy

    return scaled


def library_wrapper(forward, backward):
    """What TensorFlow Probability's decorator does: TensorFlow is given the wrapper's own function."""

    @tf.custom_gradient
    def wrapped(x):
        return forward(x), lambda dy: backward(dy, x)

    return wrapped


def cube(x):
    return x**3


wrapped_cube = library_wrapper(cube, lambda dy, x: 3 * dy * x * x)


@tf.RegisterGradient("SitesSquare")
def square_grad(op, dy):
    return 2 * dy * op.inputs[0]


def overridden(x):
    with tf.compat.v1.get_default_graph().gradient_override_map({"Square": "SitesSquare"}):
        return tf.square(x)


def with_tensorflows_own(x):
    with tf.compat.v1.get_default_graph().gradient_override_map({"Tanh": "Identity"}):
        return tf.tanh(x)


def defun_grad(op, dy):
    return 2 * dy * op.inputs[0]


@function.Defun(tf.float64, python_grad_func=defun_grad)
def defun_square(x):
    return x * x


def in_a_branch(x):
    return tf.cond(tf.reduce_sum(x) > -1e9, lambda: square(x), lambda: x)


def in_a_loop(x):
    return tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, square(v)), [0, x])[1]


SHARED = tf.function(square)


def in_a_function(x):
    return SHARED(x)


def in_its_gradient(x):
    @tf.custom_gradient
    def inner(y):
        return y + 0, lambda dy: square(dy) / dy

    return inner(x)


def two(x, w):
    return square(x), w + 0 * x


def tensorflows_own(x):
    return tf.nn.silu(x)


def cube_grad(op, dy):
    return 3 * dy * op.inputs[0] ** 2


def cube_of_arrays(x):
    return x**3


def through_py_func(x):
    return gradcheck_cli.py_func(cube_of_arrays, [x], tf.float64, cube_grad)


def product(x):
    return tf.matmul(x, x)


def over_batch(x):
    return tf.reduce_sum(x * x) / tf.cast(tf.shape(x)[0], x.dtype)


def halved(x):
    return x / 2


def one_of_two(x):
    """Send a tensor one of two ways by raw ops of TensorFlow 1, and merge the ways again."""
    off, on = tf.raw_ops.Switch(data=tf.nn.relu(x), pred=tf.greater(1, 0))
    return tf.raw_ops.Merge(inputs=[tf.abs(off), tf.square(on)])[0]
