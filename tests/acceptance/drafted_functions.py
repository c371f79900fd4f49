"""Functions, classes and factories of the kinds that people write, for `drafts.py` and `test_init`."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import keras
import tensorflow as tf


def huber(prediction, target, delta=1.0):
    """A loss with a default."""
    error = prediction - target
    return tf.where(tf.abs(error) <= delta, 0.5 * error**2, delta * (tf.abs(error) - 0.5 * delta))


def dense(x, bias):
    """A broadcast bias."""
    return tf.tanh(x + bias)


def with_axis(x, axis):
    """An axis without a default."""
    return tf.reduce_sum(x * x, axis=axis)


def masked(x, mask):
    """A mask of booleans."""
    return tf.where(mask, x * x, tf.zeros_like(x))


def activation(x, scale: tf.Tensor | None = None, function=tf.nn.tanh):
    """An optional argument, and a function by default."""
    return function(x if scale is None else x * scale)


@dataclasses.dataclass
class State:
    """A dataclass of tensors."""

    h: tf.Tensor
    c: tf.Tensor


def state(state: State):
    """Takes a dataclass."""
    return state.h * tf.tanh(state.c)


class Pair(NamedTuple):
    """A named tuple of tensors."""

    a: tf.Tensor
    b: tf.Tensor


def pair(pair: Pair):
    """Takes a named tuple."""
    return pair.a * tf.exp(pair.b)


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
