"""Batch normalization: the fused ops with what they reserve for each other, and the same of ordinary ops.

The kernels compute in float32; what is written out here is the reference, in any dtype.
"""

from __future__ import annotations

import tensorflow as tf

FUSED = {
    1: tf.raw_ops.FusedBatchNorm,
    2: tf.raw_ops.FusedBatchNormV2,
    3: tf.raw_ops.FusedBatchNormV3,
}
FUSED_GRAD = {
    1: tf.raw_ops.FusedBatchNormGrad,
    2: tf.raw_ops.FusedBatchNormGradV2,
    3: tf.raw_ops.FusedBatchNormGradV3,
}


def fused(  # noqa: PLR0913 (the op's own inputs and attributes)
    x: tf.Tensor,
    scale: tf.Tensor,
    offset: tf.Tensor,
    *,
    version: int,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
) -> tf.Tensor:
    """Return y in training."""
    attrs = {"epsilon": epsilon, "data_format": data_format}
    return FUSED[version](x=x, scale=scale, offset=offset, mean=[], variance=[], **attrs).y


def plain(  # noqa: PLR0913
    x: tf.Tensor,
    scale: tf.Tensor,
    offset: tf.Tensor,
    *,
    version: int,  # noqa: ARG001 (all are one function)
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
) -> tf.Tensor:
    """Return what `fused` returns."""
    axes, shape = _axes(x, data_format)
    wide = tf.cast(x, scale.dtype)
    mean, variance = (tf.reshape(moment, shape) for moment in _moments(wide, axes))
    inverse = tf.math.rsqrt(variance + tf.cast(epsilon, scale.dtype))
    y = (wide - mean) * inverse * tf.reshape(scale, shape) + tf.reshape(offset, shape)
    return tf.cast(y, x.dtype)


def fused_inference(  # noqa: PLR0913
    x: tf.Tensor,
    scale: tf.Tensor,
    offset: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    *,
    version: int,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
) -> tf.Tensor:
    """Return y in inference, normalized by the moments given."""
    attrs = {"epsilon": epsilon, "data_format": data_format, "is_training": False}
    return FUSED[version](x=x, scale=scale, offset=offset, mean=mean, variance=variance, **attrs).y


def plain_inference(  # noqa: PLR0913
    x: tf.Tensor,
    scale: tf.Tensor,
    offset: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    *,
    version: int,  # noqa: ARG001
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
) -> tf.Tensor:
    """Return what `fused_inference` returns."""
    _, shape = _axes(x, data_format)
    inverse = tf.math.rsqrt(variance + tf.cast(epsilon, scale.dtype))
    centred = tf.cast(x, scale.dtype) - tf.reshape(mean, shape)
    return tf.cast(centred * tf.reshape(inverse * scale, shape) + tf.reshape(offset, shape), x.dtype)


def fused_moments(x: tf.Tensor, *, version: int) -> list[tf.Tensor]:
    """Return the batch's mean and variance, as they are to be kept for inference."""
    ones = tf.ones([x.shape[-1]], tf.float32 if x.dtype != tf.float64 else x.dtype)
    found = FUSED[version](x=x, scale=ones, offset=ones, mean=[], variance=[])
    return list(found[1:3])


def plain_moments(x: tf.Tensor, *, version: int) -> list[tf.Tensor]:  # noqa: ARG001
    """Return what `fused_moments` returns: the variance that is kept is Bessel's."""
    mean, variance = _moments(x, list(range(x.shape.rank - 1)))
    size = tf.cast(tf.size(x) // tf.size(mean), x.dtype)
    return [mean, variance * size / (size - 1)]


def fused_grad(  # noqa: PLR0913
    u: tf.Tensor,
    x: tf.Tensor,
    scale: tf.Tensor,
    *,
    version: int,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
) -> list[tf.Tensor]:
    """Return the gradients for x, scale and offset in training, with what the forward reserves at x."""
    attrs = {"epsilon": epsilon, "data_format": data_format}
    found = FUSED[version](x=x, scale=scale, offset=tf.zeros_like(scale), mean=[], variance=[], **attrs)
    reserved = {f"reserve_space_{number}": tensor for number, tensor in enumerate(found[3:], 1)}
    return list(FUSED_GRAD[version](y_backprop=u, x=x, scale=scale, **reserved, **attrs)[:3])


def plain_grad(  # noqa: PLR0913
    u: tf.Tensor,
    x: tf.Tensor,
    scale: tf.Tensor,
    *,
    version: int,  # noqa: ARG001
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
) -> list[tf.Tensor]:
    """Return what `fused_grad` returns: with n = (x - mean) / sqrt(variance + epsilon), by hand.

    References:
        Ioffe and Szegedy, Batch Normalization (2015), section 3.
    """
    axes, shape = _axes(x, data_format)
    wide = tf.cast(x, scale.dtype)
    flow = tf.cast(u, scale.dtype)
    mean, variance = (tf.reshape(moment, shape) for moment in _moments(wide, axes))
    inverse = tf.math.rsqrt(variance + tf.cast(epsilon, scale.dtype))
    n = (wide - mean) * inverse
    through = (
        flow - tf.reduce_mean(flow, axes, keepdims=True) - n * tf.reduce_mean(flow * n, axes, keepdims=True)
    )
    return [
        tf.cast(tf.reshape(scale, shape) * inverse * through, x.dtype),
        tf.reduce_sum(flow * n, axes),
        tf.reduce_sum(flow, axes),
    ]


def fused_grad_inference(  # noqa: PLR0913
    u: tf.Tensor,
    x: tf.Tensor,
    scale: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    *,
    version: int,
    epsilon: float = 1e-4,
) -> list[tf.Tensor]:
    """Return the gradients for x, scale and offset in inference: what is reserved are the moments given."""
    more = {"reserve_space_3": tf.zeros([0], scale.dtype)} if version == 3 else {}  # noqa: PLR2004 (the last)
    found = FUSED_GRAD[version](
        y_backprop=u,
        x=x,
        scale=scale,
        reserve_space_1=mean,
        reserve_space_2=variance,
        epsilon=epsilon,
        is_training=False,
        **more,
    )
    return list(found[:3])


def plain_grad_inference(  # noqa: PLR0913
    u: tf.Tensor,
    x: tf.Tensor,
    scale: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    *,
    version: int,  # noqa: ARG001
    epsilon: float = 1e-4,
) -> list[tf.Tensor]:
    """Return what `fused_grad_inference` returns."""
    inverse = tf.math.rsqrt(variance + tf.cast(epsilon, scale.dtype))
    axes = list(range(x.shape.rank - 1))
    wide, flow = tf.cast(x, scale.dtype), tf.cast(u, scale.dtype)
    return [
        tf.cast(flow * scale * inverse, x.dtype),
        tf.reduce_sum(flow * (wide - mean) * inverse, axes),
        tf.reduce_sum(flow, axes),
    ]


def _axes(x: tf.Tensor, data_format: str) -> tuple[list[int], list[int]]:
    """Return the axes that moments are taken over, and the shape that broadcasts them against x."""
    rank = x.shape.rank
    channel = 1 if data_format.startswith("NC") else rank - 1
    shape = [1] * rank
    shape[channel] = x.shape[channel]
    return [axis for axis in range(rank) if axis != channel], shape


def _moments(x: tf.Tensor, axes: list[int]) -> list[tf.Tensor]:
    mean = tf.reduce_mean(x, axes, keepdims=True)
    variance = tf.reduce_mean((x - mean) ** 2, axes, keepdims=True)
    return [tf.squeeze(mean, axes), tf.squeeze(variance, axes)]
