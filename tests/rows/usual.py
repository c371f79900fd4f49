"""Gradients as people write them, with one mistake: layers, losses, indices, shapes, stops, second order."""

from __future__ import annotations

import math

import tensorflow as tf

from tests.rows.fresh import (  # noqa: F401 (the tables' text uses them)
    ABOVE,
    USUAL,
    by_tape,
    exp,
    ln,
    ones,
    prefixed,
    share,
    sqrt,
)
from tests.support.row import Row, marked
from tests.support.variants import BOTH, TRUTHS, rows_of

total, mean, softmax = tf.reduce_sum, tf.reduce_mean, tf.nn.softmax
INDICES = {"value": [2, 0, 2, 1], "dtype": "int32"}
LABELS = {"value": [2, 0, 1], "dtype": "int32"}


# Rows that are read, added or moved.
def slices(rule):
    """Return the gradient of `tf.gather` as slices, some of which have the same index."""

    def gradient(u, table, where):
        values, places = rule(u, where)
        return tf.IndexedSlices(values, places, tf.shape(table)), None

    return gradient


def last_of_each(u, where):
    is_last = total(tf.linalg.band_part(tf.cast(where[:, None] == where[None], u.dtype), 0, -1), 1) < 1.5
    return u * tf.cast(is_last, u.dtype)[:, None], where


def averaged(u, where):
    count = tf.gather(tf.math.unsorted_segment_sum(tf.ones_like(where), where, 3), where)
    return u / tf.cast(count, u.dtype)[:, None], where


def counts(like, size=3):
    return tf.cast(tf.maximum(tf.math.bincount(like, minlength=size), 1), tf.float64)


def bag(table, where):
    return mean(tf.gather(table, where), 0)


def segment_mean_gradient(divide):
    def gradient(u, x, where):
        size = tf.cast(counts(where), u.dtype)
        return tf.gather(u / size[:, None] if divide else u, where), None

    return gradient


def update_gradient(cleared):
    def gradient(u, x, new):
        places = tf.constant([[1], [3]])
        kept = tf.tensor_scatter_nd_update(u, places, tf.zeros_like(new)) if cleared else u
        return kept, tf.gather_nd(u, places)

    return gradient


def places(x):
    return tf.constant([[0, 1], [1, 2], [0, 1]])


def sparse_product(values, dense):
    where = tf.constant([[0, 1], [0, 2], [1, 0]], tf.int64)
    return tf.sparse.sparse_dense_matmul(tf.sparse.SparseTensor(where, values, [2, 3]), dense)


def sparse_gradient(*, turned=False, dropped=False):
    def gradient(u, values, dense):
        rows, columns = tf.constant([0, 0, 1]), tf.constant([1, 2, 0])
        own = total(tf.gather(u, rows) * tf.gather(dense, rows if turned else columns), 1)
        weights = values * tf.constant([1.0, 0.0 if dropped else 1.0, 1.0], values.dtype)
        return own, tf.scatter_nd(columns[:, None], weights[:, None] * tf.gather(u, rows), [3, 2])

    return gradient


def segment_product_gradient(u, x):
    y = tf.math.segment_prod(x, [0, 0, 1, 1])
    return tf.gather(u * y, [0, 0, 1, 1]) / x


