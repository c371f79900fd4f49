"""Finds out which of the ops that an override of a gradient was meant for it has reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.private import private_graphs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.binding.binder import Override

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BOOKKEEPING = {"Placeholder", "Identity", "IdentityN", "Const", "NoOp", "ReadVariableOp"}


def require_override(
    graph: Any, inputs: Sequence[Any], outputs: Sequence[Any], override: Override
) -> list[str]:
    """Make sure that an op between inputs and outputs carries the override.

    `gradient_override_map` never enters a tf.function's body, and has no effect, without a message, where the
    op type is another one. TensorFlow's own gradient would then be checked instead of the user's.

    Returns:
        The ops of the right type on backpropagation's path that don't carry it.

    Raises:
        CaseFailedError: of kind "override_missed", naming the op types found and the tf.function in the way.
    """
    on_path = graph_path.ops_between(inputs, outputs)
    if override.name in map(_override_of, on_path):
        return _find_missed(graph, inputs, outputs, override)
    types_on_path = sorted({op.type for op in on_path} - _BOOKKEEPING - set(_CALLS))
    op_type = override.op_types[0]
    message = (
        f"the override of {op_type} took effect on no op between the inputs and the outputs; "
        f"op types found there: {', '.join(types_on_path) or 'none'}."
    )
    inside = []
    for op in on_path:
        if op.type in _CALLS or op.type in (
            "While",
            "StatelessWhile",
            "If",
            "StatelessIf",
            "Case",
            "StatelessCase",
        ):
            types = {node.op for node in graph_path.inner_nodes(graph, op)}
            if types & set(override.op_types):
                inside.append(f"{op.name} ({op.type}, calls {', '.join(graph_path.function_names(op))})")
    if inside:
        message += (
            f" A {op_type} is inside a tf.function or a loop's or a branch's body, which no override enters: "
            f"{'; '.join(inside)}. Check the Python function without tf.function, or use binding: "
            "custom_gradient."
        )
    elif op_type in types_on_path:
        message += (
            f" The {op_type} is made by a tf.function, whose body no override enters: check the Python "
            "function without tf.function, or use binding: custom_gradient."
        )
    elif types_on_path:
        near = [
            name
            for name in types_on_path
            if op_type.lower() in name.lower() or name.lower() in op_type.lower()
        ]
        remedy = near[0] if near else "one of these"
        message += f" Set op_type to {remedy}."
    raise CaseFailedError("override_missed", message)


def _override_of(op: Any) -> str:
    return private_graphs.override_of(op.node_def)


def _find_missed(graph: Any, inputs: Sequence[Any], outputs: Sequence[Any], override: Override) -> list[str]:
    """Return the ops of the override's types that backpropagation visits, and that carry no override."""
    moving = graph_path.ops_after(inputs)
    missed = []
    for op in graph_path.ops_met(outputs, ends_at="StopGradient"):
        if op not in moving or not op.outputs:
            continue
        if op.type in override.op_types:
            if not private_graphs.override_of(op.node_def):
                missed.append(op.name)
        elif graph_path.function_names(op):
            inside = [
                node.name for node in _nodes_met(graph, graph_path.function_names(op), override.op_types)
            ]
            missed += [f"{name} inside of {op.name} ({op.type})" for name in dict.fromkeys(inside)]
    return missed


def _nodes_met(graph: Any, names: Sequence[str], op_types: Collection[str]) -> list[Any]:
    """Return the nodes of some types on the path through functions that carry no override."""
    library, waiting, visited, nodes_without_override = graph_path.library_of(graph), list(names), set(), []
    while waiting:
        name = waiting.pop()
        if name in visited or name not in library:
            continue
        visited.add(name)
        body = library[name]
        nodes = {node.name: node for node in body.node_def}
        arguments = {arg.name for arg in body.signature.input_arg}
        for node in _nodes_before(nodes, body.ret.values()):
            moves = arguments & {_source(name) for name in node.input} or _depends(nodes, node, arguments)
            is_float = dtypes.is_differentiable(
                tf.as_dtype(node.attr["T"].type or tf.float32.as_datatype_enum)
            )
            if node.op in op_types and not private_graphs.override_of(node) and moves and is_float:
                nodes_without_override.append(node)
            waiting += [attr.func.name for attr in node.attr.values() if attr.HasField("func")]
    return nodes_without_override


def _nodes_before(nodes: Mapping[str, Any], results: Iterable[str]) -> list[Any]:
    """Return the nodes that a function's results depend on, without those inside custom gradients."""
    needed: dict[str, Any] = {}
    stack = [_source(name) for name in results]
    while stack:
        name = stack.pop()
        if name in needed or name not in nodes:
            continue
        node = needed[name] = nodes[name]
        attr = private_graphs.override_of(node)
        unit = private_graphs.custom_gradient_named(attr) if attr else None
        if node.op != "StopGradient":
            stack += [_source(input_name) for input_name in node.input[0 if unit is None else unit.results :]]
    return list(needed.values())


def _depends(nodes: Mapping[str, Any], node: Any, arguments: Collection[str]) -> bool:
    return any(
        _source(name) in arguments for earlier in _nodes_before(nodes, [node.name]) for name in earlier.input
    )


def _source(name: str) -> str:
    """Return the node that an input of a function's node comes from."""
    return name.lstrip("^").partition(":")[0]
