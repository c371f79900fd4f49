"""What is wrong with elementwise gradients, against derivatives worked out by hand or by mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import tensorflow as tf

Z, W = 1.5 + 0.5j, 0.8 - 1.1j
U = 0.7 + 0.4j


def gradients(function, *values, upstream=None):
    tensors = [tf.convert_to_tensor(value) for value in values]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
    flow = None if upstream is None else tf.constant(upstream, y.dtype)
    return [None if found is None else found.numpy() for found in tape.gradient(y, tensors, flow)]


def wide(*values):
    return [np.array(value, np.float64) for value in values]


def complex_gradient(function, *points, upstream):
    """Return dL/dRe + i dL/dIm of L = Re(conj(upstream) f), by differences of NumPy's own f."""
    step, found = 1e-6, []
    for number in range(len(points)):
        parts = []
        for direction in (1, 1j):
            moved = [[*points], [*points]]
            for sign, point in zip((1, -1), moved, strict=True):
                point[number] += sign * step * direction
            values = [(np.conj(upstream) * function(*point)).real for point in moved]
            parts.append((values[0] - values[1]) / (2 * step))
        found.append(complex(*parts))
    return found


def test_bessel_i1_has_twice_its_slope_at_0():
    exact = float(mpmath.diff(lambda x: mpmath.besseli(1, x), 0))
    assert exact == pytest.approx(0.5)
    assert gradients(tf.math.bessel_i1, *wide(0)) == [1.0]
    assert gradients(tf.math.bessel_i1, *wide(1e-9)) == [pytest.approx(0.5)]


@pytest.mark.parametrize(
    ("function", "exact"),
    [(tf.math.xlogy, np.log(2)), (tf.math.xlog1py, np.log(3)), (tf.math.xdivy, 1 / 2)],
    ids=["xlogy", "xlog1py", "xdivy"],
)
def test_what_is_linear_in_x_has_no_slope_at_0(function, exact):
    # The function itself says what the slope is: f(h, 2) / h.
    assert function(*wide(1e-3, 2)).numpy() / 1e-3 == pytest.approx(exact)
    assert gradients(function, *wide(0, 2))[0] == 0


COMPLEX = {
    "xlogy": (tf.math.xlogy, lambda x, y: x * np.log(y)),
    "xlog1py": (tf.math.xlog1py, lambda x, y: x * np.log(1 + y)),
    "xdivy": (tf.math.xdivy, lambda x, y: x / y),
    "multiply_no_nan": (tf.math.multiply_no_nan, lambda x, y: x * y),
}


@pytest.mark.parametrize(("function", "formula"), COMPLEX.values(), ids=COMPLEX)
def test_complex_gradients_that_are_not_conjugated(function, formula):
    exact = complex_gradient(formula, Z, W, upstream=1)
    found = gradients(function, np.array(Z), np.array(W), upstream=1)
    np.testing.assert_allclose(found, np.conj(exact), rtol=1e-6)
    assert not np.allclose(found, exact)


def test_a_complex_squared_difference_moves_with_an_imaginary_upstream():
    exact = complex_gradient(lambda x, y: abs(x - y) ** 2, Z, W, upstream=U)
    np.testing.assert_allclose(exact[0], 2 * U.real * (Z - W), rtol=1e-6)
    found = gradients(tf.math.squared_difference, np.array(Z), np.array(W), upstream=U)
    np.testing.assert_allclose(found[0], 2 * U * (Z - W))
    # ... which a real upstream doesn't show.
    found = gradients(tf.math.squared_difference, np.array(Z), np.array(W), upstream=1)
    np.testing.assert_allclose(found[0], 2 * (Z - W))


def test_the_sign_of_a_complex_number_is_not_flat():
    (exact,) = complex_gradient(lambda z: z / abs(z), Z, upstream=U)
    assert abs(exact) > 0.05
    assert gradients(lambda z: tf.raw_ops.Sign(x=z), np.array(Z), upstream=U) == [0]
    # tf.sign of complex numbers is made of other ops, and right.
    np.testing.assert_allclose(gradients(tf.sign, np.array(Z), upstream=U), [exact], rtol=1e-6)


def test_x_to_the_0_has_no_slope_but_nan_at_0():
    # x**0 is 1 for every x.
    assert np.isnan(gradients(lambda x: tf.pow(x, 0.0), np.float32(0)))
    assert np.isnan(gradients(tf.pow, *wide(0, 0))[0])


@pytest.mark.parametrize(("function", "exact"), [(tf.math.igamma, 1), (tf.math.igammac, -1)])
def test_igamma_of_1_at_0(function, exact):
    # igamma(1, x) = 1 - exp(-x), whose slope at 0 is 1.
    assert function(*wide(1, 1e-6)).numpy() - function(*wide(1, 0)).numpy() == pytest.approx(exact * 1e-6)
    assert np.isnan(gradients(function, *wide(1, 0))[1])


@pytest.mark.parametrize(("scale", "shown"), [(1e-23, np.inf), (1e22, 0.0)], ids=["tiny", "huge"])
def test_atan2_far_from_1_in_float32(scale, shown):
    point = [np.float32(3 * scale), np.float32(4 * scale)]
    y, x = (float(value) for value in point)
    exact = x / (y * y + x * x)  # in float64
    assert np.float32(1e-30) < exact < np.float32(1e30)  # a float32 can hold it
    assert gradients(tf.atan2, *point)[0] == shown


