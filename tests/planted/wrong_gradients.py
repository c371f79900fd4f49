"""Gradients that are wrong in one known way each, and the right ones that they vary.

Every gradient has the registered signature `(op, *upstream)` unless its name ends in `_numpy`.
"""

import numpy as np
import tensorflow as tf

# --- one input: tanh ---


def tanh(x):
    return tf.tanh(x)


def tanh_by(rule):
    """Return a gradient by a rule of the upstream, the slope and x."""
    return lambda op, upstream: rule(upstream, 1 - tf.square(tf.tanh(op.inputs[0])), op.inputs[0])


def where_positive(value):
    return lambda u, slope, x: tf.where(x > 0, tf.constant(value, x.dtype), u * slope)


def one_element(u, slope, x):
    last = tf.reshape(tf.one_hot(tf.size(x) - 1, tf.size(x), dtype=x.dtype), tf.shape(x))
    return u * slope * (1 + last / 2)


tanh_grad = tanh_by(lambda u, slope, x: u * slope)
tanh_grad_factor = tanh_by(lambda u, slope, x: 1.001 * u * slope)
tanh_grad_sign = tanh_by(lambda u, slope, x: -u * slope)
tanh_grad_one_element = tanh_by(one_element)
tanh_grad_zero = tanh_by(lambda u, slope, x: tf.zeros_like(x) * u)
tanh_grad_nan = tanh_by(where_positive(np.nan))
tanh_grad_infinite = tanh_by(where_positive(np.inf))
tanh_grad_none = tanh_by(lambda u, slope, x: None)
tanh_grad_negative_half = tanh_by(lambda u, slope, x: tf.where(x < 0, u * slope / 2, u * slope))

# --- wrong only under some upstreams ---

tanh_grad_ignored_upstream = tanh_by(lambda u, slope, x: slope)
tanh_grad_squared_upstream = tanh_by(lambda u, slope, x: slope * u * u)
tanh_grad_absolute_upstream = tanh_by(lambda u, slope, x: slope * tf.abs(u))
tanh_grad_clipped_upstream = tanh_by(lambda u, slope, x: slope * tf.clip_by_value(u, -1, 1))
tanh_grad_constant_added = tanh_by(lambda u, slope, x: slope * u + 0.001)


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


def cached_tensor(u, slope, x):
    # The cached tensor lives in the graph of the first trace; in the next one TensorFlow can't reach it.
    if not _FIRST_TENSOR:
        _FIRST_TENSOR.append(slope)
    return _FIRST_TENSOR[0] * u


tanh_grad_cached_tensor = tanh_by(cached_tensor)

# --- two inputs: product and matrix product ---


def multiply(a, b):
    return a * b


def of_two(rule):
    """Return a gradient by a rule of the upstream and both inputs."""
    return lambda op, upstream: rule(upstream, *op.inputs)


conj, real = tf.math.conj, tf.math.real
multiply_grad = of_two(lambda u, a, b: (u * conj(b), u * conj(a)))
multiply_grad_swapped = of_two(lambda u, a, b: (u * a, u * b))
multiply_grad_no_conjugate = of_two(lambda u, a, b: (u * b, u * conj(a)))
multiply_grad_real_part = of_two(lambda u, a, b: (tf.cast(real(u * conj(b)), a.dtype), u * conj(a)))
multiply_grad_none = of_two(lambda u, a, b: (u * b, None))


def matmul(a, b):
    return tf.matmul(a, b)


matmul_grad = of_two(lambda u, a, b: (tf.matmul(u, b, transpose_b=True), tf.matmul(a, u, transpose_a=True)))
matmul_grad_transpose = of_two(lambda u, a, b: (tf.matmul(u, b), tf.matmul(a, u, transpose_a=True)))


def add_bias(x, bias):
    return x + bias


add_bias_grad = of_two(lambda u, x, bias: (u, tf.reduce_sum(u, axis=0)))
add_bias_grad_first_row = of_two(lambda u, x, bias: (u, u[0]))
add_bias_grad_mean = of_two(lambda u, x, bias: (u, tf.reduce_mean(u, axis=0)))
add_bias_grad_no_sum = of_two(lambda u, x, bias: (u, u))

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


def raises_always(*_):
    raise RuntimeError("this gradient isn't written yet")


tanh_grad_wrong_shape = tanh_by(lambda u, slope, x: tf.reduce_sum(u * slope, axis=0))
tanh_grad_wrong_dtype = tanh_by(lambda u, slope, x: tf.cast(u * slope, tf.float32))
tanh_grad_ndarray = tanh_by(lambda u, slope, x: np.ones([2, 3]))
tanh_grad_float = tanh_by(lambda u, slope, x: 1.0)
tanh_grad_too_many = tanh_by(lambda u, slope, x: (u * slope, u * slope))
tanh_grad_raises = tanh_grad_raises_numpy = raises_always


def tanh_grad_wrong_shape_numpy(upstream, x):
    return ((1 - np.tanh(x) ** 2) * upstream).T


def multiply_grad_too_few(op, upstream):
    return upstream * op.inputs[1]


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
