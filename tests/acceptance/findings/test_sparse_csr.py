"""What is wrong with the gradients of compressed sparse rows, against the same product, dense."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

PLACES = np.array([[0, 0], [0, 2], [1, 1]])
VALUES = np.array([2.0, 3.0, 5.0])


def csr(indices, values, shape):
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=tf.constant(indices, tf.int64), values=values, dense_shape=tf.constant(shape, tf.int64)
    )


def product(values, other_places):
    """Multiply the matrix of these values, 2 x 3, by one of ones in some places, 3 x 2."""
    ones = tf.ones([len(other_places)], tf.float64)
    matrix = tf.raw_ops.SparseMatrixSparseMatMul(
        a=csr(PLACES, values, [2, 3]), b=csr(other_places, ones, [3, 2]), type=tf.float64
    )
    return tf.raw_ops.CSRSparseMatrixToDense(sparse_input=matrix, type=tf.float64)


def found_gradient(other_places):
    @tf.function
    def of(values):
        return tf.gradients(product(values, other_places), values)[0]

    return of(tf.constant(VALUES)).numpy()


def exact_gradient(other_places):
    other = np.zeros((3, 2))
    other[tuple(np.transpose(other_places))] = 1.0
    return (np.ones((2, 2)) @ other.T)[tuple(PLACES.T)]


def test_a_full_matrix_is_right():
    places = [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    np.testing.assert_allclose(found_gradient(places), exact_gradient(places))


def test_an_empty_row_loses_a_value():
    places = [[1, 1], [2, 0]]
    np.testing.assert_allclose(exact_gradient(places), [0, 1, 1])
    np.testing.assert_allclose(found_gradient(places), [1, 1])


def test_an_empty_row_that_the_last_value_meets_raises():
    places = [[0, 0], [2, 0]]
    np.testing.assert_allclose(exact_gradient(places), [1, 1, 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        found_gradient(places)


def test_a_matrix_can_not_be_used_twice():
    @tf.function
    def of(values):
        matrix = csr(PLACES, values, [2, 3])
        dense = [tf.raw_ops.CSRSparseMatrixToDense(sparse_input=matrix, type=tf.float64) for _ in range(2)]
        return tf.gradients(dense[0] + 2 * dense[1], values)[0]

    with pytest.raises(tf.errors.InternalError, match="op ADD"):
        of(tf.constant(VALUES))