def test_nan_where_a_slope_is_infinite_and_the_upstream_is_0():
    infinite = {
        "log": (tf.math.log, 0),
        "log1p": (tf.math.log1p, -1),
        "asin": (tf.asin, 1),
        "acos": (tf.acos, 1),
        "atanh": (tf.atanh, 1),
        "acosh": (tf.acosh, 1),
        "erfinv": (tf.math.erfinv, 1),
        "ndtri": (tf.math.ndtri, 1),
        "spence": (tf.math.special.spence, 0),
    }
    for name, (function, point) in infinite.items():
        assert np.isnan(gradients(function, *wide(point), upstream=0.0)), name
    # Its own kernel spares the square root.
    assert gradients(tf.sqrt, *wide(0), upstream=0.0) == [0]


def test_infinities():
    # Slopes that tend to 0 (atan2, igamma, dawsn, spence): NaN.
    assert np.isnan(gradients(tf.atan2, *wide(1, np.inf))[0])
    assert np.isnan(gradients(tf.math.igamma, *wide(2, np.inf))[1])
    assert np.isnan(gradients(tf.math.special.dawsn, *wide(np.inf)))
    assert np.isnan(gradients(tf.math.special.spence, *wide(np.inf)))


def test_betainc_with_a_scalar_a_and_x_raises():
    parameters = [np.float32(1.5), np.array([1, 2, 3], np.float32), np.float32(0.3)]
    assert tf.math.betainc(*parameters).shape == (3,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input to reshape is a tensor with 3 values"):
        gradients(tf.math.betainc, *parameters)


def test_digamma_of_float16_raises():
    x = np.array(1.5, np.float16)
    assert np.isfinite(tf.math.digamma(x).numpy())
    with pytest.raises((tf.errors.InvalidArgumentError, TypeError), match=r"half|float16"):
        gradients(tf.math.digamma, x)


def test_a_cast_to_float8_is_disconnected():
    def through(x):
        return tf.cast(tf.cast(x, tf.dtypes.experimental.float8_e5m2), tf.float32)

    assert gradients(through, np.float32(1)) == [None]


def test_the_absolute_value_of_a_tiny_complex_number():
    z = np.array(3e-23 + 4e-23j, np.complex64)
    assert tf.abs(z).numpy() == pytest.approx(5e-23)
    assert gradients(tf.abs, z) == [0]  # z / |z| is 0.6 + 0.8i
    np.testing.assert_allclose(gradients(tf.abs, z * np.complex64(1e20)), [0.6 + 0.8j], rtol=1e-6)


def test_a_complex_0_to_the_power_of_1():
    assert tf.pow(np.array(1e-6 + 0j), np.array(1 + 0j)).numpy() == pytest.approx(1e-6)
    assert np.isnan(gradients(tf.pow, np.array(0j), np.array(1 + 0j), upstream=1)[0])


# --- second order ---


def second(function, *values, by):
    """Return the second derivative of a scalar function, by its last argument and then by one of them."""
    tensors = [tf.constant(value, tf.float64) for value in values]
    with tf.GradientTape() as outer:
        outer.watch(tensors)
        with tf.GradientTape() as inner:
            inner.watch(tensors)
            y = function(*tensors)
        first = inner.gradient(y, tensors[-1])
    return float(outer.gradient(first, tensors[by]))


def test_zeta_by_q_then_x_lacks_a_term():
    x, q = 2.5, 1.5
    exact = float(mpmath.diff(lambda s: mpmath.diff(lambda a: mpmath.zeta(s, a), q), x))
    found = second(tf.math.zeta, x, q, by=0)
    # -x zeta(x + 1, q) by x, its second factor held.
    assert found == pytest.approx(-float(mpmath.zeta(x + 1, q)))
    assert abs(found - exact) > 0.1
    assert second(tf.math.zeta, x, q, by=1) == pytest.approx(x * (x + 1) * float(mpmath.zeta(x + 2, q)))


def test_bessel_i0_has_twice_its_curvature_at_0():
    assert float(mpmath.diff(lambda x: mpmath.besseli(0, x), 0, 2)) == pytest.approx(0.5)
    assert second(tf.math.bessel_i0, 0, by=0) == 1


def test_nan_from_a_division_that_is_discarded():
    assert np.isnan(second(tf.math.bessel_i1, 0, by=0))
    assert np.isnan(second(tf.math.bessel_i1e, 0, by=0))
    assert np.isnan(second(tf.math.special.bessel_j1, 0, by=0))
    assert np.isnan(second(tf.math.special.spence, 1, by=0))
    # Where mpmath has 0 and 1/2 (the dilogarithm of 1 - x).
    assert float(mpmath.diff(lambda x: mpmath.besselj(1, x), 0, 2)) == pytest.approx(0, abs=1e-9)
    curvature = mpmath.diff(lambda x: mpmath.polylog(2, 1 - x), 1, 2)
    assert float(mpmath.re(curvature)) == pytest.approx(0.5)
