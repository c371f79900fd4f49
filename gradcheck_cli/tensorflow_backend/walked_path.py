"""The ops between an input and an output, as blame sees them: all along the path, or one by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Float, Operation, OpFacts, OpOnPath, OpPass, TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import Precision, precision_of
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.problem import draw_signs, scales
from gradcheck_cli.reach import reached
from gradcheck_cli.tensorflow_backend import dtypes, graph_path
from gradcheck_cli.tensorflow_backend.backward_walk import READ, Step, Walk, is_numeric
from gradcheck_cli.tensorflow_backend.dtypes import Array, Stack
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.graph.graph_runs import Batched, run_where_accepted
from gradcheck_cli.tensorflow_backend.op_types import IMPLICIT_SAMPLERS, STOPS, is_random
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.traces.trace_faults import (
    gradients_of,
    naming_run_errors,
    run_error,
)


@dataclass
class WalkedPath:
    """`path_blame.OpPath` over one walk; ops that only pass a gradient on are left out."""

    walk: Walk  # the backward pass

    @staticmethod
    def of(source: Any, output: int, input_indices: Sequence[int]) -> WalkedPath:
        """Trace the backward pass from an output to some inputs."""
        return WalkedPath(Walk.of(source, output, input_indices))

    @cached_property
    def steps(self) -> list[Step]:
        """The ops, in backward order."""
        return [step for step in self.walk.steps if not step.is_transparent]

    @cached_property
    def ops(self) -> tuple[OpOnPath, ...]:
        """What is known about each op."""
        info = self.walk.source.outputs[self.walk.output]
        passes, _ = self.walk.passes(np.ones(info.shape))
        return tuple(
            OpOnPath(op_pass.place, self._obstacle(step), self._fault(step, op_pass))
            for op_pass, step in zip(passes, self.walk.steps, strict=True)
            if not step.is_transparent
        )

    @property
    def precision(self) -> Precision:
        """The precision in which the path computes: its coarsest dtype's."""
        infos = [self.walk.source.outputs[self.walk.output]]
        infos += [self.walk.source.inputs[input_index] for input_index in self.walk.input_indices]
        moving = [start for input_index in self.walk.input_indices for start in self.walk.starts(input_index)]
        inside = self.walk.low_precision(moving, [self.walk.result])
        return coarsest(*[precision_of(dtype) for dtype in (*[info.dtype for info in infos], *inside)])

    def isolate(self, index: int) -> Operation:
        """Return one op as an `Operation`, at its own operating point."""
        return isolate(self.walk, self.steps[index])

    def written_ops(self, whole: WalkedPath) -> list[Operation] | None:
        """Return each op whose gradient isn't TensorFlow's by itself; `None` if one of them can't be.

        Args:
            whole: the path from all inputs, on which all that moves an op moves it.
        """
        written = []
        index_in_whole = {step.op.name: index for index, step in enumerate(whole.steps)}
        for index, op in enumerate(self.ops):
            if op.place.inside or self._is_users(index):
                if op.place.inside or op.obstacle or op.fault or self.closes_over(index):
                    return None
                here = index_in_whole.get(self.steps[index].op.name)
                if here is None:
                    return None
                written.append(whole.isolate(here))
        return written

    def _is_users(self, index: int) -> bool:
        """Whether the user wrote an op's gradient, or the custom gradient that took one of TensorFlow's."""
        unit, file = private_graphs.custom_gradient_of(self.steps[index].op), self.ops[index].place.file
        is_own = bool(file) and not file.startswith("tensorflow/")
        return is_own or (unit is not None and bool(private_gradients.site_of_gradient(unit.function).places))

    def closes_over(self, index: int) -> bool:
        """Whether a custom gradient's forward moves with more than its arguments: it closes over a tensor."""
        op = self.steps[index].op
        unit = private_graphs.custom_gradient_of(op)
        if unit is None:
            return False
        op_inputs = list(op.inputs)
        closed = map(id, (*op_inputs[unit.results :], *self.walk.held.stops))
        before = reached(op_inputs[: unit.results], lambda tensor: tensor.op.inputs, closed=closed, key=id)
        # TensorFlow requires a gradient for each variable that is used.
        return any(tensor.dtype != tf.resource and self.walk.is_source(tensor) for tensor in before.values())

    def probe(self, generator: np.random.Generator) -> WalkedProbe:
        """Draw an upstream at the output and a direction for the inputs, and pull the upstream back."""
        source = self.walk.source
        info = source.outputs[self.walk.output]
        upstream = _draw_both_signs(generator, info.shape, is_complex=info.is_complex)
        directions = {}
        for input_index in self.walk.input_indices:
            point = source.at.point[input_index]
            step_sizes = scales(np.abs(point).ravel(), source.case.tensors[input_index].scale).step
            directions[input_index] = step_sizes.reshape(point.shape) * _draw_both_signs(
                generator, point.shape, is_complex=np.iscomplexobj(point)
            )
        passes, gradients = self.walk.passes(upstream)
        slope = sum(
            _inner(gradient, directions[input_index])
            for input_index, gradient in zip(self.walk.input_indices, gradients, strict=True)
            if gradient is not None
        )
        rows = [[(self.walk.result, upstream)]]
        for step, op_pass in zip(self.walk.steps, passes, strict=True):
            if not step.is_transparent:
                inputs = list(step.op.inputs)[step.results :]
                rows += [
                    [(tensors[index], flow) for index, flow in flows if flow is not None]
                    for tensors, flows in (
                        (step.op.outputs, op_pass.upstreams),
                        (inputs, op_pass.gradients),
                    )
                ]
        return WalkedProbe(self.walk, directions, float(slope), rows)

    def _fault(self, step: Step, op_pass: OpPass) -> str:
        """Say what is wrong with the form of an op's gradient, which TensorFlow doesn't always check."""
        for (input_index, value), flow in zip(op_pass.gradients, step.gradients.values(), strict=True):
            tensor = step.op.inputs[input_index + step.results]
            shape = self.walk.base.get(id(tensor), np.empty(())).shape
            subject = f"its gradient for its input {input_index}"
            if flow is not None and is_numeric(tensor) and flow.dtype != tensor.dtype:
                return f"{subject} must be {tensor.dtype.name}, as the input is, but is {flow.dtype.name}"
            if value is not None and is_numeric(tensor) and value.shape != shape:
                return (
                    f"{subject} must have shape {list(shape)}, as the input has, but has {list(value.shape)}"
                )
        return ""

    def _obstacle(self, step: Step) -> str:
        """Say why an op can't be differenced by itself; empty if it can."""
        op = step.op
        tensors = [
            *[op.outputs[index] for index in step.upstreams],
            *[flow for flow in step.upstreams.values() if flow is not None],
            *[flow for flow in step.gradients.values() if flow is not None],
        ]
        if not all(is_numeric(tensor) for tensor in tensors) or not step.upstreams:
            return "it passes on a list of tensors, not numbers"
        inner_types = {node.op for node in graph_path.inner_nodes(op)}
        if STOPS & inner_types:
            return "a stop_gradient inside it can't be held"
        if any(is_random(name) for name in inner_types) and self.walk.held.body_holds is None:
            return "it draws random numbers inside"
        if ({op.type} | inner_types) & IMPLICIT_SAMPLERS:
            return "its gradient is that of a distribution, not of a draw"
        return ""


