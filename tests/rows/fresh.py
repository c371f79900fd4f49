"""Ops by somebody who did not write the comparison: noise in the gradient, dtypes, solvers, loops, kinks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import tensorflow as tf

from tests.support.row import marked
from tests.support.variants import HALF, rows_of, with_slope

ln, sqrt, exp = tf.math.log, tf.sqrt, tf.exp
SMALL, USUAL = (1e-6, -3e-4, 0.02, 0.7), (-1.7, -0.4, 0.3, 2.1)
ABOVE = {"shape": [4], "uniform": {"low": 0.5, "high": 2}}
TWELVE = {"dtypes": ["float64"]}


def below(limit, x, inside, outside):
    """Return a series near zero, and the formula elsewhere, by two `where`s."""
    near = tf.abs(x) < limit
    safe = tf.where(near, tf.ones_like(x), x)
    return tf.where(near, inside(x), outside(safe))


# Slopes that lose digits, and slopes of a neighbour of the function.
NOISE = """
acosh (x=(1 + 1e-09, 1 + 1e-05, 1.5, 3.0)) = tf.acosh(x)
    keys: TWELVE
    right: 1 / (sqrt(x - 1) * sqrt(x + 1))
    right_noisy: 1 / sqrt(x * x - 1)
    wrong_of_asinh: 1 / sqrt(x * x + 1)
acosh_nearer (x=(1 + 1e-12, 2.0)) = tf.acosh(x)
    keys: TWELVE
    maybe_noisy: 1 / sqrt(x * x - 1)
    wrong_by_0.01: 1.01 / (sqrt(x - 1) * sqrt(x + 1))
log1p_less_x (x=(0.0001, -0.003, 0.02, 0.7)) = below(0.05, x, lambda x: -x * x * (0.5 - x * (1 / 3 - x *
        (1 / 4 - x * (0.2 - x * (1 / 6 - x * (1 / 7 - x * (1 / 8 - x * (1 / 9 - x / 10)))))))), lambda
        x: tf.math.log1p(x) - x)
    keys: TWELVE
    right: -x / (1 + x)
    right_noisy: 1 / (1 + x) - 1
    wrong_second_term: -x + 0.5 * x * x
    wrong_without_one: 1 / (1 + x)
phi_2 (x=(0.001, -0.01, 0.7, -2.0)) = below(0.1, x, lambda x: sum((x ** k / math.factorial(k + 2) for k
        in range(8))), lambda x: (exp(x) - 1 - x) / x ** 2)
    keys: TWELVE
    right_noisy: ((x - 2) * exp(x) + x + 2) / x ** 3
    right: below(0.1, x, lambda x: sum(((k + 1) * x ** k / math.factorial(k + 3) for k in range(8))),
        lambda x: ((x - 2) * exp(x) + x + 2) / x ** 3)
    wrong_series: below(0.1, x, lambda x: 1 / 6 + x / 24, lambda x: ((x - 2) * exp(x) + x + 2) / x ** 3)
    wrong_noisy_by_1e-3: 1.001 * ((x - 2) * exp(x) + x + 2) / x ** 3
sinh_less_x (x=(0.001, 0.02, -0.4, 1.5)) = below(0.5, x, lambda x: x ** 3 * sum((x ** (2 * k) /
        math.factorial(2 * k + 3) for k in range(7))), lambda x: tf.sinh(x) - x)
    keys: TWELVE
    right: 2 * tf.sinh(x / 2) ** 2
    right_noisy: tf.cosh(x) - 1
    wrong_half: tf.sinh(x / 2) ** 2
one_less_cos (x=(1e-05, 0.01, 0.8, 2.0)) = 2 * tf.sin(x / 2) ** 2
    keys: TWELVE
    right: tf.sin(x)
    right_by_squares: sqrt(1 - tf.cos(x)) * sqrt(1 + tf.cos(x))
    wrong_cos: tf.cos(x)
one_less_cos_below (x=(-0.3, 0.8)) = 1 - tf.cos(x)
    wrong_by_squares: sqrt(1 - tf.cos(x) ** 2)
softplus_inverse (x=(1e-06, 0.01, 1.0, 40.0)) = ln(tf.math.expm1(x))
    keys: TWELVE
    right: -1 / tf.math.expm1(-x)
    right_noisy: 1 / (1 - exp(-x))
    wrong_sign: 1 / tf.math.expm1(x)
logit (x=(1e-06, 0.3, 0.5, 1 - 0.0001)) = ln(x) - tf.math.log1p(-x)
    keys: TWELVE
    right: 1 / (x * (1 - x))
    right_in_parts: 1 / x + 1 / (1 - x)
    right_noisy: 1 / (x - x * x)
    wrong_sum: 1 / (x * (1 + x))
    wrong_guarded: 1 / (x * (1 - x) + 1e-06)
log_cosh (x=USUAL) = tf.abs(x) + tf.math.log1p(exp(-2 * tf.abs(x))) - math.log(2)
    right_by_exp: (exp(x) - exp(-x)) / (exp(x) + exp(-x))
    right_by_sigmoid: 2 * tf.sigmoid(2 * x) - 1
    wrong_one_exp: 2 * tf.sigmoid(x) - 1
by_differences (x=USUAL) = tf.sin(x) * exp(-x / 3)
    keys: TWELVE
    right_central: (wave(x + 1e-05) - wave(x - 1e-05)) / 2e-05
    right_complex_step: tf.math.imag(wave(tf.complex(x, 1e-20 * tf.ones_like(x)))) * 1e+20
    wrong_forward_1e-3: (wave(x + 0.001) - wave(x)) / 0.001
    wrong_central_0.05: (wave(x + 0.05) - wave(x - 0.05)) / 0.1
heron (x=(1e-05, 0.01, 1.0, 1.9)) = x * sqrt((2 - x) * (2 + x)) / 4
    right: (2 - x * x) / (2 * sqrt((2 - x) * (2 + x)))
    right_noisy: sqrt(4 - x * x) / 4 - x * x / (4 * sqrt(4 - x * x))
    wrong_second_term: sqrt(4 - x * x) / 4 + x * x / (4 * sqrt(4 - x * x))
difference_of_roots (x=(1.0, 1000.0, 1000000.0)) = 1 / (sqrt(x + 1) + sqrt(x))
    keys: TWELVE
    right: -0.5 / (sqrt(x) * sqrt(x + 1) * (sqrt(x) + sqrt(x + 1)))
    right_noisy: 0.5 / sqrt(x + 1) - 0.5 / sqrt(x)
    wrong_noisy_twice: 1 / sqrt(x + 1) - 1 / sqrt(x)
arctan_tail (x=(2.0, 50.0, 1000.0)) = tf.atan(1 / x)
    keys: TWELVE
    right: -1 / (1 + x * x)
    right_of_the_inner: -1 / x ** 2 / (1 + 1 / x ** 2)
    right_noisy: x * x / (1 + x * x) - 1
    wrong_sign: 1 / (1 + x * x)
    wrong_inner: -1 / x ** 2
many_exprels (x=tuple(np.geomspace(1e-6, 4e-6, 300).tolist())) = tf.math.expm1(x) / x
    keys: TWELVE
    right: (x * exp(x) - (exp(x) - 1)) / x ** 2
    wrong_by_0.01: 1.01 * (x * exp(x) - (exp(x) - 1)) / x ** 2
power_of_nearly_one (x=(0.5, 1.0, 2.0)) = tf.pow(x, 1 + 0.0001) - x
    keys: TWELVE
    right: (1 + 0.0001) * tf.pow(x, 0.0001) - 1
    wrong_exponent: (1 + 0.0001) * tf.pow(x, 1 + 0.0001) - 1
    wrong_factor: tf.pow(x, 0.0001) - 1
"""


def wave(x):
    return tf.sin(x) * exp(-x / 3)


# Casts to fewer bits, and to more; gradients of large arguments.
def cast(x, dtype):
    return tf.cast(tf.cast(x, dtype), x.dtype)


def wide(function):
    return lambda x: tf.cast(function(tf.cast(x, tf.float64)), x.dtype)


DTYPES = """
sin_in_two (x=(3.0, 90.0, 1234.5, 100000.0)) = tf.sin(x)
    keys: TWELVE
    right: tf.cos(x)
    right_wider: wide(tf.cos)(x)
    wrong_float32: tf.cast(tf.cos(tf.cast(x, tf.float32)), x.dtype)
    wrong_half: cast(tf.cos(x), tf.bfloat16)
sin_32 (x=(0.3, 2.0, 40.6, 200.3)) = tf.sin(x)
    keys: {'dtypes': ['float32']}
    right_wider: wide(tf.cos)(x)
    wrong_bfloat16: cast(tf.cos(x), tf.bfloat16)
    wrong_argument_half: tf.cos(cast(x, tf.float16))
    wrong_argument_bfloat16: tf.cos(cast(x, tf.bfloat16))
wide_inside (x=(0.001, 0.1, 1.0)) = wide(lambda x: (1 - tf.cos(x)) / x)(x)
    keys: {'dtypes': ['float32', 'float16']}
    right: wide(lambda x: tf.sin(x) / x - (1 - tf.cos(x)) / x ** 2)(x)
    right_of_tensorflow: None
    wrong_sign: wide(lambda x: tf.sin(x) / x + (1 - tf.cos(x)) / x ** 2)(x)
kept_narrow (x=(0.001, 0.3, 2.0)) = ln(1 + x)
    keys: {'dtypes': ['float32']}
    wrong_sum_in_bfloat16: 1 / cast(1 + x, tf.bfloat16)
    right_sum_in_float64: wide(lambda x: 1 / (1 + x))(x)
