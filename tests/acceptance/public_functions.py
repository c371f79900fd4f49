"""Functions of the kinds that public code has, for `drafts.py public`: 18 gradients of their authors'."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf


@tf.custom_gradient
def smoothed_cross_entropy(logits, labels, smoothing=0.1):
    """A loss with labels and a setting."""
    classes = tf.cast(tf.shape(logits)[-1], logits.dtype)
    target = tf.one_hot(labels, tf.shape(logits)[-1], dtype=logits.dtype)
    target = target * (1 - smoothing) + smoothing / classes
    log_p = tf.nn.log_softmax(logits)

    def grad(upstream):
        return upstream[:, None] * (tf.exp(log_p) - target), None

    return -tf.reduce_sum(target * log_p, -1), grad


@tf.custom_gradient
def attention(query, key, value):
    """Scaled dot products, by hand."""
    scale = 1 / np.sqrt(query.shape[-1])
    p = tf.nn.softmax(scale * tf.matmul(query, key, transpose_b=True))

    def grad(upstream):
        dp = tf.matmul(upstream, value, transpose_b=True)
        ds = scale * p * (dp - tf.reduce_sum(dp * p, -1, keepdims=True))
        return (
            tf.matmul(ds, key),
            tf.matmul(ds, query, transpose_a=True),
            tf.matmul(p, upstream, transpose_a=True),
        )

    return tf.matmul(p, value), grad


@tf.custom_gradient
def quantize(x, bits=4, symmetric=True):  # noqa: FBT002 (as people write it)
    """A quantizer: rounds forward, passes the gradient inside of its range."""
    levels = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
    low = -1.0 if symmetric else 0.0
    clipped = tf.clip_by_value(x, low, 1.0)

    def grad(upstream):
        inside = tf.cast((x >= low) & (x <= 1.0), x.dtype)
        return upstream * inside, None, None

    return tf.round(clipped * levels) / levels, grad


@tf.custom_gradient
def binarize(x):
    """Straight through."""
    return tf.sign(x), lambda upstream: upstream


@tf.custom_gradient
def segment_softmax(logits, segment_ids, num_segments):
    """A softmax in each segment."""
    ids = tf.cast(segment_ids, tf.int32)
    e = tf.exp(logits)
    p = e / tf.gather(tf.math.unsorted_segment_sum(e, ids, num_segments), ids)

    def grad(upstream):
        inner = tf.gather(tf.math.unsorted_segment_sum(upstream * p, ids, num_segments), ids)
        return p * (upstream - inner), None, None

    return p, grad


def sparse_scores(adjacency: tf.SparseTensor, features):
    """A sparse matrix times a dense one."""
    return tf.tanh(tf.sparse.sparse_dense_matmul(adjacency, features))


def spectral_normalize(w, u, iterations: int = 1):
    """Power iterations from a start."""
    w_mat = tf.reshape(w, [-1, w.shape[-1]])
    for _ in range(iterations):
        v = tf.linalg.l2_normalize(tf.matmul(u, w_mat, transpose_b=True))
        u = tf.linalg.l2_normalize(tf.matmul(v, w_mat))
    sigma = tf.reduce_sum(tf.matmul(v, w_mat) * u)
    return w / sigma


class GatedDense(keras.layers.Layer):
    """A layer with arguments."""

    def __init__(self, hidden_dim, num_heads, activation="tanh", **rest):
        super().__init__(**rest)
        assert hidden_dim % num_heads == 0
        self.hidden_dim, self.num_heads = hidden_dim, num_heads
        self.function = keras.activations.get(activation)

    def build(self, shape):
        """Make the weights."""
        self.w = self.add_weight(shape=(shape[-1], self.hidden_dim), name="w")
        self.v = self.add_weight(shape=(shape[-1], self.hidden_dim), name="v")

    def call(self, x):
        """Gate."""
        return self.function(x @ self.w) * tf.sigmoid(x @ self.v)


class SafeNorm:
    """An object with a method."""

    def __init__(self, epsilon=1e-3):
        self.epsilon = epsilon

    @tf.custom_gradient
    def normalize(self, x, axis=-1):
        """Divide by the norm."""
        n = tf.sqrt(tf.reduce_sum(x * x, axis, keepdims=True) + self.epsilon)
        y = x / n
        return y, lambda u: ((u - y * tf.reduce_sum(u * y, axis, keepdims=True)) / n, None)


@tf.custom_gradient
def clip_gradient_by_norm(x, clip_norm: float):
    """The identity, whose gradient is clipped."""
    return tf.identity(x), lambda upstream: (tf.clip_by_norm(upstream, clip_norm), None)


def gumbel_softmax(logits, temperature=0.5, hard=False):  # noqa: FBT002 (as people write it)
    """A sample."""
    noise = -tf.math.log(-tf.math.log(tf.random.uniform(tf.shape(logits), 1e-3, 0.999, logits.dtype)))
    y = tf.nn.softmax((logits + noise) / temperature)
    if hard:
        top = tf.one_hot(tf.argmax(y, -1), tf.shape(y)[-1], dtype=y.dtype)
        y = tf.stop_gradient(top - y) + y
    return y


def sequence_loss(logits, labels, logit_lengths):
    """A loss of a batch of sequences, with whole numbers for labels and lengths."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    mask = tf.sequence_mask(logit_lengths, tf.shape(logits)[1], dtype=logits.dtype)
    return tf.reduce_sum(losses * mask, 1) / tf.reduce_sum(mask, 1)


