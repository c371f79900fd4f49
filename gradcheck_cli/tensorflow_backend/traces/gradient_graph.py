"""One graph of a forward and its gradient: what it holds, and which ops its override reached."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.binding.binder import Override
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.forward_trace import ForwardTrace, TraceSubject
from gradcheck_cli.tensorflow_backend.traces.frozen import BodyHolds
from gradcheck_cli.tensorflow_backend.traces.state import Order
from gradcheck_cli.tensorflow_backend.traces.trace_faults import require_no_leak, trace_function

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_BOOKKEEPING = frozenset({"Placeholder", "Identity", "IdentityN", "Const", "NoOp", "ReadVariableOp"})


@dataclass
class GradientGraph:
    """One trace of a forward followed by a gradient."""

    subject: TraceSubject
    traced: ForwardTrace  # the forward alone, traced earlier; the draws that it holds are fed here, too
    inlined: bool = False  # inline functions, so that their ops are in the graph one by one
    function: Any = None  # the traced function, once `trace` has made it
    inputs: tuple[Any, ...] = ()  # the graph's own tensors of the arguments
    outputs: list[Any] = field(default_factory=list)  # the graph's own tensors of the outputs
    forward_ops: list[Any] = field(default_factory=list)  # the ops that existed before the first gradient
    order: Any = None  # the order in which the graph's ops run
    missed: list[str] = field(default_factory=list)  # the ops that an override was meant for but didn't reach
    moving: list[Any] = field(default_factory=list)  # the tensors of the inputs that are differentiated by
    draws: list[Any] = field(default_factory=list)  # the tensors of random draws to feed
    _body_holds: BodyHolds | None = None

    def __post_init__(self) -> None:
        """Hold draws in bodies if the forward's trace does."""
        if self.traced.held.inlined:
            self._body_holds = BodyHolds(frozen.is_random, with_stops=False)

    def trace(self, build: Callable[..., Any], signature: Sequence[Any]) -> None:
        """Trace a function that calls `call_forward` and adds a gradient.

        Raises:
            CaseFailedError: what it raised, or an override that no op on the path carries.
            GradientFormError: a gradient of wrong shape, found while the graph is built.
        """
        self.function = trace_function(build, signature)
        require_no_leak(self.function, "gradient")
        self.moving = self.subject.moving_tensors(self.function, self.inputs)
        override = self.subject.bound.override
        if override is not None:
            self.missed = _require_override(self.function.graph, self.moving, self.outputs, override)
        if self.traced.held.draws:
            self.draws = frozen.draws_among(self.forward_ops, self.moving, self.function.inputs)

    def call_forward(self, inputs: Sequence[Any]) -> list[Any]:
        """Call the forward in the graph that is being traced, and return its outputs."""
        graph = tf.compat.v1.get_default_graph()
        self.order = Order(graph)
        self.inputs = tuple(inputs)
        with self._context():
            self.outputs = self.subject.bound.call(*inputs)
        self.forward_ops = graph.get_operations()  # the gradient's own ops come after
        self.order.add()
        return self.outputs

    def _context(self) -> contextlib.AbstractContextManager[None]:
        if self._body_holds is not None:
            return self._body_holds.trace_with_holds()
        return private_graphs.inline_functions() if self.inlined else contextlib.nullcontext()

    def find_held(self, stops: Sequence[Any] = ()) -> frozen.Held:
        """Return what the trace holds; a `stop_gradient` needn't be held where the inputs don't move."""
        body_holds = self._body_holds if self._body_holds is not None and self._body_holds.ops else None
        return frozen.Held(stops=tuple(stops), draws=tuple(self.draws), body_holds=body_holds)