sin_16 (x=(0.3, 1.1, 2.0)) = tf.sin(x)
    keys: {'dtypes': ['float16']}
    right: tf.cos(x)
    right_wider: wide(tf.cos)(x)
    wrong_bfloat16: cast(tf.cos(x), tf.bfloat16)
    wrong_argument_bfloat16: tf.cos(cast(x, tf.bfloat16))
constant_32 (x=(0.3, 1.1, 2.0)) = 0.7 * x * x
    keys: {'dtypes': ['float32']}
    right: 1.4 * x
    wrong_bfloat16: 2 * tf.cast(tf.constant(0.7, tf.bfloat16), x.dtype) * x
bfloat16_on_the_way (x=(0.001, 0.3, 2.0)) = tf.cast(tf.sin(tf.cast(x, tf.bfloat16)), x.dtype)
    keys: {'dtypes': ['float32']}
    right: tf.cast(tf.cos(tf.cast(x, tf.bfloat16)), x.dtype)
    right_of_tensorflow: None
bfloat16_beside (x=(0.001, 0.3, 2.0)) = tf.sin(x) * tf.cast(
        tf.constant([1.5, 1.0, 0.5], tf.bfloat16), x.dtype)
    keys: {'dtypes': ['float32']}
    right: tf.cos(x) * cast(tf.constant([1.5, 1.0, 0.5], x.dtype), tf.bfloat16)
    wrong_as_narrow: cast(tf.cos(x), tf.bfloat16) * tf.constant([1.5, 1.0, 0.5], x.dtype)
difference_kept_narrow (x=(1000.25, 1001.5, 1003.0)) = (x - 1000) ** 2
    right: 2 * (x - 1000)
    wrong_in_float16: 2 * tf.cast(tf.cast(x, tf.float16) - 1000, x.dtype)
    wrong_in_bfloat16: 2 * cast(x, tf.bfloat16) - 2000
through_narrow (x=(0.3, 1.1, 2.2)) = tf.cast(tf.sin(tf.cast(x, tf.float32)), x.dtype)
    keys: TWELVE
    right_of_tensorflow: None
    right_narrow: tf.cast(tf.cos(tf.cast(x, tf.float32)), x.dtype)
    right_wide: tf.cos(x)
    wrong_sign: -tf.cos(x)
integer_power (x=(0.5, 1.5, -2.0)) = x ** 3
    right: 3 * x * x
    wrong_power_as_integer: 3 * tf.cast(tf.cast(x, tf.int32), x.dtype) ** 2
    right_by_integers: tf.cast(tf.constant([3]), x.dtype) * x * x
"""

# Half precision, in itself.
HALVES = """
swish (x=USUAL) = tf.nn.silu(x)
    right: tf.sigmoid(x) * (1 + x * (1 - tf.sigmoid(x)))
    right_wider: wide(lambda x: tf.sigmoid(x) * (1 + x * (1 - tf.sigmoid(x))))(x)
    wrong_missing: tf.sigmoid(x)
    wrong_sign: tf.sigmoid(x) * (1 - x * (1 - tf.sigmoid(x)))
softsign (x=USUAL) = tf.nn.softsign(x)
    right: 1 / (1 + tf.abs(x)) ** 2
    wrong_square: 1 / (1 + tf.abs(x))
    wrong_abs: 1 / (1 + x) ** 2
rsqrt (x=(0.1, 1.0, 9.0, 400.0)) = tf.math.rsqrt(x)
    right: -0.5 * tf.math.rsqrt(x) ** 3
    right_of_y: -0.5 * tf.math.rsqrt(x) / x
    wrong_twice: -tf.math.rsqrt(x) ** 3
    wrong_power: -0.5 * tf.math.rsqrt(x) ** 2
log_sum (x=(0.3, 1.0, 5.0)) = ln(x + 0.25)
    right: 1 / (x + 0.25)
    wrong_without: 1 / x
gelu_by_tanh (x=USUAL) = tf.nn.gelu(x, approximate=True)
    right_of_tensorflow: None
    wrong_of_relu: tf.cast(x > 0, x.dtype)
    wrong_twice: 2 * tf.sigmoid(1.702 * x)
square_of_sum (x=(0.1, 0.2, 30.0)) = (x + 1) ** 2
    right: 2 * x + 2
    right_difference: (x + 2) ** 2 - (x + 1) ** 2 - 1
    wrong_one: 2 * x + 1
cubic (x=USUAL) = x ** 3 - x
    right: 3 * x * x - 1
    right_product: (sqrt(tf.constant(3.0, x.dtype)) * x - 1) * (sqrt(tf.constant(3.0, x.dtype)) * x + 1)
    wrong_term: 3 * x * x
tanh (x=(-6.0, -0.5, 0.01, 2.0)) = tf.tanh(x)
    right: 1 - tf.tanh(x) ** 2
    right_cosh: 1 / tf.cosh(x) ** 2
    wrong_root: 1 - tf.tanh(x)
"""

# Flat parts and ends.
SATURATED = """
sigmoid (x=(-30.0, -8.0, 0.5, 12.0)) = tf.sigmoid(x)
    right: tf.sigmoid(x) * tf.sigmoid(-x)
    right_noisy: tf.sigmoid(x) * (1 - tf.sigmoid(x))
    wrong_square: tf.sigmoid(x) ** 2 * tf.sigmoid(-x)
    wrong_floor: tf.maximum(tf.sigmoid(x) * tf.sigmoid(-x), 0.001)
log_sigmoid (x=(-60.0, -2.0, 0.5, 9.0)) = tf.math.log_sigmoid(x)
    right: tf.sigmoid(-x)
    right_noisy: 1 - tf.sigmoid(x)
    wrong_sign: -tf.sigmoid(-x)
    wrong_side: tf.sigmoid(x)
softplus (x=(-45.0, -3.0, 0.5, 60.0)) = tf.nn.softplus(x)
    right: tf.sigmoid(x)
    right_by_exp: 1 / (1 + exp(-x))
    wrong_cut_at_20: tf.where(x < -2, 0.0 * x, tf.sigmoid(x))
softplus_far (x=(-3.0, 800.0)) = tf.nn.softplus(x)
    wrong_inf_over_inf: exp(x) / (1 + exp(x))
    right: tf.sigmoid(x)
erfc (x=(-2.0, 0.3, 3.0, 5.0)) = tf.math.erfc(x)
    right: -2 / math.sqrt(math.pi) * exp(-x * x)
    wrong_of_erf: 2 / math.sqrt(math.pi) * exp(-x * x)
    wrong_half: -2 / math.sqrt(2 * math.pi) * exp(-x * x / 2)
capped_exp (x=(-2.0, 3.0, 4.999, 7.0)) = exp(tf.minimum(x, 5.0))
    right: tf.where(x < 5, exp(x), tf.zeros_like(x))
    wrong_uncapped: exp(x)
    wrong_at_cap: exp(tf.minimum(x, 5.0))
bounded (x=USUAL) = 3 * tf.tanh(x / 3)
    right: 1 - tf.tanh(x / 3) ** 2
    wrong_bound: 3 * (1 - tf.tanh(x / 3) ** 2)
    wrong_inner: 1 - tf.tanh(x) ** 2
    wrong_output: 1 - (3 * tf.tanh(x / 3)) ** 2
relu6 (x=(-1.0, 2.0, 5.9, 7.0)) = tf.nn.relu6(x)
    right: tf.cast((x > 0) & (x < 6), x.dtype)
    wrong_open_above: tf.cast(x > 0, x.dtype)
relu6_at_its_ends (x=(0.0, 2.0, 6.0)) = tf.nn.relu6(x)
    right_inclusive: tf.cast((x >= 0) & (x <= 6), x.dtype)
    right_half: 0.5 * tf.cast((x >= 0) & (x <= 6), x.dtype) + 0.5 * tf.cast((x > 0) & (x < 6), x.dtype)
    wrong_two_at_end: tf.cast((x > 0) & (x <= 6), x.dtype) + tf.cast(x == 6, x.dtype)
    wrong_negative_at_zero: tf.cast((x > 0) & (x < 6), x.dtype) - 0.3 * tf.cast(x == 0, x.dtype)
hard_sigmoid (x=(-4.0, -1.0, 2.0, 3.5)) = tf.clip_by_value(x / 6 + 0.5, 0, 1)
    right: tf.where(tf.abs(x) < 3, tf.ones_like(x) / 6, 0 * x)
    wrong_range: tf.where(tf.abs(x) < 2.5, tf.ones_like(x) / 6, 0 * x) * 0.5
    wrong_slope: tf.where(tf.abs(x) < 3, tf.ones_like(x) * 0.2, 0 * x)
ndtr_log (x=(-20.0, -3.0, 0.0, 2.0)) = ln(0.5 * tf.math.erfc(-x / math.sqrt(2)))
    keys: TWELVE
    right: exp(-x * x / 2) / math.sqrt(2 * math.pi) / (0.5 * tf.math.erfc(-x / math.sqrt(2)))
    wrong_mills: -x
"""

# Functions that are known by name, and formulas that people write for them.
SPECIAL = """
lgamma (x=(0.3, 1.2, 4.0, 30.0)) = tf.math.lgamma(x)
    right: tf.math.digamma(x)
    wrong_stirling: ln(x) - 0.5 / x
    wrong_trigamma: tf.math.polygamma(tf.ones_like(x), x)
    wrong_argument: tf.math.digamma(x + 1)
digamma (x=(0.4, 1.5, 7.0)) = tf.math.digamma(x)
    right: tf.math.zeta(2 * tf.ones_like(x), x)
    wrong_order: tf.math.zeta(3 * tf.ones_like(x), x)
    wrong_series: 1 / x + 0.5 / x ** 2