INDEXED = """
gather (table=[3, 2], where=INDICES) = tf.gather(table, where)
    right_slices: slices(lambda u, where: (u, where))(u, table, where)
    right_dense: (tf.math.unsorted_segment_sum(u, where, 3), None)
    wrong_last: slices(last_of_each)(u, table, where)
    wrong_mean: slices(averaged)(u, table, where)
    wrong_turned: slices(lambda u, where: (u, where[::-1]))(u, table, where)
    wrong_maximum: (tf.maximum(tf.math.unsorted_segment_max(u, where, 3), -9.0), None)
padding_row (table=[3, 2], where=INDICES) = tf.gather(table, where)
    wrong_zeroed: slices(lambda u, where: (u * tf.cast(where != 0, u.dtype)[:, None], where))(u, table,
        where)
columns (x=[2, 3], where=INDICES) = tf.gather(x, where, axis=1)
    right: (tf.transpose(tf.math.unsorted_segment_sum(tf.transpose(u), where, 3)), None)
    wrong_first_two: (tf.pad(u[:, :2], [[0, 0], [0, 1]]), None)
bag (table=[3, 2], where=INDICES) = bag(table, where)
    right: slices(lambda u, where: (tf.repeat(u[None] / 4, 4, 0), where))(u, table, where)
    wrong_sum: slices(lambda u, where: (tf.repeat(u[None], 4, 0), where))(u, table, where)
    wrong_root: slices(lambda u, where: (tf.repeat(u[None] / 2, 4, 0), where))(u, table, where)
segment_mean (x=[4, 2], where=INDICES) = tf.math.unsorted_segment_mean(x, where, 3)
    right: segment_mean_gradient(True)(u, x, where)
    wrong_sum: segment_mean_gradient(False)(u, x, where)
segment_product (x={'shape': [4], 'uniform': {'low': 0.5, 'high': 2}}) = tf.math.segment_prod(x, [0, 0,
        1, 1])
    right_of_tensorflow: None
    right_divided: segment_product_gradient(u, x)
    wrong_undivided: segment_product_gradient(u, x) * x
segment_product_at_zero (x=(0.0, 2.0, 1.5, 3.0)) = tf.math.segment_prod(x, [0, 0, 1, 1])
    wrong_divided: segment_product_gradient(u, x)
    wrong_guarded: segment_product_gradient(u, tf.where(x == 0, 1e-09 * ones(x), x))
segment_max (x=[4]) = tf.math.segment_max(x, [0, 0, 1, 1])
    right_of_tensorflow: None
    wrong_all: tf.gather(u, [0, 0, 1, 1])
update (x=[4], new=[2]) = tf.tensor_scatter_nd_update(x, [[1], [3]], new)
    right: update_gradient(True)(u, x, new)
    wrong_kept: update_gradient(False)(u, x, new)
scatter_add (x=[3]) = tf.scatter_nd(places(x), x, [2, 3])
    right: tf.gather_nd(u, places(x))
    wrong_transposed: tf.gather_nd(tf.transpose(u), places(x)[:, ::-1] // [1, 2] * [1, 1])
    wrong_halved: tf.gather_nd(u, places(x)) * tf.constant([0.5, 1.0, 0.5], u.dtype)
sparse_product (values=[3], dense=[3, 2]) = sparse_product(values, dense)
    right: sparse_gradient()(u, values, dense)
    right_of_tensorflow: None
    wrong_rows: sparse_gradient(turned=True)(u, values, dense)
    wrong_dropped: sparse_gradient(dropped=True)(u, values, dense)
one_hot_rows (w=[3, 2], where=LABELS) = tf.one_hot(where, 3, dtype=w.dtype) @ w
    right: (tf.one_hot(where, 3, axis=0, dtype=w.dtype) @ u, None)
    wrong_untransposed: (tf.one_hot(where, 3, dtype=w.dtype) @ u, None)
masked (x=[4], keep={'value': [True, False, True, True], 'dtype': 'bool'}) = tf.boolean_mask(x, keep)
    keys: {'modes': ['graph']}
    right: (tf.scatter_nd(tf.where(keep), u, [4]), None)
    wrong_padded: (tf.pad(u, [[0, 1]]), None)
"""


# Shapes: sums over what was broadcast, transposes, axes.
def product_gradient(*, turn_a=True, turn_b=True):
    return lambda u, a, b: (tf.matmul(u, b, transpose_b=turn_a), tf.matmul(a, u, transpose_a=turn_b))


def attention(q, k, v):
    return softmax(q @ tf.transpose(k) / math.sqrt(3)) @ v


def attention_gradient(*, scale=True, transpose=True, mean_axis=1):
    def gradient(u, q, k, v):
        factor = 1 / math.sqrt(3)
        p = softmax(q @ tf.transpose(k) * factor)
        d = u @ tf.transpose(v)
        d = p * (d - total(p * d, mean_axis, keepdims=True)) * (factor if scale else 1.0)
        return d @ k, tf.transpose(d) @ q if transpose else d @ q, tf.transpose(p) @ u

    return gradient


def kernel(size=3):
    return tf.random.stateless_normal([size, 1, 1], [1, 2], tf.float64)


def conv(x, w):
    return tf.nn.conv1d(x, w, 1, "SAME")


def conv_gradient(*, flip=True, shift=0):
    def gradient(u, x, w):
        turned = tf.transpose(w[::-1] if flip else w, [0, 2, 1])
        padded = tf.pad(x, [[0, 0], [1, 1], [0, 0]])
        windows = tf.stack([tf.roll(padded, -shift, 1)[:, i : i + 5] for i in range(3)])
        return conv(u, turned), tf.einsum("kbti,bto->kio", windows, u)

    return gradient


def rotate(x, a):
    c, s = tf.cos(a), tf.sin(a)
    return tf.stack([c * x[0] - s * x[1], s * x[0] + c * x[1]])


def rotate_gradient(back=-1.0, sign=1.0):
    def gradient(u, x, a):
        c, s = tf.cos(a), back * tf.sin(a)
        own = u[0] * (-tf.sin(a) * x[0] - tf.cos(a) * x[1]) + sign * u[1] * (
            tf.cos(a) * x[0] - tf.sin(a) * x[1]
        )
        return tf.stack([c * u[0] - s * u[1], s * u[0] + c * u[1]]), own

    return gradient


def einsum(a, b):
    return tf.einsum("bij,jk->bik", a, b)


def householder(v, x):
    return x - 2 * v * total(v * x) / total(v * v)


def householder_gradient(*, both=True, norm=True):
    def gradient(u, v, x):
        n, vx, vu = total(v * v), total(v * x), total(v * u)
        own = u * vx + (x * vu if both else 0 * x) - (2 * v * vx * vu / n if norm else 0 * v)
        return -2 * own / n, householder(v, u)

    return gradient


def exponential_map(w):
    """Return the rotation of (1, 2, 3) about w (Rodrigues)."""
    angle = sqrt(total(w * w))
    x = tf.constant([1.0, 2.0, 3.0], w.dtype)
    cross = tf.linalg.cross(w, x)
    return x + tf.sin(angle) / angle * cross + (1 - tf.cos(angle)) / angle**2 * tf.linalg.cross(w, cross)


def squash(x):
    n = total(x * x, 1, keepdims=True)
    return x * sqrt(n) / (1 + n)


