"""Gradients that are wrong in one known way each, and the right ones that they vary.

Every gradient has the registered signature `(op, *upstream)` unless its name ends in `_numpy`.
"""

import numpy as np
import tensorflow as tf

# --- one input: tanh ---


def tanh(x):
    return tf.tanh(x)


def _tanh_slope(op):
    return 1 - tf.square(tf.tanh(op.inputs[0]))


def tanh_grad(op, upstream):
    return _tanh_slope(op) * upstream


def tanh_grad_factor(op, upstream):
    return 1.001 * tanh_grad(op, upstream)


def tanh_grad_sign(op, upstream):
    return -tanh_grad(op, upstream)


def tanh_grad_one_element(op, upstream):
    grad = tanh_grad(op, upstream)
    last = tf.reshape(tf.one_hot(tf.size(grad) - 1, tf.size(grad), dtype=grad.dtype), tf.shape(grad))
    return grad * (1 + last / 2)


def tanh_grad_zero(op, upstream):
    return tf.zeros_like(op.inputs[0]) * upstream


def tanh_grad_nan(op, upstream):
    grad = tanh_grad(op, upstream)
    return tf.where(op.inputs[0] > 0, tf.constant(np.nan, grad.dtype), grad)


def tanh_grad_infinite(op, upstream):
    grad = tanh_grad(op, upstream)
    return tf.where(op.inputs[0] > 0, tf.constant(np.inf, grad.dtype), grad)


def tanh_grad_none(op, upstream):
    del op, upstream


def tanh_grad_negative_half(op, upstream):
    grad = tanh_grad(op, upstream)
    return tf.where(op.inputs[0] < 0, grad / 2, grad)


# --- wrong only under some upstreams ---


def tanh_grad_ignored_upstream(op, upstream):
    del upstream
    return _tanh_slope(op)


def tanh_grad_squared_upstream(op, upstream):
    return _tanh_slope(op) * upstream * upstream


def tanh_grad_absolute_upstream(op, upstream):
    return _tanh_slope(op) * tf.abs(upstream)


def tanh_grad_clipped_upstream(op, upstream):
    return _tanh_slope(op) * tf.clip_by_value(upstream, -1, 1)


def tanh_grad_constant_added(op, upstream):
    return _tanh_slope(op) * upstream + 0.001


# --- residuals kept from the first point ---

_FIRST_RESIDUAL: list[np.ndarray] = []


def tanh_numpy(x):
    return np.tanh(x)


def tanh_grad_cached_numpy(upstream, x):
    # Right at the first point that this process ever sees, and wrong at every other.
    if not _FIRST_RESIDUAL:
        _FIRST_RESIDUAL.append(1 - np.tanh(x) ** 2)
    return _FIRST_RESIDUAL[0] * upstream


_FIRST_TENSOR: list[tf.Tensor] = []


def tanh_grad_cached_tensor(op, upstream):
    # The cached tensor lives in the graph of the first trace; in the next one TensorFlow can't reach it.
    if not _FIRST_TENSOR:
        _FIRST_TENSOR.append(_tanh_slope(op))
    return _FIRST_TENSOR[0] * upstream


# --- two inputs: product and matrix product ---


def multiply(a, b):
    return a * b


def multiply_grad(op, upstream):
    a, b = op.inputs
    return upstream * tf.math.conj(b), upstream * tf.math.conj(a)


def multiply_grad_swapped(op, upstream):
    a, b = op.inputs
    return upstream * a, upstream * b


def multiply_grad_no_conjugate(op, upstream):
    a, b = op.inputs
    return upstream * b, upstream * tf.math.conj(a)


def multiply_grad_real_part(op, upstream):
    a, b = op.inputs
    return tf.cast(tf.math.real(upstream * tf.math.conj(b)), a.dtype), upstream * tf.math.conj(a)


def multiply_grad_none(op, upstream):
    return upstream * op.inputs[1], None


