"""Layers as people initialise them, and stated values: a 0, a 1 or an identity switches terms of a gradient off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from attacking import Attack

Forward = Callable[..., Any]
X = {"shape": [4, 3]}
IDENTITY, ZEROS, ONES = np.eye(3), np.zeros((3, 3)), np.ones(3)


def _mean_square(x: Any) -> Any:
    return tf.reduce_mean(x * x, -1, keepdims=True)


def _layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    return tf.tanh(centred * tf.math.rsqrt(_mean_square(centred) + 1e-3) * gamma + beta)


def _attention(x: Any, query: Any, key: Any) -> Any:
    return tf.nn.softmax(tf.matmul(x @ query, x @ key, transpose_b=True)) @ x


def _convolution(x: Any, kernel: Any) -> Any:
    return tf.tanh(tf.nn.conv1d(x[None], kernel, 1, "SAME"))


def _recurrence(x: Any, kernel: Any, bias: Any) -> Any:
    state = tf.zeros_like(x[0])
    for step in range(3):
        state = tf.tanh(x[step] + tf.linalg.matvec(kernel, state) + bias)
    return state


# Each with its weights as they are initialised.
LAYERS: dict[str, tuple[Forward, tuple[Any, ...]]] = {
    "rms-norm": (lambda x, gamma: x * tf.math.rsqrt(_mean_square(x) + 1e-3) * gamma, (ONES,)),
    "layer-norm": (_layer_norm, (ONES, 0 * ONES)),
    "dense": (lambda x, kernel, bias: tf.tanh(x @ kernel + bias), (IDENTITY, 0 * ONES)),
    "zero-dense": (lambda x, kernel, bias: tf.sin(x) + tf.tanh(x @ kernel + bias), (ZEROS, 0 * ONES)),
    "low-rank": (lambda x, down, up: tf.tanh(x) @ down @ up, (np.ones((3, 2)) / 2, np.zeros((2, 3)))),
    "parametric-relu": (lambda x, alpha: tf.nn.relu(x) - alpha * tf.nn.relu(-x), (0 * ONES,)),
    "temperature": (lambda x, t: tf.nn.softmax(x / t), (np.array(1.0),)),
    "gated-residual": (lambda x, gate: x + gate * tf.tanh(x), (np.array(0.0),)),
    "swish": (lambda x, beta: x * tf.sigmoid(beta * x), (ONES,)),
    "film": (lambda x, scale, shift: tf.sin(x * scale + shift), (ONES, 0 * ONES)),
    "radial": (lambda x, centre, width: tf.exp(-tf.square((x - centre) / width)), (0 * ONES, ONES)),
    "bilinear": (lambda x, w: tf.sin(tf.reduce_sum(x @ w * x, -1)), (IDENTITY,)),
    "attention": (_attention, (IDENTITY, IDENTITY)),
    "convolution": (_convolution, (np.stack([ZEROS, IDENTITY, ZEROS]),)),
    "recurrence": (_recurrence, (IDENTITY, 0 * ONES)),
    "power": (lambda x, p: tf.pow(1 + x * x, p), (np.array(1.0),)),
    "mixture": (lambda x, logits: tf.tanh(x) * tf.nn.softmax(logits), (0 * ONES,)),
    "soft-threshold": (lambda x, t: tf.nn.softplus(x - t) - tf.nn.softplus(-x - t), (0 * ONES,)),
    "weight-norm": (lambda x, v, g: tf.tanh(x @ (g * v / tf.norm(v, axis=0))), (IDENTITY, ONES)),
    "highway": (lambda x, kernel, bias: x + tf.sigmoid(x @ kernel + bias) * tf.sin(x), (ZEROS, 0 * ONES)),
}
# What a gradient may take for a weight, so that nothing changes at initial values.
MISTAKES: dict[str, Forward] = {
    "forgotten": lambda weight, initial: tf.cast(initial, weight.dtype) + 0 * weight,
    "squared": lambda weight, _: tf.square(weight),
    "not-transposed": lambda weight, _: tf.linalg.matrix_transpose(weight),
    "absolute": lambda weight, _: tf.abs(weight),
    "averaged": lambda weight, _: tf.reduce_mean(weight) + 0 * weight,
}


# A mean of one number is that number; a quadratic form doesn't see whether its matrix is transposed.
SAME = {("bilinear", "not-transposed")}


def _slips(name: str, initial: Any) -> list[str]:
    """Return the mistakes that show nothing at an initial value: there, an absolute value of 1 is right."""
    value = tf.constant(initial, tf.float64)
    fits = {
        "forgotten": True,
        "squared": True,
        "not-transposed": value.shape.rank > 1 and (name, "not-transposed") not in SAME,
        "absolute": not np.any(initial),
        "averaged": value.shape.rank > 0,
    }
    return [
        slip
        for slip, make in MISTAKES.items()
        if fits[slip] and np.array_equal(make(value, initial), initial)
    ]


def layer_class(forward: Forward, initial: tuple[Any, ...], wrong: tuple[int, str] | None) -> type:
    """Return a Keras layer whose gradient by its input takes one weight for something else, or none."""

    def taken(weights: tuple[Any, ...]) -> list[Any]:
        return [
            MISTAKES[wrong[1]](weight, initial[index]) if wrong is not None and wrong[0] == index else weight
            for index, weight in enumerate(weights)
        ]

    @tf.custom_gradient
    def apply(x: Any, *weights: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch([x, *weights])
                right = forward(x, *weights)
            by_weights = tape.gradient(right, list(weights), upstream)
            with tf.GradientTape() as tape:
                tape.watch(x)
                other = forward(x, *taken(weights))
            return tape.gradient(other, x, upstream), *by_weights

        return forward(x, *weights), gradient

    class Layer(tf.keras.layers.Layer):
        def build(self, _shape: Any) -> None:
            self.own = [
                self.add_weight(
                    shape=value.shape, initializer=lambda *_, value=value, **__: value, name=f"w{index}"
                )
                for index, value in enumerate(initial)
            ]

        def call(self, x: Any) -> Any:
            return apply(x, *(tf.convert_to_tensor(weight) for weight in self.own))

    return Layer


def _layers(
    name: str, wrong: tuple[int, str] | None, truth: str, keys: Mapping[str, Any], dtype: str
) -> Attack:
    forward, initial = LAYERS[name]
    return Attack(
        f"{name}-{'right' if wrong is None else f'w{wrong[0]}-{wrong[1]}'}-{dtype}-{keys.get('modes', ['graph'])[-1]}",
        truth,
        {"x": {**X, "dtype": dtype}},
        "attacked:Layer",
        keys={"build": {"dtype": dtype}, **keys},
        functions={"Layer": layer_class(forward, initial, wrong)},
    )


def rows() -> Iterator[Attack]:
    """Yield the rows."""
    for name, (_, initial) in LAYERS.items():
        for dtype, keys in (("float64", {}), ("float32", {}), ("float32", {"modes": ["eager"]})):
            yield _layers(name, None, "right", keys, dtype)
            for index, value in enumerate(initial):
                for slip in _slips(name, value):
                    yield _layers(name, (index, slip), "wrong", keys, dtype)


ATTACKS = tuple(rows())
