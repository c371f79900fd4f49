"""Functions, classes and factories of the kinds that people write, for `test_init`."""

from __future__ import annotations

import dataclasses
import enum

import keras
import numpy as np
import tensorflow as tf


def huber(prediction, target, delta=1.0):
    """A loss with a default."""
    error = prediction - target
    return tf.where(tf.abs(error) <= delta, 0.5 * error**2, delta * (tf.abs(error) - 0.5 * delta))


def with_axis(x, axis):
    """An axis without a default."""
    return tf.reduce_sum(x * x, axis=axis)


def masked(x, mask):
    """A mask of booleans."""
    return tf.where(mask, x * x, tf.zeros_like(x))


@dataclasses.dataclass
class State:
    """A dataclass of tensors."""

    h: tf.Tensor
    c: tf.Tensor


def state(state: State):
    """Takes a dataclass."""
    return state.h * tf.tanh(state.c)


def factory(power: float):
    """Makes a function."""

    def of_power(x):
        return x * x * power

    return of_power


class Module(tf.Module):
    """A module with a variable."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable([1.0, 2.0, 3.0], dtype=tf.float64)

    def __call__(self, x):
        return tf.exp(x * self.w)


class Drawn(tf.Module):
    """A module whose variable begins as a tensor, which can't be made while a function is traced."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.random.stateless_normal([3], [1, 2]))

    def __call__(self, x):
        return tf.exp(x * self.w)


class Plain(tf.Module):
    """A module without a variable."""

    def __call__(self, x):
        return tf.exp(x)

    def method(self, x):
        """A method, whose self is no tensor."""
        return tf.exp(x)


class Dense(keras.layers.Layer):
    """A layer."""

    def __init__(self, units, **rest):
        super().__init__(**rest)
        self.units = units

    def build(self, shape):
        """Make the weights."""
        self.w = self.add_weight(shape=(shape[-1], self.units), name="w", initializer="glorot_uniform")

    def call(self, x):
        """Multiply."""
        return x @ self.w


def factor(x):
    """Reads one triangle of its matrices, and is NaN for all of one that isn't positive definite.

    Some matrices of a batch may be good where others aren't. It is TensorFlow's own Cholesky, but for the
    memory that that leaves unwritten.
    """
    return tf.linalg.band_part(tf.linalg.cholesky(x), -1, 0)


class Methods:
    """Objects of it can't be called."""

    def scale(self, x):
        """Double it."""
        return 2 * x


class Settings:
    """An object with a method that has settings."""

    def __init__(self, n):
        """Take how often."""
        self.n = n

    @tf.custom_gradient
    def power(self, x, bits=4, mode="same"):
        """Return what its gradient says, for settings too."""
        assert (bits, mode) == (4, "same")
        return x**self.n, lambda upstream: (upstream * self.n * x ** (self.n - 1), None, None)


class Model(keras.Model):
    """A model whose constructor takes no dtype."""

    def __init__(self):
        """Make its layer."""
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, x):
        """Call its layer."""
        return self.dense(x)


def by_key(features):
    """A dict, which only the code shows."""
    return features["left"] * tf.sin(features["right"])


def summed(tensors: list[tf.Tensor]):
    """A list."""
    return tf.add_n([tf.square(tensor) for tensor in tensors])


def variadic(*tensors):
    """Any number of tensors."""
    return tf.stack([tf.sin(tensor) for tensor in tensors])


def counted(x, how_often: int, name: str):
    """Numbers and texts of Python's."""
    assert name == "name"
    return x**how_often


class Reduction(enum.Enum):
    """What no spec can hold."""

    SUM = 1


def reduced(x, reduction=Reduction.SUM):
    """A default that is no tensor, and no function."""
    assert reduction is Reduction.SUM
    return tf.reduce_sum(x * x)


def attention(q, k, v):
    """A `k` that isn't a number."""
    return tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True)), v)


def log_determinant(a):
    """A function of positive definite matrices; of others, some are so by chance."""
    return 2 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(tf.linalg.cholesky(a))), -1)


@tf.custom_gradient
def power(z):
    """A function of complex numbers that takes real ones, too."""
    return tf.math.real(z * tf.math.conj(z)), lambda upstream: 2 * tf.cast(upstream, z.dtype) * z


def cross_entropy(logits, labels):
    """Whole numbers, one for each row."""
    labels = tf.one_hot(labels, tf.shape(logits)[-1], dtype=logits.dtype)
    return -tf.reduce_sum(labels * tf.nn.log_softmax(logits), -1)


def gathered(table, indices):
    """Indices: one of them comes twice, and they are unequal."""
    return tf.gather(table, indices)


def lonely_grad(op, upstream):
    """A gradient function without the function that it belongs to."""
    return upstream * op.inputs[0]


# Kinds that public code has, whose shapes only their messages say.


def sparse_scores(adjacency: tf.SparseTensor, features):
    """A sparse matrix times a dense one."""
    return tf.tanh(tf.sparse.sparse_dense_matmul(adjacency, features))


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


def causal_conv1d(inputs, kernel, dilation=1):
    """A convolution along time; inputs are [batch, time, channels], the kernel [width, channels, filters]."""
    width, steps = kernel.shape[0], inputs.shape[1]
    padded = tf.pad(inputs, [[0, 0], [dilation * (width - 1), 0], [0, 0]])
    taps = [padded[:, i * dilation : i * dilation + steps] for i in range(width)]
    return tf.add_n([tf.einsum("btc,cf->btf", tap, kernel[i]) for i, tap in enumerate(taps)])


_PROJECTION = tf.constant(np.linspace(-1, 1, 10).reshape(5, 2), tf.float32)


def project(features):
    """Through weights that the module holds: their size and dtype decide."""
    return tf.matmul(features, _PROJECTION)


def layer_norm(x, gamma, beta, epsilon=1e-5):
    """With a scale and an offset for the last axis."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + epsilon) * gamma + beta
