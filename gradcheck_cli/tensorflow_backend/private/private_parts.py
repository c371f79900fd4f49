"""All reliance on TensorFlow's private parts to make functions from parts of a traced graph.

`tests/tensorflow_backend/test_private_parts.py` tests each of them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from tensorflow.python.eager.polymorphic_function import atomic_function, concrete_function
from tensorflow.python.framework import func_graph

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Subgraph:
    """A FuncGraph with only those ops of a graph that some outputs need; everything else is the graph's."""

    def __init__(self, graph: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._graph = graph
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.structured_outputs = self.outputs
        self.control_outputs: list[Any] = []
        self._output_names = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What `isinstance` sees: vectorized_map takes only a FuncGraph."""
        return func_graph.FuncGraph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def get_operations(self) -> list[Any]:
        """Return the placeholders and the ops that the outputs depend on, in the order of the graph."""
        return self._operations

    @cached_property
    def _operations(self) -> list[Any]:
        fed_ops = {tensor.op for tensor in self.inputs}
        needed = set(fed_ops)
        waiting = [tensor.op for tensor in self.outputs]
        while waiting:
            op = waiting.pop()
            if op not in needed:
                needed.add(op)
                waiting += [tensor.op for tensor in op.inputs]
                waiting += op.control_inputs
        needed -= {op for op in fed_ops if op.type != "Placeholder"}
        return [op for op in self._graph.get_operations() if op in needed]


def subgraph_function(function: Any, feeds: Sequence[Any], fetches: Sequence[Any]) -> Any:
    """Return a function of `feeds` that computes `fetches`, without the ops that these don't need.

    It does the same as `prune` of a wrapped function. That copies the ops one by one in Python, which took a
    quarter of the time of a case with several outputs.

    Args:
        function: a traced function.
        feeds: tensors of its graph, placeholders or not, but none of its captures. If one output of an op is
            fed, its others are unavailable.
        fetches: tensors of its graph.
    """
    graph = whole_graph(function)
    subgraph = _Subgraph(graph, [*feeds, *graph.internal_captures], fetches)
    name = concrete_function._inference_name("part")
    return concrete_function.ConcreteFunction(atomic_function.from_func_graph(name, subgraph, None))


def whole_graph(function: Any) -> Any:
    """Return the graph that a function, or a part of a function, was made from."""
    graph = function.graph
    return graph._graph if type(graph) is _Subgraph else graph
