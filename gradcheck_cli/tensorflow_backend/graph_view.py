"""The graphs of an opened op, to look at: their ops and tensors, and the values that these have at points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import graph_path
from gradcheck_cli.tensorflow_backend.dtypes import Array
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.graph_runs import Batched
from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase
from gradcheck_cli.tensorflow_backend.op_types import BODIES, PYTHON_CALLS, SHAPES, STOPS
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.state import Made
from gradcheck_cli.tensorflow_backend.traces.trace_faults import naming_run_errors, require_shapes


def has_graph(op: Any) -> bool:
    """Whether an opened op has a graph to look at, and isn't called op by op."""
    return isinstance(op, GraphOperation)


def ops_inside(op: Any) -> Iterator[tuple[Any, set[Any]]]:
    """Yield the ops in the bodies of an op, each with the ops of that body that arguments move.

    None if the graph of a body isn't known or is compiled.
    """
    attrs = [op.get_attr(attr) for attr in BODIES.get(op.type, ())]
    functions = [function for attr in attrs for function in (attr if isinstance(attr, list) else [attr])]
    for function in functions:
        body = private_graphs.body_named(op.graph, function.name)
        if body is not None:
            moving = _moving(body, body.inputs)
            for inner in _needed(body, body.outputs):
                yield inner, moving
                yield from ops_inside(inner)


def _moving(graph: Any, inputs: Sequence[Any]) -> set[Any]:
    """Return the ops of a graph whose results move with some inputs, including those of the inputs."""
    shapes = graph_path.outputs_of(op for op in graph.get_operations() if op.type in SHAPES)
    return graph_path.ops_after(inputs, shapes) | {tensor.op for tensor in inputs}


def _needed(graph: Any, results: Sequence[Any]) -> list[Any]:
    needed = set(graph_path.ops_before(results))
    return [op for op in graph.get_operations() if op in needed]


def value_of(tensor: Any) -> Any:
    """Return the value of a tensor in a function that is being traced, which depends on no argument."""
    with tf.init_scope():
        return private_graphs.subgraph_function(SimpleNamespace(graph=tensor.graph), [], [tensor])()[0]


@dataclass(frozen=True)
class UnheldStop:
    """The place of a `stop_gradient`, and whether it belongs to the forward or to a gradient function."""

    place: str
    is_of_forward: bool


class ForwardGraph:
    """The forward of an opened op, in its declared dtypes."""

    def __init__(self, op: Any) -> None:
        """Look at the forward that an op was traced as."""
        self._traced: TracedCase = op.traced
        self.outputs: Sequence[Any] = op.traced.forward.outputs
        # the tensors that hold the arguments
        self.arguments = [start for index in range(op.traced.at.count) for start in self.starts(index)]

    def starts(self, input_index: int) -> list[Any]:
        """Return the tensors that hold an input; for a variable, what is read of it."""
        return self._traced.starts(input_index)

    def between(self, output: int, input_index: int) -> list[Any]:
        """Return the ops between an input and an output."""
        return graph_path.ops_between(self.starts(input_index), [self.outputs[output]])

    def unheld_stops(self, output: int, input_index: int) -> list[UnheldStop]:
        """Return the `stop_gradient`s between an input and an output that aren't held.

        If any are in gradient functions, return only those: holding these would be enough.
        """
        starts, held_ids = self.starts(input_index), set(map(id, self._traced.held_stops))
        forward_ids = set(map(id, frozen.stops_among(starts, self._traced.forward.backprop_starts)))
        stops = [
            UnheldStop(frozen.Stop.of(op).place, id(op.outputs[0]) in forward_ids)
            for op in self.between(output, input_index)
            if op.type in STOPS and id(op.outputs[0]) not in held_ids
        ]
        return [stop for stop in stops if not stop.is_of_forward] or stops

    def values(self, tensors: Iterable[Any]) -> dict[int, Array]:
        """Return the values of tensors at the base point by their ids, with the forward's draws held."""
        each = graph_path.distinct(tensors)
        return dict(zip(map(id, each), self._traced.values_at_point(each), strict=True))

    def behind_switches(self) -> set[Any]:
        """Return the ops behind a `Switch` of TensorFlow 1; those on the side not taken have no value."""
        ops = self.outputs[0].graph.get_operations()
        switches = [op for op in ops if op.type in {"Switch", "RefSwitch"}]
        return {*switches, *graph_path.ops_after(graph_path.outputs_of(switches))}

    def moved_by(self, tensors: Sequence[Any]) -> set[int]:
        """Return the ids of tensors and of all that depends on them."""
        return set(map(id, (*tensors, *graph_path.outputs_of(graph_path.ops_after(tensors)))))


