"""All reliance on TensorFlow's private parts for a traced graph's float64 twin.

`tests/tensorflow_backend/test_private_twin.py` tests each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import function_type_utils
from tensorflow.python.framework import func_graph, function_def_to_graph, kernels
from tensorflow.python.ops import script_ops


@functools.cache
def kernel_constraints(op_type: str) -> tuple[dict[str, frozenset[int]], ...]:
    """Return, for each CPU kernel of an op type, the dtypes (as numbers) that it takes for an attr.

    It is empty if no kernel is registered: for calls of functions, and for ops that are rewritten before they
    run.
    """
    registered = kernels.get_registered_kernels_for_op(op_type).kernel
    return tuple(
        {constraint.name: frozenset(constraint.allowed_values.list.type) for constraint in kernel.constraint}
        for kernel in registered
        if kernel.device_type in {"CPU", "DEFAULT"}
    )


def import_graph(
    graph_def: Any, captures: Mapping[str, Any], called: Sequence[Any]
) -> tuple[Any, dict[str, Any]]:
    """Import a GraphDef, with its own names, into a graph from which functions can be made.

    Args:
        captures: eager tensors by the name of the node, not in the GraphDef, that they stand for.
        called: its NumPy functions, or the objects they belong to: they live as long as the graph.
    """
    for function in graph_def.library.function:
        context.context().add_function_def(function)
    graph = func_graph.FuncGraph("float64")
    graph._py_funcs_used_in_graph = list(called)
    used = {
        input_name.removeprefix("^").partition(":")[0] for node in graph_def.node for input_name in node.input
    }
    with graph.as_default():
        inner = {name: graph.capture(value) for name, value in captures.items()}
        feeds = {f"{name}:0": tensor for name, tensor in inner.items() if name in used}
        tf.graph_util.import_graph_def(graph_def, feeds, name="")
    _give_bodies(graph)
    return graph, inner


class _WithBody:
    """A function of an imported graph that has its own graph, which vectorized_map converts."""

    def __init__(self, function: Any, library: Any) -> None:
        self._function, self._library = function, library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    @functools.cached_property
    def graph(self) -> Any:
        """The body, made when it is first needed."""
        with self._library.as_default():
            body = function_def_to_graph.function_def_to_graph(self._function.cached_definition)
        body._functions.update(self._library._functions)
        return body

    @functools.cached_property
    def function_type(self) -> Any:
        """The types of its arguments and results."""
        return function_type_utils.derive_from_graph(self.graph)


def _give_bodies(graph: Any) -> None:
    functions = graph._functions
    functions.update({name: _WithBody(body, graph) for name, body in functions.items()})


def numpy_function(token: str) -> Callable[..., Any] | None:
    """Return the function that a PyFunc calls, by the token on its node; `None` if it is gone."""
    return script_ops._py_funcs.get(token)  # type: ignore[no-any-return]


def register_numpy_function(function: Callable[..., Any]) -> str:
    """Register a function for a PyFunc to call, and return its token; the caller keeps the function alive."""
    return str(script_ops._py_funcs.insert(function))