def squash_gradient(power):
    def gradient(u, x):
        n = total(x * x, 1, keepdims=True)
        along = total(u * x, 1, keepdims=True) * (1 - n) / (1 + n) ** power
        return u * sqrt(n) / (1 + n) + tf.math.divide_no_nan(x * along, sqrt(n))

    return gradient


def broadcast(axis, *, keep=True):
    return lambda u, x, b: (u, total(u, axis))


def haversine(a, b):
    h = tf.sin((b - a) / 2) ** 2
    return h + tf.cos(a) * tf.cos(b) * 0.25


ARRAYS = """
matmul (a=[3, 3], b=[3, 3]) = tf.matmul(a, b)
    right: product_gradient()(u, a, b)
    wrong_a: product_gradient(turn_a=False)(u, a, b)
    wrong_b: product_gradient(turn_b=False)(u, a, b)
    wrong_turned: product_gradient()(u, a, b)[::-1]
batch_matmul (a=[2, 3, 4], b=[4, 2]) = einsum(a, b)
    right: (tf.einsum('bik,jk->bij', u, b), tf.einsum('bij,bik->jk', a, u))
    wrong_mean: (tf.einsum('bik,jk->bij', u, b), tf.einsum('bij,bik->jk', a, u) / 2)
    wrong_first: (tf.einsum('bik,jk->bij', u, b), tf.einsum('ij,ik->jk', a[0], u[0]))
add_bias (x=[3, 3], b=[3]) = tf.add(x, b)
    right: broadcast(0)(u, x, b)
    wrong_axis: broadcast(1)(u, x, b)
    wrong_mean: (u, mean(u, 0))
    wrong_last: (u, u[-1])
scale_rows (x=[3, 4], g=[4]) = tf.multiply(x, g)
    right: (u * g, total(u * x, 0))
    wrong_no_x: (u * g, total(u, 0))
    wrong_no_g: (u, total(u * x, 0))
    wrong_per_batch: (u * g, total(u * x[:1], 0))
outer (a=[3], b=[3]) = a[:, None] * b
    right: (tf.linalg.matvec(u, b), tf.linalg.matvec(u, a, transpose_a=True))
    wrong_turned: (tf.linalg.matvec(u, b, transpose_a=True), tf.linalg.matvec(u, a))
bilinear (x=[3], w=[3, 3]) = tf.tensordot(x, tf.linalg.matvec(w, x), 1)
    right: (u * tf.linalg.matvec(w + tf.transpose(w), x), u * x[:, None] * x)
    wrong_symmetric: (2 * u * tf.linalg.matvec(w, x), u * x[:, None] * x)
    wrong_half: (u * tf.linalg.matvec(w, x), u * x[:, None] * x)
attention (q=[2, 3], k=[4, 3], v=[4, 2]) = attention(q, k, v)
    right: attention_gradient()(u, q, k, v)
    wrong_scale: attention_gradient(scale=False)(u, q, k, v)
    wrong_axis: attention_gradient(mean_axis=0)(u, q, k, v)
attention_square (q=[3, 3], k=[3, 3], v=[3, 3]) = attention(q, k, v)
    right_of_tensorflow: None
    wrong_untransposed: attention_gradient(transpose=False)(u, q, k, v)
conv (x=[2, 5, 1], w=[3, 1, 1]) = conv(x, w)
    right: conv_gradient()(u, x, w)
    wrong_unflipped: conv_gradient(flip=False)(u, x, w)
    wrong_shifted: conv_gradient(shift=1)(u, x, w)
average_pool (x=[1, 6, 1]) = tf.nn.avg_pool1d(x, 2, 2, 'VALID')
    right: tf.repeat(u, 2, 1) / 2
    wrong_sum: tf.repeat(u, 2, 1)
    wrong_tiled: tf.tile(u, [1, 2, 1]) / 2
padded_pool (x=[1, 5, 1]) = tf.nn.avg_pool1d(x, 2, 2, 'SAME')
    right: tf.repeat(u, 2, 1)[:, :5] / tf.constant([2.0, 2, 2, 2, 1], x.dtype)[:, None]
    wrong_at_end: tf.repeat(u, 2, 1)[:, :5] / 2
upsample (x=[2, 3]) = tf.repeat(x, 2, 1)
    right: total(tf.reshape(u, [2, 3, 2]), -1)
    wrong_mean: mean(tf.reshape(u, [2, 3, 2]), -1)
    wrong_strided: u[:, ::2]
    wrong_order: total(tf.reshape(u, [2, 2, 3]), 1)
reflect (x=[4]) = tf.pad(x, [[1, 1]], 'REFLECT')
    right_of_tensorflow: None
    wrong_cropped: u[1:-1]
    wrong_symmetric: u[1:-1] + tf.stack([u[0], 0 * u[0], 0 * u[0], u[-1]])
roll (x=[5]) = tf.roll(x, 2, 0)
    right: tf.roll(u, -2, 0)
    wrong_direction: tf.roll(u, 2, 0)
permute (x=[2, 2, 2]) = tf.transpose(x, [1, 2, 0])
    right: tf.transpose(u, [2, 0, 1])
    wrong_same: tf.transpose(u, [1, 2, 0])
concat (a=[2], b=[2]) = tf.concat([a, 2 * b], 0)
    right: (u[:2], 2 * u[2:])
    wrong_turned: (u[2:], 2 * u[:2])
    wrong_factor: (u[:2], u[2:])
rotate (x=[2], a=[]) = rotate(x, a)
    right: rotate_gradient()(u, x, a)
    wrong_forwards: rotate_gradient(back=1.0)(u, x, a)
    wrong_angle: rotate_gradient(sign=-1.0)(u, x, a)
householder (v=[3], x=[3]) = householder(v, x)
    right: householder_gradient()(u, v, x)
    wrong_one_side: householder_gradient(both=False)(u, v, x)
    wrong_no_norm: householder_gradient(norm=False)(u, v, x)
rotation_vector (w=[3]) = exponential_map(w)
    right_of_tensorflow: None
    wrong_small_angle: tf.linalg.cross(tf.constant([1.0, 2.0, 3.0], w.dtype), u)
rotation_vector_small (w=(1e-06, -2e-06, 1e-06)) = exponential_map(w)
    keys: {'dtypes': ['float64']}
    wrong_sign: tf.linalg.cross(u, tf.constant([1.0, 2.0, 3.0], w.dtype))
cross (a=[3], b=[3]) = tf.linalg.cross(a, b)
    right: (tf.linalg.cross(b, u), tf.linalg.cross(u, a))
    wrong_order: (tf.linalg.cross(u, b), tf.linalg.cross(a, u))
    wrong_one: (tf.linalg.cross(b, u), tf.linalg.cross(a, u))
squash (x=[2, 3]) = squash(x)
    right: squash_gradient(2)(u, x)
    wrong_power: squash_gradient(1)(u, x)
great_circle (a=USUAL, b=ABOVE) = haversine(a, b)
    right_of_tensorflow: None
    wrong_term: (-u * tf.sin(b - a) / 2, u * tf.sin(b - a) / 2)
    wrong_product: (u * (-tf.sin(b - a) / 2 - tf.sin(a) * tf.cos(b) / 4), u * (tf.sin(b - a) / 2 -
        tf.sin(a) * tf.cos(b) / 4))
cumsum (x=[4]) = tf.cumsum(x)
    right: tf.cumsum(u, reverse=True)
    wrong_forwards: tf.cumsum(u)
    wrong_exclusive: tf.cumsum(u, reverse=True, exclusive=True)
glu (x=[2, 4]) = x[:, :2] * tf.sigmoid(x[:, 2:])
    right: tf.concat([u * tf.sigmoid(x[:, 2:]), u * x[:, :2] * tf.sigmoid(x[:, 2:]) * tf.sigmoid(-x[:,
        2:])], 1)
    wrong_gate: tf.concat([u * tf.sigmoid(x[:, 2:]), u * tf.sigmoid(x[:, 2:]) * tf.sigmoid(-x[:, 2:])],
        1)
    wrong_detached: tf.concat([u * tf.sigmoid(x[:, 2:]), 0 * u], 1)
dropout_mask (x=[6]) = x * mask_of(x) / 0.75
    right: u * mask_of(x) / 0.75
    wrong_unscaled: u * mask_of(x)
    wrong_all: u / 0.75
factorization_machine (x=[3], v=[3, 2]) = 0.5 * total(tf.linalg.matvec(v, x, transpose_a=True) ** 2 -
        tf.linalg.matvec(v ** 2, x ** 2, transpose_a=True))
    right_of_tensorflow: None
    right: (u * (tf.linalg.matvec(v, tf.linalg.matvec(v, x, transpose_a=True)) - x * total(v ** 2, 1)),
        u * (x[:, None] * tf.linalg.matvec(v, x, transpose_a=True) - v * x[:, None] ** 2))
    wrong_diagonal: (u * tf.linalg.matvec(v, tf.linalg.matvec(v, x, transpose_a=True)), u * (x[:, None]
        * tf.linalg.matvec(v, x, transpose_a=True) - v * x[:, None] ** 2))
"""