@tf.custom_gradient
def rotary(x, cos, sin):
    """Rotary embedding of heads: halves of the last axis."""
    a, b = tf.split(x, 2, axis=-1)
    y = tf.concat([a * cos - b * sin, b * cos + a * sin], -1)

    def grad(upstream):
        ua, ub = tf.split(upstream, 2, axis=-1)
        return tf.concat([ua * cos + ub * sin, ub * cos - ua * sin], -1), None, None

    return y, grad


def interpolate(grid, points):
    """Bilinear interpolation of an image of [batch, height, width, channels] at points."""
    batch, height, width, _ = grid.shape
    assert points.shape[0] == batch
    assert points.shape[-1] == 2
    y = tf.clip_by_value(points[..., 0], 0.0, height - 1.001)
    x = tf.clip_by_value(points[..., 1], 0.0, width - 1.001)
    y0, x0 = tf.floor(y), tf.floor(x)
    fy, fx = (y - y0)[..., None], (x - x0)[..., None]
    iy, ix = tf.cast(y0, tf.int32), tf.cast(x0, tf.int32)

    def at(iy, ix):
        return tf.gather_nd(grid, tf.stack([iy, ix], -1), batch_dims=1)

    top = at(iy, ix) * (1 - fx) + at(iy, ix + 1) * fx
    low = at(iy + 1, ix) * (1 - fx) + at(iy + 1, ix + 1) * fx
    return top * (1 - fy) + low * fy


@tf.custom_gradient
def complex_multiply(a, b):
    """Pairs of real and imaginary parts."""
    ar, ai = tf.unstack(a, 2, axis=-1)
    br, bi = tf.unstack(b, 2, axis=-1)

    def grad(u):
        ur, ui = tf.unstack(u, 2, axis=-1)
        da = tf.stack([ur * br + ui * bi, ui * br - ur * bi], -1)
        return da, tf.stack([ur * ar + ui * ai, ui * ar - ur * ai], -1)

    return tf.stack([ar * br - ai * bi, ar * bi + ai * br], -1), grad


@tf.custom_gradient
def causal_conv1d(inputs, kernel, dilation=1):
    """A convolution along time; inputs are [batch, time, channels], the kernel [width, channels, filters]."""
    width = kernel.shape[0]
    padded = tf.pad(inputs, [[0, 0], [dilation * (width - 1), 0], [0, 0]])
    steps = inputs.shape[1]
    taps = [padded[:, i * dilation : i * dilation + steps] for i in range(width)]
    y = tf.add_n([tf.einsum("btc,cf->btf", tap, kernel[i]) for i, tap in enumerate(taps)])

    def grad(upstream):
        dk = tf.stack([tf.einsum("btc,btf->cf", tap, upstream) for tap in taps])
        dx = tf.add_n(
            [
                tf.pad(
                    tf.einsum("btf,cf->btc", upstream, kernel[i]),
                    [[0, 0], [i * dilation, dilation * (width - 1 - i)], [0, 0]],
                )
                for i in range(width)
            ]
        )
        return dx[:, dilation * (width - 1) :], dk, None

    return y, grad


_PROJECTION = tf.constant(np.linspace(-1, 1, 10).reshape(5, 2), tf.float32)


@tf.custom_gradient
def project(features):
    """Through weights that the module holds: their size and dtype decide."""
    y = tf.matmul(features, _PROJECTION)
    return y, lambda upstream: tf.matmul(upstream, _PROJECTION, transpose_b=True)


@tf.custom_gradient
def layer_norm(x, gamma, beta, epsilon=1e-5):
    """With a scale and an offset for the last axis."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    inverse = tf.math.rsqrt(variance + epsilon)
    hat = (x - mean) * inverse

    def grad(upstream):
        axes = list(range(len(x.shape) - 1))
        dh = upstream * gamma
        dx = inverse * (
            dh - tf.reduce_mean(dh, -1, keepdims=True) - hat * tf.reduce_mean(dh * hat, -1, keepdims=True)
        )
        return dx, tf.reduce_sum(upstream * hat, axes), tf.reduce_sum(upstream, axes), None

    return hat * gamma + beta, grad


def generalized_iou(boxes_1, boxes_2):
    """A loss of boxes: top, left, bottom, right."""
    t1, l1, b1, r1 = tf.unstack(boxes_1, 4, axis=-1)
    t2, l2, b2, r2 = tf.unstack(boxes_2, 4, axis=-1)
    area_1, area_2 = (b1 - t1) * (r1 - l1), (b2 - t2) * (r2 - l2)
    inner = tf.maximum(tf.minimum(b1, b2) - tf.maximum(t1, t2), 0) * tf.maximum(
        tf.minimum(r1, r2) - tf.maximum(l1, l2), 0
    )
    union = area_1 + area_2 - inner
    return 1 - tf.math.divide_no_nan(inner, union)
