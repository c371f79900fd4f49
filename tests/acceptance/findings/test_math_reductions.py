"""What is wrong with the gradients of reductions, products and segments, against derivatives by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

Z = np.array([1.5 + 0.5j, 0.8 - 1.1j, -0.3 + 0.9j])


def gradient(function, x, upstream=None):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, None if upstream is None else tf.constant(upstream, y.dtype)).numpy()


def hessian(function, x):
    x = tf.constant(x)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = function(x)
        first = inner.gradient(y, x)
    return outer.jacobian(first, x).numpy()


def products_without(x, among):
    """Return, of each element, the product of the others among which it is."""
    return np.array([np.prod([x[other] for other in among if other != one]) for one in among])


def test_cumprod_of_a_zero():
    x = np.array([1.0, 0.0, 3.0, 2.0])
    # y1 = x0 x1, y2 = x0 x1 x2, y3 = x0 x1 x2 x3; dL/dx1 of their sum is x0 (1 + x2 + x2 x3).
    exact = x[0] * (1 + x[2] + x[2] * x[3])
    found = gradient(tf.math.cumprod, x)
    assert (exact, found[1]) == (10, 0)


def test_cumprod_of_complex_numbers():
    # y2 = x0 x1 x2 alone: conj(x1 x2), conj(x0 x2), conj(x0 x1).
    exact = np.conj(products_without(Z, range(3)))
    found = gradient(lambda x: tf.math.cumprod(x)[2], Z, 1)
    np.testing.assert_allclose(found, np.conj(exact))
    assert not np.allclose(found, exact)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.math.segment_prod(x, [0, 0, 0])[0],
        lambda x: tf.math.unsorted_segment_prod(x, [0, 0, 0], 1)[0],
    ],
    ids=["segment_prod", "unsorted_segment_prod"],
)
def test_segment_products_of_complex_numbers(function):
    exact = np.conj(products_without(Z, range(3)))
    found = gradient(function, Z, 1)
    np.testing.assert_allclose(found, np.conj(exact))
    np.testing.assert_allclose(gradient(tf.reduce_prod, Z, 1), exact)  # which has it right


def test_the_norm_of_a_zero_row():
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    # The norm of the second row alone; the first has no part in it.
    found = gradient(lambda x: tf.math.reduce_euclidean_norm(x, axis=1)[1], x)
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], [0.6, 0.8])


def test_the_norm_of_complex_numbers_moves_with_an_imaginary_upstream():
    # L = Re(conj(u) |z|) = 0 for an imaginary u, whatever z.
    found = gradient(tf.math.reduce_euclidean_norm, Z, 1j)
    np.testing.assert_allclose(found, 1j * Z / np.linalg.norm(Z))


@pytest.mark.parametrize(
    "reduce",
    [
        tf.reduce_sum,
        tf.reduce_mean,
        tf.reduce_prod,
        tf.reduce_max,
        tf.reduce_min,
        tf.math.reduce_euclidean_norm,
    ],
    ids=["sum", "mean", "prod", "max", "min", "euclidean_norm"],
)
def test_an_axis_that_is_a_tensor_of_int64_raises(reduce):
    @tf.function
    def reduced(x, axis):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = reduce(x, axis=axis)
        return y, tape.gradient(y, x)

    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    reduced(x, tf.constant(0, tf.int32))
    with pytest.raises(TypeError, match="do not match expected type int32"):
        reduced(x, tf.constant(0, tf.int64))


def test_cumulative_logsumexp_of_minus_infinity():
    # y1 = log(exp(-inf) + exp(2)) = 2: slopes 0 and 1.
    found = gradient(lambda x: tf.math.cumulative_logsumexp(x)[1], np.array([-np.inf, 2.0]))
    np.testing.assert_allclose(found, [np.nan, 1])


def test_a_segment_product_that_underflows_or_overflows():
    # Each element's slope is the other one.
    for x in ([1e-200, 1e-200], [2.0, np.inf]):
        exact = np.array(x)[::-1]
        np.testing.assert_array_equal(gradient(tf.reduce_prod, np.array(x)), exact)
        found = gradient(lambda x: tf.math.segment_prod(x, [0, 0]), np.array(x))
        assert not np.array_equal(found, exact)


def test_a_product_of_int8_and_bfloat16_raises():
    a, b = tf.constant([[1, 2], [3, 4]], tf.int8), tf.Variable([[1, 2], [3, 5]], dtype=tf.bfloat16)
    with tf.GradientTape() as tape:
        y = tf.matmul(a, b, output_type=tf.bfloat16)
    np.testing.assert_array_equal(tf.cast(y, tf.float32), [[7, 12], [15, 26]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Value for attr 'T' of int8"):
        tape.gradient(y, b)


# --- second order ---


def test_the_hessian_of_a_product_with_a_zero():
    found = hessian(tf.reduce_prod, np.array([0.0, 2.0, 3.0]))
    exact = np.array([[0, 3, 2], [3, 0, 0], [2, 0, 0]])  # the product of the elements that are left
    assert not np.allclose(found, exact)
    np.testing.assert_allclose(found[0], exact[0])
    np.testing.assert_allclose(hessian(tf.reduce_prod, np.array([1.0, 2.0, 3.0]))[0], [0, 3, 2])


def test_the_hessian_of_a_segment_product_with_two_zeros():
    found = hessian(lambda x: tf.math.segment_prod(x, [0, 0, 0])[0], np.array([0.0, 0.0, 1.0]))
    np.testing.assert_array_equal(found, np.zeros((3, 3)))  # d2y/dx0 dx1 is x2 = 1


def test_the_hessian_of_an_unsorted_segment_product_with_a_zero():
    found = hessian(lambda x: tf.math.unsorted_segment_prod(x, [0, 0, 0], 1)[0], np.array([0.0, 2.0, 3.0]))
    assert np.isnan(found).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.math.segment_mean(x, [0, 2]),
        lambda x: tf.math.segment_max(x, [0, 2]),
        lambda x: tf.math.segment_min(x, [0, 2]),
        lambda x: tf.math.unsorted_segment_max(x, [0, 2], 3),
        lambda x: tf.math.unsorted_segment_min(x, [0, 2], 3),
    ],
    ids=["mean", "max", "min", "unsorted_max", "unsorted_min"],
)
def test_a_gradient_by_the_upstream_of_an_empty_segment(function):
    x, upstream = tf.constant([1.0, 2.0]), tf.Variable([1.0, 1.0, 1.0])
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = function(x)
        first = inner.gradient(y, x, upstream)
    # Each row is a segment of its own here: the gradient is the upstream of its segment.
    np.testing.assert_array_equal(first, [1, 1])
    np.testing.assert_array_equal(outer.gradient(first, upstream), [1, np.nan, 1])