def mask_of(x):
    return tf.constant([1.0, 0, 1, 1, 0, 1], x.dtype)


# Normalisations.
def layer_norm(x, epsilon=1e-3):
    center = x - mean(x, 1, keepdims=True)
    return center / sqrt(mean(center**2, 1, keepdims=True) + epsilon)


def layer_norm_gradient(*, mean_term=True, variance_term=True, epsilon=1e-3, axis=1, ddof=0):
    def gradient(u, x):
        n = x.shape[1]
        center = x - mean(x, axis, keepdims=True)
        deviation = sqrt(total(center**2, axis, keepdims=True) / (n - ddof) + epsilon)
        y = center / deviation
        given = u - mean(u, axis, keepdims=True) * float(mean_term)
        return (given - y * mean(u * y, axis, keepdims=True) * float(variance_term)) / deviation

    return gradient


def rms(x):
    return x * tf.math.rsqrt(mean(x * x, 1, keepdims=True) + 1e-3)


def rms_gradient(term=1.0):
    def gradient(u, x):
        r = tf.math.rsqrt(mean(x * x, 1, keepdims=True) + 1e-3)
        return r * u - term * x * r**3 * mean(u * x, 1, keepdims=True)

    return gradient


def weight_norm(v, g):
    return g * v / sqrt(total(v * v))


