"""What is wrong with the gradients of cropped transforms, against the transform's own matrix, transposed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

REAL = np.array([1.0, 2.0, 3.0, 4.0])
SPECTRUM = np.array([1 + 1j, 2 - 1j, 3.0, 4 + 2j])


def gradient(function, x):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x).numpy()


def dft(rows, columns):
    """Return the matrix that takes values to their spectrum."""
    return np.exp(-2j * np.pi * np.outer(np.arange(rows), np.arange(columns)) / columns)


def test_a_cropped_rfft_of_length_1_hands_a_gradient_to_what_was_cropped():
    def power(x):
        return tf.abs(tf.signal.rfft(x, [1])[0]) ** 2

    matrix = np.zeros((1, 4))
    matrix[:, :1] = dft(1, 1).real
    exact = 2 * matrix.T @ matrix @ REAL
    np.testing.assert_allclose(exact, [2, 0, 0, 0])
    np.testing.assert_allclose(gradient(power, REAL), [5, 5, 5, 5])


def test_a_cropped_rfft2d_does_too():
    found = gradient(lambda x: tf.math.real(tf.signal.rfft2d(x, [3, 1])[0, 0]), np.ones((3, 3)))
    exact = np.zeros((3, 3))
    exact[:, 0] = dft(1, 3).real[0]
    np.testing.assert_allclose(found, np.full((3, 3), 2.0))
    assert not np.allclose(found, exact)


def test_a_cropped_irfft_of_length_1_does_too():
    # One value is the real part of frequency 0.
    np.testing.assert_allclose(gradient(lambda z: tf.signal.irfft(z, [1])[0], SPECTRUM), [1, 2, 2, 2])
    np.testing.assert_allclose(tf.signal.irfft(SPECTRUM, [1])[0], SPECTRUM[0].real)
    np.testing.assert_allclose(tf.signal.irfft(SPECTRUM + np.array([0, 1, 1, 1]), [1])[0], SPECTRUM[0].real)


def test_rows_that_an_irfft2d_crops_are_missing_from_its_gradient():
    found = gradient(lambda z: tf.signal.irfft2d(z, [3, 4])[0, 0], np.ones((4, 3), complex))
    assert found.shape == (3, 3)


@pytest.mark.parametrize("length", [5, 6])
def test_other_cropped_lengths_raise(length):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        gradient(lambda x: tf.abs(tf.signal.rfft(x, [length])[1]), np.arange(8.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        gradient(lambda z: tf.signal.irfft(z, [length])[0], np.ones(5, complex))
