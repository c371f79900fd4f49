"""Rewrites the kinked ops of a GraphDef so that the side that each element takes can be held.

`relu(x)` becomes `x * side` with `side = x > 0`; of a comparison or an argmax, the result itself is held.
While the sides keep their values from one point, the graph is the smooth piece that this point is on: the
same function around the point, unless the point is on a kink, and a smooth one farther away. Elements on a
kink itself are put on the side that TensorFlow's own gradient takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2

_DOUBLE = tf.float64.as_datatype_enum


class _Nodes:
    """Nodes that replace one kinked op; the last one has its name."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.inputs = [name for name in node.input if not name.startswith("^")]
        self.control_inputs = [name for name in node.input if name.startswith("^")]
        self.new_nodes: list[Any] = []
        self.sides: list[tuple[str, str]] = []

    def add(self, op: str, *inputs: str, name: str = "", **attrs: Any) -> str:
        """Add a node, and return the name of its output."""
        new_node = node_def_pb2.NodeDef(name=name or f"{self.node.name}_piece{len(self.new_nodes)}", op=op)
        new_node.device = self.node.device
        new_node.input.extend([*inputs, *self.control_inputs])
        for key, value in attrs.items():
            new_node.attr[key].CopyFrom(value)
        self.new_nodes.append(new_node)
        return str(new_node.name)

    def finish(self, op: str, *inputs: str, **attrs: Any) -> None:
        """Add the node that returns what the op returned."""
        self.add(op, *inputs, name=self.node.name, T=_TYPE, **attrs)

    def constant(self, value: float) -> str:
        """Add a constant."""
        tensor = attr_value_pb2.AttrValue(tensor=tf.make_tensor_proto(value, tf.float64))
        return self.add("Const", dtype=_TYPE, value=tensor)

    def hold(self, side: str, dtype: Any) -> str:
        """Add a node whose output can be held in place of a side, and return its name."""
        to_hold = self.add("Identity", side, T=_type(dtype))
        self.sides.append((side, to_hold))
        return to_hold

    def compare(self, op: str, first: str, second: str) -> str:
        """Add a comparison that can be held."""
        return self.hold(self.add(op, first, second, T=_TYPE), tf.bool)

    def mask(self, value: str, mask: str) -> str:
        """Add a value where a mask is true, and 0 elsewhere; NaN stays NaN."""
        factor = self.add("Cast", mask, SrcT=_type(tf.bool), DstT=_TYPE)
        return self.add("Mul", value, factor, T=_TYPE)


def _type(dtype: Any) -> Any:
    return attr_value_pb2.AttrValue(type=dtype.as_datatype_enum)


_TYPE = _type(tf.float64)


def _relu(nodes: _Nodes) -> None:
    mask = nodes.compare("Greater", nodes.inputs[0], nodes.constant(0.0))
    nodes.finish("Mul", nodes.inputs[0], nodes.add("Cast", mask, SrcT=_type(tf.bool), DstT=_TYPE))


def _relu6(nodes: _Nodes) -> None:
    x, six = nodes.inputs[0], nodes.constant(6.0)
    inside = nodes.mask(x, nodes.compare("Greater", x, nodes.constant(0.0)))
    nodes.finish("SelectV2", nodes.compare("GreaterEqual", x, six), six, inside)


def _leaky_relu(nodes: _Nodes) -> None:
    x = nodes.inputs[0]
    lower = nodes.add("Mul", x, nodes.constant(nodes.node.attr["alpha"].f), T=_TYPE)
    nodes.finish("SelectV2", nodes.compare("Greater", x, nodes.constant(0.0)), x, lower)


def _abs(nodes: _Nodes) -> None:
    x = nodes.inputs[0]
    nodes.finish("Mul", x, nodes.hold(nodes.add("Sign", x, T=_TYPE), tf.float64))


