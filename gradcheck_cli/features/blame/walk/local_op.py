"""One op of a forward as an op of its own: its inputs are fed, and its own gradient is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.graph.batching import Batched
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.stacks import take_points
from gradcheck_cli.tensorflow_backend.traces.gradients import dense, gradients_of
from gradcheck_cli.tensorflow_backend.traces.trace_faults import run_error

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gradcheck_cli.checking.ops.operation import Site
    from gradcheck_cli.features.blame.walk.backward_steps import Step
    from gradcheck_cli.features.blame.walk.backward_walk import Walk
    from gradcheck_cli.tensorflow_backend.stacks import Stack

    Array = np.ndarray[Any, Any]


@dataclass
class LocalOperation:
    """An op on a walk, as `checking.Operation` has it.

    Its inputs are those that move, and its outputs those with an upstream. A `tf.custom_gradient` is one op,
    with its whole forward between its arguments and its results.

    Attributes:
        walk: the walk.
        step: the op.
    """

    walk: Walk
    step: Step
    random_types: tuple[str, ...] = ()
    frozen: dict[str, int] = field(default_factory=dict)
    held_places: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    modified_inputs: tuple[str, ...] = ()
    gradient_variables: tuple[str, ...] = ()
    missed_by_override: tuple[str, ...] = ()
    own_draws: tuple[str, ...] = ()
    vjp_low_precision: tuple[str, ...] = ()
    not_float64: str = ""

    @cached_property
    def _fed(self) -> list[Any]:
        """The tensors that move, each once."""
        tensors = [self.step.op.inputs[index] for index in self.step.gradients]
        return list({id(tensor): tensor for tensor in tensors}.values())

    @cached_property
    def _fetched(self) -> list[Any]:
        return [self.step.op.outputs[index] for index in self.step.upstreams]

    def _values(self, tensors: Sequence[Any]) -> list[Array]:
        """Return values at the point, in their own dtypes."""
        return [self.walk.base[id(tensor)] for tensor in tensors]

    @cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The tensors that move."""
        return self._infos(self._fed)

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The tensors that have an upstream."""
        return self._infos(self._fetched)

    @property
    def point(self) -> list[Array]:
        """The op's own operating point."""
        return [dtypes.widen(value) for value in self._values(self._fed)]

    @property
    def base_values(self) -> list[Array]:
        """The outputs there."""
        return [dtypes.widen(value) for value in self._values(self._fetched)]

    def rounded_sizes(self, input_index: int) -> list[Array]:
        """Return the outputs' own size: it is a single op."""
        del input_index  # the same for each input
        return [np.abs(value) for value in self.base_values]

    @cached_property
    def quantisers(self) -> tuple[str, ...]:
        """Types of ops between the tensors that move and the outputs that round."""
        return tuple(graph_path.quantisers(self.walk.function.graph, self._fed, self._fetched))

    @cached_property
    def low_precision(self) -> tuple[str, ...]:
        """Dtypes below float64 between the tensors that move and the outputs."""
        return tuple(self.walk.low_precision(self._fed, self._fetched))

    def low_precision_between(self, output: int, input_index: int) -> tuple[str, ...]:
        """Return those of the whole op."""
        del output, input_index
        return self.low_precision

    @cached_property
    def dtype_faults(self) -> dict[int, str]:
        """Per input, what is wrong with its gradient's dtype."""
        return {
            input_index: f"the gradient must be {tensor.dtype.name}, as its input is, but is "
            f"{gradient.dtype.name}."
            for input_index, (tensor, gradient) in enumerate(zip(self._fed, self._gradients, strict=True))
            if gradient is not None and gradient.dtype != tensor.dtype
        }

    @cached_property
    def _upstreams(self) -> list[Any]:
        shapes = [info.shape for info in self.outputs]  # before the graph is used: this runs the forward
        with self.walk.function.graph.as_default():
            return [
                tf.compat.v1.placeholder(tensor.dtype, shape)
                for tensor, shape in zip(self._fetched, shapes, strict=True)
            ]

    @cached_property
    def _gradients(self) -> list[Any]:
        """The op's own gradient, called again; CaseFailedError for what it raises."""
        upstreams = self._upstreams
        with self.walk.function.graph.as_default():
            gradients = gradients_of(self._fetched, self._fed, upstreams, stops=self._fed)
            return [dense(gradient, tensor) for gradient, tensor in zip(gradients, self._fed, strict=True)]

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the op at several points; if it refuses one, its outputs are NaN there."""
        moved = {self._feed_indices[input_index]: rows for input_index, rows in batch.items()}
        try:
            return self._forward(moved, sum(info.size for info in self.outputs))
        except tf.errors.OpError as error:
            failure = run_error(error, "forward")
            count = len(next(iter(batch.values())))
            if failure.kind != "forward":
                raise failure from error
            if count == 1:
                return [np.full((1, *info.shape), np.nan) for info in self.outputs]
            halves = [
                self.evaluate({input_index: take_points(rows, half) for input_index, rows in batch.items()})
                for half in (slice(0, count // 2), slice(count // 2, count))
            ]
            return [np.concatenate(pair) for pair in zip(*halves, strict=True)]

    def is_connected(self, output: int, input_index: int) -> bool:  # noqa: ARG002 (one gradient for all outputs)
        """Whether the op gives a gradient for this input."""
        return self._gradients[input_index] is not None

    def is_plain_chain(self, output: int, input_index: int) -> bool:  # noqa: ARG002 (as `Operation` has it)
        """Whether several ops make the gradient: it is one op."""
        return False

    @property
    def values_beside_gradient(self) -> list[Array]:
        """The outputs at the op's point: its gradient is taken in the same graph."""
        return list(self.base_values)

    def leads_to(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output through floating tensors."""
        return graph_path.leads_to(self._fed[input_index], self._fetched[output], self.walk.held.stops)

    def stops_between(self, output: int, input_index: int) -> dict[str, str]:  # noqa: ARG002 (as `Operation` has it)
        """Return nothing: a `stop_gradient` inside one op, such as a loop, can't be held here."""
        return {}

    def sites(self, pairs: Sequence[tuple[int, int]]) -> Sequence[Site]:  # noqa: ARG002 (as `Operation` has it)
        """Return nothing: sites are found for the whole graph."""
        return ()

    def closed(self, output: int, input_index: int) -> list[str]:  # noqa: ARG002 (as `Operation` has it)
        """Return nothing: see `stops_between`."""
        return []

    def holding(self, stops: Collection[str]) -> LocalOperation:  # noqa: ARG002 (as `Operation` has it)
        """Return the op itself."""
        return self

    def reaches(self, output: int, input_index: int) -> bool:
        """Return true: the inside of an op isn't known."""
        del output, input_index
        return True

    def passes_numpy(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output through NumPy functions alone, which have no gradient."""
        return graph_path.passes_numpy(
            self._fetched[output].graph, self._fed[input_index], self._fetched[output]
        )

    def vjp(self, output: int, upstream: Stack) -> list[Array | None]:
        """Pull upstreams of one output back to every input that moves."""
        return self.joint_vjp({output: upstream})

    def vjp_beside(self, output: int, upstream: Any, point: Any) -> None:
        """Return nothing: it is examined in one state of its graph."""

    def exactly(self) -> None:
        """Return nothing: its operating point isn't rounded."""

    def rounded_otherwise(self, draw: int) -> None:
        """Return nothing: it is no twin."""

    def on_one_piece(self) -> None:
        """Return nothing: it is one op."""

    def jvp(self, input_index: int, tangents: Array) -> None:
        """Return nothing: in a graph, forward mode uses the custom gradients themselves."""

    def joint_vjp(self, upstreams: Mapping[int, Stack]) -> list[Array | None]:
        """Pull upstreams of all outputs back at once; missing ones are zero."""
        connected = [
            input_index for input_index, gradient in enumerate(self._gradients) if gradient is not None
        ]
        result: list[Array | None] = [None] * len(self._fed)
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
        known_ids = {id(tensor) for tensor in tensors}
        return [*tensors, *[tensor for tensor in self._fed if id(tensor) not in known_ids]]

    @cached_property
    def _feed_indices(self) -> list[int]:
        """Where each moving tensor is in `_always_fed`."""
        places = {id(tensor): index for index, tensor in enumerate(self._always_fed)}
        return [places[id(tensor)] for tensor in self._fed]

    @cached_property
    def _forward(self) -> Batched:
        return self._batch([], self._fetched)

    @cached_property
    def _pull(self) -> Batched:
        return self._batch(
            self._upstreams, [gradient for gradient in self._gradients if gradient is not None]
        )

    def _batch(self, upstreams: Sequence[Any], results: Sequence[Any]) -> Batched:
        """Batch a part of the graph as a function of what is always fed, upstreams, and held stops."""
        walk, source = self.walk, self.walk.source
        known_ids = {id(tensor) for tensor in self._always_fed}
        stops = [tensor for tensor in walk.held.stops if id(tensor) not in known_ids]
        moving_tensors = self._always_fed[len(walk.inputs) + len(walk.held.draws) :]
        extra = [*moving_tensors, *upstreams, *stops]
        flows = [np.zeros(info.shape, tf.as_dtype(info.dtype).as_numpy_dtype) for info in self.outputs]
        point = [
            *source.at.narrow,
            *[value.numpy() for value in walk.drawn],
            *self._values(moving_tensors),
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

    def _infos(self, tensors: Sequence[Any]) -> tuple[TensorInfo, ...]:
        return tuple(
            TensorInfo(tensor.name, self.walk.dtype_of(tensor).name, value.shape)
            for tensor, value in zip(tensors, self._values(tensors), strict=True)
        )
