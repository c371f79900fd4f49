"""An op in graph mode, as the checks see it: `Operation` over two traces of one case at one sample point."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.operation import TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import declared_outputs, dtypes, path, tracing
from gradcheck_cli.tensorflow_backend.base_run import Base, Shared, run_at_base
from gradcheck_cli.tensorflow_backend.batching import SHAPE_CHANGES, Batched
from gradcheck_cli.tensorflow_backend.binding import Binder
from gradcheck_cli.tensorflow_backend.how import GRAPH, How
from gradcheck_cli.tensorflow_backend.sample_point import SamplePoint
from gradcheck_cli.tensorflow_backend.seeding import at_first_use
from gradcheck_cli.tensorflow_backend.state import at_values, has_state, put_back
from gradcheck_cli.tensorflow_backend.variables import plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.frozen import Held

    Array = np.ndarray[Any, Any]


@dataclass
class GraphOperation:
    """One case, traced into graphs at one sample point.

    Attributes:
        case: what is traced.
        sample: number of the sample point.
        reference_precision: trace in float64 / complex128 instead of the declared dtypes; the values
            are still those that the declared dtypes can hold.
        in_complex: trace in complex128, for the complex step.
        surrogate: trace the spec's `reference` in place of its forward.
        shared: the case's draws of random numbers, which all its ops take part in.
        how: with which shapes it is traced, and whether it is compiled.
        reverse: give custom gradients their variables in reverse order.
    """

    case: Case
    sample: int = 0
    reference_precision: bool = False
    surrogate: bool = False
    in_complex: bool = False
    shared: Shared = field(default_factory=Shared)
    how: How = GRAPH
    reverse: bool = False
    _vjps: dict[int, Batched] = field(default_factory=dict)
    _modified: list[str] = field(default_factory=list)

    @cached_property
    def at(self) -> SamplePoint:
        """The sample point in the dtypes that are traced."""
        return SamplePoint(self.case, self.sample, self._dtype_of)

    @property
    def point(self) -> tuple[Array, ...]:
        """The base point, wide, holding values that the declared dtypes can hold."""
        return self.at.point

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Every input tensor, lists flattened."""
        return self.at.inputs

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Every output, with its shape at the base point."""
        names = declared_outputs.names(self.case, len(self._forward.dtypes))
        return tuple(
            TensorInfo(name, dtype.name, value.shape, dtypes.is_differentiable(dtype))
            for name, dtype, value in zip(names, self._forward.dtypes, self.base_values, strict=True)
        )

    @cached_property
    def base_values(self) -> list[Array]:
        """The outputs at the base point, from an unbatched call."""
        return [dtypes.widen(value) for value in self._base.outputs]

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

    def evaluate(self, batch: Mapping[int, Array]) -> list[Array]:
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
            failure = tracing.run_error(error, "forward")
            count = len(next(iter(batch.values())))
            if failure.kind != "forward" or not all(output.is_differentiable for output in self.outputs):
                raise failure from error
            if count == 1:
                return [np.full((1, *output.shape), np.nan) for output in self.outputs]
            halves = [
                self.evaluate({number: stack[part] for number, stack in batch.items()})
                for part in (slice(0, count // 2), slice(count // 2, count))
            ]
            return [np.concatenate(pair) for pair in zip(*halves, strict=True)]

    def _at_variables(self, batch: Mapping[int, Array], moved: Mapping[int, Array]) -> list[Array]:
        """Evaluate at several points of the variables, one by one, and put these back."""
        size = sum(output.size for output in self.outputs)
        rows = []
        with at_values(self.shared.variables, moved) as each:
            for row in each:
                rest = {number: stack[row : row + 1] for number, stack in batch.items()}
                try:
                    if rest:
                        rows.append([stack[0] for stack in self._batched_forward(rest, size)])
                    else:
                        rows.append(self._batched_forward.once())
                except tf.errors.OpError as error:
                    failure = tracing.run_error(error, "forward")
                    if failure.kind != "forward" or not all(info.is_differentiable for info in self.outputs):
                        raise failure from error
                    rows.append([np.full(output.shape, np.nan) for output in self.outputs])
        if any(
            value.shape != output.shape
            for row in rows
            for value, output in zip(row, self.outputs, strict=True)
        ):
            raise CaseFailedError("outputs", SHAPE_CHANGES)
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
        if number < self.at.count:
            starts = [trace.inputs[number]]
        else:
            handle = trace.handles[number - self.at.count]
            starts = [] if handle is None else [made for op in handle.consumers() for made in op.outputs]
        return any(path.leads_to(start, trace.outputs[output], trace.held.stops) for start in starts)

    def vjp(self, output: int, upstream: Array) -> list[Array | None]:
        """Pull upstreams of one output back to every input; see `Operation`."""
        result: list[Array | None] = [None] * len(self.inputs)
        connected = self._vjp.connected.get(output, ())
        if not connected:
            return result
        size = sum(self.inputs[number].size for number in connected)
        try:
            gradients = self._batched_vjp(output)({self.at.count: upstream}, size)
        except tf.errors.OpError as error:
            raise tracing.run_error(error, "gradient") from error
        for number, gradient in zip(connected, gradients, strict=True):
            result[number] = gradient
        return result

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
            raise tracing.run_error(error, "gradient") from error
        for number, gradient in zip(trace.joint_connected, gradients, strict=True):
            result[number] = gradient
        return result

    # Traces, each made once, when it is first needed.

    @cached_property
    def _forward(self) -> tracing.ForwardTrace:
        with at_first_use(self.case, self.shared):
            return self._traced()

    def _traced(self) -> tracing.ForwardTrace:
        binder = Binder(
            self.case,
            self._dtype_of,
            self.point,
            modified=self._modified,
            built=self.shared.built,
            shape_of=self.how.shape,
        )
        bound = binder.reference() if self.surrogate else binder.forward()
        # Another draw at each sample point; never 0, which stands for none.
        seed = 1 + (self.case.seed * 1_000_003 + self.sample) % (2**31 - 1)
        freeze = self.case.freeze
        trace = tracing.trace_forward(
            bound,
            self.how.signature(self.at.arguments),
            self.at.differentiable,
            freeze=freeze,
            seed=seed,
            variables=self.shared.variables,
        )
        role = "reference" if self.surrogate else "forward"
        declared_outputs.check_dtypes(self.case, trace.dtypes, self._dtype_of, role)
        return trace

    @cached_property
    def _vjp(self) -> tracing.VjpTrace:
        shapes = [output.shape for output in self.outputs]
        bound = Binder(
            self.case,
            self._dtype_of,
            self.point,
            shapes,
            built=self.shared.built,
            shape_of=self.how.shape,
        ).forward()
        return tracing.trace_vjp(
            bound,
            self.how.signature(self.at.arguments),
            self.at.differentiable,
            [self.how.shape(shape) for shape in shapes],
            self._forward,
            self.shared.variables,
            reverse=self.reverse,
        )

    @cached_property
    def _base(self) -> Base:
        point = [
            tf.constant(value, dtype)
            for value, (dtype, _) in zip(self.at.narrow, self.at.arguments, strict=True)
        ]
        try:
            return run_at_base(self._forward, point, self.shared, (self.sample, self.surrogate))
        except tf.errors.OpError as error:
            raise tracing.run_error(error, "forward") from error

    @cached_property
    def _batched_forward(self) -> Batched:
        trace, held = self._forward, self._forward.held
        tensors = (*held.stops, *held.draws)
        return self._batched(
            trace.pruned(tensors),
            held,
            tensors=tensors,
            values=self._base.values,
            upstreams=(),
            results=trace.dtypes,
            random_types=trace.random_types,
        )

    def _batched_vjp(self, output: int) -> Batched:
        if output not in self._vjps:
            trace = self._vjp
            self._vjps[output] = self._batched_gradient(
                trace.functions[output], (output,), trace.connected[output]
            )
        return self._vjps[output]

    def _batched_gradient(self, function: Any, outputs: Sequence[int], numbers: Sequence[int]) -> Batched:
        """Batch a function of the inputs, the upstreams of some outputs and the draws."""
        trace = self._vjp
        self._base  # noqa: B018 (makes the draws, if there are any)
        drawn = self.shared.draws[self.sample, self.surrogate]
        values = drawn.cast(trace.held)
        if trace.held.stand_ins is not None:
            trace.held.stand_ins.use_draws(drawn.inner_values)
        wanted = [tf.as_dtype(self.inputs[number].dtype) for number in numbers]
        infos = [self.outputs[output] for output in outputs]
        return self._batched(
            function,
            trace.held,
            tensors=trace.held.draws,
            values=values,
            upstreams=infos,
            results=wanted,
            random_types=trace.random_types,
        )

    def _batched(  # noqa: PLR0913 (what a traced function takes, gives and holds)
        self,
        function: Any,
        held: Held,
        *,
        tensors: Sequence[Any],
        values: Sequence[Array],
        upstreams: Sequence[TensorInfo],
        results: Sequence[Any],
        random_types: Sequence[str],
    ) -> Batched:
        stand_ins = held.stand_ins
        flows = [np.zeros(info.shape, tf.as_dtype(info.dtype).as_numpy_dtype) for info in upstreams]
        constant = [(tensor.dtype.name, value.shape) for tensor, value in zip(tensors, values, strict=True)]
        writes = has_state(function)
        function = put_back(self.how.made(function), function)
        return Batched(
            function if stand_ins is None else stand_ins.replaying(function),
            [*self.at.arguments, *[(info.dtype, info.shape) for info in upstreams], *constant],
            [*self.at.narrow, *flows, *values],
            results,
            vectorize=not random_types and stand_ins is None and not self.how.compiled,
            one_by_one=stand_ins is not None or writes,
        )

    def _dtype_of(self, dtype: str) -> str:
        if self.in_complex:
            return dtypes.complex_dtype(dtype)
        return dtypes.reference_dtype(dtype) if self.reference_precision else dtype

    def check_output_shapes(self) -> None:
        """Hold the outputs' shapes against those that the spec gives.

        Raises:
            CaseFailedError: of kind "outputs".
        """
        declared_outputs.check_shapes(self.case, self.base_values)