erfinv (x=(-0.99, -0.2, 0.5, 0.9)) = tf.math.erfinv(x)
    right: math.sqrt(math.pi) / 2 * exp(tf.math.erfinv(x) ** 2)
    wrong_root: math.sqrt(math.pi) * exp(tf.math.erfinv(x) ** 2)
    wrong_argument: math.sqrt(math.pi) / 2 * exp(x ** 2)
ndtri (x=(0.01, 0.4, 0.95)) = tf.math.ndtri(x)
    right: math.sqrt(2 * math.pi) * exp(tf.math.ndtri(x) ** 2 / 2)
    wrong_power: math.sqrt(2 * math.pi) * exp(tf.math.ndtri(x) ** 2)
i0 (x=(-2.0, 0.5, 3.0)) = tf.math.bessel_i0(x)
    right: tf.math.bessel_i1(x)
    wrong_sign: -tf.math.bessel_i1(x)
    wrong_even: tf.math.bessel_i1(tf.abs(x))
i0e (x=(-2.0, 0.5, 3.0)) = tf.math.bessel_i0e(x)
    right: tf.math.bessel_i1e(x) - tf.sign(x) * tf.math.bessel_i0e(x)
    wrong_unscaled: tf.math.bessel_i1e(x)
    wrong_no_sign: tf.math.bessel_i1e(x) - tf.math.bessel_i0e(x)
j0 (x=(0.5, 2.0, 9.0)) = tf.math.special.bessel_j0(x)
    right: -tf.math.special.bessel_j1(x)
    wrong_sign: tf.math.special.bessel_j1(x)
k0 (x=(0.5, 2.0, 5.0)) = tf.math.special.bessel_k0(x)
    right: -tf.math.special.bessel_k1(x)
    wrong_order: -tf.math.special.bessel_k0(x)
y1 (x=(0.5, 2.0, 5.0)) = tf.math.special.bessel_y1(x)
    right: tf.math.special.bessel_y0(x) - tf.math.special.bessel_y1(x) / x
    wrong_without: tf.math.special.bessel_y0(x)
spence (x=(0.3, 1.4, 3.0)) = tf.math.special.spence(x)
    right: ln(x) / (1 - x)
    wrong_sign: ln(x) / (x - 1)
    wrong_convention: -ln(1 + x) / x
dawsn (x=USUAL) = tf.math.special.dawsn(x)
    right: 1 - 2 * x * tf.math.special.dawsn(x)
    wrong_factor: 1 - x * tf.math.special.dawsn(x)
expint (x=(0.3, 1.0, 4.0)) = tf.math.special.expint(x)
    right: exp(x) / x
    wrong_e1: -exp(-x) / x
fresnel_sin (x=USUAL) = tf.math.special.fresnel_sin(x)
    right: tf.sin(math.pi / 2 * x * x)
    wrong_pi: tf.sin(x * x)
mish (x=USUAL) = x * tf.tanh(tf.nn.softplus(x))
    right: tf.tanh(tf.nn.softplus(x)) + x * tf.sigmoid(x) * (1 - tf.tanh(tf.nn.softplus(x)) ** 2)
    right_paper: exp(x) * (4 * (x + 1) + 4 * exp(2 * x) + exp(3 * x) + exp(x) * (4 * x + 6)) / (2 *
        exp(x) + exp(2 * x) + 2) ** 2
    wrong_paper: exp(x) * (4 * (x + 1) + 4 * exp(2 * x) + exp(3 * x) + exp(x) * (4 * x + 5)) / (2 *
        exp(x) + exp(2 * x) + 2) ** 2
    wrong_one_term: tf.tanh(tf.nn.softplus(x))
gelu (x=USUAL) = tf.nn.gelu(x)
    right: 0.5 * (1 + tf.math.erf(x / math.sqrt(2))) + x * exp(-x * x / 2) / math.sqrt(2 * math.pi)
    wrong_by_tanh: 0.5 * (1 + tf.tanh(0.79788456 * (x + 0.044715 * x ** 3))) + x * exp(-x * x / 2) /
        math.sqrt(2 * math.pi)
    wrong_by_sigmoid: tf.sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - tf.sigmoid(1.702 * x)))
    wrong_one_term: 0.5 * (1 + tf.math.erf(x / math.sqrt(2)))
elu (x=USUAL) = tf.where(x > 0, x, 0.5 * (exp(tf.minimum(x, 0.0)) - 1))
    right: tf.where(x > 0, tf.ones_like(x), 0.5 * exp(x))
    wrong_alpha: tf.where(x > 0, tf.ones_like(x), exp(x))
    wrong_of_output: tf.where(x > 0, tf.ones_like(x), 0.5 * (exp(x) - 1))
selu (x=USUAL) = tf.nn.selu(x)
    right: 1.0507009873554805 * tf.where(x > 0, tf.ones_like(x), 1.6732632423543772 * exp(x))
    wrong_digits: 1.05 * tf.where(x > 0, tf.ones_like(x), 1.67 * exp(x))
hard_swish (x=(-4.0, -1.0, 2.0, 5.0)) = x * tf.nn.relu6(x + 3) / 6
    right: tf.where(x <= -3, 0 * x, tf.where(x >= 3, tf.ones_like(x), x / 3 + 0.5))
    wrong_inner: tf.where(x <= -3, 0 * x, tf.where(x >= 3, tf.ones_like(x), x / 6 + 0.5))
    wrong_above: tf.where(x <= -3, 0 * x, x / 3 + 0.5)
snake (x=USUAL) = x + tf.sin(2 * x) ** 2 / 2
    right: 1 + tf.sin(4 * x)
    wrong_inner: 1 + tf.sin(2 * x)
squareplus (x=USUAL) = (x + sqrt(x * x + 4)) / 2
    right: 0.5 * (1 + x / sqrt(x * x + 4))
    right_of_output: (x + sqrt(x * x + 4)) / 2 / sqrt(x * x + 4)
    wrong_b: 0.5 * (1 + x / sqrt(x * x + 2))
shrink (x=(-1.3, -0.2, 0.3, 2.0)) = tf.sign(x) * tf.nn.relu(tf.abs(x) - 0.5)
    right: tf.cast(tf.abs(x) > 0.5, x.dtype)
    wrong_signed: tf.sign(x) * tf.cast(tf.abs(x) > 0.5, x.dtype)
    wrong_threshold: tf.cast(tf.abs(x) > 0.25, x.dtype)
sinc (x=(0.0, 0.001, 0.6, 2.5)) = below(0.01, math.pi * x, lambda t: 1 - t * t / 6 + t ** 4 / 120,
        lambda t: tf.sin(t) / t)
    right: math.pi * below(0.1, math.pi * x, lambda t: -t / 3 + t ** 3 / 30 - t ** 5 / 840 + t ** 7 /
        45360, lambda t: (tf.cos(t) - tf.sin(t) / t) / t)
    wrong_pi: below(0.1, math.pi * x, lambda t: -t / 3 + t ** 3 / 30 - t ** 5 / 840, lambda t:
        (tf.cos(t) - tf.sin(t) / t) / t)
    wrong_nan: math.pi * (tf.cos(math.pi * x) - tf.sin(math.pi * x) / (math.pi * x)) / (math.pi * x)
    wrong_series: math.pi * below(0.1, math.pi * x, lambda t: -t / 6 + t ** 3 / 30, lambda t: (tf.cos(t)
        - tf.sin(t) / t) / t)
charbonnier (x=USUAL) = tf.pow(x * x + 0.01, 0.45)
    right: 0.9 * x * tf.pow(x * x + 0.01, -0.55)
    wrong_epsilon: 0.9 * x * tf.pow(x * x + 0.0001, -0.55)
    wrong_factor: 0.45 * x * tf.pow(x * x + 0.01, -0.55)
geman_mcclure (x=USUAL) = x * x / (x * x + 4)
    right: 8 * x / (x * x + 4) ** 2
    wrong_power: 8 * x / (x * x + 4)
tukey (x=(-5.0, -1.0, 2.0, 4.6)) = tf.where(tf.abs(x) < 4.685, 1 - (1 - (x / 4.685) ** 2) ** 3,
        tf.ones_like(x))
    right: tf.where(tf.abs(x) < 4.685, 6 * x / 4.685 ** 2 * (1 - (x / 4.685) ** 2) ** 2, 0 * x)
    wrong_psi: tf.where(tf.abs(x) < 4.685, x * (1 - (x / 4.685) ** 2) ** 2, 0 * x)
    wrong_outside: 6 * x / 4.685 ** 2 * (1 - (x / 4.685) ** 2) ** 2
box_cox (x=(0.2, 1.0, 3.0)) = (tf.pow(x, 0.3) - 1) / 0.3
    right: tf.pow(x, -0.7)
    wrong_lambda: 0.3 * tf.pow(x, -0.7)
    wrong_by_1e-3: tf.pow(x, -0.7) * 1.001
atan (x=USUAL) = tf.atan(x)
    keys: TWELVE
    wrong_by_1e-4: 1.0001 / (1 + x * x)
    wrong_constant: 1 / (1.0001 + x * x)
    wrong_in_one: (1 + tf.constant([0, 0.0001, 0, 0], x.dtype)) / (1 + x * x)
