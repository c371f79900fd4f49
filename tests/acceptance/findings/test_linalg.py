"""What is wrong with the gradients of linear algebra, against closed forms: by hand, or by mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import tensorflow as tf

ONE_PLUS_I = np.array([[1 + 1j]])
COMPLEX = np.array([[1.5 + 0.5j, -0.25 + 1j], [0.75 - 0.5j, 0.5 + 2j]])
DIRECTION = np.array([[0.5 - 1j, 1 + 0.25j], [-0.75 + 0.5j, 0.25 + 1j]])


def gradient(function, x):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x).numpy()


def along(found, direction):
    return float(np.real(np.sum(np.conj(found) * direction)))


def larger_eigenvector(a, b, d):
    """Return |v_0|^2, v the eigenvector of the larger eigenvalue of [[a, b], [conj(b), d]]."""
    return (1 + (a - d) / mpmath.sqrt((a - d) ** 2 + 4 * abs(b) ** 2)) / 2


def first_left_vector(matrix):
    """Return |u[0, 0]|^2 in closed form: u are the eigenvectors of A A^H."""
    gram = matrix * matrix.H
    return larger_eigenvector(mpmath.re(gram[0, 0]), gram[0, 1], mpmath.re(gram[1, 1]))


def test_complex_determinants():
    found = gradient(lambda a: tf.math.real(tf.linalg.det(a)), np.array([[1 + 1j, 0], [0, 2]]))
    # det = a d, so its real part has the gradients conj(d) by a and conj(a) by d.
    np.testing.assert_allclose(np.diag(found), [2j, 1 + 1j])
    assert not np.allclose(np.diag(found), [2, 1 - 1j])


def test_determinants_of_singular_matrices_raise_though_the_adjugate_is_finite():
    with pytest.raises(tf.errors.InvalidArgumentError, match="not invertible"):
        gradient(tf.linalg.det, np.array([[1.0, 2.0], [2.0, 4.0]]))


def test_complex_square_roots():
    found = gradient(lambda a: tf.math.real(tf.linalg.sqrtm(a)[0, 0]), np.array([[2j]]))
    np.testing.assert_allclose(found, [[0.25 - 0.25j]])
    assert not np.allclose(found, 1 / (2 * np.conj(1 + 1j)))


def least_squares(matrices):
    """Return the real parts of the solutions of a x = 1, over many of them."""
    right = tf.ones([tf.shape(matrices)[0], 1, 1], tf.complex128)
    return tf.reduce_sum(tf.math.real(tf.linalg.lstsq(matrices, right)))


def test_complex_least_squares_of_many_small_matrices():
    exact = np.conj(-1 / (1 + 1j) ** 2)
    np.testing.assert_allclose(gradient(least_squares, np.tile(ONE_PLUS_I, [2, 1, 1])).ravel(), exact)
    many = gradient(least_squares, np.tile(ONE_PLUS_I, [20_000, 1, 1]))
    np.testing.assert_allclose(many.ravel(), -0.5, atol=1e-12)
    assert abs(-0.5 - exact) > 0.5


def test_complex_tridiagonal_matrices():
    def solution(diagonals):
        return tf.math.real(tf.linalg.tridiagonal_solve(diagonals, tf.constant([1 + 0j], tf.complex128))[0])

    found = gradient(solution, np.array([[0], [1 + 1j], [0]]))[1, 0]
    exact = np.conj(-1 / (1 + 1j) ** 2)
    assert found == pytest.approx(0.5j)
    assert exact == pytest.approx(-0.5j)


def test_the_phase_of_a_complex_determinant():
    def phase(a):
        return tf.math.imag(tf.linalg.slogdet(a)[0])

    np.testing.assert_array_equal(gradient(phase, ONE_PLUS_I), 0)
    # sin of the angle of x + i y is y / r: by x it is -x y / r^3, by y it is x^2 / r^3.
    exact = (-1 + 1j) / 2**1.5
    step = 1e-6
    moved = [float(phase(tf.constant(ONE_PLUS_I + sign * step))) for sign in (1, -1)]
    assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(exact.real)


def test_the_second_order_of_complex_singular_vectors():
    a = tf.constant(COMPLEX)
    with tf.GradientTape() as outer:
        outer.watch(a)
        with tf.GradientTape() as inner:
            inner.watch(a)
            y = tf.abs(tf.linalg.svd(a)[1][0, 0]) ** 2
        first = inner.gradient(y, a)
        slope = tf.math.real(tf.reduce_sum(tf.math.conj(first) * DIRECTION))
    second = outer.gradient(slope, a).numpy()
    with mpmath.workdps(40):
        start, way = mpmath.matrix(COMPLEX.tolist()), mpmath.matrix(DIRECTION.tolist())
        exact = [float(mpmath.diff(lambda t: first_left_vector(start + t * way), 0, n)) for n in (1, 2)]
    assert along(first.numpy(), DIRECTION) == pytest.approx(exact[0], rel=1e-9)
    assert along(second, DIRECTION) != pytest.approx(exact[1], rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_vectors_of_small_matrices(dtype):
    matrix = np.array([[2.0, 1.0], [-1.0, 3.0]])

    def found(scale):
        return (
            gradient(lambda a: tf.linalg.svd(a)[1][0, 0] ** 2, (scale * matrix).astype(dtype))[0, 0] * scale
        )

    with mpmath.workdps(40):
        start = mpmath.matrix(matrix.tolist())
        one = mpmath.matrix([[1, 0], [0, 0]])
        exact = float(mpmath.diff(lambda t: first_left_vector(start + t * one), 0))
    assert found(1.0) == pytest.approx(exact, rel=1e-4)
    assert found(1e-6) == pytest.approx(0.0029 * exact, rel=0.05)  # it doesn't depend on the scale


def test_eigenvectors_of_small_matrices():
    def found(scale):
        matrix = scale * np.array([[2.0, 1.0], [1.0, 3.0]])
        return gradient(lambda a: tf.linalg.eigh(a)[1][0, 1] ** 2, matrix)[0, 0] * scale

    with mpmath.workdps(40):
        exact = float(mpmath.diff(lambda a: larger_eigenvector(a, 1, 3), 2))
    assert found(1.0) == pytest.approx(exact)
    assert found(1e-11) == pytest.approx(0.048 * exact, rel=0.05)


def test_the_polar_factor_of_a_rotation():
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])

    def nearest_rotation(a):
        _, u, v = tf.linalg.svd(a)
        return tf.matmul(u, v, transpose_b=True)[0, 1]

    np.testing.assert_array_equal(gradient(nearest_rotation, rotation), 0)
    # The nearest rotation to [[a, b], [c, d]] has the angle atan2(c - b, a + d); by a that is -(c - b) / r^2.
    angle = np.arctan2(1.6, 1.2)
    exact = -np.cos(angle) * -1.6 / (1.6**2 + 1.2**2)
    step = 1e-6
    one = np.array([[1.0, 0.0], [0.0, 0.0]])
    moved = [float(nearest_rotation(tf.constant(rotation + sign * step * one))) for sign in (1, -1)]
    assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(exact, rel=1e-6)
    assert exact == pytest.approx(0.24)


def test_a_single_band_loses_its_dimension():
    found = gradient(
        lambda m: tf.reduce_sum(tf.linalg.banded_triangular_solve(m, tf.ones((3, 1), tf.float64))),
        np.array([[1.0, 2.0, 4.0]]),
    )
    assert found.shape == (3,)
    np.testing.assert_allclose(found, [-1, -1 / 4, -1 / 16])
