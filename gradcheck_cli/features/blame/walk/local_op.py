"""One op of a forward as an op of its own: its inputs are fed, and its own gradient is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Operation, OpFacts, TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.blame.walk.backward_walk import READ, Step, Walk
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.dtypes import Stack
from gradcheck_cli.tensorflow_backend.graph.batching import Batched, run_where_accepted
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.traces.gradients import dense, gradients_of
from gradcheck_cli.tensorflow_backend.traces.trace_faults import ShapeChangesError, run_error

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LocalFacts(OpFacts):
    """What is known of an op on a walk. The inside of an op, such as a loop, isn't looked at."""

    runs: LocalRuns = field(kw_only=True)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The tensors that move."""
        return self.runs.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The tensors that have an upstream."""
        return self.runs.outputs

    @property
    def point(self) -> list[Array]:
        """The op's own operating point."""
        return self.runs.point

    @property
    def base_values(self) -> list[Array]:
        """The outputs there."""
        return self.runs.base_values

    @cached_property
    def quantisers(self) -> tuple[str, ...]:
        """Types of ops between the tensors that move and the outputs that round."""
        return tuple(graph_path.quantisers(self.runs.walk.function.graph, self.runs.fed, self.runs.fetched))

    @cached_property
    def low_precision(self) -> tuple[str, ...]:
        """Dtypes below float64 between the tensors that move and the outputs."""
        return tuple(self.runs.walk.low_precision(self.runs.fed, self.runs.fetched))

    @cached_property
    def dtype_faults(self) -> dict[int, str]:
        """Per input, what is wrong with its gradient's dtype."""
        runs = self.runs
        return {
            input_index: f"the gradient must be {tensor.dtype.name}, as its input is, but is "
            f"{gradient.dtype.name}."
            for input_index, (tensor, gradient) in enumerate(zip(runs.fed, runs.gradients, strict=True))
            if gradient is not None and gradient.dtype != tensor.dtype
        }

    def leads_to(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output through floating tensors."""
        runs = self.runs
        return graph_path.leads_to(runs.fed[input_index], runs.fetched[output], runs.walk.held.stops)

    def passes_numpy(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output through NumPy functions alone, which have no gradient."""
        result = self.runs.fetched[output]
        return graph_path.passes_numpy(result.graph, self.runs.fed[input_index], result)


def isolate(walk: Walk, step: Step) -> Operation:
    """Return an op on a walk as an op of its own, at its own operating point.

    Its inputs are those that move, and its outputs those with an upstream. A `tf.custom_gradient` is one op,
    with its whole forward between its arguments and its results.

    Raises:
        CaseFailedError: it takes a variable itself, not its value.
    """
    runs = LocalRuns(walk, step)
    if any(tensor.dtype == tf.resource for tensor in runs.fed):
        raise CaseFailedError("forward", "it reads a variable, whose place no other value can take")
    return Operation(
        facts=LocalFacts(runs.is_connected, runs=runs),
        evaluate=runs.evaluate,
        vjp=runs.vjp,
        joint_vjp=runs.joint_vjp,
        rounded_sizes=runs.rounded_sizes,
    )


@dataclass
class LocalRuns:
    """Runs one op on a walk, and its own gradient."""

    walk: Walk
    step: Step

    @cached_property
    def fed(self) -> list[Any]:
        """The tensors that move, each once."""
        tensors = [self.step.op.inputs[index] for index in self.step.gradients]
        return list({id(tensor): tensor for tensor in tensors}.values())

    @cached_property
    def fetched(self) -> list[Any]:
        """The tensors that have an upstream."""
        return [self.step.op.outputs[index] for index in self.step.upstreams]

    def _values(self, tensors: Sequence[Any]) -> list[Array]:
        return [self.walk.base[id(tensor)] for tensor in tensors]

    @cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The tensors that move."""
        return self._infos("in", self.fed)

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The tensors that have an upstream."""
        return self._infos("out", self.fetched)

    @property
    def point(self) -> list[Array]:
        """The op's own operating point."""
        return [dtypes.widen(value) for value in self._values(self.fed)]

    @property
    def base_values(self) -> list[Array]:
        """The outputs there."""
        return [dtypes.widen(value) for value in self._values(self.fetched)]

    def rounded_sizes(self, input_index: int) -> list[Array]:
        """Return the outputs' own size: it is a single op."""
        del input_index  # the same for each input
        return [dtypes.magnitude(value) for value in self.base_values]

    @cached_property
    def _upstreams(self) -> list[Any]:
        shapes = [info.shape for info in self.outputs]  # before the graph is used: this runs the forward
        with self.walk.function.graph.as_default():
            return [
                tf.compat.v1.placeholder(tensor.dtype, shape)
                for tensor, shape in zip(self.fetched, shapes, strict=True)
            ]

    @cached_property
    def gradients(self) -> list[Any]:
        """The op's own gradient, called again; CaseFailedError for what it raises."""
        upstreams = self._upstreams
        with self.walk.function.graph.as_default():
            gradients = gradients_of(self.fetched, self.fed, upstreams, stops=self.fed)
            return [dense(gradient, tensor) for gradient, tensor in zip(gradients, self.fed, strict=True)]

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the op at several points; if it refuses one, its outputs are NaN there."""
        moved = {
            place: rows for input_index, rows in batch.items() for place in self._feed_indices[input_index]
        }
        size = sum(info.size for info in self.outputs)
        return run_where_accepted(lambda part: self._forward(part, size), moved, self._refuse)

    def _refuse(self, error: tf.errors.OpError | ShapeChangesError) -> list[Array]:
        failure = error if isinstance(error, ShapeChangesError) else run_error(error, "forward")
        if failure.kind != "forward" and not isinstance(failure, ShapeChangesError):
            raise failure from error
        return [np.full(info.shape, np.nan) for info in self.outputs]

    def is_connected(self, output: int, input_index: int) -> bool:
        """Whether the op gives a gradient for this input, to any output."""
        del output
        return self.gradients[input_index] is not None

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
        try:
            gradients = self._pull(flows, sum(self.inputs[input_index].size for input_index in connected))
        except tf.errors.OpError as error:
            raise run_error(error, "gradient") from error
        for input_index, gradient in zip(connected, gradients, strict=True):
            result[input_index] = gradient
        return result

    @cached_property
    def _always_fed(self) -> list[Any]:
        """What is always fed: the case's inputs, its draws, and tensors that move without being an input."""
        tensors = [*self.walk.inputs, *self.walk.held.draws]
        tensors += [tensor for fed in self.fed for tensor in self._moved_with(fed)]
        return list({id(tensor): tensor for tensor in tensors}.values())

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
        return self._batch(self._upstreams, [gradient for gradient in self.gradients if gradient is not None])

    def _batch(self, upstreams: Sequence[Any], results: Sequence[Any]) -> Batched:
        """Batch a part of the graph as a function of what is always fed, upstreams, and held stops."""
        walk, source = self.walk, self.walk.source
        known_ids = {id(tensor) for tensor in self._always_fed}
        # An op's other inputs keep their values: a condition may be made of what moves, too.
        after = graph_path.ops_after(self.fed)
        held = [*walk.held.stops, *(tensor for tensor in self.step.beside if tensor.op in after)]
        stops = [tensor for tensor in held if id(tensor) in walk.base and id(tensor) not in known_ids]
        moving_tensors = self._always_fed[len(walk.inputs) + len(walk.held.draws) :]
        read = {id(tensor): fed for fed in self.fed for tensor in self._moved_with(fed)}
        extra = [*moving_tensors, *upstreams, *stops]
        flows = [np.zeros(info.shape, tf.as_dtype(info.dtype).as_numpy_dtype) for info in self.outputs]
        point = [
            *source.at.narrow,
            *[value.numpy() for value in walk.drawn],
            *self._values([read[id(tensor)] for tensor in moving_tensors]),
            *(flows if upstreams else []),
            *self._values(stops),
        ]
        kinds = [dtype for dtype, _ in source.at.arguments]
        kinds += [walk.dtype_of(tensor).name for tensor in (*walk.held.draws, *extra)]
        return Batched(
            walk.extract(extra, results),
            [(kind, np.shape(value)) for kind, value in zip(kinds, point, strict=True)],
            point,
            [walk.dtype_of(tensor) for tensor in results],
            vectorize=False,
            rewind=walk.rewind,
        )

    def _infos(self, word: str, tensors: Sequence[Any]) -> tuple[TensorInfo, ...]:
        """Describe tensors, as `in`, or `in0` and `in1`: their own names say nothing."""
        return tuple(
            TensorInfo(
                f"{word}{index}" if len(tensors) > 1 else word, self.walk.dtype_of(tensor).name, value.shape
            )
            for index, (tensor, value) in enumerate(zip(tensors, self._values(tensors), strict=True))
        )
