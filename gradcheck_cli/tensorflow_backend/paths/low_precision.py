"""Which dtypes below float64 a graph computes in, between its inputs and its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.paths import graph_path

# Ops through which a tensor passes unchanged in a loop or a branch of TensorFlow 1.
_UNCHANGED = {"Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch"}
# By their numbers in attrs, such as DT_FLOAT.
_BELOW_FLOAT64 = {tf.as_dtype(name).as_datatype_enum: name for name in dtypes.REFERENCE}


def dtypes_on_path(graph: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[str]:
    """Return the dtypes below float64 that occur on the path; a float64 reference needs none of them."""
    names: set[str] = set()
    on_path = graph_path.ops_between(inputs, outputs)
    flow_ids = _find_flows(on_path)
    for op in on_path:
        for tensor in (*op.inputs, *op.outputs):
            base = tensor.dtype.base_dtype
            is_low = dtypes.is_differentiable(base) and base.name not in ("float64", "complex128")
            if is_low and id(tensor) not in flow_ids:
                names.add(base.name)
        names |= dtypes_in_attrs(graph_path.inner_nodes(graph, op))
    return sorted(names)


def dtypes_in_attrs(nodes: Iterable[Any]) -> set[str]:
    """Return the dtypes below float64 that NodeDefs name in their attrs."""
    names: set[str] = set()
    for node in nodes:
        for key in ("T", "dtype", "DstT", "SrcT"):
            attr = node.attr.get(key)
            if attr is not None and attr.type in _BELOW_FLOAT64:
                names.add(_BELOW_FLOAT64[attr.type])
    return names


def _find_flows(ops: Iterable[Any]) -> set[int]:
    """Return the ids of the flows of TensorArrays: float32 scalars that stand for an order, not a value."""
    flow_ids: set[int] = set()
    waiting = [
        tensor
        for op in ops
        if op.type.startswith("TensorArray")
        for tensor, definition in zip(
            (*op.inputs, *op.outputs), (*op.op_def.input_arg, *op.op_def.output_arg), strict=True
        )
        if definition.name.startswith("flow")
    ]
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in flow_ids:
            continue
        flow_ids.add(id(tensor))
        for op in tensor.consumers():
            if op.type in _UNCHANGED:
                waiting += [output for output in op.outputs if output.dtype == tensor.dtype]
    return flow_ids
