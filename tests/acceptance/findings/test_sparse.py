"""What is wrong with the gradients of sparse tensors, against what is written where."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf


def gradients(function, *inputs):
    inputs = [tf.constant(value) for value in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
    return [None if found is None else found.numpy() for found in tape.gradient(y, inputs)]


def to_dense(indices, shape, values, default):
    return tf.raw_ops.SparseToDense(
        sparse_indices=indices,
        output_shape=shape,
        sparse_values=values,
        default_value=default,
        validate_indices=False,
    )


def test_one_value_for_all_indices():
    places = [[0, 0], [0, 2], [1, 1]]
    found, _ = gradients(lambda value, default: to_dense(places, [2, 3], value, default), 2.0, 0.5)
    np.testing.assert_array_equal(found, [1, 1, 1])
    written = to_dense(places, [2, 3], 2.0, 0.0) / 2.0
    assert float(tf.reduce_sum(written)) == 3


def test_repeated_indices():
    def dense(values, default):
        return to_dense([[0], [0]], [3], values, default)

    of_values, of_default = gradients(dense, np.array([2.0, 3.0]), np.array(0.5))
    np.testing.assert_array_equal(of_values, [1, 1])
    assert of_default == 1
    # The forward is linear: what it makes of one at each input, and zero elsewhere, are its derivatives.
    one = np.eye(2)
    by_values = [float(tf.reduce_sum(dense(one[n], np.array(0.0)))) for n in range(2)]
    assert by_values == [0, 1]
    assert float(tf.reduce_sum(dense(np.zeros(2), np.array(1.0)))) == 2


def test_indices_without_a_column_raise():
    with pytest.raises(tf.errors.InvalidArgumentError, match="innermost dimension"):
        gradients(
            lambda values, default: to_dense([0, 2], [3], values, default),
            np.ones(2, np.float32),
            np.float32(0),
        )


def test_a_sparse_tensor_times_a_scalar_raises():
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least a vector"):
        gradients(lambda x: (tf.SparseTensor([[0, 1]], x, [2, 2]) * 2.0).values, np.ones(1, np.float32))


def test_a_sum_of_sparse_tensors_has_no_second_order():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            total = tf.sparse.add(
                tf.SparseTensor([[0], [2]], x, [3]), tf.SparseTensor([[1], [2]], tf.constant([5.0, 7.0]), [3])
            )
            y = tf.reduce_sum(total.values**3)
        first = inner.gradient(y, x)
    second = outer.gradient(first, x)
    # y = x0^3 + 5^3 + (x1 + 7)^3: the gradient is 3 x0^2 and 3 (x1 + 7)^2, and moves with x.
    np.testing.assert_allclose(first, [3, 3 * 81])
    assert second is None
