"""Samplers of TensorFlow Probability as functions of a distribution's parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_probability as tfp

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = (3, 14)


def sampler(distribution: str) -> Callable[..., tf.Tensor]:
    """Return a function that draws one sample of a distribution with the parameters that it is given."""
    made = distribution_of(distribution)

    def draw(*parameters: tf.Tensor) -> tf.Tensor:
        return made(*parameters).sample(seed=tf.constant(SEED))

    return draw


def distribution_of(distribution: str) -> Callable[..., Any]:
    """Return a class of distributions by its name."""
    return getattr(tfp.distributions, distribution)


def mixture(logits: tf.Tensor, loc: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Draw a sample of a mixture of normal distributions, reparameterised implicitly."""
    return mixture_of(logits, loc, scale).sample(seed=tf.constant(SEED))


def mixture_of(logits: tf.Tensor, loc: tf.Tensor, scale: tf.Tensor) -> Any:
    """Return a mixture of normal distributions."""
    parts = tfp.distributions.Normal(loc, scale)
    weights = tfp.distributions.Categorical(logits=logits)
    return tfp.distributions.MixtureSameFamily(weights, parts, reparameterize=True)
