"""Gradients that are wrong, or not finite, at rare values alone, in each dtype; the inputs are drawn."""

from __future__ import annotations

import tensorflow as tf

from tests.rows.fresh import HALF, ln, prefixed, sqrt  # noqa: F401 (the tables' text uses them)
from tests.support.row import marked
from tests.support.variants import BOTH, rows_of

total = tf.reduce_sum


def others(x):
    """Return, for each of three numbers, the product of the other two."""
    return tf.stack([x[1] * x[2], x[0] * x[2], x[0] * x[1]])


def largest(x):
    return tf.stack([tf.reduce_max(x), tf.reduce_max(x) + total(x)])


def largest_gradient(u, x, use):
    tied = tf.cast(x == tf.reduce_max(x), x.dtype)
    both = tf.where(total(tied) > 1.5, use(u), u[0] + u[1])
    return both * tied / total(tied) + u[1]


def within(low, x, high):
    return tf.cast((x > low) & (x < high), x.dtype)


def apart(u, x, guard):
    """Return the gradients of the lengths of x = a - b for both."""
    slope = u[:, None] * x / (tf.norm(x, axis=1, keepdims=True) + guard)
    return slope, -slope


BALL = {"shape": [2, 3], "uniform": [-0.5, 0.5]}


def ball(x, y):
    """Return the cosh of distances in the Poincare ball, and what both points' gradients of it share."""
    rooms = [1 - total(each * each, 1) for each in (x, y)]
    apart = 2 * total((x - y) ** 2, 1) / (rooms[0] * rooms[1])
    return 1 + apart, [2 * apart / room for room in rooms], 4 / (rooms[0] * rooms[1])


def ball_gradient(u, x, y, factor):
    cosh, of_rooms, of_difference = ball(x, y)
    slope = u / sqrt(cosh * cosh - 1)
    return tuple(
        slope[:, None] * (of_room[:, None] * own + factor * of_difference[:, None] * (own - other))
        for own, other, of_room in ((x, y, of_rooms[0]), (y, x, of_rooms[1]))
    )


def direction(p, q):
    """Return the two numbers whose angle is taken, bilinear in p and q."""
    return total(p * q[0]), total(p * q[1])


def direction_gradient(u, p, q, guard):
    y, x = direction(p, q)
    size = y * y + x * x
    y, x = u * x / (size + guard), -u * y / (size + guard)
    return y * q[0] + x * q[1], tf.stack([y * p, x * p])


def least_squares(a, b):
    q, r = tf.linalg.qr(a)
    return tf.linalg.triangular_solve(r, tf.matmul(q, b, transpose_a=True), lower=False)


def least_squares_gradient(u, a, b, factor):
    """Return the gradients; the normal matrix is r' r."""
    r = tf.linalg.qr(a)[1]
    z = tf.linalg.triangular_solve(
        r, tf.linalg.triangular_solve(r, u, lower=False, adjoint=True), lower=False
    )
    both = tf.matmul(least_squares(a, b), z, transpose_b=True)
    both += tf.linalg.matrix_transpose(both)
    return tf.matmul(b, z, transpose_b=True) - tf.matmul(a, both), factor * tf.matmul(a, z)


