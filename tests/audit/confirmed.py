"""Faults of TensorFlow, each with its right numbers in fifty digits or in closed form: a second derivation.

`test_confirmed.py` compares them with what the pages say is right. Neither gradcheck nor TensorFlow takes
part: a formula is differentiated by mpmath, or the derivative is written down. A page whose program prints
the right numbers beside the wrong ones, by other functions or by differences, needs no entry here.
"""

from __future__ import annotations

from mpmath import mp, mpf


def slope(function, at):
    """Return the derivative of a function of mpmath at a point, both given as text or numbers."""
    return mp.diff(function, mpf(at))


def slopes(function, *at):
    """Return the derivatives by each argument."""
    point = [mpf(number) for number in at]

    def by(index):
        return slope(lambda x: function(*point[:index], x, *point[index + 1 :]), point[index])

    return [by(index) for index in range(len(point))]


def betainc(a, b, x):
    return mp.betainc(a, b, 0, x, regularized=True)


def silu_by_beta(x, beta):
    return slope(lambda b: x / (1 + mp.exp(-b * x)), beta)


def weighted_cross_entropy(logit):
    return 2 * mp.log1p(mp.exp(-logit))  # a label of 1 and a weight of 2


def best_path(scale):
    # One step, so that the blank of the largest score, 0.3, is the best path.
    scores = [scale * mpf(score) for score in ("0.1", "0.2", "0.3")]
    return scores[2] - mp.log(mp.fsum(map(mp.exp, scores)))


def beta_quotient(a, b, c, d):
    x = mpf("0.2")
    constants = mp.log(mp.beta(a + c, d) / (mp.beta(a, b) * mp.beta(c, d)))
    return constants + a * mp.log(x) + mp.log(mp.hyp2f1(a + c, 1 - b, a + c + d, x))


def continuous_bernoulli_cdf(logits):
    return mp.expm1(logits * mpf("0.3")) / mp.expm1(logits)


def continuous_bernoulli_quantile(logits):
    return mp.log1p(mpf("0.3") * mp.expm1(logits)) / logits


def about_zero(function):
    """Return the slope at 0 of a function that has a limit there and no value, and the slope at 0.001."""
    step = mpf(10) ** -15
    return [(function(step) - function(-step)) / (2 * step), slope(function, "0.001")]


def dawson(x):
    """Return the ratio of the slope of Dawson's function to its first term, -1 / (2 x^2)."""
    value = mp.sqrt(mp.pi) / 2 * mp.exp(-(x**2)) * mp.erfi(x)
    return (1 - 2 * x * value) * -2 * x**2


def log1mexp(x):
    return mp.log(-mp.expm1(-x))


def modified_gaussian(x):
    """Return the log of the survival function of a normal plus an exponential variable, both of scale 1."""
    return mp.log(mp.ncdf(-x) + mp.exp(mpf(1) / 2 - x) * mp.ncdf(x - 1))


def mixture_variance(mean):
    second_moment = (1 + mean**2) / 2 + mpf(9) / 2
    return second_moment - (mean / 2) ** 2


def noncentral_chi2(df):
    x, noncentrality = mpf(2), mpf("1.5")
    order = df / 2 - 1
    bessel = mp.log(mp.besseli(order, mp.sqrt(x * noncentrality)))
    return -(x + noncentrality) / 2 + order / 2 * mp.log(x / noncentrality) + bessel


def skellam(rate):
    other = mpf("2.7")
    return -rate - other - mp.log(rate / other) + mp.log(mp.besseli(2, 2 * mp.sqrt(rate * other)))


def von_mises(concentration):
    total = 2 * mp.pi * mp.besseli(0, concentration)
    return mp.quad(lambda t: mp.exp(concentration * mp.cos(t)), [-mp.pi, mpf("0.6")]) / total


def zipf(power):
    return -power * mp.log(2) - mp.log(mp.zeta(power))


def opposed_structure():
    """Return the structure's similarity of an image and its negative, at the variance 1/8 of a sine over 2.

    The covariance is minus the variance v: (2 cov + c) / (2 v + c) is negative for every v above c / 2. A
    `relu` then makes the whole similarity 0, and its slope.
    """
    variance, constant = mpf(1) / 8, mpf("0.03") ** 2
    return (constant - 2 * variance) / (constant + 2 * variance)


def value_and_slope(function, *at):
    return [number for x in at for number in (function(mpf(x)), slope(function, x))]


def complex_parts(*numbers):
    return [part for number in numbers for part in (mp.re(number), mp.im(number))]


def conjugate_silu_slope(z):
    sigmoid = 1 / (1 + mp.exp(-z))
    return mp.conj(sigmoid * (1 + z * (1 - sigmoid)))


