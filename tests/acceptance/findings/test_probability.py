"""What is wrong with gradients of TensorFlow Probability, against derivatives by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("tf_keras")
tfp = pytest.importorskip("tensorflow_probability")

MATRIX = np.array([[2.0, 0.5, 0.1], [0.5, 1.5, 0.3], [0.1, 0.3, 1.0]])
HERMITIAN = MATRIX + 1j * np.array([[0, 0.4, -0.2], [-0.4, 0, 0.3], [0.2, -0.3, 0]])


def gradient(function, *inputs, upstream=None):
    tensors = [tf.constant(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
    return tape.gradient(y, tensors, output_gradients=upstream)


def test_the_parameters_of_an_inverse_gaussian_change_places():
    # A sample of IG(loc, c) is loc times one of IG(1, c / loc): z moves along (loc, c) as z does, so that
    # loc * dz/dloc + c * dz/dc = z. With the two in each other's place that is not so.
    loc, concentration = np.array([1.0, 2.0]), np.array([3.0, 0.5])
    draw = lambda loc, c: tfp.distributions.InverseGaussian(loc, c).sample(seed=(1, 2))  # noqa: E731
    by_loc, by_concentration = gradient(draw, loc, concentration)
    sample = draw(loc, concentration)
    np.testing.assert_allclose(loc * by_concentration + concentration * by_loc, sample, rtol=1e-6)
    assert not np.allclose(loc * by_loc + concentration * by_concentration, sample, rtol=0.01)


def test_the_quadratic_form_takes_its_upstream_for_symmetric():
    # y = r^T A^-1 r has the derivative A^-1 r (g + g^T) by r.
    rhs, upstream = np.array([[1.0, 0.2], [0.0, 1.0], [0.5, -0.3]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    form = lambda r: tfp.math.hpsd_quadratic_form_solve(tf.constant(MATRIX), r)  # noqa: E731
    (found,) = gradient(form, rhs, upstream=tf.constant(upstream))
    solved = np.linalg.solve(MATRIX, rhs)
    np.testing.assert_allclose(found, 2 * solved @ upstream, rtol=1e-9)
    assert not np.allclose(found, solved @ (upstream + upstream.T), rtol=0.01)


def test_the_determinant_of_a_hermitian_matrix():
    # d log det A = trace(A^-1 dA); the gradient is the adjoint of A^-1, which is A^-1 itself.
    (found,) = gradient(tfp.math.hpsd_logdet, HERMITIAN, upstream=tf.constant(1.0 + 0j, tf.complex128))
    inverse_factor = np.linalg.inv(np.linalg.cholesky(HERMITIAN))
    np.testing.assert_allclose(found, inverse_factor.T @ inverse_factor, rtol=1e-9)
    assert not np.allclose(found, np.linalg.inv(HERMITIAN), rtol=0.01)


def test_a_solve_with_a_hermitian_matrix():
    # x = A^-1 b has the gradient A^-H g by b, and A^-H is A^-1.
    rhs, upstream = np.array([[1.0 + 0j], [0.5], [-1.0]]), np.array([[1.0 + 0j], [0.0], [0.0]])
    (found,) = gradient(
        lambda b: tfp.math.hpsd_solve(tf.constant(HERMITIAN), b), rhs, upstream=tf.constant(upstream)
    )
    assert not np.allclose(found, np.linalg.solve(HERMITIAN, upstream), rtol=0.01)


def test_a_large_sigmoid_in_float32():
    # Its slope at 100 is exp(-100), which float32 holds as 3.8e-44; the branch not taken is exp(100) = inf.
    (found,) = gradient(tfp.bijectors.Sigmoid().forward, np.array([100.0], np.float32))
    assert np.isnan(found).all()
    (right,) = gradient(tf.math.sigmoid, np.array([100.0], np.float32))
    np.testing.assert_array_equal(right, [0.0])


def test_erfcx_of_large_numbers_in_float32():
    # erfcx'(x) = 2 x erfcx(x) - 2 / sqrt(pi), and -1 / (sqrt(pi) x^2) to first order for large x.
    (found,) = gradient(tfp.math.erfcx, np.array([2000.0], np.float32))
    exact = -1 / (np.sqrt(np.pi) * 2000.0**2)
    assert abs(found[0] / exact - 1) > 0.05


def test_the_degrees_of_freedom_of_a_noncentral_chi2():
    def cdf(x, df, noncentrality):
        return tfp.distributions.NoncentralChi2(df, noncentrality).cdf(x)

    point = [np.float64(2.0), np.float64(3.0), np.float64(1.0)]
    assert gradient(cdf, *point)[1] is None
    assert (cdf(2.0, 3.001, 1.0) - cdf(2.0, 2.999, 1.0)) / 0.002 < -0.05


def test_betainc_by_a_whole_parameter():
    mpmath = pytest.importorskip("mpmath")
    point = [np.float64(1.0), np.float64(10.0), np.float64(0.1)]
    found = gradient(tfp.math.betainc, *point)[0]
    exact = mpmath.diff(lambda a: mpmath.betainc(a, 10, 0, mpmath.mpf(0.1), regularized=True), 1)
    assert float(exact) == pytest.approx(-0.4022436)
    assert float(found) == pytest.approx(-0.7359857)


def test_the_cdf_of_a_laplace_variable_at_its_location():
    slopes = gradient(lambda x: tfp.distributions.Laplace(np.float64(0), 1.0).cdf(x), np.array([0.0, 1e-9]))[
        0
    ]
    np.testing.assert_allclose(slopes, [0.0, 0.5])  # the density is 1/2


def test_extreme_values_whose_concentration_is_0():
    # -(1 + 1/c) log(1 + c z) is -z + c (z^2 / 2 - z) + ... : at z = 1/2 its slope is -3/8.
    def density(concentration):
        return tfp.distributions.GeneralizedPareto(np.float64(0), np.float64(1), concentration).log_prob(
            np.float64(0.5)
        )

    assert float(gradient(density, np.float64(1e-6))[0]) == pytest.approx(-3 / 8, abs=1e-4)
    assert gradient(density, np.float64(0.0))[0] == 0


BIJECTORS = {
    "Power": (lambda: tfp.bijectors.Power(np.float64(3)).inverse, -8.0, 1 / 12),
    "Softfloor": (lambda: tfp.bijectors.Softfloor(np.float64(0.5)).inverse, 1.0, 1.1752011936),
    "GeneralizedPareto": (
        lambda: tfp.bijectors.GeneralizedPareto(*np.float64([0, 1, 0.5])).inverse_log_det_jacobian,
        2.0,
        -1 / (np.exp(2) - 1),
    ),
    "GeneralizedExtremeValueCDF": (
        lambda: tfp.bijectors.GeneralizedExtremeValueCDF(*np.float64([0, 1, 0])).forward,
        -2.0,
        np.exp(2 - np.exp(2)),
    ),
}


@pytest.mark.parametrize("name", BIJECTORS)
def test_bijectors_whose_other_branch_is_not_finite(name):
    make, at, exact = BIJECTORS[name]
    step = 1e-6
    low, high = (make()(tf.constant(at + sign * step, tf.float64)) for sign in (-1, 1))
    assert float(high - low) / (2 * step) == pytest.approx(exact, rel=1e-5)
    assert np.isnan(gradient(make(), np.float64(at))[0])


def test_the_inverse_of_lambert_w_at_its_shift():
    inverse = tfp.bijectors.LambertWTail(np.float64(0), 1.0, 0.3).inverse
    slopes = gradient(inverse, np.array([-1e-4, 0.0, 1e-4]))[0]
    np.testing.assert_allclose(slopes, [1.0, 0.0, 1.0], atol=1e-6)  # z exp(d z^2 / 2) has slope 1 at 0
