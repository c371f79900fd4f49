"""Faults found after the first list of causes, each with its right numbers in fifty digits or in closed form.

`test_confirmed.py` compares them with what the pages say is right. Neither gradcheck nor TensorFlow takes
part: a formula is differentiated by mpmath, or the derivative is written down.
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


# By the stem of the page, the numbers of its block "Expected" in order; where that is in words, those that
# its program prints as slopes. A page says "twice" where a row is repeated.
CONFIRMED = {
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
