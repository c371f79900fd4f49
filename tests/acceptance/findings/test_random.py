"""What is wrong with the gradients of a truncated normal's samples, against the quantile and by symmetry."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import tensorflow as tf

MEAN, STDDEV, LOW, HIGH = 0.3, 1.2, -1.0, 1.5


def sample_and_gradients(mean, stddev, low, high):
    parameters = [tf.constant(value, tf.float64) for value in (mean, stddev, low, high)]
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        y = tf.random.stateless_parameterized_truncated_normal([1], [1, 2], *parameters)
    return float(y[0]), [float(found) for found in tape.gradient(y, parameters)]


def at_quantile(quantile, mean, stddev, low, high):
    """Return the sample at a quantile of the truncated distribution."""
    ends = [mpmath.ncdf((bound - mean) / stddev) for bound in (low, high)]
    place = ends[0] + quantile * (ends[1] - ends[0])
    return mean + stddev * mpmath.sqrt(2) * mpmath.erfinv(2 * place - 1)


def test_the_bounds_are_right_mean_and_stddev_are_not():
    point = (MEAN, STDDEV, LOW, HIGH)
    sample, found = sample_and_gradients(*point)
    ends = [mpmath.ncdf((bound - MEAN) / STDDEV) for bound in (LOW, HIGH)]
    quantile = (mpmath.ncdf((sample - MEAN) / STDDEV) - ends[0]) / (ends[1] - ends[0])
    exact = [
        float(
            mpmath.diff(
                lambda value, i=i: at_quantile(quantile, *point[:i], value, *point[i + 1 :]), point[i]
            )
        )
        for i in range(4)
    ]
    np.testing.assert_allclose(found[2:], exact[2:], rtol=1e-6)
    assert found[0] == 1
    assert exact[0] < 0.6
    assert found[1] == pytest.approx((sample - MEAN) / STDDEV)
    assert abs(found[1] - exact[1]) > 0.05


def test_moving_all_together_moves_the_sample_as_far():
    _, (mean, _, low, high) = sample_and_gradients(MEAN, STDDEV, LOW, HIGH)
    # Mean and bounds moved by h move every sample by h: the three derivatives add up to 1. They don't.
    assert mean + low + high > 1.4


def test_a_mean_hardly_moves_samples_between_narrow_bounds():
    # Nearly uniform on [0, 0.01], whatever the mean; the gradient says that the sample moves along.
    _, found = sample_and_gradients(0.0, 1.0, 0.0, 0.01)
    assert found[0] == 1
