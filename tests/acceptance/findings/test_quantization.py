"""What is wrong with gradients of quantization, against where its forward clamps."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

quantize = tf.quantization.quantize_and_dequantize_v2
X = np.array([-2.5, -1.5, -0.41, 0.13, 0.77, 2.6])


def gradient(function, x):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x).numpy()


def slope(function, x, reach=0.3):
    """Return the slope of each element over a distance that spans many steps of an 8-bit staircase."""
    slopes = []
    for number in range(len(x)):
        high, low = x.copy(), x.copy()
        high[number] += reach
        low[number] -= reach
        slopes.append((function(high)[number] - function(low)[number]) / (2 * reach))
    return np.array(slopes)


def test_with_the_range_found_in_the_data_there_is_no_gradient_at_all():
    def found_range(x):
        return quantize(x, 0.0, 0.0, range_given=False)

    # Nothing is clamped: every element follows its input.
    np.testing.assert_allclose(slope(found_range, X), np.ones(6), atol=0.1)
    np.testing.assert_array_equal(gradient(found_range, X), np.zeros(6))


def test_a_lopsided_range_is_widened_by_the_forward_and_not_by_the_gradient():
    def lopsided(x):
        return quantize(x, -1.0, 2.0, range_given=True)

    # Signed steps of 2 / 127 reach down to -128 * 2 / 127 = -2.016.
    assert float(lopsided(X)[1]) == pytest.approx(-1.5, abs=0.01)
    assert slope(lopsided, X)[1] == pytest.approx(1, abs=0.1)
    np.testing.assert_array_equal(gradient(lopsided, X), [0, 0, 1, 1, 1, 0])


def test_a_second_derivative_raises():
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = tf.reduce_sum(quantize(x, -1.0, 1.0, range_given=True) ** 2)
        first = inner.gradient(loss, x)
    with pytest.raises(TypeError, match="takes 2 positional arguments but 4 were given"):
        outer.gradient(first, x)


def test_quantizing_each_row_by_its_own_range_has_no_gradient():
    x = tf.constant(X.reshape(2, 3))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = quantize(x, 0.0, 0.0, range_given=False, axis=0)
    np.testing.assert_allclose(y, x, atol=0.02)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Shape must be rank 1"):
        tape.gradient(y, x)


def test_the_gradient_of_fake_quantization_has_none_of_its_own():
    x = tf.constant([-0.4, 0.3, 2.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = tf.reduce_sum(tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 1.0) ** 2)
        first = inner.gradient(loss, x)
    # first = 2 q(x) where x isn't clamped, and q'(x) = 1 there by the first order's own rule: 2, 2, 0.
    np.testing.assert_allclose(first, [-0.8, 0.6, 0], atol=0.02)
    assert outer.gradient(first, x) is None