def weight_norm_gradient(*, projection=True, by_norm=True):
    def gradient(u, v, g):
        n = sqrt(total(v * v))
        uv = total(u * v) / n
        own = u - (v / n * uv if projection else 0 * v)
        return g / (n if by_norm else 1.0) * own, uv

    return gradient


def batch_norm_gradient(frozen):
    def gradient(u, x):
        return tf.transpose(
            layer_norm_gradient(mean_term=not frozen, variance_term=not frozen)(
                tf.transpose(u), tf.transpose(x)
            )
        )

    return gradient


NORMS = """
layer (x=[2, 5]) = layer_norm(x)
    right: layer_norm_gradient()(u, x)
    wrong_mean: layer_norm_gradient(mean_term=False)(u, x)
    wrong_variance: layer_norm_gradient(variance_term=False)(u, x)
    wrong_epsilon: layer_norm_gradient(epsilon=1e-05)(u, x)
    wrong_ddof: layer_norm_gradient(ddof=1)(u, x)
layer_of_equals (x=((2.0, 2.0, 2.0), (1.0, 2.0, 4.0))) = layer_norm(x)
    right: layer_norm_gradient()(u, x)
    wrong_variance: layer_norm_gradient(variance_term=False)(u, x)
layer_offset (x=((1000.0, 1001.0, 1003.0), (-500.0, -501.0, -500.5))) = layer_norm(x)
    right: layer_norm_gradient()(u, x)
    wrong_mean: layer_norm_gradient(mean_term=False)(u, x)
layer_of_two (x=[3, 2]) = layer_norm(x)
    right: layer_norm_gradient()(u, x)
    wrong_zero: 0 * u
    wrong_twice: 2 * layer_norm_gradient()(u, x)
batch (x=[4, 3]) = tf.transpose(layer_norm(tf.transpose(x)))
    right: batch_norm_gradient(False)(u, x)
    wrong_frozen: batch_norm_gradient(True)(u, x)
    wrong_axis: layer_norm_gradient()(u, x)
rms (x=[2, 4]) = rms(x)
    right: rms_gradient()(u, x)
    wrong_detached: rms_gradient(0.0)(u, x)
    wrong_sign: rms_gradient(-1.0)(u, x)
    wrong_by_1e-3: rms_gradient(1.001)(u, x)
weight (v=[4], g={'value': 1.5}) = weight_norm(v, g)
    right: weight_norm_gradient()(u, v, g)
    wrong_projection: weight_norm_gradient(projection=False)(u, v, g)
    wrong_norm: weight_norm_gradient(by_norm=False)(u, v, g)
centred (x=[4]) = x - mean(x)
    right: u - mean(u)
    wrong_through: tf.identity(u)
    wrong_ddof: u - total(u) / 3
variance (x=(1000.0, 1000.5, 1002.0)) = tf.math.reduce_variance(x)
    right: 2 * u * (x - mean(x)) / 3
    wrong_ddof: u * (x - mean(x))
    wrong_uncentred: 2 * u * x / 3
deviation (x=[4]) = tf.math.reduce_std(x)
    right: u * (x - mean(x)) / (4 * tf.math.reduce_std(x))
    wrong_of_variance: u * (x - mean(x)) / 2
cosine (a=[4], b=[4]) = total(a * b) / sqrt(total(a * a) * total(b * b))
    right_of_tensorflow: None
    wrong_projection: (u * b / sqrt(total(a * a) * total(b * b)), u * a / sqrt(total(a * a) * total(b *
        b)))
log_softmax (x=[2, 4]) = tf.nn.log_softmax(x)
    right: u - softmax(x) * total(u, 1, keepdims=True)
    wrong_no_sum: u - softmax(x) * u
    wrong_axis: u - softmax(x) * total(u, 0, keepdims=True)
    wrong_total: u - softmax(x) * total(u)
softmax_saturated (x=((90.0, -80.0, 1.0), (0.0, 0.5, 40.0))) = softmax(x)
    right: softmax(x) * (u - total(u * softmax(x), 1, keepdims=True))
    wrong_diagonal: u * softmax(x) * (1 - softmax(x))
    wrong_sum: softmax(x) * (u - total(u, 1, keepdims=True))
"""


# Losses of a batch.
def labels_of(y, like):
    return tf.one_hot(y, 3, dtype=like.dtype)


def cross_entropy(x, y):
    return mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x))


def of_logits(rule):
    return lambda u, x, y: (u * rule(softmax(x), labels_of(y, x)), None)


def focal(x, y):
    p = total(softmax(x) * labels_of(y, x), 1)
    return mean(-((1 - p) ** 2) * ln(p))


def focal_gradient(modulating):
    def gradient(u, x, y):
        t = labels_of(y, x)
        p = total(softmax(x) * t, 1, keepdims=True)
        slope = 2 * (1 - p) * ln(p) * float(modulating) - (1 - p) ** 2 / p
        return u / 3 * slope * p * (t - softmax(x)), None

    return gradient


def dice(p, t):
    return 1 - (2 * total(p * t) + 1) / (total(p) + total(t) + 1)


def dice_gradient(*, quotient=True):
    def gradient(u, p, t):
        top, bottom = 2 * total(p * t) + 1, total(p) + total(t) + 1
        rest = top / bottom**2 * float(quotient)
        return -u * (2 * t / bottom - rest), -u * (2 * p / bottom - rest)

    return gradient


