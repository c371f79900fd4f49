"""What is wrong with the gradient of tf.py_function, against derivatives by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

X = np.array([1.1, 1.2])


def square(x):
    y = tf.py_function(lambda value: value * value, [x], x.dtype)
    y.set_shape(x.shape)
    return y


def gradient(function, *tensors, by=0):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
    return tape.gradient(y, tensors[by])


def test_the_gradient_for_a_tensor_that_is_ignored_is_a_scalar():
    def function(_, x):
        return tf.py_function(lambda _, x: x * 2, [_, x], x.dtype)

    ignored, x = tf.ones([3]), tf.ones([2])
    assert gradient(function, ignored, x).shape == []  # not [3]
    assert tf.function(gradient)(function, ignored, x).shape == []


@pytest.mark.parametrize("call", [gradient, tf.function(gradient)], ids=["eager", "graph"])
def test_integers_beside_a_tensor_make_the_gradient_raise(call):
    def function(x, n):
        return tf.py_function(lambda x, n: x * tf.cast(n, x.dtype), [x, n], x.dtype)

    with pytest.raises((tf.errors.InvalidArgumentError, TypeError)):
        call(function, tf.constant(X), tf.constant([1, 2]))


def test_a_loop_in_a_graph_has_the_last_rounds_tape_alone():
    def cubed(x):
        y = x
        for _ in tf.range(3):
            y = square(y)
        return y

    np.testing.assert_allclose(gradient(cubed, tf.constant(X)), 8 * X**7)
    with pytest.raises(tf.errors.UnknownError):
        tf.function(lambda x: gradient(cubed, x))(tf.constant(X))


def test_a_second_gradient_in_a_graph_finds_no_tape():
    @tf.function
    def function(x):
        y = square(x)
        return tf.gradients(y, x)[0] + tf.gradients(3 * y, x)[0]

    with pytest.raises(tf.errors.UnknownError):
        function(tf.constant(X))


def test_the_second_derivative_is_none():
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        first = gradient(square, x)
    np.testing.assert_allclose(first, 2 * X)
    assert outer.gradient(first, x) is None  # not 2
