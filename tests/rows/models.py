"""Models as people have them: layers without `build`, mixed precision, steep normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Iterator

layers = keras.layers
BATCH = {"x": {"shape": [4, 5], "dtype": "float32"}}


class Scaled(layers.Layer):
    """The identity, whose own gradient is a factor times the right one."""

    def __init__(self, factor: float, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.factor = factor

    def call(self, x: Any) -> Any:
        """Return the input."""

        @tf.custom_gradient
        def function(x: Any) -> Any:
            return tf.identity(x), lambda upstream: upstream * tf.cast(self.factor, x.dtype)

        return function(x)


# Layers that make their weights at their first call.


class Block(layers.Layer):
    """A residual block."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.dense, self.normal, self.scaled = layers.Dense(5), layers.BatchNormalization(), Scaled(factor)

    def call(self, x: Any, *, training: bool = False) -> Any:
        """Return the input, with its batch-normalised image added."""
        return x + self.scaled(tf.tanh(self.normal(self.dense(x), training=training)))


class Residual(keras.Model):
    """Two blocks, whose weights have the same names as long as the model isn't built."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.first, self.second = Block(1.0), Block(factor)

    def call(self, x: Any, *, training: bool = False) -> Any:
        """Call the blocks, one after the other."""
        return self.second(self.first(x, training=training), training=training)


class TwoOfAName(tf.Module):
    """Two variables of one name, which are made by the first call."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.made: list[Any] = []
        self.factor = factor

    def __call__(self, x: Any) -> Any:
        """Return a product with both."""
        if not self.made:
            with tf.init_scope():
                self.made = [tf.Variable(2.0, name="w"), tf.Variable(3.0, name="w")]
        return tf.sin(x * self.made[0]) * Scaled(self.factor)(self.made[1])


def _without_build() -> Iterator[Row]:
    for model, inputs, keys in (
        (Residual, {"x": {"shape": [6, 5], "dtype": "float32"}}, {"attrs": {"training": True}}),
        (TwoOfAName, BATCH, {"variables": True}),
    ):
        for truth, factor in (("right", 1.0), ("wrong", 1.01), ("wrong", 0.5)):
            name = f"without_build_{model.__name__}_{factor}"
            yield Row(name, model, None, inputs, truth, keys={"build": {"factor": factor}, **keys})


# A model may return float32 and compute in half precision, to which constants of gradients are rounded, too.


def mixed(factor: float, policy: str, activation: str) -> Any:
    """Return a model that computes in half precision, but for its last layer."""
    keras.utils.set_random_seed(1)
    x = keras.Input((5,))
    h = layers.Dense(8, activation, dtype=policy)(x)
    h = Scaled(factor, dtype=policy)(layers.LayerNormalization(dtype=policy)(h))
    return keras.Model(x, layers.Dense(3, dtype="float32")(h))


def beside(factor: float) -> Any:
    """Return a layer whose output doesn't go through the half precision of another."""
    narrow, wide = layers.Dense(3, "gelu", dtype="mixed_bfloat16"), layers.Dense(3, "gelu")
    narrow.build((None, 5))
    wide.build((None, 5))
    scaled = Scaled(factor)
    return lambda x, z: tf.cast(narrow(x), tf.float32) + scaled(wide(z))


def _mixed() -> Iterator[Row]:
    for policy in ("mixed_bfloat16", "mixed_float16"):
        for activation in ("gelu", "silu", "softplus"):
            for truth, factor in (("right", 1.0), ("wrong", 1.01), ("wrong", 0.98), ("wrong", 0.5)):
                yield Row(
                    f"{policy}_{activation}_{factor}",
                    mixed,
                    None,
                    BATCH,
                    truth,
                    keys={"build": {"factor": factor, "policy": policy, "activation": activation}},
                )
    for truth, factor in (("right", 1.0), ("wrong", 1.003)):
        both = {**BATCH, "z": {"shape": [4, 5], "dtype": "float32"}}
        yield Row(f"beside_bfloat16_{factor}", beside, None, both, truth, keys={"build": {"factor": factor}})


# A function that turns within a few roundings of x, at a point where it is zero itself.


