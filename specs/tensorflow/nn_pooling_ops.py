"""Gradients of pooling as functions of the pooled input: what they reserve is always their forward's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence


def max_pool_grad(  # noqa: PLR0913 (the op's own attributes)
    x: tf.Tensor,
    upstream: tf.Tensor,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
) -> tf.Tensor:
    """Return MaxPoolGrad at x, which takes x, its pooled values and an upstream for them."""
    attrs: dict[str, Any] = {
        "ksize": ksize,
        "strides": strides,
        "padding": padding,
        "explicit_paddings": explicit_paddings,
    }
    pooled = tf.raw_ops.MaxPool(input=x, **attrs)
    return tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=pooled, grad=upstream, **attrs)


def max_pool_grad_v2(
    x: tf.Tensor, upstream: tf.Tensor, *, ksize: Sequence[int], strides: Sequence[int], padding: str
) -> tf.Tensor:
    """Return MaxPoolGradV2 at x; window and strides are tensors."""
    pooled = tf.raw_ops.MaxPoolV2(input=x, ksize=ksize, strides=strides, padding=padding)
    return tf.raw_ops.MaxPoolGradV2(
        orig_input=x, orig_output=pooled, grad=upstream, ksize=ksize, strides=strides, padding=padding
    )


def max_pool_grad_grad(
    x: tf.Tensor, tangent: tf.Tensor, *, ksize: Sequence[int], strides: Sequence[int], padding: str
) -> tf.Tensor:
    """Return MaxPoolGradGrad at x: the elements of a tangent, shaped as x, that pooling x would pick."""
    attrs: dict[str, Any] = {"ksize": ksize, "strides": strides, "padding": padding}
    pooled = tf.raw_ops.MaxPool(input=x, **attrs)
    return tf.raw_ops.MaxPoolGradGrad(orig_input=x, orig_output=pooled, grad=tangent, **attrs)


def max_pool_3d_grad(
    x: tf.Tensor, upstream: tf.Tensor, *, ksize: Sequence[int], strides: Sequence[int], padding: str
) -> tf.Tensor:
    """Return MaxPool3DGrad at x."""
    attrs: dict[str, Any] = {"ksize": ksize, "strides": strides, "padding": padding}
    pooled = tf.raw_ops.MaxPool3D(input=x, **attrs)
    return tf.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=pooled, grad=upstream, **attrs)


def max_pool_3d_grad_grad(
    x: tf.Tensor, tangent: tf.Tensor, *, ksize: Sequence[int], strides: Sequence[int], padding: str
) -> tf.Tensor:
    """Return MaxPool3DGradGrad at x."""
    attrs: dict[str, Any] = {"ksize": ksize, "strides": strides, "padding": padding}
    pooled = tf.raw_ops.MaxPool3D(input=x, **attrs)
    return tf.raw_ops.MaxPool3DGradGrad(orig_input=x, orig_output=pooled, grad=tangent, **attrs)
