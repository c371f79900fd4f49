"""Where an op's gradient function is written: its name, file and line, as far as they are known."""

from __future__ import annotations

from typing import Any

from gradcheck_cli.checking.ops.operation import OpPlace
from gradcheck_cli.plain_files import short_path
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import CONVERTED
from gradcheck_cli.tensorflow_backend.registry import gradient_registry


def place_of(op: Any) -> OpPlace:
    """Return an op's name and the place of its gradient function, for an op with a body also those inside."""
    functions = [private_gradients.overriding_function(name) for name in dict.fromkeys(_inner_overrides(op))]
    inside = tuple(dict.fromkeys(_where(function) for function in functions if function is not None))
    function = private_gradients.gradient_function(op)
    if function is None:
        return OpPlace(op.name, op.type, inside=inside)
    return OpPlace(op.name, op.type, *_where(function), inside=inside)


def _inner_overrides(op: Any) -> list[str]:
    """Return the names of overrides in a loop's, branch's or call's body, or in what is recomputed."""
    unit = private_graphs.custom_gradient_of(op)
    if unit is not None and not private_graphs.custom_gradient_results(op):  # tf.recompute_grad
        arguments = list(op.inputs)[unit.results :]
        inner = graph_path.ops_between(arguments, list(op.inputs)[: unit.results])
        nodes = [one.node_def for one in inner]
    elif private_gradients.has_own_gradient(op):  # which skips everything inside
        nodes = []
    else:
        nodes = list(graph_path.inner_nodes(op.graph, op))
    return [name for node in nodes if (name := private_graphs.override_of(node))]


def _where(function: Any) -> tuple[str, str, int]:
    """Return a gradient function's name, file and line; the file is empty for other code than Python's."""
    function = private_graphs.users_function(function)
    name, file, line = gradient_registry.where(function)
    code = getattr(function, "__code__", None)
    generated = private_gradients.source_place(code.co_filename, line) if code is not None else None
    if generated is not None:
        file, line = short_path(generated[0]), generated[1]
    return CONVERTED.sub("", name.partition(":")[2]), file, line
