"""What quantizing ops are meant to pass on to their gradients: no steps, and the clamping kept or not."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef


def straight_through(x: Any, *_: Any, **__: Any) -> Any:
    """Pass everything, clamped or not; the range isn't differentiated."""
    return tf.identity(x)


def clamped(x: Any, low: Any, high: Any, axis: int = -1, **_: Any) -> Any:
    """Pass what lies in the range as written, and hold the rest; the range isn't differentiated."""
    shape = [1] * x.shape.rank
    if axis >= 0:
        shape[axis] = -1
        low, high = tf.reshape(low, shape), tf.reshape(high, shape)
    return tf.clip_by_value(x, tf.stop_gradient(low), tf.stop_gradient(high))


def clamped_upstream(upstream: Any, x: Any, low: Any, high: Any, **_: Any) -> Any:
    """Pass the upstream on where x lies in the range; the gradient of the range is zero."""
    inside = tf.cast((x >= low) & (x <= high), x.dtype)
    return upstream * inside, tf.zeros_like(low), tf.zeros_like(high)


def fake_quant(
    x: Any, low: Any = -6.0, high: Any = 6.0, num_bits: int = 8, *, narrow_range: bool = False, **given: float
) -> Any:
    """Clamp to the range nudged so that zero is a step of it; nudging isn't differentiated, the range is."""
    low, high = given.get("min", low), given.get("max", high)
    low, high = tf.convert_to_tensor(low, x.dtype), tf.convert_to_tensor(high, x.dtype)
    lowest = 1 if narrow_range else 0
    highest = 2**num_bits - 1
    step = (high - low) / (highest - lowest)
    zero = tf.clip_by_value(tf.floor(lowest - low / step + 0.5), lowest, highest)
    nudged_low, nudged_high = (lowest - zero) * step, (highest - zero) * step
    low += tf.stop_gradient(nudged_low - low)
    high += tf.stop_gradient(nudged_high - high)
    return tf.where(x < low, low * tf.ones_like(x), tf.where(x > high, high * tf.ones_like(x), x))


def clamped_symmetrically(x: Any, low: Any, high: Any, **_: Any) -> Any:
    """Pass what lies in the symmetric 8-bit range around the one that is asked for, as the forward does."""
    step = tf.maximum(high / 127, -low / 128)
    return tf.clip_by_value(x, tf.stop_gradient(-128 * step), tf.stop_gradient(127 * step))


def removed_quantize_and_dequantize(x: Any, **attrs: float) -> Any:
    """Run QuantizeAndDequantize and its registered gradient in a graph of the version that still had it.

    Functions are of today's version always, so a session runs that graph.
    """
    graph = tf.Graph()
    with graph.as_default():
        old_x, old_y = tf.graph_util.import_graph_def(
            _graph_with_removed_op(x.dtype, attrs), return_elements=["x:0", "y:0"]
        )
        upstream = tf.compat.v1.placeholder(x.dtype)
    session = tf.compat.v1.Session(graph=graph)

    def in_session(fetched: Any, *feeds: Any) -> Any:
        def run(*values: Any) -> Any:
            return session.run(fetched, dict(zip((old_x, upstream), values, strict=False)))

        result = tf.numpy_function(run, feeds, x.dtype)
        result.set_shape(x.shape)
        return result

    @tf.custom_gradient
    def function(x: Any) -> Any:
        def gradient(given: Any) -> Any:
            with graph.as_default():
                (fetched,) = tf.gradients(old_y, old_x, upstream)
            return in_session(fetched, x, given)

        return in_session(old_y, x), gradient

    return function(x)


def _graph_with_removed_op(dtype: Any, attrs: dict[str, float]) -> GraphDef:
    definition = GraphDef()
    definition.versions.producer = 21  # it was removed in version 22
    placeholder = definition.node.add(op="Placeholder", name="x")
    placeholder.attr["dtype"].type = dtype.as_datatype_enum
    node = definition.node.add(op="QuantizeAndDequantize", name="y", input=["x"])
    node.attr["T"].type = dtype.as_datatype_enum
    for name, value in attrs.items():
        kind = {bool: "b", int: "i", float: "f"}[type(value)]
        setattr(node.attr[name], kind, value)
    return definition