"""


# Roots, fixed points and linear systems: the derivative of what is solved, not of the steps.
def newton(start, step, rounds):
    """Return what `rounds` steps of an unrolled iteration lead to."""

    def solve(*x):
        y = start(*x)
        for _ in range(rounds):
            y = step(y, *x)
        return y

    return solve


def sqrt_by(rounds):
    return newton(lambda x: 1 + 0 * x, lambda y, x: (y + x / y) / 2, rounds)


def lambert(x):
    return newton(tf.math.log1p, lambda w, x: w - (w * exp(w) - x) / (exp(w) * (w + 1)), 8)(x)


def kepler(mean, e):
    return newton(lambda m, _e: m, lambda a, m, e: a - (a - e * tf.sin(a) - m) / (1 - e * tf.cos(a)), 8)(
        mean, e
    )


def deq(w, x):
    step = lambda z: (tf.tanh(tf.linalg.matvec(0.25 * w, z) + x),)  # noqa: E731
    return tf.while_loop(lambda _: True, step, (0 * x,), maximum_iterations=100)[0]


def deq_gradient(adjoint):
    def gradient(u, w, x):
        z = deq(w, x)
        slope = 1 - z * z
        inner = tf.linalg.diag(slope) @ (0.25 * w)
        v = slope * tf.linalg.matvec(adjoint(tf.eye(3, dtype=x.dtype), inner), u)
        return 0.25 * v[:, None] * z[None], v

    return gradient


def solve(a, b):
    return tf.linalg.solve(a + 4 * tf.eye(3, dtype=a.dtype), b[:, None])[:, 0]


def solve_gradient(*, adjoint=True, sign=-1.0, turned=False):
    def gradient(u, a, b):
        v = tf.linalg.solve(a + 4 * tf.eye(3, dtype=a.dtype), u[:, None], adjoint=adjoint)[:, 0]
        outer = v[:, None] * solve(a, b)[None]
        return sign * (tf.transpose(outer) if turned else outer), v

    return gradient


def conjugate_gradient(m, b, rounds=3):
    """Solve (m m' + I) x = b by exactly as many steps as there are unknowns."""
    a = m @ tf.transpose(m) + tf.eye(3, dtype=m.dtype)

    def step(x, rest, p):
        image = tf.linalg.matvec(a, p)
        size = tf.reduce_sum(rest * rest)
        alpha = tf.math.divide_no_nan(size, tf.reduce_sum(p * image))
        new = rest - alpha * image
        return x + alpha * p, new, new + tf.math.divide_no_nan(tf.reduce_sum(new * new), size) * p

    return tf.while_loop(lambda *_: True, step, (0 * b, b, b), maximum_iterations=rounds)[0]


def conjugate_gradient_gradient(*, symmetric=True, rounds=3):
    def gradient(u, m, b):
        x, v = conjugate_gradient(m, b), conjugate_gradient(m, u, rounds)
        outer = -v[:, None] * x[None]
        return (outer + tf.transpose(outer) if symmetric else 2 * outer) @ m, v

    return gradient


def bisect(y):
    """Return the x at which the normal distribution is y, by halving."""

    def step(low, high):
        middle = (low + high) / 2
        is_below = 0.5 * tf.math.erfc(-middle / math.sqrt(2)) < y
        return tf.where(is_below, middle, low), tf.where(is_below, high, middle)

    return tf.while_loop(lambda *_: True, step, (0 * y - 8, 0 * y + 8), maximum_iterations=60)[0]


def inverse_gradient(rule):
    def gradient(u, a):
        b = tf.linalg.inv(a + 3 * tf.eye(3, dtype=a.dtype))
        return rule(u, b)

    return gradient


def sparsemax(x):
    ordered = tf.sort(x, direction="DESCENDING")
    count = tf.range(1, 6, dtype=tf.int32)
    sums = tf.cumsum(ordered)
    k = tf.reduce_sum(tf.cast(1 + tf.cast(count, x.dtype) * ordered > sums, tf.int32))
    return tf.nn.relu(x - (sums[k - 1] - 1) / tf.cast(k, x.dtype))


def sparsemax_gradient(mean_over):
    def gradient(u, x):
        support = tf.cast(sparsemax(x) > 0, x.dtype)
        return support * (u - mean_over(u, support))

    return gradient


def runge_kutta(k, steps=4):
    def field(y):
        return -k * y + tf.sin(y)

    y, h = 0 * k + 1, 0.2
    for _ in range(steps):
        a = field(y)
        b = field(y + h / 2 * a)
        c = field(y + h / 2 * b)
        y += h / 6 * (a + 2 * b + 2 * c + field(y + h * c))
    return y


def by_tape(function):
    def gradient(u, *x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(*x)
        found = tape.gradient(y, x, u)
        return found if len(x) > 1 else found[0]

    return gradient


def continuous_adjoint(u, k):
    """Discretise the adjoint equation by Euler: another gradient than that of the steps."""
    y, v, g, h = 0 * k + 1, u, 0 * k, 0.2
    path = []
    for _ in range(4):
        path.append(y)
        y += h * (-k * y + tf.sin(y))
    for y in reversed(path):
        g -= h * v * y
        v += h * v * (-k + tf.cos(y))
    return g


SOLVERS = """
sqrt_by_newton (x=(0.5, 2.0, 9.0)) = sqrt_by(9)(x)
    right: u / (2 * sqrt_by(9)(x))
    right_of_steps: by_tape(sqrt_by(9))(u, x)
    wrong_twice: u / sqrt_by(9)(x)
    wrong_of_x: u / (2 * x)
sqrt_by_three_steps (x=(0.1, 9.0, 20.0)) = sqrt_by(3)(x)
    right_of_steps: by_tape(sqrt_by(3))(u, x)
    wrong_implicit: u / (2 * sqrt_by(3)(x))
    wrong_last_step: u / (2 * sqrt_by(2)(x))
cube_root (x=(0.5, -2.0, 9.0)) = newton(lambda x: x, lambda y, x: y * (y ** 3 + 2 * x) / (2 * y ** 3 +
        x), 8)(x)
    right: u / 3 * tf.pow(tf.abs(x), -2 / 3)
    wrong_power: u / 3 * tf.pow(tf.abs(x), -1 / 3)
    wrong_signed: u / 3 * tf.sign(x) * tf.pow(tf.abs(x), -2 / 3)
lambert_w (x=(0.1, 1.0, 20.0)) = lambert(x)
    right: u * lambert(x) / (x * (1 + lambert(x)))
    right_by_exp: u / (x + exp(lambert(x)))
    wrong_of_x: u * lambert(x) / (x * (1 + x))
    wrong_sign: u / (exp(lambert(x)) - x)
kepler (m=(0.3, 1.0, 2.5), e=(0.1, 0.5, 0.7)) = kepler(m, e)
    right: (u / (1 - e * tf.cos(kepler(m, e))), u * tf.sin(kepler(m, e)) / (1 - e * tf.cos(kepler(m,
        e))))
    wrong_sign: (u / (1 + e * tf.cos(kepler(m, e))), u * tf.sin(kepler(m, e)) / (1 - e *
        tf.cos(kepler(m, e))))
    wrong_at_m: (u / (1 - e * tf.cos(m)), u * tf.sin(m) / (1 - e * tf.cos(m)))
    wrong_e: (u / (1 - e * tf.cos(kepler(m, e))), u * tf.sin(kepler(m, e)))
deq (w={'shape': [3, 3], 'uniform': {'low': -1, 'high': 1}}, x=[3]) = deq(w, x)
    right: deq_gradient(lambda eye, j: tf.linalg.inv(eye - tf.transpose(j)))(u, w, x)
    right_series: deq_gradient(lambda eye, j: newton(lambda j: 0 * j, lambda s, j: eye + tf.transpose(j)
        @ s, 80)(j))(u, w, x)
    wrong_untransposed: deq_gradient(lambda eye, j: tf.linalg.inv(eye - j))(u, w, x)
    wrong_phantom: deq_gradient(lambda eye, j: eye + 0 * j)(u, w, x)
    wrong_two_terms: deq_gradient(lambda eye, j: eye + tf.transpose(j))(u, w, x)
    wrong_sign: deq_gradient(lambda eye, j: tf.linalg.inv(eye + tf.transpose(j)))(u, w, x)
solve (a=[3, 3], b=[3]) = solve(a, b)
    right: solve_gradient()(u, a, b)
    right_of_tensorflow: None
    wrong_untransposed: solve_gradient(adjoint=False)(u, a, b)
    wrong_sign: solve_gradient(sign=1.0)(u, a, b)
    wrong_outer: solve_gradient(turned=True)(u, a, b)
conjugate_gradient (m=[3, 3], b=[3]) = conjugate_gradient(m, b)
    right: conjugate_gradient_gradient()(u, m, b)
    wrong_unsymmetric: conjugate_gradient_gradient(symmetric=False)(u, m, b)
    wrong_fewer_rounds: conjugate_gradient_gradient(rounds=2)(u, m, b)
bisect (y=(0.02, 0.4, 0.9)) = bisect(y)
    right: u * math.sqrt(2 * math.pi) * exp(bisect(y) ** 2 / 2)
    wrong_inverse: u / math.sqrt(2 * math.pi) * exp(-bisect(y) ** 2 / 2)
    wrong_argument: u * math.sqrt(2 * math.pi) * exp(y ** 2 / 2)
inverse (a=[3, 3]) = tf.linalg.inv(a + 3 * tf.eye(3, dtype=a.dtype))
    right: inverse_gradient(lambda u, b: -tf.transpose(b) @ u @ tf.transpose(b))(u, a)
    wrong_untransposed: inverse_gradient(lambda u, b: -b @ u @ b)(u, a)
    wrong_one_side: inverse_gradient(lambda u, b: -tf.transpose(b) @ u @ b)(u, a)
    wrong_sign: inverse_gradient(lambda u, b: tf.transpose(b) @ u @ tf.transpose(b))(u, a)
log_det (a=[3, 3]) = tf.linalg.slogdet(a + 3 * tf.eye(3, dtype=a.dtype))[1]
    right: inverse_gradient(lambda u, b: u * tf.transpose(b))(u, a)
    wrong_untransposed: inverse_gradient(lambda u, b: u * b)(u, a)
    wrong_of_det: inverse_gradient(lambda u, b: u * tf.transpose(b) / tf.linalg.det(b))(u, a)
sparsemax (x=[5]) = sparsemax(x)
    right: sparsemax_gradient(lambda u, s: tf.reduce_sum(u * s) / tf.reduce_sum(s))(u, x)
    wrong_mean_of_all: sparsemax_gradient(lambda u, _s: tf.reduce_mean(u))(u, x)
    wrong_no_mean: sparsemax_gradient(lambda u, _s: 0 * u)(u, x)
    wrong_sum_of_all: sparsemax_gradient(lambda u, s: tf.reduce_sum(u) / tf.reduce_sum(s))(u, x)
runge_kutta (k=(0.3, 1.0, 2.0)) = runge_kutta(k)
    right_of_steps: by_tape(runge_kutta)(u, k)
    wrong_one_step_less: by_tape(lambda k: runge_kutta(k, 3))(u, k)
    wrong_euler: continuous_adjoint(u, k)
"""


# Loops.
def power(x):
    return tf.while_loop(lambda i, _y: i < 5, lambda i, y: (i + 1, y * x), (0, 1 + 0 * x))[1]


def doubled(x):
    return tf.map_fn(
        lambda one: tf.while_loop(lambda y: y < 10, lambda y: (2 * y,), (one,), maximum_iterations=9)[0], x
    )


def doublings(x):
    return doubled(x) / x


def cumulative(x):
    return tf.scan(lambda a, b: a * b, x)


def cumulative_gradient(*, reverse=True, exclusive=False):
    return lambda u, x: tf.cumsum(u * cumulative(x), reverse=reverse, exclusive=exclusive) / x


def average(x, keep=0.7):
    return tf.scan(lambda a, b: keep * a + (1 - keep) * b, x, initializer=tf.zeros([], x.dtype))


def average_gradient(*, keep=0.7, first=None, turn=True):
    def gradient(u, x):
        turned = u[::-1] if turn else u
        carried = tf.scan(lambda a, b: keep * a + b, turned, initializer=tf.zeros([], x.dtype))
        return (carried[::-1] if turn else carried) * (first or 1 - keep)

    return gradient


def horner(c, x):
    return tf.foldr(lambda a, b: a * x + b, c, initializer=0 * x)


def horner_gradient(c, x, u, factor):
    powers = tf.stack([x**i for i in range(4)])
    slopes = tf.stack([factor(i) * x ** max(i - 1, 0) for i in range(4)])
    return tf.linalg.matvec(powers, u), u * tf.linalg.matvec(slopes, c, transpose_a=True)


def recurrent(w, x):
    return tf.scan(lambda h, x: tf.tanh(tf.linalg.matvec(w, h) + x), x, initializer=tf.zeros([2], x.dtype))


def through_time(*, carry=True, stale=False, transposed=True):
    def gradient(u, w, x):
        h = recurrent(w, x)
        before = tf.concat([tf.zeros([1, 2], x.dtype), h[:-1]], 0)
        dw, dx, back = 0 * w, [], tf.zeros([2], x.dtype)
        for t in reversed(range(4)):
            d = (u[t] + back) * (1 - h[t] ** 2)
            dw += d[:, None] * (h if stale else before)[t][None]
            back = tf.linalg.matvec(w, d, transpose_a=transposed) * float(carry)
            dx.insert(0, d)
        return dw, tf.stack(dx)

    return gradient


def viterbi(reduce):
    def score(emissions, moves):
        start = emissions[0]
        step = lambda a, e: reduce(a[:, None] + moves, axis=0) + e  # noqa: E731
        return reduce(tf.foldl(step, emissions[1:], initializer=start), axis=0)

    return score


def smoothed(x):
    return tf.map_fn(lambda row: tf.reduce_sum(tf.nn.softmax(row) * row), x)


def smoothed_gradient(rule):
    def gradient(u, x):
        p = tf.nn.softmax(x)
        return u[:, None] * rule(p, x, tf.reduce_sum(p * x, 1, keepdims=True))

    return gradient


LOOPS = """
power (x=USUAL) = power(x)
    right: u * 5 * x ** 4
    right_by_division: u * 5 * power(x) / x
    wrong_factor: u * 4 * x ** 4
    wrong_power: u * 5 * power(x)
doubled (x=(0.3, 1.1, 7.0, 11.0)) = doubled(x)
    right: u * doublings(x)
    wrong_rounds: u * 2 * ln(doublings(x)) / math.log(2)
    open_once: u * tf.where(x < 10, 2 * tf.ones_like(x), tf.ones_like(x))
cumulative_product (x=ABOVE) = cumulative(x)
    right: cumulative_gradient()(u, x)
    wrong_forwards: cumulative_gradient(reverse=False)(u, x)
    wrong_exclusive: cumulative_gradient(exclusive=True)(u, x)
cumulative_product_at_zero (x=(1.5, 0.0, 2.0, -1.0)) = cumulative(x)
    wrong_divided: cumulative_gradient()(u, x)
    right_of_tensorflow: None
    wrong_guarded: tf.math.divide_no_nan(tf.cumsum(u * cumulative(x), reverse=True), x)
moving_average (x=[5]) = average(x)
    right: average_gradient()(u, x)
    wrong_forwards: average_gradient(turn=False)(u, x)
    wrong_decay: average_gradient(keep=0.3, first=0.3)(u, x)
    wrong_first: average_gradient(first=1.0)(u, x)
horner (c=[4], x=USUAL) = horner(c, x)
    right: horner_gradient(c, x, u, float)
    wrong_off_by_one: horner_gradient(c, x, u, lambda i: max(i - 1.0, 0))
    wrong_no_factor: horner_gradient(c, x, u, lambda i: float(i > 0))
recurrent (w=[2, 2], x=[4, 2]) = recurrent(w, x)
    right: through_time()(u, w, x)
    right_of_tensorflow: None
    wrong_no_carry: through_time(carry=False)(u, w, x)
    wrong_stale: through_time(stale=True)(u, w, x)
    wrong_untransposed: through_time(transposed=False)(u, w, x)
forward_algorithm (e=[4, 3], m=[3, 3]) = viterbi(tf.reduce_logsumexp)(e, m)
    right_of_steps: by_tape(viterbi(tf.reduce_logsumexp))(u, e, m)
    wrong_viterbi: by_tape(viterbi(tf.reduce_max))(u, e, m)
    wrong_sums: (u * tf.nn.softmax(e), by_tape(viterbi(tf.reduce_logsumexp))(u, e, m)[1])
viterbi (e=[4, 3], m=[3, 3]) = viterbi(tf.reduce_max)(e, m)
    right_of_tensorflow: None
    wrong_soft: by_tape(viterbi(tf.reduce_logsumexp))(u, e, m)
mapped (x=[2, 4]) = smoothed(x)
    right: smoothed_gradient(lambda p, x, mean: p * (1 + x - mean))(u, x)
    wrong_no_mean: smoothed_gradient(lambda p, x, mean: p * (1 + x))(u, x)
    wrong_softmax_alone: smoothed_gradient(lambda p, x, mean: p)(u, x)
    wrong_mean_over_batch: smoothed_gradient(lambda p, x, mean: p * (1 + x - tf.reduce_mean(mean)))(u,
        x)
"""


# Python code on either side.
def in_numpy(function, *tensors):
    return tf.ensure_shape(tf.numpy_function(function, list(tensors), tensors[0].dtype), tensors[0].shape)


def by_numpy(value, gradient):
    @tf.custom_gradient
    def call(x):
        return in_numpy(value, x), lambda u: in_numpy(gradient, u, x)

    return call


def half_numpy(value, gradient):
    @tf.custom_gradient
    def call(x):
        return in_numpy(value, x), lambda u: gradient(u, x)

    return call


def by_py_function(value, gradient):
    def call(x):
        return tf.ensure_shape(tf.py_function(half_numpy(value, gradient), [x], x.dtype), x.shape)

    return call


def by_override(value, gradient):
    """Return TensorFlow 1's idiom: `py_func` in a scope that names a registered gradient."""
    name = f"Fresh{next(COUNT)}"
    tf.RegisterGradient(name)(lambda op, u: gradient(u, op.inputs[0]))

    def call(x):
        with tf.compat.v1.get_default_graph().gradient_override_map({"PyFunc": name}):
            return tf.ensure_shape(tf.compat.v1.py_func(value, [x], x.dtype), x.shape)

    return call


COUNT = iter(range(1000))


def sorted_back(u, x):
    found = np.empty_like(x)
    found[np.argsort(x)] = u
    return found


def running(u, x, *, exclusive=False):
    y = np.cumprod(x)
    sums = np.cumsum((u * y)[::-1])[::-1]
    return ((sums - u * y if exclusive else sums) / x).astype(x.dtype)


def correlated(u, x, *, flip=True):
    kernel = np.array([1.0, -2.0, 0.5], x.dtype)
    return np.convolve(u, kernel[::-1] if flip else kernel, "same")


def loop_in_python(x):
    return np.array([sum(math.sin(k * v) / k for k in (1, 2, 3)) for v in x], x.dtype)


def projected(u, x, radius):
    size = np.linalg.norm(x)
    return (radius * (u / size - x * (u * x).sum() / size**3)).astype(x.dtype)


NUMPY = """
within_ball (x=[8]) = (x * min(1, 2 / np.linalg.norm(x))).astype(x.dtype)
    right: projected(u, x, 2) if np.linalg.norm(x) > 2 else u
    wrong_inside: projected(u, x, 2)
    wrong_outside: u.copy()
within_unit_ball (x=[3]) = (x * min(1, 1 / np.linalg.norm(x))).astype(x.dtype)
    right: projected(u, x, 1) if np.linalg.norm(x) > 1 else u
    wrong_inside: projected(u, x, 1)
sin (x=USUAL) = np.sin(x)
    right: u * np.cos(x)
    wrong_sign: -u * np.cos(x)
sin_far (x=(100000.3, 300000.7)) = np.sin(x)
    keys: TWELVE
    right: u * np.cos(x)
    open_float32: u * np.cos(x.astype(np.float32)).astype(x.dtype)
sort (x=[5]) = np.sort(x)
    right: sorted_back(u, x)
    wrong_gathered: u[np.argsort(x)]
    wrong_unsorted: u.copy()
cumprod (x=ABOVE) = np.cumprod(x)
    right: running(u, x)
    wrong_exclusive: running(u, x, exclusive=True)
convolve (x=[6]) = np.convolve(x, np.array([1.0, -2.0, 0.5], x.dtype), 'same')
    right: correlated(u, x)
    wrong_unflipped: correlated(u, x, flip=False)
python_loop (x=USUAL) = loop_in_python(x)
    right: (u * sum((np.cos(k * x) for k in (1, 2, 3)))).astype(x.dtype)
    wrong_term: (u * sum((np.cos(k * x) for k in (1, 2)))).astype(x.dtype)
    wrong_inner: (u * sum((np.cos(k * x) / k for k in (1, 2, 3)))).astype(x.dtype)
softmax (x=[4]) = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    right: softmax(x) * (u - (u * softmax(x)).sum())
    wrong_diagonal: u * softmax(x) * (1 - softmax(x))
noisy_versine (x=(0.0001, 0.3)) = 2 * np.sin(x / 2) ** 2 / x
    keys: TWELVE
    right: u * (np.sin(x) / x - 2 * np.sin(x / 2) ** 2 / x ** 2)
    maybe_noisy: u * (np.sin(x) / x - (1 - np.cos(x)) / x ** 2)
    wrong_noisy: u * (np.sin(x) / x - 1.01 * (1 - np.cos(x)) / x ** 2)
noisy_exprel (x=tuple(np.geomspace(1e-6, 1e-3, 24).tolist())) = np.expm1(x) / x
    keys: TWELVE
    right: u * (x * np.exp(x) - (np.exp(x) - 1)) / x ** 2
    wrong_by_0.01: 1.01 * u * (x * np.exp(x) - (np.exp(x) - 1)) / x ** 2
noisy_phi_2 (x=tuple(np.geomspace(1e-4, 1e-2, 24).tolist())) = below_in_numpy(0.1, x, lambda x: sum(
        (x ** k / math.factorial(k + 2) for k in range(9))), lambda x: (np.exp(x) - 1 - x) / x ** 2)
    keys: TWELVE
    right: u * ((x - 2) * np.exp(x) + x + 2) / x ** 3
    wrong_by_0.01: 1.01 * u * ((x - 2) * np.exp(x) + x + 2) / x ** 3
clip (x=(-2.0, -0.5, 0.7, 3.0)) = np.clip(x, -1, 1)
    right: u * (np.abs(x) < 1)
    wrong_through: u.copy()
    wrong_side: u * (x < 1)
"""


def below_in_numpy(limit, x, inside, outside):
    near = np.abs(x) < limit
    return np.where(near, inside(x), outside(np.where(near, 1.0, x)))


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


IN_TENSORFLOW = """
exp_of_sin (x=USUAL) = np.exp(np.sin(x))
    right: u * exp(tf.sin(x)) * tf.cos(x)
    wrong_inner: u * exp(tf.sin(x))
    wrong_batch_mean: tf.reduce_mean(u) * exp(tf.sin(x)) * tf.cos(x)
hypot_1 (x=USUAL) = np.hypot(x, x.dtype.type(1))
    right: u * x / sqrt(1 + x * x)
    wrong_abs: u * tf.abs(x) / sqrt(1 + x * x)
round_trip (x=USUAL) = np.array(x.tolist(), x.dtype) ** 2
    right: 2 * u * x
    wrong_factor: u * x
"""


# Steps, with the function that stands in for them: (inputs, forward, reference, gradients).
def ones(x):
    return tf.ones_like(x)


def inside(x, low, high):
    return tf.cast((x > low) & (x < high), x.dtype)


def scaled_steps(x, s):
    return s * tf.round(tf.clip_by_value(x / s, -4, 3))


def scaled_steps_reference(x, s):
    t = tf.clip_by_value(x / s, -4, 3)
    return s * (t + tf.stop_gradient(tf.round(t) - t))


def learned_step(*, offset=1.0, ends=True, scale=1.0):
    """Return the gradient of a learned step size (LSQ), with a mistake."""

    def gradient(u, x, s):
        t = x / s
        is_inside = inside(t, -4, 3)
        ends_slope = tf.where(t <= -4, -4 * ones(t), 3 * ones(t)) if ends else 0 * t
        own = tf.where(is_inside > 0, tf.round(t) - offset * t, ends_slope)
        return u * is_inside, scale * tf.reduce_sum(u * own)

    return gradient


SPREAD = (-1.7, -0.37, 0.21, 0.93, 2.4)
STAIRS = """
sign (x=SPREAD) = tf.sign(x)
    reference: tf.clip_by_value(x, -1, 1)
    right: u * inside(x, -1, 1)
    wrong_through: u * ones(x)
    wrong_range: u * inside(x, -0.9, 2.5)
    wrong_zero: 0 * u
round (x=SPREAD) = tf.round(8 * x) / 8
    reference: tf.identity(x)
    right: tf.identity(u)
    wrong_levels: 8 * u
    wrong_output: u * x
spike (x=SPREAD) = tf.cast(x > 0.5, x.dtype)
    reference: tf.atan(math.pi * (x - 0.5)) / math.pi
    right: u / (1 + (math.pi * (x - 0.5)) ** 2)
    wrong_threshold: u / (1 + (math.pi * x) ** 2)
    wrong_alpha: u / (1 + (2 * (x - 0.5)) ** 2)
    wrong_factor: u * math.pi / (1 + (math.pi * (x - 0.5)) ** 2)
fast_sigmoid_spike (x=SPREAD) = tf.cast(x > 0, x.dtype)
    reference: x / (1 + 25 * tf.abs(x))
    right: u / (1 + 25 * tf.abs(x)) ** 2
    wrong_power: u / (1 + 25 * tf.abs(x))
    wrong_abs: u / (1 + 25 * x) ** 2
ternary (x=SPREAD) = tf.sign(x) * tf.cast(tf.abs(x) > 0.3, x.dtype)
    reference: tf.tanh(x)
    right: u * (1 - tf.tanh(x) ** 2)
    wrong_output: u * (1 - tf.sign(x) ** 2)
learned_step (x=SPREAD, s={'value': 0.3}) = scaled_steps(x, s)
    reference: scaled_steps_reference(x, s)
    right: learned_step()(u, x, s)
    wrong_offset: learned_step(offset=0.0)(u, x, s)
    wrong_ends: learned_step(ends=False)(u, x, s)
    wrong_scale: learned_step(scale=1 / math.sqrt(15))(u, x, s)
hard_softmax (x=[4]) = tf.one_hot(tf.argmax(x), 4, dtype=x.dtype)
    reference: tf.nn.softmax(2 * x)
    right: 2 * by_tape(tf.nn.softmax)(u, 2 * x)
    wrong_temperature: by_tape(tf.nn.softmax)(u, 2 * x)
    wrong_hard: u * tf.one_hot(tf.argmax(x), 4, dtype=x.dtype)
codebook (x=[3, 2]) = nearest(x)
    reference: tf.identity(x)
    right: tf.identity(u)
    wrong_commitment: u + 0.25 * (x - nearest(x))
"""


def nearest(x):
    book = tf.constant([[0.0, 0.0], [1.0, 1.0], [-1.0, 0.5]], x.dtype)
    return tf.gather(book, tf.argmin(tf.reduce_sum((x[:, None] - book) ** 2, -1), 1))


# Kinks and ties.
def chosen(rule):
    """Return a gradient of the maximum: of the upstream and the elements that are equal to it."""

    def gradient(u, x):
        y = tf.reduce_max(x, 1, keepdims=True)
        return u[:, None] * rule(tf.cast(x == y, x.dtype))

    return gradient


def share(mask):
    return mask / tf.reduce_sum(mask, 1, keepdims=True)


def first(mask):
    return tf.one_hot(tf.argmax(mask, 1), mask.shape[1], dtype=mask.dtype)


def sorted_gradient(rule):
    return lambda u, x: rule(u, tf.argsort(x), x)


def scatter(u, where, size=5):
    return tf.scatter_nd(where[:, None], u, [size])


def middle(x):
    ordered = tf.sort(x)
    size = x.shape[0]
    return (ordered[(size - 1) // 2] + ordered[size // 2]) / 2


def middle_gradient(low, high):
    def gradient(u, x):
        order, size = tf.argsort(x), x.shape[0]
        ends = tf.stack([order[(size - 1) // 2], order[size // 2]])
        return tf.scatter_nd(ends[:, None], u * tf.constant([low, high], x.dtype), [size])

    return gradient


def variation_gradient(u, x, *, left=True, right=True):
    s = u * tf.sign(x[1:] - x[:-1])
    return tf.pad(s, [[1, 0]]) * float(left) - tf.pad(s, [[0, 1]]) * float(right)


def chamfer(x, y):
    d = tf.reduce_sum((x[:, None] - y[None]) ** 2, -1)
    return tf.reduce_sum(tf.reduce_min(d, 1)) + tf.reduce_sum(tf.reduce_min(d, 0))


def chamfer_gradient(back=1.0, sign=-1.0):
    def gradient(u, x, y):
        d = tf.reduce_sum((x[:, None] - y[None]) ** 2, -1)
        pairs = tf.one_hot(tf.argmin(d, 1), 4, dtype=x.dtype) + back * tf.transpose(
            tf.one_hot(tf.argmin(d, 0), 3, dtype=x.dtype)
        )
        moves = 2 * u * pairs[..., None] * (x[:, None] - y[None])
        return tf.reduce_sum(moves, 1), sign * tf.reduce_sum(moves, 0)

    return gradient


def huber(x):
    return tf.where(tf.abs(x) < 1.5, x * x / 2, 1.5 * tf.abs(x) - 1.125)


def pinball(x):
    return tf.maximum(0.3 * x, -0.7 * x)


ROWS_TIED = ((1.0, 3.0, 3.0), (2.0, 0.5, 2.0))
KINKS = """
max (x=[2, 3]) = tf.reduce_max(x, 1)
    right: chosen(share)(u, x)
    wrong_all: chosen(ones)(u, x)
    wrong_value: u[:, None] * tf.where(x == tf.reduce_max(x, 1, keepdims=True), x, 0 * x)
max_tied (x=ROWS_TIED) = tf.reduce_max(x, 1)
    right_shared: chosen(share)(u, x)
    right_first: chosen(first)(u, x)
    wrong_each: chosen(tf.identity)(u, x)
    wrong_none: chosen(lambda m: m * tf.cast(tf.reduce_sum(m, 1, keepdims=True) < 2, m.dtype))(u, x)
    wrong_half_of_each_to_all: chosen(lambda m: 0.5 * ones(m))(u, x)
abs_at_zero (x=(0.0, -1.2, 0.7)) = tf.abs(x)
    right: u * tf.sign(x)
    right_one: u * tf.where(x >= 0, ones(x), -ones(x))
    wrong_two: u * (tf.sign(x) + 2 * tf.cast(x == 0, x.dtype))
    wrong_nan: u * x / tf.abs(x)
relu_at_zero (x=(0.0, -1.2, 0.7)) = tf.nn.relu(x)
    right_half: u * (tf.sign(x) + 1) / 2
    wrong_leaky: u * tf.where(x > 0, ones(x), 0.01 * ones(x))
    wrong_at_zero: u * (tf.sign(x) + 1) / 2 + u * tf.cast(x == 0, x.dtype)
sort (x=[5]) = tf.sort(x)
    right: sorted_gradient(lambda u, order, x: scatter(u, order))(u, x)
    right_by_ranks: sorted_gradient(lambda u, order, x: tf.gather(u, tf.argsort(order)))(u, x)
    wrong_gathered: sorted_gradient(lambda u, order, x: tf.gather(u, order))(u, x)
    wrong_reversed: sorted_gradient(lambda u, order, x: scatter(u[::-1], order))(u, x)
sort_tied (x=(2.0, -1.0, 2.0, 0.5, 2.0)) = tf.sort(x)
    right: sorted_gradient(lambda u, order, x: scatter(u, order))(u, x)
    wrong_by_equality: tf.linalg.matvec(tf.cast(x[:, None] == tf.sort(x)[None], x.dtype), u)
    right_mean: tf.linalg.matvec(share(tf.cast(x[:, None] == tf.sort(x)[None], x.dtype)), u)
top_2 (x=[5]) = tf.math.top_k(x, 2)[0]
    right: scatter(u, tf.math.top_k(x, 2)[1])
    wrong_places: tf.pad(u, [[0, 3]])
    wrong_turned: scatter(u, tf.math.top_k(x, 2)[1][::-1])
median_of_5 (x=[5]) = middle(x)
    right: middle_gradient(0.5, 0.5)(u, x)
    wrong_half: middle_gradient(0.5, 0.0)(u, x)
median_of_4 (x=[4]) = middle(x)
    right: middle_gradient(0.5, 0.5)(u, x)
    wrong_lower: middle_gradient(1.0, 0.0)(u, x)
    wrong_both: middle_gradient(1.0, 1.0)(u, x)
median_tied (x=(1.0, 2.0, 2.0, 5.0, -1.0)) = middle(x)
    right: middle_gradient(0.5, 0.5)(u, x)
    wrong_doubled: middle_gradient(1.0, 1.0)(u, x)
range (x=[4]) = tf.reduce_max(x) - tf.reduce_min(x)
    right_of_tensorflow: None
    wrong_plus: u * (tf.one_hot(tf.argmax(x), 4, dtype=x.dtype) + tf.one_hot(tf.argmin(x), 4,
        dtype=x.dtype))
total_variation (x=[5]) = tf.reduce_sum(tf.abs(x[1:] - x[:-1]))
    right: variation_gradient(u, x)
    wrong_one_end: variation_gradient(u, x, right=False)
    wrong_sign: -variation_gradient(u, x)
total_variation_flat (x=(1.0, 1.0, 2.0, 2.0, 0.5)) = tf.reduce_sum(tf.abs(x[1:] - x[:-1]))
    right: variation_gradient(u, x)
    wrong_one_end: variation_gradient(u, x, right=False)
huber (x=(-2.5, -0.4, 1.0, 3.0)) = huber(x)
    right: u * tf.clip_by_value(x, -1.5, 1.5)
    wrong_delta: u * tf.clip_by_value(x, -1, 1)
    wrong_negative: u * tf.where(tf.abs(x) < 1.5, x, 1.5 * ones(x))
huber_at_seam (x=(1.5, -1.5, 0.1)) = huber(x)
    right: u * tf.clip_by_value(x, -1.5, 1.5)
    wrong_at_seam: u * tf.where(tf.abs(x) < 1.5, x, tf.sign(x))
pinball (x=(-2.5, -0.4, 1.0, 0.0)) = pinball(x)
    right: u * tf.where(x > 0, 0.3 * ones(x), -0.7 * ones(x))
    right_within: u * tf.where(x == 0, -0.2 * ones(x), tf.where(x > 0, 0.3 * ones(x), -0.7 * ones(x)))
    wrong_quantile: u * tf.where(x > 0, 0.7 * ones(x), -0.3 * ones(x))
    wrong_at_zero: u * tf.where(x == 0, ones(x), tf.where(x > 0, 0.3 * ones(x), -0.7 * ones(x)))
maximum_equal (a=(1.0, 2.0, 3.0), b=(1.0, 1.5, 4.0)) = tf.maximum(a, b)
    right_left: (u * tf.cast(a >= b, a.dtype), u * tf.cast(a < b, a.dtype))
    wrong_both: (u * tf.cast(a >= b, a.dtype), u * tf.cast(a <= b, a.dtype))
    wrong_neither: (u * tf.cast(a > b, a.dtype), u * tf.cast(a < b, a.dtype))
    wrong_turned: (u * tf.cast(a < b, a.dtype), u * tf.cast(a >= b, a.dtype))
prelu (x=[5], alpha={'value': 0.2}) = tf.where(x > 0, x, alpha * x)
    right: (u * tf.where(x > 0, ones(x), alpha * ones(x)), tf.reduce_sum(u * tf.minimum(x, 0.0)))
    wrong_positive: (u * tf.where(x > 0, ones(x), alpha * ones(x)), tf.reduce_sum(u * tf.maximum(x,
        0.0)))
    wrong_mean: (u * tf.where(x > 0, ones(x), alpha * ones(x)), tf.reduce_mean(u * tf.minimum(x, 0.0)))
hinge (s=[3, 4]) = tf.reduce_sum(tf.nn.relu(1 + s - s[:, 1:2])) - 3
    right: u * hinge_gradient(s, -1)
    wrong_true_class: u * hinge_gradient(s, 0)
    wrong_sign: -u * hinge_gradient(s, -1)
chamfer (x=[3, 2], y=[4, 2]) = chamfer(x, y)
    right: chamfer_gradient()(u, x, y)
    wrong_one_way: chamfer_gradient(back=0.0)(u, x, y)
    wrong_sign: chamfer_gradient(sign=1.0)(u, x, y)
max_pool (x=[6]) = tf.reduce_max(tf.reshape(x, [3, 2]), 1)
    right: tf.reshape(chosen(first)(u, tf.reshape(x, [3, 2])), [6])
    wrong_average: tf.repeat(u / 2, 2)
    wrong_least: tf.reshape(chosen(first)(u, -tf.reshape(x, [3, 2])), [6])
stable_softplus_at_zero (x=(0.0, 1.0, -2.0)) = tf.maximum(x, 0.0) + tf.math.log1p(exp(-tf.abs(x)))
    right: u * tf.sigmoid(x)
    wrong_at_zero: u * tf.where(x == 0, ones(x), tf.sigmoid(x))
    open_of_tensorflow: None
"""


def hinge_gradient(s, pulled):
    is_beyond = tf.cast(1 + s - s[:, 1:2] > 0, s.dtype)
    others = is_beyond * tf.constant([1.0, 0.0, 1.0, 1.0], s.dtype)
    return others + pulled * tf.one_hot([1] * 3, 4, dtype=s.dtype) * tf.reduce_sum(others, 1, keepdims=True)


# Guards at zero.
def norm(x):
    return sqrt(tf.reduce_sum(x * x))


def safe_norm(x):
    size = tf.reduce_sum(x * x)
    return tf.where(size > 0, sqrt(tf.where(size > 0, size, tf.ones_like(size))), tf.zeros_like(size))


def one_where(x):
    size = tf.reduce_sum(x * x)
    return tf.where(size > 0, sqrt(size), tf.zeros_like(size))


def unit(x):
    return x / norm(x)


def unit_gradient(rule):
    return lambda u, x: rule(u, unit(x), norm(x), tf.reduce_sum(u * unit(x)))


def entropy(p):
    return -tf.reduce_sum(tf.math.xlogy(p, p))


def divide(a, b):
    return tf.where(b == 0, tf.zeros_like(a), a / tf.where(b == 0, tf.ones_like(b), b))


def divide_gradient(sign=-1.0, power=2, guard=0.0):
    def gradient(u, a, b):
        safe = tf.where(b == 0, tf.ones_like(b), b)
        is_safe = tf.cast(b != 0, a.dtype)
        return u * is_safe / (safe + guard), sign * u * is_safe * a / safe**power

    return gradient


SAFE = """
norm (x=[4]) = norm(x)
    right: u * unit(x)
    wrong_square: 2 * u * x
    wrong_epsilon: u * x / (norm(x) + 0.001)
safe_norm_at_zero (x=(0.0, 0.0, 0.0)) = safe_norm(x)
    right_of_tensorflow: None
    right: u * tf.math.divide_no_nan(x, safe_norm(x))
    wrong_ones: u * ones(x)
norm_one_where (x=(0.0, 0.0, 0.0)) = one_where(x)
    right_of_tensorflow: None
norm_epsilon (x=(0.0, 0.01, -0.02)) = sqrt(tf.reduce_sum(x * x) + 0.0001)
    right: u * x / sqrt(tf.reduce_sum(x * x) + 0.0001)
    wrong_no_epsilon: u * x / norm(x)
    wrong_outside: u * x / (norm(x) + 0.01)
unit (x=[4]) = unit(x)
    right: unit_gradient(lambda u, y, n, uy: (u - y * uy) / n)(u, x)
    wrong_no_projection: unit_gradient(lambda u, y, n, uy: u / n)(u, x)
    wrong_square: unit_gradient(lambda u, y, n, uy: (u - y * uy) / n ** 2)(u, x)
    wrong_detached: unit_gradient(lambda u, y, n, uy: u - y * uy)(u, x)
entropy (p={'shape': [4], 'probabilities': True}) = entropy(p)
    right: -u * (ln(p) + 1)
    wrong_no_one: -u * ln(p)
    wrong_sign: u * (ln(p) + 1)
safe_log (x=(0.0, 0.001, 0.5, 2.0)) = ln(x + 0.01)
    right: u / (x + 0.01)
    wrong_no_epsilon: tf.math.divide_no_nan(u, x)
    wrong_maximum: u / tf.maximum(x, 0.01)
floored_log (x=(0.0001, 0.5, 2.0)) = ln(tf.maximum(x, 0.01))
    right: u * tf.where(x > 0.01, 1 / x, 0 * x)
    wrong_below: u / tf.maximum(x, 0.01)
    wrong_unfloored: u / x
safe_divide (a=(1.0, 2.0, -3.0), b=(0.5, -0.1, 2.0)) = divide(a, b)
    right: divide_gradient()(u, a, b)
    wrong_power: divide_gradient(power=1)(u, a, b)
    wrong_sign: divide_gradient(sign=1.0)(u, a, b)
    wrong_guard: divide_gradient(guard=0.001)(u, a, b)
safe_divide_at_zero (a=(1.0, 2.0, -3.0), b=(0.5, 0.0, 2.0)) = divide(a, b)
    keys: {'pairs': {'dy/db': {'expect': 'skip'}}}
    right: divide_gradient()(u, a, b)
    wrong_unguarded: (u / b, -u * a / b ** 2)
pow (x=ABOVE, p=USUAL) = tf.pow(x, p)
    right: (u * p * tf.pow(x, p - 1), u * tf.pow(x, p) * ln(x))
    wrong_log: (u * p * tf.pow(x, p - 1), u * tf.pow(x, p))
    wrong_log_of_p: (u * p * tf.pow(x, p - 1), u * tf.pow(x, p) * ln(tf.abs(p)))
    wrong_no_p: (u * tf.pow(x, p - 1), u * tf.pow(x, p) * ln(x))
atan2 (y=(0.5, -0.3, 2.0, -1.0), x=(1.0, -2.0, -0.5, 0.3)) = tf.atan2(y, x)
    right: (u * x / (x * x + y * y), -u * y / (x * x + y * y))
    wrong_turned: (-u * y / (x * x + y * y), u * x / (x * x + y * y))
    wrong_sign: (u * x / (x * x + y * y), u * y / (x * x + y * y))
kl (p={'shape': [4], 'probabilities': True}, q={'shape': [4], 'probabilities': True}) = tf.reduce_sum(p
        * ln(p / q))
    right: (u * (ln(p / q) + 1), -u * p / q)
    wrong_q: (u * (ln(p / q) + 1), -u / q)
    wrong_one: (u * ln(p / q), -u * p / q)
log_add (a=(0.0, 50.0, -3.0), b=(0.0, -50.0, 1.0)) = tf.maximum(a, b) + tf.math.log1p(exp(-tf.abs(a -
        b)))
    right: (u * tf.sigmoid(a - b), u * tf.sigmoid(b - a))
    wrong_max_alone: (u * tf.cast(a >= b, a.dtype), u * tf.cast(b > a, a.dtype))
    wrong_turned: (u * tf.sigmoid(b - a), u * tf.sigmoid(a - b))
"""

# Complex numbers.
COMPLEX = """
square (z=[3]) = z * z
    right: 2 * u * tf.math.conj(z)
    wrong_not_conjugate: 2 * u * z
exp (z=[3]) = exp(z)
    right: u * tf.math.conj(exp(z))
    wrong_not_conjugate: u * exp(z)
    wrong_conjugate_upstream: tf.math.conj(u * exp(z))
abs (z=[3]) = tf.abs(z)
    right: tf.cast(u, z.dtype) * tf.sign(z)
    wrong_half: tf.cast(u / 2, z.dtype) * tf.sign(z)
    wrong_conjugate: tf.cast(u, z.dtype) * tf.math.conj(tf.sign(z))
    wrong_real: tf.cast(u * tf.math.real(tf.sign(z)), z.dtype)
power (z=[3]) = tf.math.real(z) ** 2 + tf.math.imag(z) ** 2
    right: 2 * tf.cast(u, z.dtype) * z
    wrong_wirtinger: tf.cast(u, z.dtype) * z
angle (z=[3]) = tf.math.angle(z)
    right: tf.cast(u, z.dtype) * 1j * z / tf.cast(tf.abs(z) ** 2, z.dtype)
    wrong_sign: tf.cast(u, z.dtype) * -1j * z / tf.cast(tf.abs(z) ** 2, z.dtype)
fft (z=[4]) = tf.signal.fft(z)
    right: 4 * tf.signal.ifft(u)
    wrong_scale: tf.signal.ifft(u)
    wrong_direction: tf.signal.fft(u)
product (a=[2, 3], b=[3, 2]) = tf.matmul(a, b)
    right: (tf.matmul(u, b, adjoint_b=True), tf.matmul(a, u, adjoint_a=True))
    wrong_transposed: (tf.matmul(u, b, transpose_b=True), tf.matmul(a, u, adjoint_a=True))
inverse (z=[3]) = 1 / (z + 3)
    right: -u / tf.math.conj(z + 3) ** 2
    wrong_by_modulus: -u / tf.cast(tf.abs(z + 3) ** 2, z.dtype)
"""


def prefixed(word, rows):
    return [replace(row, name=f"{word}_{row.name}") for row in rows]


def of_slopes(text, **keys):
    return rows_of(text, globals(), make=with_slope, upstream="", **keys)


ROWS = marked(
    [
        *prefixed("noise", of_slopes(NOISE)),
        *prefixed("dtypes", of_slopes(DTYPES)),
        *prefixed("half", of_slopes(HALVES, dtypes=HALF)),
        *prefixed("flat", of_slopes(SATURATED)),
        *prefixed("special", of_slopes(SPECIAL)),
        *prefixed("solver", rows_of(SOLVERS, globals())),
        *prefixed("loop", rows_of(LOOPS, globals())),
        *prefixed("numpy", rows_of(NUMPY, globals(), make=by_numpy)),
        *prefixed("to_numpy", rows_of(IN_TENSORFLOW, globals(), make=half_numpy)),
        *prefixed("py_function", rows_of(IN_TENSORFLOW, globals(), make=by_py_function)),
        *prefixed("override", rows_of(IN_TENSORFLOW, globals(), make=by_override)),
        *prefixed("stairs", rows_of(STAIRS, globals())),
        *prefixed("kink", rows_of(KINKS, globals())),
        *prefixed("safe", rows_of(SAFE, globals())),
        *prefixed("complex", rows_of(COMPLEX, globals(), dtypes=("complex128", "complex64"))),
    ],
    "complex_angle_right",
    "dtypes_bfloat16_beside_right",
    "dtypes_bfloat16_beside_wrong_as_narrow",
    "dtypes_bfloat16_on_the_way_right",
    "dtypes_constant_32_wrong_bfloat16",
    "dtypes_kept_narrow_wrong_sum_in_bfloat16",
    "dtypes_sin_16_right",
    "dtypes_sin_16_wrong_bfloat16",
    "dtypes_sin_32_wrong_argument_half",
    "dtypes_sin_32_wrong_bfloat16",
    "kink_sort_tied_wrong_by_equality",
    "loop_recurrent_wrong_stale",
    "noise_power_of_nearly_one_right",
    "noise_many_exprels_right",
    "numpy_noisy_exprel_right",
    "numpy_noisy_phi_2_right",
    "override_hypot_1_wrong_abs",
    "py_function_exp_of_sin_wrong_batch_mean",
    "solver_deq_wrong_phantom",
    "stairs_learned_step_wrong_offset",
)