def info_nce(a, b):
    return mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(3), a @ tf.transpose(b) / 0.5))


def info_nce_gradient(*, temperature=0.5, size=3.0, turn=True):
    def gradient(u, a, b):
        d = u * (softmax(a @ tf.transpose(b) / 0.5) - tf.eye(3, dtype=a.dtype)) / (size * temperature)
        return d @ b, (tf.transpose(d) if turn else d) @ a

    return gradient


def triplet(a, p, n):
    return mean(tf.nn.relu(total((a - p) ** 2, 1) - total((a - n) ** 2, 1) + 1))


def triplet_gradient(*, anchor=True, size=2.0):
    def gradient(u, a, p, n):
        is_on = tf.cast(
            total((a - p) ** 2, 1, keepdims=True) - total((a - n) ** 2, 1, keepdims=True) + 1 > 0, a.dtype
        )
        d = 2 * u * is_on / size
        return d * (n - p) if anchor else d * (a - p), -d * (a - p), d * (a - n)

    return gradient


def bce(x, t):
    return mean(tf.nn.weighted_cross_entropy_with_logits(t, x, 3.0))


def bce_gradient(weight=3.0):
    def gradient(u, x, t):
        own = (1 - t) * tf.sigmoid(x) - weight * t * tf.sigmoid(-x)
        return u * own / 4, u / 4 * (-x + (3.0 - 1) * tf.nn.softplus(-x))

    return gradient


def gaussian_kl(m, s):
    return 0.5 * total(m * m + exp(s) - s - 1)


T4 = {"value": [0.0, 1.0, 1.0, 0.3]}
LOSSES = """
mse (x=[2, 3], t=[2, 3]) = mean((x - t) ** 2)
    right: (u * (x - t) / 3, u * (t - x) / 3)
    wrong_mean: (2 * u * (x - t), 2 * u * (t - x))
    wrong_batch_only: (u * (x - t), u * (t - x))
    wrong_sign: (u * (x - t) / 3, u * (x - t) / 3)
mae (x=[4], t=[4]) = mean(tf.abs(x - t))
    right: (u * tf.sign(x - t) / 4, -u * tf.sign(x - t) / 4)
    wrong_of_mse: (u * (x - t) / 2, u * (t - x) / 2)
cross_entropy (x=[3, 3], y=LABELS) = cross_entropy(x, y)
    right: of_logits(lambda p, t: (p - t) / 3)(u, x, y)
    wrong_sum: of_logits(lambda p, t: p - t)(u, x, y)
    wrong_sign: of_logits(lambda p, t: (t - p) / 3)(u, x, y)
    wrong_softmax: of_logits(lambda p, t: p / 3)(u, x, y)
    wrong_clipped: of_logits(lambda p, t: (tf.clip_by_value(p, 0.2, 0.8) - t) / 3)(u, x, y)
    wrong_smoothed: of_logits(lambda p, t: (p - 0.9 * t - 0.1 / 3) / 3)(u, x, y)
focal (x=[3, 3], y=LABELS) = focal(x, y)
    right: focal_gradient(True)(u, x, y)
    wrong_detached: focal_gradient(False)(u, x, y)
dice (p={'shape': [4], 'uniform': {'low': 0.1, 'high': 0.9}}, t=T4) = dice(p, t)
    right: dice_gradient()(u, p, t)
    wrong_quotient: dice_gradient(quotient=False)(u, p, t)
info_nce (a=[3, 2], b=[3, 2]) = info_nce(a, b)
    right: info_nce_gradient()(u, a, b)
    wrong_temperature: info_nce_gradient(temperature=1.0)(u, a, b)
    wrong_size: info_nce_gradient(size=1.0)(u, a, b)
    wrong_turn: info_nce_gradient(turn=False)(u, a, b)
triplet (a=[2, 3], p=[2, 3], n=[2, 3]) = triplet(a, p, n)
    right: triplet_gradient()(u, a, p, n)
    wrong_anchor: triplet_gradient(anchor=False)(u, a, p, n)
    wrong_size: triplet_gradient(size=6.0)(u, a, p, n)
weighted_bce (x=[4], t=T4) = bce(x, t)
    right: bce_gradient()(u, x, t)
    wrong_weight: bce_gradient(weight=1.0)(u, x, t)
gaussian_kl (m=[3], s=[3]) = gaussian_kl(m, s)
    right: (u * m, u * (exp(s) - 1) / 2)
    wrong_half: (u * m, u * (exp(s) - 1))
    wrong_one: (u * m, u * exp(s) / 2)
    wrong_root: (u * m, u * (exp(s / 2) - 1) / 2)
poisson (x=USUAL, t=ABOVE) = mean(exp(x) - t * x)
    right: (u * (exp(x) - t) / 4, -u * x / 4)
    wrong_target: (u * (exp(x) - t) / 4, u * x / 4)
    wrong_no_link: (u * (1 - t * exp(-x)) / 4, -u * x / 4)
wing (x=(-3.0, -0.5, 0.8, 4.0)) = total(tf.where(tf.abs(x) < 2, 2 * ln(1 + tf.abs(x)), tf.abs(x) - 2 + 2
        * math.log(3)))
    right: u * tf.sign(x) * tf.where(tf.abs(x) < 2, 2 / (1 + tf.abs(x)), ones(x))
    wrong_unsigned: u * tf.where(tf.abs(x) < 2, 2 / (1 + tf.abs(x)), ones(x))
    wrong_inner: u * tf.sign(x) * tf.where(tf.abs(x) < 2, 1 / (1 + tf.abs(x)), ones(x))
ranknet (s=[3]) = tf.nn.softplus(s[0] - s[1]) + tf.nn.softplus(s[1] - s[2])
    right: u * rank_slopes(s, 1.0)
    wrong_middle: u * rank_slopes(s, 0.0)
    wrong_sign: -u * rank_slopes(s, 1.0)
margin_masked (x=[4], m={'value': [1.0, 0.0, 1.0, 1.0]}) = total(m * x * x) / total(m)
    right: (2 * u * m * x / total(m), u * (x * x / total(m) - total(m * x * x) / total(m) ** 2))
    wrong_size: (2 * u * m * x / 4, u * (x * x / total(m) - total(m * x * x) / total(m) ** 2))
    wrong_mask: (2 * u * x / total(m), u * (x * x / total(m) - total(m * x * x) / total(m) ** 2))
    wrong_quotient: (2 * u * m * x / total(m), u * x * x / total(m))
"""


