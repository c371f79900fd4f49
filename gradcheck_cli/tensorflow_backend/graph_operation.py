"""An op in graph mode, as the checks see it: `Operation` over two traces of one case at one sample point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import declared_outputs, path
from gradcheck_cli.tensorflow_backend.batching import SHAPE_CHANGES
from gradcheck_cli.tensorflow_backend.spoiling import in_spoilt_memory
from gradcheck_cli.tensorflow_backend.stacks import part_of
from gradcheck_cli.tensorflow_backend.stand_ins import STOP
from gradcheck_cli.tensorflow_backend.state import at_values
from gradcheck_cli.tensorflow_backend.trace_faults import run_error
from gradcheck_cli.tensorflow_backend.traced_case import TracedCase
from gradcheck_cli.tensorflow_backend.variables import plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.stacks import Stack

    Array = np.ndarray[Any, Any]


@dataclass
class GraphOperation(TracedCase):
    """One case in graph mode; its graphs are those of `TracedCase`."""

    def afresh(self) -> GraphOperation:
        """Return the op with its vjp to be traced again, but not its forward."""
        return replace(self, with_joint=False, traced=self, _vjps={})

    @property
    def random_types(self) -> tuple[str, ...]:
        """Stateful op types that make the forward draw anew at each call."""
        return self._forward.random_types

    @property
    def frozen(self) -> Mapping[str, int]:
        """How many ops are held at their base value, by type."""
        return self._forward.held.counts

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Names of ops with a `stop_gradient` inside that should be held, but can't be reached."""
        return self._forward.held.unreachable

    @property
    def trainable(self) -> tuple[Any, ...]:
        """The trainable variables that the forward uses, the oldest first."""
        return self._forward.trainable

    @property
    def gradient_variables(self) -> tuple[str, ...]:
        """Names of the variables that a custom gradient of the forward has gradients for."""
        return tuple(plain_name(variable) for variable in self._forward.gradient_variables)

    @property
    def low_precision(self) -> tuple[str, ...]:
        """Dtypes below float64 between the differentiable inputs and the outputs."""
        return self._forward.low_precision

    @property
    def modified_inputs(self) -> tuple[str, ...]:
        """Names of inputs that a NumPy forward was seen to write to."""
        return tuple(self._modified)

    @property
    def dtype_faults(self) -> Mapping[int, str]:
        """Per input number, what is wrong with its gradient's dtype."""
        return self._vjp.dtype_faults

    @property
    def gradients_seen(self) -> Mapping[str, int]:
        """How often each registered gradient function was called as the vjp was built."""
        return self._vjp.gradients_seen

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the forward at several points; see `Operation`.

        Where it refuses a point (a Cholesky factor of what isn't positive definite any more), its floating
        outputs are NaN there: it accepted the base point, so the point is what it doesn't like.
        """
        size = sum(output.size for output in self.outputs)
        moved = {number - self.at.count: batch[number] for number in batch if number >= self.at.count}
        if moved:
            rest = {number: stack for number, stack in batch.items() if number < self.at.count}
            return self._at_variables(rest, moved)
        try:
            return self._batched_forward(batch, size)
        except tf.errors.OpError as error:
            failure = run_error(error, "forward")
            count = len(next(iter(batch.values())))
            if failure.kind != "forward" or not all(output.is_differentiable for output in self.outputs):
                raise failure from error
            if count == 1:
                return [np.full((1, *output.shape), np.nan) for output in self.outputs]
            halves = [
                self.evaluate({number: part_of(stack, part) for number, stack in batch.items()})
                for part in (slice(0, count // 2), slice(count // 2, count))
            ]
            return [np.concatenate(pair) for pair in zip(*halves, strict=True)]

    def _at_variables(self, batch: Mapping[int, Stack], moved: Mapping[int, Stack]) -> list[Array]:
        """Evaluate at several points of the variables, one by one, and put these back."""
        size = sum(output.size for output in self.outputs)
        rows = []
        with at_values(self.shared.variables, moved) as each:
            for row in each:
                rest = {number: part_of(stack, slice(row, row + 1)) for number, stack in batch.items()}
                try:
                    if rest:
                        rows.append([stack[0] for stack in self._batched_forward(rest, size)])
                    else:
                        rows.append(self._batched_forward.once())
                except tf.errors.OpError as error:
                    failure = run_error(error, "forward")
                    if failure.kind != "forward" or not all(info.is_differentiable for info in self.outputs):
                        raise failure from error
                    rows.append([np.full(output.shape, np.nan) for output in self.outputs])
        if any(
            value.shape != output.shape
            for row in rows
            for value, output in zip(row, self.outputs, strict=True)
        ):
            raise CaseFailedError("outputs", SHAPE_CHANGES)
        if not rows:
            return [np.empty((0, *output.shape)) for output in self.outputs]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def run_once(self) -> list[Array]:
        """Run the forward at the base point as it is run for differences, and return its outputs."""
        return self._batched_forward.once()

    def is_connected(self, output: int, number: int) -> bool:
        """Whether the gradient of this output with respect to this input is a tensor, not `None`."""
        return number in self._vjp.connected.get(output, ())

    def leads_to(self, output: int, number: int) -> bool:
        """Whether this input moves this output through floating tensors, as far as the graph tells."""
        trace = self._forward
        return any(
            path.leads_to(start, trace.outputs[output], trace.held.stops) for start in self._starts(number)
        )

    def unheld_stops(self, output: int, number: int) -> list[Any]:
        """Return the `stop_gradient`s between this input and this output that aren't held.

        The forward's are held where backpropagation meets them: those of a vjp are in its gradient functions.
        """
        trace = self._forward
        held = {id(tensor) for tensor in trace.held.stops}
        between = path.ops_between(self._starts(number), [trace.outputs[output]])
        return [op for op in between if op.type == STOP and id(op.outputs[0]) not in held]

    def _starts(self, number: int) -> list[Any]:
        """Return the graph's tensors that hold an input; of a variable, what is read from its handle."""
        trace = self._forward
        if number < self.at.count:
            return [trace.inputs[number]]
        handle = trace.handles[number - self.at.count]
        return [] if handle is None else [made for op in handle.consumers() for made in op.outputs]

    def passes_numpy(self, output: int, number: int) -> bool:
        """Whether a NumPy function without a gradient lies between this input and this output."""
        trace = self._forward
        return any(
            path.passes_numpy(trace.function.graph, start, trace.outputs[output])
            for start in self._starts(number)
        )

    def vjp(self, output: int, upstream: Stack) -> list[Array | None]:
        """Pull upstreams of one output back to every input; see `Operation`."""
        result: list[Array | None] = [None] * len(self.inputs)
        connected = self._vjp.connected.get(output, ())
        if not connected:
            return result
        size = sum(self.inputs[number].size for number in connected)

        def pull(stack: Stack) -> list[Array]:
            return self._batched_vjp(output)({self.at.count: stack}, size)

        try:
            if self.outputs[output].size:
                gradients: Sequence[Array | None] = pull(upstream)
            else:
                gradients = in_spoilt_memory(pull, upstream, [self.inputs[number] for number in connected])
        except tf.errors.OpError as error:
            raise run_error(error, "gradient") from error
        for number, gradient in zip(connected, gradients, strict=True):
            result[number] = gradient
        return result

    def jvp(self, number: int, tangents: Array) -> None:
        """Return nothing: in a graph, forward mode goes by the custom gradients themselves."""

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> list[Array | None]:
        """Pull upstreams of all differentiable outputs back at once; see `Operation`."""
        result: list[Array | None] = [None] * len(self.inputs)
        trace = self._vjp
        if trace.joint is None:
            return result
        batched = self._batched_gradient(trace.joint, trace.joint_outputs, trace.joint_connected)
        missing = {
            output: np.zeros((len(next(iter(upstreams.values()))), *self.outputs[output].shape))
            for output in trace.joint_outputs
        }
        flows = {**missing, **upstreams}
        batch = {self.at.count + place: flows[output] for place, output in enumerate(trace.joint_outputs)}
        try:
            gradients = batched(batch, sum(self.inputs[number].size for number in trace.joint_connected))
        except tf.errors.OpError as error:
            raise run_error(error, "gradient") from error
        for number, gradient in zip(trace.joint_connected, gradients, strict=True):
            result[number] = gradient
        return result

    def check_output_shapes(self) -> None:
        """Hold the outputs' shapes against those that the spec gives.

        Raises:
            CaseFailedError: of kind "outputs".
        """
        declared_outputs.check_shapes(self.case, self._output_names, self.base_values)
