"""What is wrong with the gradients of lists of tensors, against the matrices of what gathers and scatters."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

raw = tf.raw_ops
X = np.array([1.0, 2.0, 3.0, 4.0])
SCALAR = np.array([], np.int32)


def selection(indices, size):
    """Return the matrix that takes `size` elements to those at the indices."""
    return np.eye(size)[indices]


def array_of(x, size=4, **attrs):
    return tf.TensorArray(x.dtype, size=size, element_shape=[], **attrs).unstack(x)


@tf.function
def gathered(x):
    y = array_of(x).gather([1, 3, 1])
    return y, tf.gradients(y, x, tf.constant([10.0, 20.0, 40.0], tf.float64))[0]


def test_the_last_of_repeated_indices_overwrites_the_others_upstreams():
    y, gradient = gathered(tf.constant(X))
    matrix = selection([1, 3, 1], 4)
    np.testing.assert_allclose(y, matrix @ X)
    np.testing.assert_allclose(matrix.T @ [10, 20, 40], [0, 50, 0, 20])
    np.testing.assert_allclose(gradient, [0, 40, 0, 20])


def test_eager_mode_adds_them():
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = array_of(x).gather([1, 3, 1])
    np.testing.assert_allclose(
        tape.gradient(y, x, tf.constant([10.0, 20.0, 40.0], tf.float64)), [0, 50, 0, 20]
    )


@tf.function
def scattered(x):
    y = tf.TensorArray(x.dtype, size=2, element_shape=[]).scatter([1, 0, 1], x).stack()
    return y, tf.gradients(y, x, tf.constant([10.0, 20.0], tf.float64))[0]


def test_a_value_that_another_overwrites_gets_its_gradient():
    y, gradient = scattered(tf.constant(X[:3]))
    matrix = np.array([[0, 1, 0], [0, 0, 1]])  # the last to be written stays
    np.testing.assert_allclose(y, matrix @ X[:3])
    np.testing.assert_allclose(matrix.T @ [10, 20], [0, 10, 20])
    np.testing.assert_allclose(gradient, [20, 10, 20])


@pytest.mark.parametrize("op_type", ["TensorListScatter", "TensorListScatterV2"])
def test_so_does_one_in_a_new_list(op_type):
    @tf.function
    def function(x):
        extra = {"num_elements": -1} if op_type == "TensorListScatterV2" else {}
        handle = getattr(raw, op_type)(tensor=x, indices=[1, 0, 1], element_shape=SCALAR, **extra)
        y = raw.TensorListStack(input_handle=handle, element_shape=SCALAR, element_dtype=x.dtype)
        return tf.gradients(y, x, tf.constant([10.0, 20.0], tf.float64))[0]

    np.testing.assert_allclose(function(tf.constant(X[:3])), [20, 10, 20])


def test_the_gradient_of_a_scatter_that_makes_the_list_longer_raises():
    @tf.function
    def function(x, u):
        y = array_of(x, dynamic_size=True).scatter([4, 1], u).stack()
        return y, tf.gradients(y, [x, u])

    y = np.array([1, 9, 3, 4, 8.0])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="expected a list with 4 elements but got a list with 5"
    ):
        np.testing.assert_allclose(function(tf.constant(X), tf.constant([8.0, 9.0], tf.float64))[0], y)
