"""Forwards whose arguments and results are dicts, tuples, lists and objects of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

Tensor = Any


@dataclass
class State:
    """What a recurrent step carries on."""

    hidden: Tensor
    cell: Tensor


class Moments(NamedTuple):
    """Mean and variance."""

    mean: Tensor
    variance: Tensor


def dense(x: Tensor, params: dict[str, Tensor]) -> Tensor:
    """Apply a layer whose weights are a dict."""
    return tf.tanh(tf.matmul(x, params["w"]) + params["b"])


def stacked(x: Tensor, layers: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Apply layer after layer, and return what each gave beside a loss."""
    given = []
    for layer in layers:
        x = dense(x, layer)
        given.append(x)
    return {"loss": tf.reduce_sum(x**2), "activations": given}


def blended(pair: tuple[Tensor, Tensor], share: Tensor) -> tuple[Tensor, Tensor]:
    """Mix two tensors both ways."""
    first, second = pair
    return share * first + (1 - share) * second, first * second


def weighted(x: Tensor, *, weight: Tensor, bias: Tensor, power: int = 2) -> Tensor:
    """Take its weights by keyword alone."""
    return weight * x**power + bias


def named(**tensors: Tensor) -> Tensor:
    """Take everything by name."""
    return tensors["numerator"] / (1 + tensors["denominator"] ** 2)


def step(state: State, x: Tensor) -> State:
    """Take a step of a small recurrent cell."""
    cell = tf.tanh(x) * state.cell + tf.sigmoid(x)
    return State(hidden=tf.tanh(cell) * state.hidden, cell=cell)


@tf.custom_gradient
def moments(x: Tensor) -> tuple[Moments, Any]:
    """Return mean and variance, with a gradient of its own."""
    size = tf.cast(tf.shape(x)[0], x.dtype)
    mean = tf.reduce_mean(x, axis=0)
    variance = tf.reduce_mean((x - mean) ** 2, axis=0)

    def gradient(along_mean: Tensor, along_variance: Tensor) -> Tensor:
        return (along_mean + 2 * (x - mean) * along_variance) / size

    return Moments(mean, variance), gradient


def normalized(x: Tensor, moments: Moments) -> Tensor:
    """Take a named tuple."""
    return (x - moments.mean) / tf.sqrt(moments.variance)


def best(x: Tensor) -> dict[str, Tensor]:
    """Return floats beside integers and truth values."""
    values, places = tf.math.top_k(x, k=2)
    return {"values": values, "places": places, "is_large": values > 1, "count": tf.size(values)}