def rank_slopes(s, middle):
    first, second = tf.sigmoid(s[0] - s[1]), tf.sigmoid(s[1] - s[2])
    return tf.stack([first, middle * (second - first) + (1 - middle) * second, -second])


# Stops, and gradients that change what comes in. Stops inside a custom gradient don't count.
FREEZE = {"freeze": True}
stop = tf.stop_gradient
STOPS = """
straight_through (x=USUAL) = x + stop(tf.round(x) - x)
    keys: FREEZE
    right_of_tensorflow: None
    wrong_through: u * x
target (x=[3], y=[3]) = total((x - stop(y)) ** 2)
    keys: FREEZE
    right_full: (2 * u * (x - y), 2 * u * (y - x))
    right_of_tensorflow: None
    wrong_as_held: (2 * u * (x - y), 0 * y)
    wrong_factor: (u * (x - y), 0 * y)
magic_box (x=[3]) = total(exp(x - stop(x)) * stop(x * x))
    keys: FREEZE
    right_of_tensorflow: None
    right_full: 2 * u * x
    wrong_as_held: u * x * x
detached_scale (x=[3]) = x / stop(sqrt(total(x * x)))
    keys: FREEZE
    right_of_tensorflow: None
    right_full: by_tape(lambda x: x / sqrt(total(x * x)))(u, x)
detached_scale_not_meant (x=[3]) = x / stop(sqrt(total(x * x)))
    keys: {'freeze': False}
    wrong_of_tensorflow: None
    right_full: by_tape(lambda x: x / sqrt(total(x * x)))(u, x)
detached_scale_unsaid (x=[3]) = x / stop(sqrt(total(x * x)))
    open_of_tensorflow: None
max_detached (x=[4]) = ln(total(exp(x - stop(tf.reduce_max(x))))) + stop(tf.reduce_max(x))
    right_of_tensorflow: None
    right: u * softmax(x)
    wrong_no_max: u * exp(x)
clipped_upstream (x=USUAL) = tf.sin(x)
    wrong: tf.clip_by_value(u * tf.cos(x), -0.5, 0.5)
    wrong_by_norm: tf.clip_by_norm(u * tf.cos(x), 1.0)
    wrong_sign: tf.sign(u) * tf.cos(x)
    wrong_normalised: u / (tf.norm(u) + 1e-08) * tf.cos(x)
    wrong_squared: u * tf.abs(u) * tf.cos(x)
    wrong_ignored: tf.cos(x)
    wrong_decay: u * tf.cos(x) + 0.001 * x
    wrong_threshold: tf.where(tf.abs(u) > 0.001, u, 0 * u) * tf.cos(x)
reversal (x=USUAL) = tf.identity(x)
    wrong_unsaid: -0.5 * u
reversal_meant (x=USUAL) = tf.identity(x)
    reference: -0.5 * x
    right: -0.5 * u
    wrong_sign: 0.5 * u
    wrong_factor: -u
"""

# Second order: what the gradient's own gradient is.
TWICE = {"second_order": True}


@tf.custom_gradient
def cosine_with_half(x):
    return tf.cos(x), lambda u: -0.5 * u * tf.sin(x)


@tf.custom_gradient
def cosine(x):
    return tf.cos(x), lambda u: -u * tf.sin(x)


SECOND = """
sin (x=USUAL) = tf.sin(x)
    right: u * tf.cos(x)
    right_nested: u * cosine(x)
    wrong_nested: u * cosine_with_half(x)
    wrong_stopped: u * stop(tf.cos(x))
    wrong_first: u * tf.cos(2 * x)
    wrong_partly: u * (0.5 * tf.cos(x) + 0.5 * stop(tf.cos(x)))
cube (x=USUAL) = x ** 3
    right: 3 * u * x * x
    wrong_one_stopped: 3 * u * x * stop(x)
log_sum_exp (x=[4]) = tf.reduce_logsumexp(x)
    right: u * softmax(x)
    wrong_stopped_sum: u * exp(x) / stop(total(exp(x)))
product (a=[2, 2], b=[2, 2]) = tf.matmul(a, b)
    right: product_gradient()(u, a, b)
    wrong_stopped_a: (u @ tf.transpose(b), tf.transpose(stop(a)) @ u)
norm (x=[3]) = sqrt(total(x * x))
    right: u * x / sqrt(total(x * x))
    wrong_stopped_norm: u * x / stop(sqrt(total(x * x)))
softplus (x=USUAL) = tf.nn.softplus(x)
    right: u * tf.sigmoid(x)
    right_of_output: u * (1 - exp(-tf.nn.softplus(x)))
    wrong_upstream: stop(u) * tf.sigmoid(x)
relu_squared (x=USUAL) = tf.nn.relu(x) ** 2
    right: 2 * u * tf.nn.relu(x)
    wrong_masked: 2 * u * stop(tf.nn.relu(x))
"""