def matmul(a, b):
    return tf.matmul(a, b)


def matmul_grad(op, upstream):
    a, b = op.inputs
    return tf.matmul(upstream, b, transpose_b=True), tf.matmul(a, upstream, transpose_a=True)


def matmul_grad_transpose(op, upstream):
    a, b = op.inputs
    return tf.matmul(upstream, b), tf.matmul(a, upstream, transpose_a=True)


def add_bias(x, bias):
    return x + bias


def add_bias_grad(op, upstream):
    del op
    return upstream, tf.reduce_sum(upstream, axis=0)


def add_bias_grad_first_row(op, upstream):
    del op
    return upstream, upstream[0]


def add_bias_grad_mean(op, upstream):
    del op
    return upstream, tf.reduce_mean(upstream, axis=0)


def add_bias_grad_no_sum(op, upstream):
    del op
    return upstream, upstream


# --- several outputs ---


def sum_and_product(a, b):
    return a + b, a * b


def sum_and_product_grad(op, upstream_sum, upstream_product):
    a, b = op.inputs
    return upstream_sum + upstream_product * b, upstream_sum + upstream_product * a


def sum_and_product_grad_second_ignored(op, upstream_sum, upstream_product):
    # The product's upstream is lost on the way to `a`.
    return upstream_sum, upstream_sum + upstream_product * op.inputs[0]


# --- IndexedSlices ---


def gather(table, rows):
    return tf.gather(table, rows)


def gather_grad(op, upstream):
    table, rows = op.inputs
    return tf.IndexedSlices(upstream, rows, tf.shape(table)), None


def gather_grad_duplicates_lost(op, upstream):
    table, rows = op.inputs
    unique, places = tf.unique(rows)
    # One row of the upstream for each row of the table, where duplicates ask for their sum.
    kept = tf.math.unsorted_segment_max(tf.range(tf.size(rows)), places, tf.size(unique))
    return tf.IndexedSlices(tf.gather(upstream, kept), unique, tf.shape(table)), None


# --- gradients of a wrong form ---


def tanh_grad_wrong_shape(op, upstream):
    return tf.reduce_sum(tanh_grad(op, upstream), axis=0)


def tanh_grad_wrong_shape_numpy(upstream, x):
    return ((1 - np.tanh(x) ** 2) * upstream).T


def tanh_grad_wrong_dtype(op, upstream):
    return tf.cast(tanh_grad(op, upstream), tf.float32)


def tanh_grad_ndarray(op, upstream):
    del op, upstream
    return np.ones([2, 3])


def tanh_grad_float(op, upstream):
    del op, upstream
    return 1.0


def tanh_grad_too_many(op, upstream):
    grad = tanh_grad(op, upstream)
    return grad, grad


def multiply_grad_too_few(op, upstream):
    return upstream * op.inputs[1]


def tanh_grad_raises(op, upstream):
    del op, upstream
    raise RuntimeError("this gradient isn't written yet")


def tanh_grad_raises_numpy(upstream, x):
    del upstream, x
    raise RuntimeError("this gradient isn't written yet")


# --- overrides ---


@tf.function
def _hidden_matmul(a, b):
    return tf.matmul(a, b)


def matmul_in_function(a, b):
    return _hidden_matmul(a, b)


def matmul_off_path(a, b):
    tf.matmul(a, b)
    return tf.reduce_sum(a[:, :, tf.newaxis] * b[tf.newaxis], axis=1)


def matmul_and_function(a, b):
    return tf.matmul(a, b) + _hidden_matmul(a, b)


# --- things that can't be checked ---

NOT_A_FUNCTION = 3.0


def raises(x):
    raise ValueError(f"no square root of a {x.shape.rank}-dimensional tensor")


def raises_numpy(x):
    raise ValueError(f"no square root of a {x.ndim}-dimensional array")


def logarithm(x):
    return tf.math.log(x)


def takes_two(x, y):
    return x * y
