"""Walks one backward pass through a graph: the ops that it visits, and the gradients into and out of each.

Forward and gradient are in one graph, with tf.functions inlined where that changes nothing, so that their ops
are visited one by one. The ops in a loop's or a branch's body belong to the loop or branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import OpPass, OpPlace
from gradcheck_cli.reach import reached
from gradcheck_cli.tensorflow_backend import dtypes, graph_path
from gradcheck_cli.tensorflow_backend.dtypes import Array
from gradcheck_cli.tensorflow_backend.frames import place_in_users_code
from gradcheck_cli.tensorflow_backend.graph.graph_runs import Batched
from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase
from gradcheck_cli.tensorflow_backend.op_types import FLAT, STOPS
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import subgraph_function
from gradcheck_cli.tensorflow_backend.registry import place_of
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.state import at_values
from gradcheck_cli.tensorflow_backend.traces.trace_faults import dense, gradients_of, naming_run_errors
from gradcheck_cli.tensorflow_backend.traces.tracing import GradientGraph
from gradcheck_cli.tensorflow_backend.twin.float64_twin import BackwardEnds, Twin
from gradcheck_cli.tensorflow_backend.twin.widening import wide_dtype

READ = "ReadVariableOp"


@dataclass
class Walk:
    """A backward pass from one output to some inputs, in a graph of its own.

    For a float64 twin, the graph is in the declared dtypes, since its ops have gradients to call; what runs
    is its twin.
    """

    source: TracedCase  # the case that was traced, or its twin
    graph: GradientGraph  # forward and gradient
    output: int
    input_indices: tuple[int, ...]
    # What `build` finds in the graph.
    upstream: Any = None  # the placeholder of the upstream
    handles: dict[int, Any] = field(default_factory=dict)  # of the variables among these inputs, by index
    gradients: list[Any] = field(default_factory=list)  # for each of these inputs, its gradient, or `None`
    steps: list[Step] = field(default_factory=list)  # the ops on the path, in backward order
    # what keeps its value while the inputs move: draws, and `stop_gradient`s if they are held
    held: frozen.Held = field(default_factory=frozen.Held)
    _twin: tuple[int, Twin] | None = None  # how many ops the graph had, and its twin

    @staticmethod
    def of(op: Any, output: int, input_indices: Sequence[int]) -> Walk:
        """Trace the backward pass from an output to some inputs, variables included.

        Raises:
            CaseFailedError: what forward or gradient raised; an override that no op carries.
            GradientFormError: a gradient of wrong shape, found while the graph is built.
        """
        declared = op.traced.declared
        subject, info = declared.subject(declared.bound()), declared.outputs[output]
        graph = GradientGraph(subject, op.traced.forward, inlined=True)
        walk = Walk(op.traced, graph, output, tuple(input_indices))
        graph.trace(walk.build, [*subject.signature, tf.TensorSpec(info.shape, info.dtype)])
        walk.held = graph.find_held(walk.held.stops)
        return walk

    def build(self, *tensors: Any) -> list[Any]:
        """Build the graph from its inputs and the upstream, and return the output."""
        *inputs, self.upstream = tensors
        result = self.graph.call_forward(inputs)[self.output]
        all_inputs = [*inputs, *self.graph.subject.variables]
        sources = [all_inputs[input_index] for input_index in self.input_indices]
        # A variable's tensor in the graph is its handle.
        graph = tf.compat.v1.get_default_graph()
        self.handles = {
            input_index: graph.capture(all_inputs[input_index].handle)
            for input_index in self.input_indices
            if input_index >= len(inputs)
        }
        graph_sources = [
            self.handles[input_index] if input_index in self.handles else inputs[input_index]
            for input_index in self.input_indices
        ]
        with private_gradients.backward_log() as visits:
            self.gradients = gradients_of([result], sources, [self.upstream])
        self.graph.order.add()
        if self.source.case.judging.freeze is not False:
            self.held = frozen.Held(frozen.stops_among(graph_sources, [result]))
        self.steps = steps_of(visits, graph_sources, result, self.upstream, self.held.stops)
        return [tf.identity(result)]

    @property
    def function(self) -> Any:
        """Forward and gradient, traced."""
        return self.graph.function

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Every argument's tensor."""
        return self.graph.inputs

    @property
    def result(self) -> Any:
        """The output's tensor."""
        return self.graph.outputs[self.output]

    def dtype_of(self, tensor: Any) -> Any:
        """Return the dtype in which a tensor of the graph is fed and fetched."""
        return tensor.dtype if self.source.narrow is None else wide_dtype(tensor.dtype)

    def _make_twin(self) -> Twin:
        """Return the twin; the graph grows when gradients of its ops are called: then it gets another one."""
        size = len(self.function.graph.get_operations())
        if self._twin is None or self._twin[0] != size:
            gradients = [
                (self._source(input_index), gradient)
                for input_index, gradient in zip(self.input_indices, self.gradients, strict=True)
                if gradient is not None
            ]
            ends = BackwardEnds(self.inputs, [self.result], gradients)
            variables, body_holds = self.source.state.wide_variables, self.held.body_holds
            self._twin = size, Twin(self.function, variables, body_holds, backward=ends)
        return self._twin[1]

    def low_precision(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[str]:
        """Return the dtypes below float64 in which the ops between two sets of tensors compute."""
        if self.source.narrow is None:
            return graph_path.dtypes_of(graph_path.ops_between(inputs, outputs))
        twin = self._make_twin()
        kept_ops = twin.narrow_ops_between(twin.tensors(inputs), twin.tensors(outputs))
        return sorted({dtype for op in kept_ops for dtype in op.dtypes})

    def part(self, fetches: Sequence[Any], feeds: Sequence[tuple[Any, Array]] = ()) -> Batched:
        """Return a part of the graph as a function of the inputs, the draws and other tensors.

        Args:
            feeds: the other tensors, with their values at the base point, wide.
        """
        at, body_holds = self.source.at, self.held.body_holds
        tensors = [tensor for tensor, _ in feeds]
        kinds = [self.dtype_of(tensor).name for tensor in (*self.held.draws, *tensors)]
        values = [*self.source.draws(self.held), *(value for _, value in feeds)]
        narrow = [dtypes.narrow(value, kind) for value, kind in zip(values, kinds, strict=True)]
        function = subgraph_function(self.function, [*self.inputs, *self.held.draws, *tensors], fetches)
        return Batched(
            function if self.source.narrow is None else self._make_twin().function(function),
            [*at.arguments, *((kind, value.shape) for kind, value in zip(kinds, narrow, strict=True))],
            [*at.narrow, *narrow],
            rewind=None if body_holds is None else body_holds.rewind,
        )

    def starts(self, input_index: int) -> list[Any]:
        """Return the tensors that hold an input; for a variable, what is read from its handle."""
        return graph_path.values_from(self._source(input_index))

    def is_source(self, tensor: Any) -> bool:
        """Whether a tensor is an input that the walk leads to, or its handle."""
        return any(tensor is self._source(input_index) for input_index in self.input_indices)

    def _source(self, input_index: int) -> Any:
        """Return an input's tensor, or a variable's handle."""
        is_variable = input_index in self.handles
        return self.handles[input_index] if is_variable else self.inputs[input_index]

    @cached_property
    def _moving(self) -> tuple[list[Any], Batched]:
        """The output and the tensors at each op, each once, and the function that computes them."""
        all_tensors = [self.result]
        for step in self.steps:
            all_tensors += [step.op.inputs[index] for index in step.gradients]
            all_tensors += [*step.beside, *(step.op.outputs[index] for index in step.upstreams)]
        tensors = graph_path.distinct(tensor for tensor in all_tensors if tensor.dtype not in _HANDLES)
        return tensors, self.part(tensors, self._held_values)

    @cached_property
    def _held_values(self) -> list[tuple[Any, Array]]:
        stops = self.held.stops
        return list(zip(stops, self.part(stops).once(), strict=True)) if stops else []

    def values(self, moved: Mapping[int, Array]) -> dict[int, Array]:
        """Return the values, wide, of the tensors and handles at each op, by their ids.

        Raises:
            tf.errors.OpError: the forward refuses the point, at which some inputs are moved.
        """
        tensors, function = self._moving
        arguments, variables = self.source.at.split(
            {index: value[np.newaxis] for index, value in moved.items()}
        )
        with at_values(self.source.variables, variables) as points:
            next(points)
            values = function.once(arguments)
        return dict(zip(map(id, tensors), values, strict=True)) | {
            id(handle): moved.get(index, self.source.at.point[index])
            for index, handle in self.handles.items()
        }

    @cached_property
    def base(self) -> dict[int, Array]:
        """Values at the point of the tensors at each op and of what is held, wide, by ids.

        Raises:
            CaseFailedError: what the forward raises.
        """
        with naming_run_errors("forward"):
            values = self.values({})
        return values | {id(tensor): value for tensor, value in self._held_values}

    @cached_property
    def _flows(self) -> tuple[list[Any], Batched]:
        """Every tensor of the backward pass, each once, and the function that computes them."""
        all_flows = [
            *self.gradients,
            *[flow for step in self.steps for flow in step.upstreams.values()],
            *[flow for step in self.steps for flow in step.gradients.values()],
        ]
        tensors = graph_path.distinct(filter(is_numeric, all_flows))
        return tensors, self.part(tensors, [(self.upstream, np.zeros(self.upstream.shape))])

    def passes(self, upstream: Array) -> tuple[list[OpPass], list[Array | None]]:
        """Return the gradients at each op for an upstream, and the gradient of each input.

        Raises:
            CaseFailedError: what was raised when it ran.
        """
        tensors, function = self._flows
        last = len(function.arguments) - 1
        with naming_run_errors("gradient"):
            values = function.once({last: upstream[np.newaxis]})
        value_of = dict(zip(map(id, tensors), values, strict=True))
        passes = [
            OpPass(
                self.places[index],
                tuple((output, value_of.get(id(flow))) for output, flow in step.upstreams.items()),
                tuple(
                    (input_index - step.results, value_of.get(id(flow)))
                    for input_index, flow in step.gradients.items()
                ),
            )
            for index, step in enumerate(self.steps)
        ]
        return passes, [value_of.get(id(gradient)) for gradient in self.gradients]

    def ends(self, input_index: int) -> list[str]:
        """Return the ops that backpropagation doesn't go through, between an input and the output."""
        if input_index >= len(self.inputs):
            return []
        start = self.inputs[input_index]
        between = set(graph_path.ops_between([start], [self.result]))

        def users(op: Any) -> list[Any]:
            moved = [] if op.type in FLAT else filter(is_numeric, op.outputs)
            return [user for tensor in moved for user in tensor.consumers() if user in between]

        descriptions = []
        for op in reached(between.intersection(start.consumers()), users):
            if op.type in FLAT or not any(map(is_numeric, op.outputs)):
                place = place_in_users_code(op)
                kind = f" to {op.outputs[0].dtype.name}" if op.type == "Cast" else ""
                descriptions.append(f"{op.type}{kind} '{op.name}'" + (f" at {place}" if place else ""))
        return sorted(descriptions)

    @cached_property
    def places(self) -> list[OpPlace]:
        """The name of each op, and the place of its gradient."""
        return [place_of(step.op) for step in self.steps]


_HANDLES = (tf.resource, tf.variant)


@dataclass(frozen=True)
class Step:
    """One op of the pass, with the gradients that flow through it."""

    op: Any
    upstreams: dict[int, Any]  # output index -> the incoming gradient, for outputs that have one
    # input index -> the outgoing gradient, or `None`; for floating inputs that move with an input of the case
    gradients: dict[int, Any]
    results: int = 0  # how many leading inputs are a custom gradient's results; its arguments follow them

    @property
    def beside(self) -> list[Any]:
        """The inputs that don't move although others do, such as a selection's condition."""
        if self.results:
            return []
        inputs = enumerate(self.op.inputs)
        return [tensor for index, tensor in inputs if index not in self.gradients]

    @property
    def is_transparent(self) -> bool:
        """Whether its gradient is its upstream: a plain `Identity`, or a read of a variable."""
        return self.passes_on or self.op.type == READ

    @property
    def passes_on(self) -> bool:
        """Whether it is a plain `Identity`."""
        return bool(self.op.type == "Identity" and not private_gradients.has_own_gradient(self.op))


def is_numeric(tensor: Any) -> bool:
    """Whether a gradient is a tensor with numbers; not `None`, and not a TensorList's handle."""
    return tensor is not None and dtypes.is_differentiable(tensor.dtype)


def steps_of(
    visits: Sequence[private_gradients.Visit],
    sources: Sequence[Any],
    result: Any,
    upstream: Any,
    stops: Sequence[Any],
) -> list[Step]:
    """Collect the gradients at each op. An op without a gradient function is the last on its path."""
    moving_ids = _find_moving(sources, stops)
    visited = {visit.op for visit in visits} | {tensor.op for tensor in sources}
    unvisited = [
        op for op in graph_path.ops_between(sources, [result]) if op not in visited and op.type not in STOPS
    ]
    flows: dict[int, list[Any]] = {id(result): [upstream]}  # the gradients of each tensor, by its id
    steps = []
    for visit in visits:
        op = visit.op
        if op.graph is not result.graph:
            continue
        unit = private_graphs.custom_gradient_of(op)
        first = 0 if unit is None else unit.results
        upstreams = {
            index: _as_tensor(flow, op.outputs[index])
            for index, flow in enumerate(visit.upstreams)
            if id(op.outputs[index]) in flows and isinstance(flow, tf.Tensor | tf.IndexedSlices)
        }
        # A loop's op gains inputs when its gradient is built; these have no gradient.
        pulled = list(zip(op.inputs, visit.gradients, strict=False))
        for tensor, gradient in pulled:
            if gradient is not None:
                flows.setdefault(id(tensor), []).append(gradient)
        gradients = {
            index: _as_tensor(gradient, tensor)
            for index, (tensor, gradient) in enumerate(pulled)
            if index >= first and id(tensor) in moving_ids
        }
        steps.append(Step(op, upstreams, gradients, results=first))
    return steps + [
        step for op in unvisited if (step := _step_without_gradient(op, flows, moving_ids)) is not None
    ]


def _step_without_gradient(op: Any, flows: Mapping[int, Sequence[Any]], moving_ids: set[int]) -> Step | None:
    """Return the step of an op that has an upstream but no gradient function to call."""
    upstreams = {
        index: tf.add_n([_as_tensor(flow, tensor) for flow in flows[id(tensor)]])
        for index, tensor in enumerate(op.outputs)
        if id(tensor) in flows
    }
    gradients = {index: None for index, tensor in enumerate(op.inputs) if id(tensor) in moving_ids}
    return Step(op, upstreams, gradients) if upstreams and gradients else None


def _as_tensor(flow: Any, tensor: Any) -> Any:
    if isinstance(flow, tf.IndexedSlices):
        # A variable's handle has no shape; the slices have one.
        return tf.convert_to_tensor(flow) if tensor.dtype == tf.resource else dense(flow, tensor)
    return flow


def _find_moving(sources: Sequence[Any], stops: Sequence[Any]) -> set[int]:
    """Return the ids of floating tensors that move with the inputs, except through a held `stop_gradient`."""
    stop_ids = {id(tensor) for tensor in stops}
    moving = filter(is_numeric, graph_path.outputs_of(graph_path.ops_after(sources, stops)))
    return {id(tensor) for tensor in (*sources, *moving)} - stop_ids
