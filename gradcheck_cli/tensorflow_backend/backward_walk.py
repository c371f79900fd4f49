"""Walks one backward pass through a graph: the ops that it visits, along the path and each by itself.

Forward and gradient are in one graph, with tf.functions inlined where that changes nothing, so that their ops
are visited one by one. The ops in a loop's or a branch's body belong to the loop or branch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import (
    Float,
    Gradients,
    Operation,
    OpFacts,
    OpOnPath,
    OpPass,
    OpPlace,
    TensorInfo,
)
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import Precision, precision_of
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.problem import draw_signs, scales
from gradcheck_cli.reach import reached
from gradcheck_cli.tensorflow_backend import dtypes, graph_path
from gradcheck_cli.tensorflow_backend.dtypes import Array, Stack
from gradcheck_cli.tensorflow_backend.frames import place_in_users_code
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.graph_runs import Batched, GraphRuns, run_where_accepted
from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase
from gradcheck_cli.tensorflow_backend.op_types import FLAT, IMPLICIT_SAMPLERS, STOPS, is_random
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.registry import place_of
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.state import at_values
from gradcheck_cli.tensorflow_backend.traces.trace_faults import naming_run_errors, run_error
from gradcheck_cli.tensorflow_backend.traces.tracing import VjpTrace, handles

_READ = "ReadVariableOp"
_HANDLES = (tf.resource, tf.variant)
# A function, and the index of its argument for each tensor that it takes, by the tensor's id.
Part = tuple[Batched, dict[int, int]]


@dataclass(frozen=True)
class Step:
    """One op of the pass, with the gradients that flow through it."""

    op: Any
    # output index -> the incoming gradients, which are added up, for outputs that have one
    upstreams: Mapping[int, Sequence[Any]]
    # input index -> the outgoing gradient, or `None`; for floating inputs that move with an input of the case
    gradients: Mapping[int, Any]
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
        return self.passes_on or self.op.type == _READ

    @property
    def passes_on(self) -> bool:
        """Whether it is a plain `Identity`."""
        return bool(self.op.type == "Identity" and not private_gradients.has_own_gradient(self.op))

    @property
    def inputs(self) -> list[Any]:
        """The tensors that move."""
        return [self.op.inputs[index] for index in self.gradients]

    @property
    def outputs(self) -> list[Any]:
        """The tensors that have an upstream."""
        return [self.op.outputs[index] for index in self.upstreams]

    @property
    def flows(self) -> list[Any]:
        """The gradients that flow in and out, as far as they are tensors with numbers."""
        flows = [*(flow for own in self.upstreams.values() for flow in own), *self.gradients.values()]
        return list(filter(is_numeric, flows))


@dataclass
class Walk:
    """A backward pass from one output to some inputs.

    The ops are those of the graph in the declared dtypes, which have gradients. For a float64 twin, what runs
    is what replaces them there.
    """

    source: TracedCase  # the case or its twin, with functions inlined
    output: int
    input_indices: Sequence[int]

    @staticmethod
    def of(op: Any, output: int, input_indices: Sequence[int]) -> Walk:
        """Trace the backward pass from an output to some inputs, variables included.

        Raises:
            CaseFailedError: what forward or gradient raised; an override that no op carries.
            GradientFormError: a gradient of wrong form that belongs to no input.
        """
        walk = Walk(op.traced.inlined(), output, input_indices)
        _ = walk.trace
        return walk

    @property
    def trace(self) -> VjpTrace:
        """Forward and gradient, traced in the declared dtypes."""
        return self.source.declared.vjp_trace

    @cached_property
    def sources(self) -> dict[int, Any]:
        """The tensor of each input, or a variable's handle, by index."""
        variables = handles(self.trace.whole.function, self.source.state.variables)
        tensors = [*self.trace.inputs, *variables]
        return {index: tensors[index] for index in self.input_indices if tensors[index] is not None}

    @cached_property
    def result(self) -> Any:
        """The output's tensor."""
        return self.trace.outputs[self.output].op.inputs[0]

    @cached_property
    def upstream(self) -> Any:
        """The placeholder of the upstream."""
        return self.trace.whole.upstreams[self.trace.whole.sources.index(self.output)]

    @cached_property
    def stops(self) -> tuple[Any, ...]:
        """The `stop_gradient`s that keep their values while the inputs move."""
        if self.source.case.judging.freeze is False:
            return ()
        return frozen.stops_among([*self.sources.values()], [self.result])

    @cached_property
    def gradients(self) -> list[Any]:
        """For each input, the gradient that arrives, or `None`."""
        trace = self.trace
        pairs = [(output, index) for output in trace.whole.sources for index in trace.connected(output)]
        by_pair = dict(zip(pairs, (gradient for _, gradient in trace.whole.gradients), strict=True))
        return [by_pair.get((self.output, index)) for index in self.input_indices]

    @cached_property
    def steps(self) -> list[Step]:
        """The ops, in backward order. An op without a gradient function is the last on its path."""
        sources = [*self.sources.values()]
        between = [*graph_path.ops_between(sources, [self.result]), *(tensor.op for tensor in sources)]
        on_path, unvisited = set(between), dict.fromkeys(between)
        moving = filter(is_numeric, graph_path.outputs_of(graph_path.ops_after(sources, self.stops)))
        moving_ids = {id(tensor) for tensor in (*sources, *moving)} - set(map(id, self.stops))
        flows: dict[int, list[Any]] = {id(self.result): [self.upstream]}  # of each tensor, by its id
        steps = []
        for visit in self.trace.visits[self.output]:
            op = visit.op
            if op not in on_path:
                continue
            unvisited.pop(op, None)
            unit = private_graphs.custom_gradient_of(op)
            first = 0 if unit is None else unit.results
            upstreams = {
                index: [flow]
                for index, flow in enumerate(visit.upstreams)
                if id(op.outputs[index]) in flows and isinstance(flow, tf.Tensor)
            }
            # A loop's op gains inputs when its gradient is built; these have no gradient.
            pulled = list(zip(op.inputs, visit.gradients, strict=False))
            for tensor, gradient in pulled:
                if gradient is not None:
                    flows.setdefault(id(tensor), []).append(gradient)
            gradients = {
                index: gradient
                for index, (tensor, gradient) in enumerate(pulled)
                if index >= first and id(tensor) in moving_ids
            }
            steps.append(Step(op, upstreams, gradients, first))
        for op in unvisited:
            if op.type in STOPS or any(tensor.op is op for tensor in sources):
                continue
            upstreams = {
                index: flows[id(tensor)] for index, tensor in enumerate(op.outputs) if id(tensor) in flows
            }
            gradients = {index: None for index, tensor in enumerate(op.inputs) if id(tensor) in moving_ids}
            if upstreams and gradients:
                steps.append(Step(op, upstreams, gradients))
        return steps

    @cached_property
    def places(self) -> list[OpPlace]:
        """The name of each op, and the place of its gradient."""
        return [place_of(step.op) for step in self.steps]

    def part(self, fetches: Iterable[Any], feeds: Iterable[tuple[Any, Array]] = ()) -> Part:
        """Return a part of the graph as a function of the inputs, the draws, the upstreams and other tensors.

        Args:
            fetches: what it computes.
            feeds: these others, with their values where they aren't given.
        """
        trace = self.trace
        places = {id(tensor): tensor for tensor in (*trace.inputs, *trace.held.draws, *trace.whole.upstreams)}
        others = [feed for feed in feeds if id(feed[0]) not in places]
        numbers = {key: number for number, key in enumerate((*places, *(id(tensor) for tensor, _ in others)))}
        return GraphRuns(self.source).part([*fetches], others), numbers

    @cached_property
    def _moving(self) -> tuple[list[Any], Batched]:
        """The output and the tensors at each op, each once, and the function that computes them."""
        all_tensors = [self.result]
        for step in self.steps:
            all_tensors += [*step.inputs, *step.beside, *step.outputs]
        tensors = graph_path.distinct(tensor for tensor in all_tensors if tensor.dtype not in _HANDLES)
        return tensors, self.part(tensors, self._held_values)[0]

    @cached_property
    def _held_values(self) -> list[tuple[Any, Array]]:
        return list(zip(self.stops, self.part(self.stops)[0].once(), strict=True)) if self.stops else []

    def values(self, moved: Mapping[int, Array]) -> dict[int, Array]:
        """Return the values, wide, of the tensors and handles at each op, by their ids.

        Raises:
            tf.errors.OpError: the forward refuses the point, at which some inputs are moved.
        """
        tensors, function = self._moving
        stacks = {index: value[np.newaxis] for index, value in moved.items()}
        arguments, variables = self.source.at.split(stacks)
        with at_values(self.source.variables, variables) as points:
            next(points)
            values = function.once(arguments)
        return dict(zip(map(id, tensors), values, strict=True)) | {
            id(source): moved.get(index, self.source.at.point[index])
            for index, source in self.sources.items()
            if source.dtype == tf.resource
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
    def _pull(self) -> tuple[list[Any], Part]:
        """Every tensor of the backward pass, each once, and the function that computes them."""
        flows = [*self.gradients, *(flow for step in self.steps for flow in step.flows)]
        tensors = graph_path.distinct(filter(is_numeric, flows))
        return tensors, self.part(tensors)

    def passes(self, upstream: Array) -> tuple[list[OpPass], list[Array | None]]:
        """Return the gradients at each op for an upstream, and the gradient of each input.

        Raises:
            CaseFailedError: what was raised when it ran.
        """
        tensors, (function, places) = self._pull
        with naming_run_errors("gradient"):
            values = function.once({places[id(self.upstream)]: upstream[np.newaxis]})
        value_of = dict(zip(map(id, tensors), values, strict=True))

        def total(flows: Sequence[Any]) -> Array | None:
            values = [value_of[id(flow)] for flow in flows if id(flow) in value_of]
            return sum(values[1:], values[0]) if values else None

        passes = [
            OpPass(
                place,
                tuple((output, total(flows)) for output, flows in step.upstreams.items()),
                tuple((index - step.results, total([flow])) for index, flow in step.gradients.items()),
            )
            for place, step in zip(self.places, self.steps, strict=True)
        ]
        return passes, [total([gradient]) for gradient in self.gradients]

    def ends(self, input_index: int) -> list[str]:
        """Return the ops that backpropagation doesn't go through, between an input and the output."""
        start = self.sources.get(input_index)
        if start is None or start.dtype == tf.resource:
            return []
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

    # The path as blame sees it, without the ops that only pass a gradient on.

    @cached_property
    def path(self) -> list[Step]:
        """Its ops, in backward order."""
        return [step for step in self.steps if not step.is_transparent]

    @cached_property
    def ops(self) -> tuple[OpOnPath, ...]:
        """What is known about each op of the path."""
        passes, _ = self.passes(np.ones(self.source.outputs[self.output].shape))
        return tuple(
            OpOnPath(op_pass.place, self._obstacle(step), self._fault(step, op_pass))
            for op_pass, step in zip(passes, self.steps, strict=True)
            if not step.is_transparent
        )

    @property
    def precision(self) -> Precision:
        """The precision in which the path computes: its coarsest dtype's."""
        infos = [
            self.source.outputs[self.output],
            *(self.source.inputs[input_index] for input_index in self.input_indices),
        ]
        moving = [start for source in self.sources.values() for start in graph_path.values_from(source)]
        inside = self.low_precision(moving, [self.result])
        return coarsest(*[precision_of(dtype) for dtype in (*[info.dtype for info in infos], *inside)])

    @property
    def rtol(self) -> float | None:
        """The relative tolerance that the spec states, for each op as well; `None` where it states none."""
        return self.source.case.judging.tolerance.rtol

    def low_precision(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[str]:
        """Return the dtypes below float64 in which the ops between two sets of tensors compute."""
        if self.source.narrow is None:
            return graph_path.dtypes_of(graph_path.ops_between(inputs, outputs))
        twin = self.source.wide_vjp.twin
        kept_ops = twin.narrow_ops_between(twin.tensors(inputs), twin.tensors(outputs))
        return sorted({dtype for op in kept_ops for dtype in op.dtypes})

    def isolate(self, index: int) -> Operation:
        """Return an op of the path as an op of its own, at its own operating point.

        Its inputs are those that move, and its outputs those with an upstream. A `tf.custom_gradient` is one
        op, with its whole forward between its arguments and its results.

        Raises:
            CaseFailedError: it takes a variable itself, not its value.
        """
        step = self.path[index]

        def is_connected(_: int, input_index: int) -> bool:  # to any output
            return bool(alone.pulled[input_index])

        alone = OpAlone(is_connected, walk=self, step=step)
        if any(tensor.dtype == tf.resource for tensor in alone.fed):
            raise CaseFailedError("forward", "it reads a variable, whose place no other value can take")
        return Operation(
            facts=alone,
            evaluate=alone.evaluate,
            vjp=lambda output, upstream: alone.joint_vjp({output: upstream}),
            joint_vjp=alone.joint_vjp,
            rounded_sizes=lambda _: dtypes.magnitudes(alone.base_values),  # it is a single op
        )

    def written_ops(self, whole: Walk) -> list[Operation] | None:
        """Return each op whose gradient isn't TensorFlow's by itself; `None` if one of them can't be.

        Args:
            whole: the path from all inputs, on which all that moves an op moves it.
        """
        written = []
        index_in_whole = {step.op.name: index for index, step in enumerate(whole.path)}
        for index, op in enumerate(self.ops):
            if op.place.inside or self._is_users(index):
                here = index_in_whole.get(self.path[index].op.name)
                if op.place.inside or op.obstacle or op.fault or self.closes_over(index) or here is None:
                    return None
                written.append(whole.isolate(here))
        return written

    def _is_users(self, index: int) -> bool:
        """Whether the user wrote an op's gradient, or the custom gradient that took one of TensorFlow's."""
        unit, file = private_graphs.custom_gradient_of(self.path[index].op), self.ops[index].place.file
        is_own = bool(file) and not file.startswith("tensorflow/")
        return is_own or (unit is not None and bool(private_gradients.site_of_gradient(unit.function).places))

    def closes_over(self, index: int) -> bool:
        """Whether a custom gradient's forward moves with more than its arguments: it closes over a tensor."""
        op = self.path[index].op
        unit = private_graphs.custom_gradient_of(op)
        if unit is None:
            return False
        op_inputs = list(op.inputs)
        closed = map(id, (*op_inputs[unit.results :], *self.stops))
        before = reached(op_inputs[: unit.results], lambda tensor: tensor.op.inputs, closed=closed, key=id)
        sources = set(map(id, self.sources.values()))
        # TensorFlow requires a gradient for each variable that is used.
        return any(tensor.dtype != tf.resource and id(tensor) in sources for tensor in before.values())

    def probe(self, generator: np.random.Generator) -> WalkedProbe:
        """Draw an upstream at the output and a direction for the inputs, and pull the upstream back."""
        info = self.source.outputs[self.output]
        upstream = _draw_both_signs(generator, info.shape, is_complex=info.is_complex)
        directions = {}
        for input_index in self.input_indices:
            point = self.source.at.point[input_index]
            step_sizes = scales(np.abs(point).ravel(), self.source.case.tensors[input_index].scale).step
            directions[input_index] = step_sizes.reshape(point.shape) * _draw_both_signs(
                generator, point.shape, is_complex=np.iscomplexobj(point)
            )
        passes, gradients = self.passes(upstream)
        slope = sum(
            _inner(gradient, directions[input_index])
            for input_index, gradient in zip(self.input_indices, gradients, strict=True)
            if gradient is not None
        )
        rows = [[(self.result, upstream)]]
        for step, op_pass in zip(self.steps, passes, strict=True):
            if not step.is_transparent:
                for tensors, flows in (
                    (step.outputs, op_pass.upstreams),
                    (step.inputs, op_pass.gradients),
                ):
                    pairs = zip(tensors, flows, strict=True)
                    rows.append([(tensor, flow) for tensor, (_, flow) in pairs if flow is not None])
        return WalkedProbe(self, directions, float(slope), rows)

    def _fault(self, step: Step, op_pass: OpPass) -> str:
        """Say what is wrong with the form of an op's gradient, which TensorFlow doesn't always check."""
        malformed = self.malformed(step)
        if malformed:
            return malformed
        for tensor, (index, value), flow in zip(
            step.inputs, op_pass.gradients, step.gradients.values(), strict=True
        ):
            shape = self.base.get(id(tensor), np.empty(())).shape
            subject = f"its gradient for its input {index}"
            if flow is not None and is_numeric(tensor) and flow.dtype != tensor.dtype:
                return f"{subject} must be {tensor.dtype.name}, as the input is, but is {flow.dtype.name}"
            if value is not None and is_numeric(tensor) and value.shape != shape:
                return (
                    f"{subject} must have shape {list(shape)}, as the input has, but has {list(value.shape)}"
                )
        return ""

    def malformed(self, step: Step) -> str:
        """Say what TensorFlow would refuse in the form of an op's gradient on the path; empty if nothing."""
        for op, index, message in self.trace.malformed:
            # What stands for a custom gradient has the tensors of its arguments.
            is_here = op is step.op or step.results
            if is_here and any(op.inputs[index] is tensor for tensor in step.inputs):
                return message
        return ""

    def _obstacle(self, step: Step) -> str:
        """Say why an op can't be differenced by itself; empty if it can."""
        ends = [*step.outputs, *(flow for flows in step.upstreams.values() for flow in flows)]
        ends += [flow for flow in step.gradients.values() if flow is not None]
        if not all(map(is_numeric, ends)) or not step.upstreams:
            return "it passes on a list of tensors, not numbers"
        inner_types = {node.op for node in graph_path.inner_nodes(step.op)}
        if STOPS & inner_types:
            return "a stop_gradient inside it can't be held"
        if any(is_random(name) for name in inner_types) and self.trace.held.body_holds is None:
            return "it draws random numbers inside"
        if ({step.op.type} | inner_types) & IMPLICIT_SAMPLERS:
            return "its gradient is that of a distribution, not of a draw"
        return ""


def find_written_ops(op: GraphOperation, output: int, inputs: Sequence[int]) -> Sequence[Operation] | None:
    """Return the ops between an output and inputs whose gradients the user wrote; see `hooks`."""
    # Every input of an op moves, not only those on this path: at a tie, each of a maximum's two gradients may
    # be right by itself, and both together wrong.
    path = Walk.of(op, output, inputs)
    every = [index for index in range(op.traced.at.count) if op.facts.is_connected(output, index)]
    return path.written_ops(path if set(every) <= set(inputs) else Walk.of(op, output, every))


@dataclass
class WalkedProbe:
    """One upstream and one direction, with the backward pass for it; see `path_blame.Probe`."""

    walk: Walk  # the backward pass
    directions: dict[int, Array]  # by input index, the direction in which it moves
    slope: float  # the pair's gradient along that direction
    # the output with its upstream; then for each op its outputs with theirs, its inputs with their gradients
    rows: list[list[tuple[Any, Array]]]

    @cached_property
    def room(self) -> tuple[float, float]:
        """How far the inputs may move back and forth along the direction, in units of it."""
        low, high = -np.inf, np.inf
        for input_index, direction in self.directions.items():
            bounds = self.walk.source.case.tensors[input_index].domain
            if np.iscomplexobj(direction):
                continue
            point = self.walk.source.at.point[input_index]
            ends = [(bound - point) / direction for bound in bounds]
            for end in ends:
                finite_ends = end[np.isfinite(end)]
                high = min([high, *finite_ends[finite_ends >= 0].tolist()])
                low = max([low, *finite_ends[finite_ends <= 0].tolist()])
        return low, high

    @property
    def is_finite(self) -> list[tuple[bool, bool]]:
        """For each op, whether all its upstreams are finite, and all its gradients."""
        finite = [all(bool(np.isfinite(flow).all()) for _, flow in row) for row in self.rows[1:]]
        return list(zip(finite[::2], finite[1::2], strict=True))

    def contributions(self, steps: Float) -> Float:
        """Contract values at points along the direction.

        Args:
            steps: (B,) how far, in units of the direction.

        Returns:
            (B, 1 + 2 K): the output with the upstream; then for each op its outputs with their upstreams, and
            its inputs with their gradients. NaN where the forward refuses a point.
        """
        points = [self._at(float(step)) for step in steps]
        contracted = [
            [
                np.nan if values is None else sum(_inner(flow, values[id(tensor)]) for tensor, flow in row)
                for row in self.rows
            ]
            for values in points
        ]
        return np.array(contracted, np.float64).reshape(len(steps), len(self.rows))

    def sizes(self, step: float) -> Float:
        """Return, for each op, the sum of the magnitudes of its gradients along the direction, (K,)."""
        ahead, behind = self._at(step), self._at(-step)
        if ahead is None or behind is None:
            return np.full(len(self.rows) // 2, np.nan)

        def size(tensor: Any, flow: Array) -> float:
            change = np.abs(ahead[id(tensor)] - behind[id(tensor)])
            return float(np.sum(np.abs(flow) * change)) if flow.shape == change.shape else 0.0

        sizes = [sum(size(*term) for term in row) / (2 * step) for row in self.rows[1:]]
        return np.add(sizes[::2], sizes[1::2])

    def _at(self, step: float) -> dict[int, Array] | None:
        point = self.walk.source.at.point
        moved = {index: point[index] + step * direction for index, direction in self.directions.items()}
        try:
            return self.walk.values(moved)
        except tf.errors.OpError as error:
            if step == 0:
                raise run_error(error, "forward") from error
            return None


def _draw_both_signs(generator: np.random.Generator, shape: tuple[int, ...], *, is_complex: bool) -> Array:
    """Draw numbers of either sign, none of them small, so that no error is multiplied by almost zero."""
    values = draw_signs(generator, shape) * generator.uniform(0.5, 1.5, shape)
    if not is_complex:
        return values
    return values + 1j * _draw_both_signs(generator, shape, is_complex=False)


def _inner(flow: Array, value: Array) -> float:
    """Return Re<flow, value>, with TensorFlow's convention for complex gradients."""
    return float(np.real(np.vdot(flow, value))) if flow.shape == value.shape else float("nan")


def is_numeric(tensor: Any) -> bool:
    """Whether a gradient is a tensor with numbers; not `None`, and not a TensorList's handle."""
    return tensor is not None and dtypes.is_differentiable(tensor.dtype)


@dataclass(frozen=True)
class OpAlone(OpFacts):
    """One op on a walk: what is known of it, and how it runs. Its inside, such as a loop, isn't looked at."""

    walk: Walk = field(kw_only=True)
    step: Step = field(kw_only=True)

    @cached_property
    def fed(self) -> list[Any]:
        """The tensors that move, each once."""
        return graph_path.distinct(self.step.inputs)

    def values(self, tensors: Sequence[Any]) -> list[Array]:
        """Return the values of tensors at the op at the base point."""
        return [self.walk.base[id(tensor)] for tensor in tensors]

    @cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The tensors that move."""
        return self._infos("in", self.fed)

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The tensors that have an upstream."""
        return self._infos("out", self.step.outputs)

    def _infos(self, word: str, tensors: Sequence[Any]) -> tuple[TensorInfo, ...]:
        """Describe tensors, as `in`, or `in0` and `in1`: their own names say nothing."""
        is_wide = self.walk.source.narrow is not None
        return tuple(
            TensorInfo(
                f"{word}{index}" if len(tensors) > 1 else word,
                dtypes.reference_dtype(tensor.dtype.name) if is_wide else tensor.dtype.name,
                value.shape,
            )
            for index, (tensor, value) in enumerate(zip(tensors, self.values(tensors), strict=True))
        )

    @property
    def point(self) -> list[Array]:
        """The op's own operating point."""
        return self.values(self.fed)

    @property
    def base_values(self) -> list[Array]:
        """The outputs there."""
        return self.values(self.step.outputs)

    @cached_property
    def quantisers(self) -> tuple[str, ...]:
        """Types of ops between the tensors that move and the outputs that round."""
        return tuple(graph_path.quantisers(graph_path.ops_between(self.fed, self.step.outputs)))

    @cached_property
    def low_precision(self) -> tuple[str, ...]:
        """Dtypes below float64 between the tensors that move and the outputs."""
        return tuple(self.walk.low_precision(self.fed, self.step.outputs))

    # What runs.

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the op at several points; if it refuses one, its outputs are NaN there."""
        function, places = self._forward
        size = sum(info.size for info in self.outputs)
        return run_where_accepted(
            lambda part: function(part, size),
            {
                places[id(tensor)]: stack
                for index, stack in batch.items()
                for tensor in self._moved_with(self.fed[index])
            },
            lambda _: [np.full(info.shape, np.nan) for info in self.outputs],
        )

    def joint_vjp(self, upstreams: Mapping[int, Stack]) -> Gradients:
        """Pull upstreams of all outputs back at once; missing ones are zero."""
        if not any(self.pulled):
            return [None] * len(self.fed)
        function, places = self._pull
        count = len(next(iter(upstreams.values())))
        flows = {
            places[id(flow)]: upstreams.get(output, np.zeros((count, *info.shape)))
            for output, (info, (flow, *_)) in enumerate(
                zip(self.outputs, self.step.upstreams.values(), strict=True)
            )
        }
        with naming_run_errors("gradient"):
            values = iter(function(flows, sum(info.size for info in self.inputs)))
        rows = [[next(values) for _ in gradients] for gradients in self.pulled]
        return [sum(row[1:], row[0]) if row else None for row in rows]

    @cached_property
    def pulled(self) -> list[list[Any]]:
        """For each tensor that moves, the gradients that the pass has for it: one for each place it is at."""
        pairs = [*zip(self.step.inputs, self.step.gradients.values(), strict=True)]
        return [[flow for tensor, flow in pairs if tensor is fed and flow is not None] for fed in self.fed]

    @cached_property
    def _pull(self) -> Part:
        """The op's gradient at its operating point: in place of what flows in, anything may."""
        zeros = map(np.zeros, (info.shape for info in self.outputs))
        flows = [flow for flow, *_ in self.step.upstreams.values()]
        return self.walk.part(itertools.chain(*self.pulled), zip(flows, zeros, strict=True))

    @cached_property
    def _forward(self) -> Part:
        """The op's outputs, as a function of the tensors that move."""
        base = self.walk.base
        # An op's other inputs keep their values: a condition may be made of what moves, too.
        after = graph_path.ops_after(self.fed)
        held = [*self.walk.stops, *(tensor for tensor in self.step.beside if tensor.op in after)]
        values = {id(tensor): (tensor, base[id(tensor)]) for tensor in held if id(tensor) in base}
        for fed in self.fed:
            values |= {id(tensor): (tensor, base[id(fed)]) for tensor in self._moved_with(fed)}
        return self.walk.part(self.step.outputs, values.values())

    def _moved_with(self, fed: Any) -> list[Any]:
        """Return what moves with an input: a custom gradient's forward reads a variable for itself."""
        if not self.step.results or fed.op.type != _READ:
            return [fed]
        others = [op.outputs[0] for op in fed.op.inputs[0].consumers() if op.type == _READ]
        return [fed, *[tensor for tensor in others if tensor is not fed]]
