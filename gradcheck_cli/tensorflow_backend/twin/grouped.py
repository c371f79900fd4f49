"""Convolutions in groups of channels, by ops that the CPU has in float64.

It has no gradient of one in float64, and what XLA makes of one takes a hundred times as long as these. A
convolution in groups is one of each channel by itself, whose outputs are added up in each group.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_IMAGE, _SIZES = tf.TensorSpec([None] * 4, tf.float64), tf.TensorSpec([4], tf.int32)
# What each op takes.
_SPECS = {
    "Conv2D": (_IMAGE, _IMAGE),
    "Conv2DBackpropInput": (_SIZES, _IMAGE, _IMAGE),
    "Conv2DBackpropFilter": (_IMAGE, _SIZES, _IMAGE),
}


def without_groups(op: Any) -> Any | None:
    """Return a function in float64 that computes the same as a convolution in groups, or its gradient.

    It is `None` for any other op; or if sizes aren't known, or no such ops have its strides or layout.
    """
    if op.type not in _SPECS:
        return None
    image = op.outputs[0] if op.type == "Conv2DBackpropInput" else op.inputs[0]
    filters = op.outputs[0] if op.type == "Conv2DBackpropFilter" else op.inputs[1]
    strides, dilations = op.get_attr("strides"), op.get_attr("dilations")
    is_even = strides[1] == strides[2] and set(dilations) == {1} and op.get_attr("data_format") == b"NHWC"
    if not (is_even and filters.shape.is_fully_defined() and image.shape.rank and image.shape[3]):
        return None
    count = image.shape[3] // filters.shape[2]
    return None if count == 1 else _of_each_channel(op, count, filters.shape.as_list())


def _of_each_channel(op: Any, count: int, shape: list[int]) -> Any:
    """Return the function, by how many groups there are, and the filter's shape."""
    *size, inside, channels = shape
    outside = channels // count
    by_channel = [*size, count * inside, outside]
    attrs = {name: op.get_attr(name) for name in ("strides", "padding", "explicit_paddings")}

    def turn(values: Any, *order: int) -> Any:
        return tf.transpose(tf.reshape(values, [*size, *order, outside]), [0, 1, 3, 2, 4])

    def separate(filters: Any) -> Any:
        return tf.reshape(turn(filters, inside, count), by_channel)

    def split(values: Any, *last: int) -> Any:
        return tf.reshape(values, [*tf.unstack(tf.shape(values))[:3], *last])

    def spread(flow: Any) -> Any:
        each = tf.repeat(split(flow, count, 1, outside), inside, axis=4)
        return split(each, count * inside * outside)

    def compute(first: Any, second: Any, flow: Any = None) -> Any:
        if op.type == "Conv2D":
            output = tf.raw_ops.DepthwiseConv2dNative(input=first, filter=separate(second), **attrs)
            return split(tf.reduce_sum(split(output, count, inside, outside), axis=4), channels)
        if op.type == "Conv2DBackpropInput":
            return tf.raw_ops.DepthwiseConv2dNativeBackpropInput(
                input_sizes=first, filter=separate(second), out_backprop=spread(flow), **attrs
            )
        gradient = tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
            input=first, filter_sizes=by_channel, out_backprop=spread(flow), **attrs
        )
        return tf.reshape(turn(gradient, count, inside), shape)

    with tf.init_scope():
        return tf.function(compute, autograph=False).get_concrete_function(*_SPECS[op.type])