def steep(x: Any) -> Any:
    """Normalise twice what equal elements leave."""
    weights = tf.constant(np.random.default_rng(1).normal(size=(4, 4)), x.dtype)
    centred = tf.matmul(x - tf.reduce_mean(x, -1, keepdims=True), weights)
    length = tf.math.rsqrt(tf.reduce_sum(centred**2, -1, keepdims=True))
    unit = centred * tf.minimum(length, 1e12)
    return unit * tf.math.rsqrt(tf.reduce_mean(unit**2, -1, keepdims=True) + 1e-6)


def _steep() -> Iterator[Row]:
    for value in (-0.49338451, 0.25, 3.0):
        yield Row(f"steep_{value}", steep, None, {"x": {"shape": [1, 4], "value": value}}, "undecidable")
    singular = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]]  # but for rounding, so nothing raises
    for name, inverse in (
        ("inverse", lambda x: tf.matmul(tf.linalg.inv(x), x)),
        ("inverse_alone", tf.linalg.inv),
    ):
        yield Row(
            f"singular_{name}", inverse, None, {"x": {"shape": [3, 3], "value": singular}}, "undecidable"
        )
    # Closer to zero than a rounding of 1, the output is zero, and the gradient that of the other side.
    for dtype, value in (("float16", -3e-5), ("bfloat16", -1e-3), ("float32", -3e-9)):
        x = {"shape": [3], "dtype": dtype, "value": [value, 0.5, -1.0]}
        yield Row(f"selu_beside_0_{dtype}", tf.nn.selu, None, {"x": x}, "right")


# A key's bias in attention adds the same number to all scores of a query, and softmax ignores it.


def shifted(leak: float) -> Any:
    """Return the loss of a softmax whose scores are all shifted, with a gradient that leaks to the shift."""

    @tf.custom_gradient
    def shift(scores: Any, by: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return upstream, tf.reduce_sum(upstream, -1) + leak * upstream[:, 0]

        return scores + by[:, None], gradient

    return lambda scores, by: tf.reduce_sum(tf.nn.softmax(shift(scores, by)) ** 2)


def _shifted() -> Iterator[Row]:
    for method, size in (("full", 6), ("probe", 4200)):  # fewer aren't probed
        inputs = {"scores": {"shape": [size, 3]}, "by": {"shape": [size]}}
        for truth, leak in (("right", 0.0), ("wrong", 1.0), ("wrong", 1e-4)):
            keys = {"build": {"leak": leak}, "method": method, "pairs": {"dy/dby": "zero"}}
            yield Row(f"shifted_{method}_{leak}", shifted, None, inputs, truth, keys=keys)


# Gates that are nearly closed, as LayerScale's: at their own values they hide what is behind them.


def gated(factor: Any) -> Any:
    """Return the loss of three residual blocks behind gates of 1e-6, one of which has its own gradient."""

    def dense(width: int, activation: Any = None) -> Any:
        return layers.Dense(width, activation, use_bias=False)

    x = keras.Input((WIDE,))
    h = x
    for block_factor in (1.0, factor, 1.0):
        h = h + Gate()(Scaled(block_factor)(dense(WIDE)(dense(WIDE, "tanh")(h))))
    model = keras.Model(x, dense(1)(h))
    return lambda x: tf.reduce_mean(model(x) ** 2)


class Gate(layers.Layer):
    """A factor for each channel."""

    def build(self, shape: Any) -> None:
        """Make the factors."""
        self.factors = self.add_weight(shape=shape[-1:], initializer=keras.initializers.Constant(1e-6))

    def call(self, x: Any) -> Any:
        """Multiply."""
        return x * self.factors


WIDE = 80
_ONE_UNIT = [1.01] + [1.0] * (WIDE - 1)


def _gated() -> Iterator[Row]:
    for name, factor in (
        ("right", 1.0),
        ("zero", 0.0),
        ("turned", -1.0),
        ("twice", 2.0),
        ("percent", 1.01),
        ("percent_of_one_unit", _ONE_UNIT),
    ):
        keys = {"build": {"factor": factor}, "variables": True, "method": "probe"}
        inputs = {"x": {"shape": [4, WIDE], "dtype": "float32"}}
        yield Row(f"gated_{name}", gated, None, inputs, "right" if factor == 1.0 else "wrong", keys=keys)


ROWS = marked(
    (*_without_build(), *_mixed(), *_steep(), *_shifted(), *_gated()),
    "gated_percent_of_one_unit",
    "gated_right",
    "selu_beside_0_float32",
    "shifted_full_1.0",
    "shifted_probe_0.0",
    "singular_inverse",
)