@dataclass(frozen=True)
class WholeGraph:
    """The forward of an opened op and its gradients for an upstream of each output, in one graph."""

    op: GraphOperation
    _parts: Made = field(default_factory=Made)  # what runs, by what it fetches

    @cached_property
    def sources(self) -> Sequence[int]:
        """The outputs that have a gradient."""
        return self.op.traced.vjp_trace.whole.sources

    @cached_property
    def pulled(self) -> list[int]:
        """The input of each gradient: the gradients of all outputs, one after the other."""
        trace = self.op.traced.vjp_trace
        return [input_index for output in self.sources for input_index in trace.connected(output)]

    @cached_property
    def results(self) -> Sequence[Any]:
        """The tensors of all outputs, and then those of all gradients."""
        return self.op.traced.vjp_trace.whole.results

    @cached_property
    def names(self) -> dict[int, str]:
        """The names of the inputs and upstreams, by the ids of their tensors."""
        trace, outputs = self.op.traced.vjp_trace, self.op.outputs
        names = {id(tensor): info.name for tensor, info in zip(trace.inputs, self.op.inputs, strict=False)}
        return names | {
            id(tensor): f"d{outputs[output].name}"
            for tensor, output in zip(trace.whole.upstreams, self.sources, strict=True)
        }

    @cached_property
    def moving(self) -> set[Any]:
        """The ops whose results move with the inputs, upstreams or draws."""
        trace = self.op.traced.vjp_trace
        starts = [*trace.inputs, *trace.whole.upstreams, *trace.held.draws]
        return _moving(trace.whole.function.graph, starts)

    @cached_property
    def ops(self) -> list[Any]:
        """The ops that the results need, in the order in which they were made."""
        return _needed(self.op.traced.vjp_trace.whole.function.graph, self.results)

    def is_of_forward(self, op: Any) -> bool:
        """Whether an op is the forward's, not a gradient's."""
        return op in self.op.traced.vjp_trace.whole.forward_ops

    @cached_property
    def calls_python(self) -> bool:
        """Whether the forward or the gradient calls Python code of the user's."""
        return any(op.type in PYTHON_CALLS for op in graph_path.ops_before(self.results))

    def wide(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Return, for a float64 twin, the tensors in place of those of the declared dtypes' graph."""
        twin: tuple[Any, ...] = self.op.traced.vjp_trace.whole.function.tensors(tensors)
        return twin

    def values(
        self,
        points: Mapping[int, Array],
        upstreams: Sequence[Array],
        tensors: Sequence[Any],
        around_python: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> dict[int, Array]:
        """Return the values of tensors at several points, (B, ...) each, by the tensors' ids.

        Args:
            points: the inputs that differ, (B, *shape) each.
            upstreams: of each output that has a gradient, (B, *shape).
            tensors: the results, and others.
            around_python: makes a context for each call of Python code.

        Raises:
            CaseFailedError: a call raises, or an output changes its shape.
        """
        first, trace = len(upstreams), self.op.traced.vjp_trace
        fetched = {id(tensor): tensor for tensor in tensors}

        def make() -> Batched:
            feeds = [*trace.whole.upstreams, *trace.inputs, *trace.held.draws]
            function = private_graphs.subgraph_function(trace.whole.function, feeds, [*fetched.values()])
            return self.op.runs.batched_gradient(function, self.sources)

        part = self._parts.of(make, *fetched.values())
        batch = {first + index: stack for index, stack in points.items()} | dict(enumerate(upstreams))
        watched = private_graphs.around_python_calls(set(), around_python) if around_python else nullcontext()
        with naming_run_errors("gradient"), watched:
            values = dict(zip(fetched, part(batch, 1), strict=True))
        # Upstreams have the shapes of the outputs at the base point.
        outputs = self.op.outputs
        require_shapes((values[id(tensor)].shape[1:] for tensor in self.results[: len(outputs)]), outputs)
        return values