def larger_eigenvector(a, b, d):
    """Return v_0^2, v the eigenvector of the larger eigenvalue of [[a, b], [b, d]]."""
    return (1 + (a - d) / mp.sqrt((a - d) ** 2 + 4 * b**2)) / 2


def second_by_hand(function, at):
    return mp.diff(function, mpf(at), 2)


def softfloor_inverse(y):
    """Return the place of a soft floor above its whole number, for a temperature of 1/2."""
    share = 1 / (1 + mp.e) + y * mp.tanh(mpf(1) / 2)
    return mp.log(share / (1 - share)) / 2


def generalized_pareto(concentration):
    return -(1 + 1 / concentration) * mp.log1p(concentration / 2)


def generalized_extreme_value(concentration):
    log_t = -mp.log1p(concentration / 2) / concentration
    return (concentration + 1) * log_t - mp.exp(log_t)


def softmax(*logits):
    total = mp.fsum(map(mp.exp, map(mpf, logits)))
    return [mp.exp(mpf(logit)) / total for logit in logits]


# By the stem of the page, the numbers of its block "Expected" in order; where that is in words, those that
# its program prints as slopes. A page says "twice" where a row is repeated.
FIRST = {
    "extract_patches_pixels": lambda: [0, 2**24 + 1],  # the patches are the first pixel and one a step away
    "gather_half_precision": lambda: [1000, 5000],  # how often the element is taken
    # Row r of the band holds the places (i, i + 1): 4 i + (i + 1) + 1, and the last place stands for nothing.
    "matrix_diag_v2_band": lambda: [*(5 * i + 2 for i in range(3)), 0],
    "dynamic_stitch_repeated": lambda: [1, 3, 4, 1, 0],  # the second element is nowhere in the result
    "xla_einsum_complex": lambda: complex_parts(mp.conj(2 + 1j), mp.conj(1j)),
    "irfft_cropped": lambda: complex_parts(1, 0, 0, 0),  # one value is the real part of frequency 0
    "rfft_cropped": lambda: [2, 0, 0, 0],  # of one value, itself: the slope of its square at 1
    "hsv_to_rgb": lambda: slopes(lambda h, s, v: v * (3 - 6 * s * h), "0.2", "0.5", "0.7"),  # 1/6 < h < 1/3
    "eigh_tridiagonal": lambda: [1, 1, 1, 1],  # the sum of the eigenvalues is that of the diagonal
    "pinv_equal_values": lambda: [
        0,
        -mpf(1) / 4,
        0,
        0,
        -mpf(1) / 4,
    ],  # -A^-1 dA A^-1, with A twice the identity
    "isotonic_regression_rank": lambda: [2, 2, 2, mpf(3) / 2, mpf(3) / 2, 3, 4],  # weights' means, per pool
    "moments_second_order": lambda: 2 * [mpf(4) / 9, -mpf(2) / 9, -mpf(2) / 9],  # (2 / n) (1 - 1 / n)
    "sparse_concat": lambda: [1, 2, 1, 2, 2, 2],
    "celu_zero": lambda: [mp.exp(mpf("-1e-6")), 1, 1],  # it is what celu is for
    "fmod_zero": lambda: [1, 1, 1],  # between -2 and 2 the remainder is x itself
    "logaddexp_tie": lambda: 4 * [mpf(1) / 2],  # by symmetry; adding t to both adds t to the result
    "nan_where_smooth": lambda: [slope(mp.sincpi, 0), slope(mp.sincpi, "0.5"), 1, 1],
    "silu_complex": lambda: complex_parts(conjugate_silu_slope(mp.mpc(1, 2))),
    "hypot_second_order": lambda: [second_by_hand(lambda x: mp.hypot(x, 2), 0)],
    # At 0, 0.5, 1 and 1.5 the pixels 0 to 3 have these weights, along either axis.
    "projective_transform": lambda: [a * b for a in (1.5, 2, 0.5, 0) for b in (1.5, 2, 0.5, 0)],
    "rgb_to_hsv_channel_of_zero": lambda: 2 * [-1 / mpf("0.7")],  # of (max - min) / max by the least
    "resize_bicubic_half": lambda: [1, 1],  # the weights of each output add up to 1
    "det_complex": lambda: complex_parts(2, 0, 0, 1 - 1j),  # the other factor, conjugated
    "lstsq_complex": lambda: 2 * [mp.im(mp.conj(-1 / mp.mpc(1, 1) ** 2))],
    "sqrtm_complex": lambda: complex_parts(mp.conj(1 / mp.mpc(2, 2))),
    "tridiagonal_solve_complex": lambda: [mp.im(mp.conj(-1 / mp.mpc(1, 1) ** 2))],
    # Of y / r, the sine of the angle of x + i y: by x -x y / r^3, by y x^2 / r^3.
    "slogdet_phase": lambda: slopes(lambda x, y: y / mp.hypot(x, y), 1, 1),
    "svd_small": lambda: 3 * [slope(lambda a: larger_eigenvector(a**2 + 1, 3 - a, 10), 2)],
    # The nearest rotation to [[a, b], [c, d]] has the angle atan2(c - b, a + d).
    "svd_equal_values": lambda: [slope(lambda a: -mp.sin(mp.atan2(mpf("1.6"), a + mpf("0.6"))), "0.6")],
    "banded_triangular_single": lambda: [slope(lambda x: 1 / x, at) for at in (1, 2, 4)],
    "xlogy_complex": lambda: complex_parts(mp.conj(1 / mp.mpc("0.8", "-1.1"))),
    "xlogy_zero": lambda: [mp.log(2), mp.log(3), mpf(1) / 2],
    "bessel_i1_zero": lambda: [slope(lambda x: mp.besseli(1, x), at) for at in (0, "1e-6")],
    "igamma_zero": lambda: [1, mp.exp(mpf("-1e-6"))],  # igamma(1, x) = 1 - exp(-x)
    "pow_zero_zero": lambda: [0, 0],
    "atan2_far": lambda: [4 / (25 * mpf(scale)) for scale in ("1e-23", "1e22")],
    "cast_float8": lambda: [1],
    "complex_abs_tiny": lambda: complex_parts(mp.mpc(3, 4) / 5),
    "pow_complex_zero": lambda: complex_parts(1),
    "where_second_order": lambda: [second_by_hand(lambda x: mp.besseli(1, x), at) for at in (0, 1)],
    "pow_second_order": lambda: [0, 0],
    "zeta_second_order": lambda: 2 * [slope(lambda s: -s * mp.zeta(s + 1, mpf("1.5")), "2.5")],
    "sign_complex": lambda: 2 * slopes(lambda x, y: x / mp.hypot(x, y), "1.5", "0.5"),
    "squared_difference_complex": lambda: [0],  # |x - y|^2 is real
    "cumprod_zero": lambda: slopes(lambda a, b, c, d: a + a * b + a * b * c + a * b * c * d, 1, 0, 3, 2),
    "cumprod_complex": lambda: complex_parts(2 + 1j, 1 - 1j),  # the other factor, conjugated
    "segment_prod_complex": lambda: complex_parts(2 + 1j, 1 - 1j),
    "cumulative_logsumexp_inf": lambda: [0, 1],
    "prod_second_order": lambda: [0, 3, 2, 3, 0, 0, 2, 0, 0],  # the elements that are left
    "segment_prod_second_order": lambda: [0, 5, 0, 5, 0, 0, 0, 0, 0],
    "segment_second_order": lambda: [1, 1, 1, 0, 1],  # each row is a segment of its own
    "segment_prod_underflow": lambda: 2 * [mpf("1e-30")],  # the other element
    "euclidean_norm_complex": lambda: complex_parts(0, 0),  # a norm is real
    "softmax_cross_entropy_labels": lambda: (
        2 * [softmax("0.1", "0.2", "0.3")[0] - label for label in (1, 0, 0)]
    ),
    "avg_pool3d_long_window": lambda: [*3 * [mpf(1) / 3], 0],  # the window at 0 reaches from -2 to 2
    "avg_pool_long_window": lambda: [*3 * [mpf(1) / 3], 0],
    # Of the mean, and of the variance of three with two degrees of freedom: x - mean.
    "fused_batch_norm_moments": lambda: [
        *3 * [mpf(1) / 3],
        *(mpf(x) + mpf("0.1") / 3 for x in ("0.3", "-1.2", "0.8")),
    ],
    "betainc_whole_parameter": lambda: 2 * [slope(lambda a: betainc(a, 10, mpf("0.1")), 1)],
    "extreme_value_concentration": lambda: [
        about_zero(function)[0]
        for function in (generalized_pareto, generalized_extreme_value)
        for _ in range(2)
    ],
    "generalized_pareto_bijector": lambda: [-1 / mp.expm1(mpf(y)) for y in ("0.5", 2)],
    "lambert_w_tail": lambda: [1, 1, 1],  # z exp(d z^2 / 2) has the slope 1 at 0
    "laplace_cdf": lambda: [mp.exp(mpf(-abs(mpf(at)))) / 2 for at in ("-1e-6", 0, "1e-6")],
    "power_inverse": lambda: [-2, 2, mpf(1) / 12, mpf(1) / 12],
    "softfloor": lambda: [slope(softfloor_inverse, at) for at in ("0.1", 0, "0.1")],
    "fake_quant_second_order": lambda: [2, 2],  # of q(x)^2, with the slope 1 that the first order says
    "quantize_asymmetric": lambda: [mpf("-1.5"), mpf("0.5"), 1, 1],  # signed steps of 2 / 127 reach to -2.016
    "quantize_found_range": lambda: [1, 1, 1, 1],  # nothing is clamped
    "ragged_variant": lambda: [0, 0, 0, 10, 20, 30],  # where the values of the last row are
    # Mean and bounds moved by h move every sample by h, and by the bounds TensorFlow is right.
    "truncated_normal": lambda: [1 - mpf("0.0907") - mpf("0.6629"), mpf("0.0907"), mpf("0.6629"), 1],
    "py_function_second_order": lambda: [6, 2],
    "sparse_add_second_order": lambda: [18, 36, 18, 18],  # of (3 x)^2
    "sparse_to_dense_repeated": lambda: [3, mpf("0.5"), mpf("0.5"), 0, 1, 2],  # the last of the two stays
    "sparse_to_dense_scalar": lambda: [3],
    "csr_empty_row": lambda: [0, 1, 1],  # the sums of the other matrix' rows 0, 2 and 1
    "tensor_list_gather_repeated": lambda: 2 * [0, 10 + 40, 0, 20],
    "tensor_list_scatter_repeated": lambda: 2 * [0, 10, 20],  # the last to be written stays
}
# Those found after the first list of causes; docs/audit.md counts how.
LATER = {
    "forward_mode": lambda: [
        1,
        2,
        slope(lambda a: betainc(a, mpf("0.9"), mpf("0.4")), "1.2"),
        slope(lambda s: mp.zeta(s, mpf("1.1")), "2.3"),
    ],
    "silent_none": lambda: [
        slope(mp.zeta, 2),
        slope(lambda a: betainc(a, 2, mpf("0.3")), "1.5"),
        1,  # one padding
        2,  # two elements off the diagonal
        1,  # one hot element
        3,  # three numbers from the start to 2.5 beyond
        slope(best_path, 1),
    ],
    "hypot_tie": lambda: 2 * [1 / mp.sqrt(2), mpf("3.0005") / mp.hypot(3, mpf("3.001"))],
    "ldexp_zero": lambda: [4, 4],
    "prelu_zero": lambda: [1, 1, 1],
    "silu_beta": lambda: [silu_by_beta(mpf("0.5"), "0.7"), silu_by_beta(mpf(-1), "1.2")],
    "ssim_multiscale_zero": lambda: [1, max(0, opposed_structure())],
    "conjugate_gradient_zero": lambda: [mpf(1) / 2, mpf(1) / 4],  # the inverse of diag(2, 4) times (1, 1)
    "mean_float16": lambda: [mpf("0.001"), mpf(1) / 65536],
    "bias_add_bfloat16": lambda: [1000, 1000],
    "half_precision_sums": lambda: [64 * 64],
    "weighted_cross_entropy_zero": lambda: [slope(weighted_cross_entropy, at) for at in ("-1e-6", 0, "1e-6")],
    "beta_quotient": lambda: slopes(beta_quotient, "1.3", "1.2", "1.4", "1.5"),
    "continuous_bernoulli_half": lambda: [
        *about_zero(continuous_bernoulli_cdf),
        *about_zero(continuous_bernoulli_quantile),
    ],
    "dawsn_float32": lambda: [dawson(mpf(10) ** power) for power in (2, 3, 5)],
    "generalized_normal_quantile": lambda: [
        mp.erfinv(mpf("-0.6")),
        mp.erfinv(mpf("0.4")),
        slope(lambda p: mp.erfinv(2 * p - 1), "0.2"),
        slope(lambda p: mp.erfinv(2 * p - 1), "0.7"),
    ],
    "log1mexp_small": lambda: [
        *value_and_slope(log1mexp, "1e-6", "1e-8"),
        *value_and_slope(modified_gaussian, 10, 20),
    ],
    "mixture_variance": lambda: value_and_slope(mixture_variance, 0, "1e-3"),
    "noncentral_chi2_order": lambda: 2 * [slope(noncentral_chi2, 3)],
    "pareto_below": lambda: [1, 0, 0, 0],  # nothing is below the scale, whatever the concentration
    "skellam_negative": lambda: 2 * [slope(skellam, "0.7")],
    "von_mises_uniform": lambda: value_and_slope(von_mises, 0, "0.001"),
    "zipf_power": lambda: [slope(zipf, "3.5"), slope(lambda s: mp.zeta(s - 1) / mp.zeta(s), "3.5")],
}
CONFIRMED = FIRST | LATER
