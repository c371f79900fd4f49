"""Functions with a side that few draws take; see `test_chosen_points.py`."""

import time

import numpy as np
import tensorflow as tf


def hidden(x, *, factor=2.0):
    """The square beyond 3.5, whose gradient is right for a factor of 2."""

    @tf.custom_gradient
    def inner(x):
        y = tf.where(x > 3.5, x * x, tf.sin(x))
        return y, lambda dy: dy * tf.where(x > 3.5, factor * x, tf.cos(x))

    return inner(x)


def root(x):
    """No number beyond 2."""
    return tf.where(x > 2.0, tf.sqrt(1.9 - x), x)


@tf.custom_gradient
def masked_zero(x):
    mask = tf.cast(x != 0.0, x.dtype)
    return x * mask, lambda dy: dy * mask


@tf.custom_gradient
def guarded_size(x):
    """A guard that its gradient alone has: at 1e-6 it is off by 1e-4."""
    return tf.abs(x), lambda upstream: upstream * x / (tf.abs(x) + 1e-10)


@tf.custom_gradient
def fixed_point(weights):
    state = tf.zeros(3, weights.dtype)
    for _ in range(60):
        state = tf.tanh(tf.linalg.matvec(weights, state) + 0.5)

    def gradient(upstream):
        slopes = 1.0 - state * state
        jacobian = tf.eye(3, dtype=weights.dtype) - slopes[:, None] * weights
        adjoint = tf.linalg.solve(jacobian, upstream[:, None], adjoint=True)[:, 0]
        return (adjoint * slopes)[:, None] * state

    return state, gradient


@tf.custom_gradient
def clipped(x):
    return tf.sin(x), lambda dy: tf.clip_by_norm(dy, 1.0) * tf.cos(x)


def _wrong_where(forward, slope, condition):
    """Return a function whose gradient is half as large again where a condition holds."""

    @tf.custom_gradient
    def function(x):
        def gradient(dy):
            return dy * slope(x) * tf.where(condition(x), tf.constant(1.5, x.dtype), tf.ones([], x.dtype))

        return forward(x), gradient

    return function


def _is_middle(x):
    return tf.one_hot(tf.argsort(x)[3], 7, dtype=x.dtype)


# Wrong at one point of seven or of a hundred, but ties and singular matrices disagree by more.
median = _wrong_where(lambda x: x[tf.argsort(x)[3]], _is_middle, lambda x: tf.argsort(x)[3] == 6)
log_determinant = _wrong_where(
    lambda x: tf.math.log(tf.abs(tf.linalg.det(x))),
    lambda x: tf.transpose(tf.linalg.inv(x)),
    lambda x: tf.linalg.trace(x) < -3.0,
)
# A limit that is named would be a special value.
beyond_ten = _wrong_where(tf.sin, tf.cos, lambda x: x / 4.0 > 2.5)
at_zero = _wrong_where(tf.exp, tf.exp, lambda x: x == 0.0)
at_one = _wrong_where(tf.sin, tf.cos, lambda x: x == 1.0)
unguarded_at_zero = _wrong_where(tf.exp, lambda x: tf.exp(x) * x / x, lambda x: x > 9.0)  # not finite there
always_right = _wrong_where(
    lambda x: tf.exp(x) + tf.nn.relu(x - 0.5),
    lambda x: tf.exp(x) + tf.cast(x > 0.5, x.dtype),
    lambda x: x > 9.0,
)


# Conditions of sums, of `exp(x)`, of `x + c`, and of columns.
sum_near_three = _wrong_where(tf.sin, tf.cos, lambda x: tf.abs(tf.reduce_sum(x) - 3.0) < 1e-5)
exp_near_seven = _wrong_where(tf.sin, tf.cos, lambda x: (tf.exp(x) > 7.0) & (tf.exp(x) < 7.001))
minus_constant = _wrong_where(tf.sin, tf.cos, lambda x: tf.abs(x + 1.25) < 3e-5)
zero_column = _wrong_where(tf.sin, tf.cos, lambda x: tf.reduce_all(x == 0.0, 0, keepdims=True))
# Half of the squares' slopes are 0 at the end of their range, which is no reason to suspect them.
above_end = _wrong_where(tf.square, lambda x: 2.0 * x, lambda x: x > 0.99999)


def remainder_of(sign):
    @tf.custom_gradient
    def remainder(x):
        share = tf.floor(x[0] / x[1])
        return tf.math.floormod(x[0], x[1]), lambda dy: dy * tf.stack([tf.ones_like(share), sign * share])

    return remainder


def product_by_logs(x, *, sign=1.0, start=0.0):
    """A product by logarithms: TensorFlow's gradient of it isn't finite where two factors are 0."""
    return tf.exp(tf.reduce_sum(tf.math.log(sign * x + start), -1))


@tf.custom_gradient
def takes_larger_far_out(x):
    """The same sum twice: far out, its gradient takes the larger of both upstreams."""

    def gradient(dy):
        larger = tf.where(tf.abs(dy[0]) > tf.abs(dy[1]), dy[0], dy[1])
        is_far = tf.reduce_any(tf.abs(x) / 4.0 > 2.5)
        return tf.where(is_far, larger, dy[0] + dy[1]) * tf.cos(x)

    return tf.stack([tf.reduce_sum(tf.sin(x))] * 2), gradient


class AbsoluteGain(tf.Module):
    """A gain whose gradient takes its absolute value."""

    def __init__(self):
        """Begin with a gain of 2."""
        super().__init__()
        self.gain = tf.Variable(2.0, dtype=tf.float64)

    def __call__(self, x):
        """Return the sine, amplified."""

        @tf.custom_gradient
        def amplify(x, gain):
            slope = tf.cos(x) * tf.abs(gain)
            return tf.sin(x) * gain, lambda dy: (dy * slope, tf.reduce_sum(dy * tf.sin(x)))

        return amplify(x, tf.convert_to_tensor(self.gain))


@tf.custom_gradient
def not_transposed(x, w):
    """Right where `w` is symmetric."""
    return x @ w, lambda dy: (dy @ w, tf.transpose(x) @ dy)


def sine(*, seconds):
    """Waits, as one that asks another program does."""

    def forward(x):
        time.sleep(seconds)
        return np.sin(x)

    return forward


def sine_grad(dy, x):
    return dy * np.cos(x)


@tf.custom_gradient
def fading(x):
    """A term that the gradient forgets: 4 at x = 4, and below any tolerance at x = 2."""
    return x + 0.5 * tf.exp(8 * (x - 4)), lambda upstream: upstream