# Not finite at zero, where the derivative is.
AT_ZERO = """
square (x=[4]) = x ** 2.0
    right: 2 * u * x
    wrong_by_division: 2 * u * tf.pow(x, 2.0) / x
product (x=[3]) = tf.reduce_prod(x)
    right: u * others(x)
    wrong_by_division: u * tf.reduce_prod(x) / x
    wrong_guarded: u * tf.math.divide_no_nan(tf.reduce_prod(x), x)
cubed_size (x=[2, 3]) = tf.norm(x, axis=1) ** 3
    right: 3 * u[:, None] * x * tf.norm(x, axis=1, keepdims=True)
    wrong_by_division: u[:, None] * 3 * x * (tf.norm(x, axis=1) ** 3 / total(x * x, 1))[:, None]
"""
# Finite in float64, and not in float16: no fault of the formula.
IN_FLOAT64 = """
root_of_squares (x=[3]) = sqrt(total(x * x) + 1e-3)
    right: u * x / sqrt(total(x * x) + 1e-3)
steep (x={'shape': [3], 'uniform': {'low': 0.01, 'high': 1}}) = ln(x)
    right: u / x
"""
# Right at most values. What is off by a per cent is below what rounding of bfloat16 shows in a gradient.
SELDOM = """
largest (x=[3]) = largest(x)
    right: largest_gradient(u, x, total)
    wrong_of_ties: largest_gradient(u, x, tf.reduce_max)
log1p (x={'shape': [4], 'uniform': {'low': 0, 'high': 1}}) = tf.math.log1p(x)
    right: u / (1 + x)
    wrong_series: u * tf.where(x < 0.1, 1 - x, 1 / (1 + x))
softplus (x={'shape': [3], 'uniform': {'low': -5, 'high': 5}}) = tf.nn.softplus(x)
    right: u * tf.sigmoid(x)
    wrong_saturated: u * tf.where(x > 4, 1 + 0 * x, tf.sigmoid(x))
sin (x={'shape': [4], 'uniform': {'low': -10, 'high': 10}}) = tf.sin(x)
    right: u * tf.cos(x)
    wrong_between: u * tf.cos(x) * (1 - within(1, x, 1.2))
"""
# Guards against a division by zero, that no draw comes near, and that draws come near.
GUARDED = """
size (x=[3, 4]) = tf.norm(x, axis=1)
    right: u[:, None] * x / (tf.norm(x, axis=1, keepdims=True) + 1e-12)
    wrong_guard: u[:, None] * x / (tf.norm(x, axis=1, keepdims=True) + 1e-4)
guarded_size (x=[4]) = sqrt(x * x + 1e-20)
    right: u * x / sqrt(x * x + 1e-20)
    wrong_unguarded: u * x / sqrt(x * x)
guarded_length (x=[3, 2]) = sqrt(total(x * x, 1) + 1e-30)
    right: u[:, None] * x / sqrt(total(x * x, 1, keepdims=True) + 1e-30)
    wrong_unguarded: u[:, None] * x / sqrt(total(x * x, 1, keepdims=True))
absolute (x=[5]) = tf.abs(x)
    right: u * x / (tf.abs(x) + 1e-12)
    wrong_guard: u * x / (tf.abs(x) + 1e-4)
reciprocal (x=[4]) = 1 / x
    right: -u / (x * x + 1e-20)
    wrong_guard: -u / (x * x + 1e-6)
logarithm (x=[4]) = ln(tf.abs(x))
    right: u / (x + 1e-12)
    wrong_guard: u / (x + 1e-4)
root (x={'shape': [4], 'uniform': {'low': 0, 'high': 3}}) = sqrt(x)
    right: u / (2 * sqrt(x) + 1e-12)
    wrong_guard: u / (2 * sqrt(x) + 1e-4)
distance (x=[3, 2], y=[3, 2]) = tf.norm(x - y, axis=1)
    right: apart(u, x - y, 1e-12)
    wrong_guard: apart(u, x - y, 1e-4)
deviation (x=[2, 4]) = tf.math.reduce_std(x, 1)
    right: apart(u / 2, x - tf.reduce_mean(x, 1, keepdims=True), 1e-12)[0]
    wrong_guard: apart(u / 2, x - tf.reduce_mean(x, 1, keepdims=True), 1e-4)[0]
direction (p=[4], q=[2, 4]) = tf.atan2(*direction(p, q))
    right: direction_gradient(u, p, q, 0)
    maybe_guard_of_squares: direction_gradient(u, p, q, 1e-12)
    wrong_guard: direction_gradient(u, p, q, 1e-4)
least_squares (a=[5, 3], b=[5, 2]) = least_squares(a, b)
    right: least_squares_gradient(u, a, b, 1)
    wrong_for_rows_of_one_sign: least_squares_gradient(u, a, b, 1 + 0.1 * within(0, tf.reduce_min(a[0]), 9))
ball (x=BALL, y=BALL) = tf.acosh(ball(x, y)[0])
    right: ball_gradient(u, x, y, 1)
    wrong_in_one_corner: ball_gradient(u, x, y, 1 + 0.1 * within(0, tf.reduce_min(x), 1))
surprise (p={'shape': [4], 'probabilities': True}) = -total(ln(p))
    right: -u / (p + 1e-12)
    wrong_guard: -u / (p + 1e-4)
"""

ROWS = marked(
    [
        *prefixed("at_zero", rows_of(AT_ZERO, globals(), dtypes=("float64",))),
        *prefixed("at_zero_32", rows_of(AT_ZERO, globals(), dtypes=("float32",))),
        *prefixed("at_zero_half", rows_of(AT_ZERO, globals(), dtypes=HALF)),
        *(
            row
            for dtype in (*BOTH, "bfloat16")
            for row in prefixed(dtype, rows_of(SELDOM, globals(), dtypes=(dtype,)))
        ),
        *prefixed("guarded", rows_of(GUARDED, globals(), dtypes=BOTH)),
        *prefixed("in_float64", rows_of(IN_FLOAT64, globals(), dtypes=(*BOTH, *HALF))),
    ],
    "at_zero_32_square_wrong_by_division",
    "at_zero_32_product_right",
    "guarded_absolute_right",
    "guarded_deviation_right",
    "bfloat16_softplus_wrong_saturated",
    "bfloat16_sin_wrong_between",
    "float32_largest_wrong_of_ties",
    "float32_log1p_wrong_series",
)
