"""A case traced at one sample point: its graphs, and the functions made of them that take batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import declared_outputs, dtypes, tracing
from gradcheck_cli.tensorflow_backend.base_run import Base, Shared, run_at_base
from gradcheck_cli.tensorflow_backend.batching import Batched
from gradcheck_cli.tensorflow_backend.binding import Binder
from gradcheck_cli.tensorflow_backend.how import GRAPH, How
from gradcheck_cli.tensorflow_backend.sample_point import SamplePoint
from gradcheck_cli.tensorflow_backend.seeding import at_first_use
from gradcheck_cli.tensorflow_backend.trace_faults import run_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.operation import TensorInfo
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.binding import Bound
    from gradcheck_cli.tensorflow_backend.frozen import Held

    Array = np.ndarray[Any, Any]


@dataclass
class TracedCase:
    """One case, traced into graphs at one sample point, when that is first needed.

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
        with_joint: trace the vjp of all outputs at once, too.
        traced: the same case at the same point, whose forward needn't be traced again.
    """

    case: Case
    sample: int = 0
    reference_precision: bool = False
    surrogate: bool = False
    in_complex: bool = False
    shared: Shared = field(default_factory=Shared)
    how: How = GRAPH
    reverse: bool = False
    with_joint: bool = True
    traced: TracedCase | None = None
    _vjps: dict[int, Batched] = field(default_factory=dict)
    _modified: list[str] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    @cached_property
    def at(self) -> SamplePoint:
        """The sample point in the dtypes that are traced."""
        if self.traced is not None:
            return self.traced.at
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
        shapes = [value.shape for value in self.base_values]
        return declared_outputs.infos(self.case, self._output_names, self._forward.dtypes, shapes)

    @property
    def _output_names(self) -> list[str]:
        return declared_outputs.names(self.case, len(self._forward.dtypes), self._names)

    @cached_property
    def base_values(self) -> list[Array]:
        """The outputs at the base point, from an unbatched call."""
        return [dtypes.widen(value) for value in self._base.outputs]

    # What another trace of the same case at the same point is made of.

    @property
    def signature(self) -> list[Any]:
        """The arguments, with their shapes as far as a trace is to know them."""
        return self.how.signature(self.at.arguments)

    def bound(self) -> Bound:
        """Bind forward and gradient, for a trace that has a gradient in it."""
        shapes = [output.shape for output in self.outputs]
        binder = Binder(
            self.case,
            self._dtype_of,
            self.point,
            shapes,
            built=self.shared.built,
            shape_of=self.how.shape,
        )
        return self.shared.bound(binder)

    @property
    def forward(self) -> tracing.ForwardTrace:
        """The forward alone, traced."""
        return self._forward

    @property
    def base(self) -> Base:
        """What the forward gives at the base point."""
        return self._base

    def draws(self, held: Held) -> list[Array]:
        """Return the case's draws of random numbers at this point, for the draws of another trace.

        Raises:
            CaseFailedError: that trace draws something else.
        """
        self._base  # noqa: B018 (makes the draws, if there are any)
        drawn = self.shared.draws[self.sample, self.surrogate]
        if held.stand_ins is not None:
            held.stand_ins.use_draws(drawn.inner_values)
        return drawn.cast(held)

    # Traces, each made once, when it is first needed.

    @cached_property
    def _forward(self) -> tracing.ForwardTrace:
        if self.traced is not None:
            return self.traced.forward
        with at_first_use(self.case, self.shared):
            return self._traced()

    def _traced(self) -> tracing.ForwardTrace:
        binder = Binder(
            self.case,
            self._dtype_of,
            self.point,
            modified=self._modified,
            names=self._names,
            built=self.shared.built,
            shape_of=self.how.shape,
        )
        bound = binder.reference() if self.surrogate else self.shared.bound(binder)
        # Another draw at each sample point; never 0, which stands for none.
        seed = 1 + (self.case.seed * 1_000_003 + self.sample) % (2**31 - 1)
        freeze = self.case.freeze
        trace = tracing.trace_forward(
            bound,
            self.signature,
            self.at.differentiable,
            freeze=freeze,
            seed=seed,
            variables=self.shared.variables,
        )
        role = "reference" if self.surrogate else "forward"
        names = declared_outputs.names(self.case, len(trace.dtypes), self._names)
        declared_outputs.check_dtypes(self.case, names, trace.dtypes, self._dtype_of, role)
        return trace

    @cached_property
    def _vjp(self) -> tracing.VjpTrace:
        return tracing.trace_vjp(
            self.bound(),
            self.signature,
            self.at.differentiable,
            [self.how.shape(output.shape) for output in self.outputs],
            self._forward,
            self.shared.variables,
            reverse=self.reverse,
            with_joint=self.with_joint,
        )

    @cached_property
    def _base(self) -> Base:
        if self.traced is not None:
            return self.traced.base
        point = [
            tf.constant(value, dtype)
            for value, (dtype, _) in zip(self.at.narrow, self.at.arguments, strict=True)
        ]
        try:
            return run_at_base(self._forward, point, self.shared, (self.sample, self.surrogate))
        except tf.errors.OpError as error:
            raise run_error(error, "forward") from error

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
        values = self.draws(trace.held)
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
        return Batched(
            function,
            [*self.at.arguments, *[(info.dtype, info.shape) for info in upstreams], *constant],
            [*self.at.narrow, *flows, *values],
            results,
            vectorize=not random_types and stand_ins is None and not self.how.compiled,
            rewind=None if stand_ins is None else stand_ins.rewind,
            made=self.how.made(function),
        )

    def _dtype_of(self, dtype: str) -> str:
        if self.in_complex:
            return dtypes.complex_dtype(dtype)
        return dtypes.reference_dtype(dtype) if self.reference_precision else dtype