# Weights that are variables.
class Weighted(tf.Module):
    """A layer whose gradient is written by hand, for its input and for each of its weights."""

    def __init__(self, value, gradient, *shapes, dtype="float64"):
        super().__init__()
        draws = [tf.random.stateless_normal(shape, [3, i], dtype=dtype) for i, shape in enumerate(shapes)]
        self.value, self.gradient = value, gradient
        self.weights = [tf.Variable(draw, name=f"w{i}") for i, draw in enumerate(draws)]

    def __call__(self, x):
        @tf.custom_gradient
        def call(x):
            weights = [tf.identity(one) for one in self.weights]

            def gradient(u, variables=None):
                own, *others = self.gradient(u, x, *weights)
                known = dict(zip([one.ref() for one in self.weights], others, strict=True))
                return own, [known[one.ref()] for one in variables or ()]

            return self.value(x, *weights), gradient

        return call(x)


def dense(x, w, b):
    return tf.tanh(x @ w + b)


def dense_gradient(*, transpose=True, reduce=total, slope=True, decay=0.0):
    def gradient(u, x, w, b):
        d = u * (1 - dense(x, w, b) ** 2) if slope else u
        return d @ (tf.transpose(w) if transpose else w), tf.transpose(x) @ d + decay * w, reduce(d, 0)

    return gradient


def affine(x, g, b):
    return g * layer_norm(x) + b


def affine_gradient(*, scaled=True, normal=True):
    def gradient(u, x, g, b):
        own = layer_norm_gradient()(u * g if scaled else u, x)
        return own, total(u * (layer_norm(x) if normal else x), 0), total(u, 0)

    return gradient


LAYERS = {
    "dense": (
        dense,
        ([3, 3], [3]),
        {
            "right": dense_gradient(),
            "wrong_untransposed": dense_gradient(transpose=False),
            "wrong_mean": dense_gradient(reduce=mean),
            "wrong_slope": dense_gradient(slope=False),
            "wrong_decay": dense_gradient(decay=0.01),
            "wrong_decay_1e-4": dense_gradient(decay=1e-4),
        },
    ),
    "affine": (
        affine,
        ([3], [3]),
        {
            "right": affine_gradient(),
            "wrong_unscaled": affine_gradient(scaled=False),
            "wrong_raw": affine_gradient(normal=False),
        },
    ),
    "gate": (
        lambda x, w: x * tf.sigmoid(x @ w),
        ([3, 3],),
        {"right": lambda u, x, w: gate(u, x, w, 1.0), "wrong_through": lambda u, x, w: gate(u, x, w, 0.0)},
    ),
    "residual": (
        lambda x, a: x + a * tf.sin(x),
        ([],),
        {
            "right": lambda u, x, a: (u * (1 + a * tf.cos(x)), total(u * tf.sin(x))),
            "wrong_skip": lambda u, x, a: (u * a * tf.cos(x), total(u * tf.sin(x))),
            "wrong_stale": lambda u, x, a: (u * (1 + 1.0 * tf.cos(x)), total(u * tf.sin(x))),
        },
    ),
}


def gate(u, x, w, through):
    s = tf.sigmoid(x @ w)
    d = u * x * s * (1 - s)
    return u * s + through * d @ tf.transpose(w), tf.transpose(x) @ d


def layer_rows():
    for name, (value, shapes, gradients) in LAYERS.items():
        for variant, gradient in gradients.items():
            for dtype in BOTH:
                if dtype == "float32" and variant.endswith("1e-4"):
                    continue
                layer = Weighted(value, gradient, *shapes, dtype=dtype)
                inputs = {"x": {"shape": [4, 3], "dtype": dtype}}
                truth = TRUTHS[variant.split("_")[0]]
                yield Row(f"{name}_{variant}_{dtype}", layer, None, inputs, truth, keys={"variables": True})


ROWS = marked(
    [
        *prefixed("indexed", rows_of(INDEXED, globals())),
        *prefixed("arrays", rows_of(ARRAYS, globals())),
        *prefixed("norm", rows_of(NORMS, globals())),
        *prefixed("loss", rows_of(LOSSES, globals())),
        *prefixed("stop", rows_of(STOPS, globals())),
        *prefixed("second", rows_of(SECOND, globals(), **TWICE)),
        *prefixed("layer", layer_rows()),
    ],
    "arrays_padded_pool_wrong_at_end",
    "indexed_gather_wrong_last",
    "layer_dense_wrong_decay_1e-4_float64",
    "second_sin_wrong_partly",
    "stop_target_wrong_as_held",
)
