"""All reliance on TensorFlow's private parts about state: which ops write to what, and in which order.

`tests/tensorflow_backend/test_private_state.py` tests each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import auto_control_deps, auto_control_deps_utils
from tensorflow.python.ops import control_flow_util

from gradcheck_cli.tensorflow_backend.private import private_graphs

# They don't change their table, but TensorFlow treats each as a write.
_TABLE_READS = frozenset({"LookupTableExportV2", "LookupTableFindV2", "LookupTableSizeV2"})
# Calls of Python, which TensorFlow assumes to have state: it keeps their order.
_PYTHON = frozenset({"PyFunc", "EagerPyFunc"})


@cache
def is_write(op_type: str) -> bool:
    """Whether an op of this type writes to one of its resources: a variable, a table, a generator.

    A call of a function doesn't count; the ops in its body do.
    """
    definition = private_graphs.op_def(op_type)
    if definition is None or op_type in auto_control_deps_utils.RESOURCE_READ_OPS | _TABLE_READS:
        return False
    calls = any(attr.type in {"func", "list(func)"} for attr in definition.attr)
    return not calls and any(arg.type == types_pb2.DT_RESOURCE for arg in definition.input_arg)


def resources_used(op: Any) -> list[tuple[Any, bool]]:
    """Return an op's resource tensors, each with whether it may write to it."""
    if not any(tensor.dtype == tf.resource for tensor in op.inputs):
        return []
    resources = auto_control_deps._get_resource_inputs(op)
    only_reads = op.type in _TABLE_READS
    return [
        (tensor, not only_reads and kind is auto_control_deps.ResourceType.READ_WRITE)
        for tensor, kind in resources
    ]


def calls_python(op: Any) -> bool:
    """Whether an op calls Python when it runs, itself or in a function's body."""
    if op.type in _PYTHON:
        return True
    if not op._is_stateful:
        return False
    waiting, visited = _functions(op.node_def), set()
    while waiting:
        name = waiting.pop()
        function = op.graph._get_function(name)
        if name in visited or function is None:
            continue
        visited.add(name)
        for node in function.cached_definition.node_def:
            if node.op in _PYTHON:
                return True
            waiting += _functions(node)
    return False


def _functions(node: Any) -> list[str]:
    return [attr.func.name for attr in node.attr.values() if attr.HasField("func")]


def ordered_before(op: Any) -> list[Any]:
    """Return the ops that write to what an op uses, immediately before it does."""
    if not op.control_inputs or not any(tensor.dtype == tf.resource for tensor in op.inputs):
        return []
    return [neighbour for neighbour in op.control_inputs if _writes_for(neighbour, op)]


def ordered_after(op: Any) -> list[Any]:
    """Return the ops that use what an op has written to, immediately after it did."""
    if not any(tensor.dtype == tf.resource for tensor in op.inputs):
        return []
    return [neighbour for neighbour in op._control_outputs if _writes_for(op, neighbour)]


def _writes_for(op: Any, later_op: Any) -> bool:
    written = {id(tensor) for tensor, is_written in resources_used(op) if is_written}
    return any(id(tensor) in written for tensor in later_op.inputs)


def keep_bodies_in_order(graph: Any) -> None:
    """Keep the order of writes in the bodies of loops and branches that are traced within a graph."""
    graph._add_control_dependencies = True


@dataclass
class Order:
    """The order in which a graph's ops use its resources and call Python: that of the program.

    `tf.function` adds it to a graph; `wrap_function` doesn't. Unlike there, a print or an assertion that
    nothing depends on needn't run here.
    """

    last_write: dict[int, Any] = field(default_factory=dict)  # by resource, the last op that wrote to it
    reads: dict[int, list[Any]] = field(default_factory=dict)  # by resource, the ops that have read it since
    last_call: Any = None  # the last op that called Python

    def copy(self) -> Order:
        """Return an independent copy that continues from here."""
        return Order(
            dict(self.last_write), {key: list(readers) for key, readers in self.reads.items()}, self.last_call
        )

    def add(self, ops: Iterable[Any]) -> list[Any]:
        """Put ops of one graph in order, after those that were added before; return those that write."""
        writes = []
        for op in ops:
            if control_flow_util.IsInWhileLoop(op):  # TensorFlow 1's, which has its own order
                continue
            before = set()
            for tensor, is_written in resources_used(op):
                if id(tensor) in self.last_write:
                    before.add(self.last_write[id(tensor)])
                if is_written:
                    before.update(self.reads.pop(id(tensor), ()))
                    self.last_write[id(tensor)] = op
                    writes.append(op)
                else:
                    self.reads.setdefault(id(tensor), []).append(op)
            if calls_python(op):
                before.update(() if self.last_call is None else (self.last_call,))
                self.last_call = op
            context = op._control_flow_context
            before = {earlier_op for earlier_op in before if earlier_op._control_flow_context is context}
            op._add_control_inputs(sorted(before, key=lambda earlier_op: str(earlier_op.name)))
        return list(dict.fromkeys(writes))