def _require_override(
    graph: Any, inputs: Sequence[Any], outputs: Sequence[Any], override: Override
) -> list[str]:
    """Require that an op between inputs and outputs carries the override.

    `gradient_override_map` never enters a tf.function's body. Where the op type is another one, it has no
    effect and gives no message. TensorFlow's own gradient would then be checked instead of the user's.

    Raises:
        CaseFailedError: of kind "override_missed", naming the op types found and the tf.function in the way.
    """
    on_path = graph_path.ops_between(inputs, outputs)
    if any(private_graphs.override_of(op.node_def) == override.name for op in on_path):
        return _find_missed(graph, inputs, outputs, override)
    types_on_path = sorted({op.type for op in on_path} - _BOOKKEEPING - _CALLS)
    op_type = override.op_types[0]
    message = (
        f"the override of {op_type} took effect on no op between the inputs and the outputs; "
        f"op types found there: {', '.join(types_on_path) or 'none'}."
    )
    inside = []
    for op in on_path:
        if op.type in _CALLS | graph_path.LOOPS_AND_BRANCHES:
            types = {node.op for node in graph_path.inner_nodes(graph, op)}
            if types & set(override.op_types):
                inside.append(
                    f"{op.name} ({op.type}, calls {', '.join(graph_path.function_names(op.node_def))})"
                )
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


def _find_missed(graph: Any, inputs: Sequence[Any], outputs: Sequence[Any], override: Override) -> list[str]:
    """Return the ops of the override's types that backpropagation visits and that carry no override."""
    moving_ops = graph_path.ops_after(inputs)
    missed = []
    for op in graph_path.ops_met(outputs):
        if op not in moving_ops or not op.outputs:
            continue
        if op.type in override.op_types:
            if not private_graphs.override_of(op.node_def):
                missed.append(op.name)
        elif graph_path.function_names(op.node_def):
            inside = [
                node.name
                for node in _find_missed_nodes(
                    graph, graph_path.function_names(op.node_def), override.op_types
                )
            ]
            missed += [f"{name} inside of {op.name} ({op.type})" for name in dict.fromkeys(inside)]
    return missed


def _find_missed_nodes(graph: Any, names: Sequence[str], op_types: Collection[str]) -> list[Any]:
    """Return the nodes of some types that carry no override, on the path through functions."""
    library, waiting, visited, missed = graph_path.library_of(graph), list(names), set(), []
    while waiting:
        name = waiting.pop()
        if name in visited or name not in library:
            continue
        visited.add(name)
        body = library[name]
        nodes = {node.name: node for node in body.node_def}
        arguments = {arg.name for arg in body.signature.input_arg}
        for node in _nodes_before(nodes, body.ret.values()):
            moves = arguments & {_source(name) for name in node.input} or _depends_on(nodes, node, arguments)
            is_float = dtypes.is_differentiable(
                tf.as_dtype(node.attr["T"].type or tf.float32.as_datatype_enum)
            )
            if node.op in op_types and not private_graphs.override_of(node) and moves and is_float:
                missed.append(node)
            waiting += [attr.func.name for attr in node.attr.values() if attr.HasField("func")]
    return missed


def _nodes_before(nodes: Mapping[str, Any], results: Iterable[str]) -> list[Any]:
    """Return the nodes that a function's results depend on, without those inside custom gradients."""
    needed: dict[str, Any] = {}
    stack = [_source(name) for name in results]
    while stack:
        name = stack.pop()
        if name in needed or name not in nodes:
            continue
        node = needed[name] = nodes[name]
        override_name = private_graphs.override_of(node)
        unit = private_graphs.custom_gradient_named(override_name) if override_name else None
        if node.op not in graph_path.STOPS:
            stack += [_source(input_name) for input_name in node.input[0 if unit is None else unit.results :]]
    return list(needed.values())


def _depends_on(nodes: Mapping[str, Any], node: Any, arguments: Collection[str]) -> bool:
    return any(
        _source(name) in arguments for earlier in _nodes_before(nodes, [node.name]) for name in earlier.input
    )


def _source(name: str) -> str:
    """Return the node that an input of a function's node comes from."""
    return name.lstrip("^").partition(":")[0]