def find_written_ops(op: GraphOperation, output: int, inputs: Sequence[int]) -> Sequence[Operation] | None:
    """Return the ops between an output and inputs whose gradients the user wrote; see `hooks`."""
    # Every input of an op moves, not only those on this path: at a tie, each of a maximum's two gradients may
    # be right by itself, and both together wrong.
    path = WalkedPath.of(op, output, inputs)
    every = [index for index in range(op.traced.at.count) if op.facts.is_connected(output, index)]
    whole = path if set(every) <= set(inputs) else WalkedPath.of(op, output, every)
    return path.written_ops(whole)


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
            with np.errstate(divide="ignore", invalid="ignore"):
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

        with np.errstate(invalid="ignore", over="ignore"):
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
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.real(np.vdot(flow, value))) if flow.shape == value.shape else float("nan")


@dataclass(frozen=True)
class OpAlone(OpFacts):
    """One op on a walk: what is known of it, and how it runs. Its inside, such as a loop, isn't looked at."""

    walk: Walk = field(kw_only=True)
    step: Step = field(kw_only=True)

    @cached_property
    def fed(self) -> list[Any]:
        """The tensors that move, each once."""
        tensors = [self.step.op.inputs[index] for index in self.step.gradients]
        return graph_path.distinct(tensors)

    @cached_property
    def fetched(self) -> list[Any]:
        """The tensors that have an upstream."""
        return [self.step.op.outputs[index] for index in self.step.upstreams]

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
        return self._infos("out", self.fetched)

    def _infos(self, word: str, tensors: Sequence[Any]) -> tuple[TensorInfo, ...]:
        """Describe tensors, as `in`, or `in0` and `in1`: their own names say nothing."""
        return tuple(
            TensorInfo(
                f"{word}{index}" if len(tensors) > 1 else word, self.walk.dtype_of(tensor).name, value.shape
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
        return self.values(self.fetched)

    @cached_property
    def upstreams(self) -> list[Any]:
        """A placeholder for the upstream of each output."""
        shapes = [info.shape for info in self.outputs]  # before the graph is used: this runs the forward
        with self.walk.function.graph.as_default():
            return [
                tf.compat.v1.placeholder(tensor.dtype, shape)
                for tensor, shape in zip(self.fetched, shapes, strict=True)
            ]

    @cached_property
    def gradients(self) -> list[Any]:
        """The op's own gradient, called again; CaseFailedError for what it raises."""
        upstreams = self.upstreams
        with self.walk.function.graph.as_default():
            return gradients_of(self.fetched, self.fed, upstreams, stops=self.fed)

    @cached_property
    def quantisers(self) -> tuple[str, ...]:
        """Types of ops between the tensors that move and the outputs that round."""
        return tuple(graph_path.quantisers(graph_path.ops_between(self.fed, self.fetched)))

    @cached_property
    def low_precision(self) -> tuple[str, ...]:
        """Dtypes below float64 between the tensors that move and the outputs."""
        return tuple(self.walk.low_precision(self.fed, self.fetched))

    # What runs.

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the op at several points; if it refuses one, its outputs are NaN there."""
        moved = {
            place: rows for input_index, rows in batch.items() for place in self._feed_indices[input_index]
        }
        size = sum(info.size for info in self.outputs)
        return run_where_accepted(
            lambda part: self._forward(part, size),
            moved,
            lambda _: [np.full(info.shape, np.nan) for info in self.outputs],
        )

    def vjp(self, output: int, upstream: Stack) -> list[Array | None]:
        """Pull upstreams of one output back to every input that moves."""
        return self.joint_vjp({output: upstream})

    def joint_vjp(self, upstreams: Mapping[int, Stack]) -> list[Array | None]:
        """Pull upstreams of all outputs back at once; missing ones are zero."""
        connected = [
            input_index for input_index, gradient in enumerate(self.gradients) if gradient is not None
        ]
        result: list[Array | None] = [None] * len(self.fed)
        if not connected:
            return result
        count = len(next(iter(upstreams.values())))
        first = len(self._always_fed)
        flows = {
            first + output_index: upstreams.get(output_index, np.zeros((count, *info.shape)))
            for output_index, info in enumerate(self.outputs)
        }
        with naming_run_errors("gradient"):
            gradients = self._pull(flows, sum(self.inputs[input_index].size for input_index in connected))
        for input_index, gradient in zip(connected, gradients, strict=True):
            result[input_index] = gradient
        return result

    @cached_property
    def _always_fed(self) -> list[Any]:
        """What is always fed: the case's inputs, its draws, and tensors that move without being an input."""
        tensors = [*self.walk.inputs, *self.walk.held.draws]
        tensors += [tensor for fed in self.fed for tensor in self._moved_with(fed)]
        return graph_path.distinct(tensors)

    def _moved_with(self, fed: Any) -> list[Any]:
        """Return what moves with an input: a custom gradient's forward reads a variable for itself."""
        if not self.step.results or fed.op.type != READ:
            return [fed]
        others = [op.outputs[0] for op in fed.op.inputs[0].consumers() if op.type == READ]
        return [fed, *[tensor for tensor in others if tensor is not fed]]

    @cached_property
    def _feed_indices(self) -> list[list[int]]:
        """Where each moving tensor is in `_always_fed`, with what moves with it."""
        places = {id(tensor): index for index, tensor in enumerate(self._always_fed)}
        return [[places[id(tensor)] for tensor in self._moved_with(fed)] for fed in self.fed]

    @cached_property
    def _forward(self) -> Batched:
        return self._batch([], self.fetched)

    @cached_property
    def _pull(self) -> Batched:
        return self._batch(self.upstreams, [gradient for gradient in self.gradients if gradient is not None])

    def _batch(self, upstreams: Sequence[Any], results: Sequence[Any]) -> Batched:
        """Batch a part of the graph as a function of what is always fed, upstreams, and held stops."""
        walk = self.walk
        known_ids = {id(tensor) for tensor in self._always_fed}
        # An op's other inputs keep their values: a condition may be made of what moves, too.
        after = graph_path.ops_after(self.fed)
        held = [*walk.held.stops, *(tensor for tensor in self.step.beside if tensor.op in after)]
        stops = [tensor for tensor in held if id(tensor) in walk.base and id(tensor) not in known_ids]
        moving_tensors = self._always_fed[len(walk.inputs) + len(walk.held.draws) :]
        read = {id(tensor): fed for fed in self.fed for tensor in self._moved_with(fed)}
        flows = [np.zeros(info.shape) for info in self.outputs[: len(upstreams)]]
        return walk.part(
            results,
            [
                *((tensor, walk.base[id(read[id(tensor)])]) for tensor in moving_tensors),
                *zip(upstreams, flows, strict=True),
                *((tensor, walk.base[id(tensor)]) for tensor in stops),
            ],
        )


def isolate(walk: Walk, step: Step) -> Operation:
    """Return an op on a walk as an op of its own, at its own operating point.

    Its inputs are those that move, and its outputs those with an upstream. A `tf.custom_gradient` is one op,
    with its whole forward between its arguments and its results.

    Raises:
        CaseFailedError: it takes a variable itself, not its value.
    """

    def is_connected(_: int, input_index: int) -> bool:  # to any output
        return alone.gradients[input_index] is not None

    alone = OpAlone(is_connected, walk=walk, step=step)
    if any(tensor.dtype == tf.resource for tensor in alone.fed):
        raise CaseFailedError("forward", "it reads a variable, whose place no other value can take")
    return Operation(
        facts=alone,
        evaluate=alone.evaluate,
        vjp=alone.vjp,
        joint_vjp=alone.joint_vjp,
        rounded_sizes=lambda _: dtypes.magnitudes(alone.base_values),  # it is a single op
    )
