"""What is wrong with gradients of TensorFlow Probability, against derivatives by hand."""

from __future__ import annotations

import mpmath as mp
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


def made(name, *parameters):
    """Return a distribution with parameters of float64, some of which may be tensors already."""
    return getattr(tfp.distributions, name)(*(tf.cast(value, tf.float64) for value in parameters))


def noncentral_chi2(df):
    x, noncentrality = mp.mpf(2), mp.mpf("1.5")
    order = df / 2 - 1
    bessel = mp.log(mp.besseli(order, mp.sqrt(x * noncentrality)))
    return -(x + noncentrality) / 2 + order / 2 * mp.log(x / noncentrality) + bessel


def beta_quotient(a):
    b, c, d, x = map(mp.mpf, ("1.2", "1.4", "1.5", "0.2"))
    constants = mp.log(mp.beta(a + c, d)) - mp.log(mp.beta(a, b))
    return constants + a * mp.log(x) + mp.log(mp.hyp2f1(a + c, 1 - b, a + c + d, x))


# By name: a method as a function of one number, where its gradient is wrong, and the same in mpmath.
IN_FIFTY_DIGITS = {
    "zipf": (
        lambda s: made("Zipf", s).log_prob(2.0),
        3.5,
        lambda s: -s * mp.log(2) - mp.log(mp.zeta(s)),
    ),
    "skellam": (
        lambda rate: made("Skellam", rate, 2.7).log_prob(np.float64(-2)),
        0.7,
        lambda a: -a - mp.log(a / mp.mpf("2.7")) + mp.log(mp.besseli(2, 2 * mp.sqrt(a * mp.mpf("2.7")))),
    ),
    "noncentral_chi2": (lambda df: made("NoncentralChi2", df, 1.5).log_prob(2.0), 3.0, noncentral_chi2),
    "beta_quotient": (lambda a: made("BetaQuotient", a, 1.2, 1.4, 1.5).log_prob(0.2), 1.3, beta_quotient),
    "generalized_normal": (
        lambda scale: made("GeneralizedNormal", 0, scale, 2).quantile(np.float64(0.7)),
        1.0,
        lambda scale: scale * mp.erfinv(mp.mpf("0.4")),
    ),
    "continuous_bernoulli": (
        lambda s: tfp.distributions.ContinuousBernoulli(s, dtype=tf.float64).cdf(0.3),
        0.0,
        lambda s: mp.expm1(s * mp.mpf("0.3")) / mp.expm1(s) if s else mp.mpf("0.3"),
    ),
    "von_mises": (
        lambda k: made("VonMises", 0, k).cdf(0.6),
        0.0,
        lambda k: (
            mp.quad(lambda t: mp.exp(k * mp.cos(t)), [-mp.pi, mp.mpf("0.6")]) / (2 * mp.pi * mp.besseli(0, k))
        ),
    ),
    "exponentially_modified_gaussian": (
        lambda x: made("ExponentiallyModifiedGaussian", 0, 1, 1).log_survival_function(x),
        45.0,
        lambda x: mp.log(mp.ncdf(-x) + mp.exp(mp.mpf(1) / 2 - x) * mp.ncdf(x - 1)),
    ),
    "log1mexp": (tfp.math.log1mexp, 1e-17, lambda x: mp.log(-mp.expm1(-x))),
    "pareto": (lambda a: made("Pareto", a, 1).survival_function(0.5), 2.0, lambda a: mp.mpf(1) + 0 * a),
    "weibull": (
        lambda k: made("Weibull", k, 1).log_prob(0.5),
        1.0,
        lambda k: mp.log(k) + (k - 1) * mp.log(mp.mpf("0.5")) - mp.mpf("0.5") ** k,
    ),
}


@pytest.mark.parametrize("name", IN_FIFTY_DIGITS)
def test_a_derivative_in_fifty_digits(name):
    function, at, exact = IN_FIFTY_DIGITS[name]
    (found,) = gradient(function, np.float64(at))
    with mp.workdps(50):
        step = mp.mpf(10) ** -20
        slope = float((exact(mp.mpf(at) + step) - exact(mp.mpf(at) - step)) / (2 * step))
    # Beside the point, or by differences of its own, the function agrees with the slope.
    near = 1e-4 * max(abs(at), 1e-3)
    low, high = (float(function(tf.constant(at + sign * near, tf.float64))) for sign in (-1, 1))
    if name != "log1mexp":  # its slope changes by a hundred of itself from one step to the next
        assert (high - low) / (2 * near) == pytest.approx(slope, rel=1e-5, abs=1e-9)
    assert not np.isclose(found, slope, rtol=1e-3)