def _extreme(comparison: str) -> Callable[[_Nodes], None]:
    def larger_or_smaller(nodes: _Nodes) -> None:
        first, second = nodes.inputs
        nodes.finish("SelectV2", nodes.compare(comparison, first, second), first, second)

    return larger_or_smaller


def _max_pool(nodes: _Nodes) -> None:
    """Take each window's largest element by its position in the tensor, which is held."""
    attr = nodes.node.attr
    place_type = _type(tf.int64)
    pooled = nodes.add(
        "MaxPoolWithArgmax",
        nodes.inputs[0],
        T=_TYPE,
        Targmax=place_type,
        include_batch_in_index=attr_value_pb2.AttrValue(b=True),
        **{name: attr[name] for name in ("ksize", "strides", "padding")},
    )
    places = nodes.hold(f"{pooled}:1", tf.int64)
    minus_one = tf.make_tensor_proto([-1], tf.int32)
    whole = nodes.add("Const", dtype=_type(tf.int32), value=attr_value_pb2.AttrValue(tensor=minus_one))
    flat = nodes.add("Reshape", nodes.inputs[0], whole, T=_TYPE, Tshape=_type(tf.int32))
    zero = nodes.add(
        "Const",
        dtype=_type(tf.int32),
        value=attr_value_pb2.AttrValue(tensor=tf.make_tensor_proto(0, tf.int32)),
    )
    nodes.add(
        "GatherV2",
        flat,
        places,
        zero,
        name=nodes.node.name,
        Tparams=_TYPE,
        Tindices=place_type,
        Taxis=_type(tf.int32),
    )


def _choice(dtype: Any = tf.bool) -> Callable[[_Nodes], None]:
    """Return what holds an op whose result isn't a number but a choice: of a side, or of an index."""

    def hold_result(nodes: _Nodes) -> None:
        attr = nodes.node.attr
        result_type = attr["output_type"] if "output_type" in attr else _type(dtype)
        chosen = nodes.add(nodes.node.op, *nodes.inputs, **attr)
        nodes.add("Identity", chosen, name=nodes.node.name, T=result_type)
        nodes.sides.append((chosen, nodes.node.name))

    return hold_result


# How each kinked op is rewritten.
PIECES = {
    "Relu": _relu,
    "Relu6": _relu6,
    "LeakyRelu": _leaky_relu,
    "Abs": _abs,
    "Maximum": _extreme("GreaterEqual"),
    "Minimum": _extreme("LessEqual"),
    "MaxPool": _max_pool,
    **dict.fromkeys(("Greater", "GreaterEqual", "Less", "LessEqual"), _choice()),
    **dict.fromkeys(("ArgMax", "ArgMin"), _choice(tf.int64)),
}


def hold_sides(graph_def: Any) -> list[tuple[str, str]]:
    """Rewrite the kinked float64 ops of a GraphDef in place, except those in the bodies of functions.

    Return the names of two tensors for each side: the side that the point takes, and the tensor to hold.
    """
    sides: list[tuple[str, str]] = []
    nodes: list[Any] = []
    for node in graph_def.node:
        rewrite = PIECES.get(node.op)
        if rewrite is None or node.attr["T"].type != _DOUBLE or not _can_be_rewritten(node):
            nodes.append(node)
            continue
        replacement = _Nodes(node)
        rewrite(replacement)
        nodes += replacement.new_nodes
        sides += [(_tensor_name(side), _tensor_name(to_hold)) for side, to_hold in replacement.sides]
    copies = [node_def_pb2.NodeDef.FromString(node.SerializeToString()) for node in nodes]
    del graph_def.node[:]
    graph_def.node.extend(copies)
    return sides


def _can_be_rewritten(node: Any) -> bool:
    """Whether an op can be rewritten: a pooling needs a layout that `MaxPoolWithArgmax` takes."""
    if node.op != "MaxPool":
        return True
    return node.attr["data_format"].s in (b"", b"NHWC") and node.attr["padding"].s in (b"SAME", b"VALID")


def _tensor_name(name: str) -> str:
    return name if ":" in name else f"{name}:0"
