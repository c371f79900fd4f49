"""A case at one sample point: its graphs, which serve every point, and functions that take batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.binding import declared_outputs
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.graph.base_run import Base, run_at_base
from gradcheck_cli.tensorflow_backend.graph.batching import Batched
from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState
from gradcheck_cli.tensorflow_backend.graph.sample_point import SamplePoint
from gradcheck_cli.tensorflow_backend.graph.second_order import bind
from gradcheck_cli.tensorflow_backend.private.private_parts import subgraph_function
from gradcheck_cli.tensorflow_backend.traces import tracing
from gradcheck_cli.tensorflow_backend.traces.gradients import ShapeClashError
from gradcheck_cli.tensorflow_backend.traces.trace_faults import run_error
from gradcheck_cli.tensorflow_backend.traces.trace_mode import GRAPH, How

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.binding.binder import Bound
    from gradcheck_cli.tensorflow_backend.traces.frozen import Held
    from gradcheck_cli.tensorflow_backend.twin import float64_twin

    Array = np.ndarray[Any, Any]


@dataclass
class TracedCase:
    """One case at one sample point, traced into graphs when that is first needed.

    Attributes:
        case: what is traced.
        sample: number of the sample point.
        in_complex: trace in complex128, for the complex step.
        surrogate: trace the spec's `reference` in place of its forward.
        state: the case's draws of random numbers, which all its ops take part in.
        how: with which shapes it is traced, and whether it is compiled.
        reverse: give custom gradients their variables in reverse order.
        with_joint: trace the vjp of all outputs at once, too.
        graphs: the same case, at this point or another, whose graphs serve here too.
        anew: trace the vjp all the same.
        narrow: the case in its declared dtypes, of whose graphs this one's are the float64 twins; the values
            of its inputs are those that the declared dtypes can hold.
        is_exact: of a twin, at the values as they were drawn, before the declared dtypes round them.
        stops: keys of the `stop_gradient`s that are held as the inputs move; `None`: as the spec says.
    """

    case: Case
    sample: int = 0
    surrogate: bool = False
    in_complex: bool = False
    state: CaseState = field(default_factory=CaseState)
    how: How = GRAPH
    reverse: bool = False
    with_joint: bool = True
    graphs: TracedCase | None = None
    anew: bool = False
    narrow: TracedCase | None = None
    is_exact: bool = False
    stops: frozenset[str] | None = None
    _vjps: dict[int, Batched] = field(default_factory=dict)
    _modified: list[str] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    @cached_property
    def at(self) -> SamplePoint:
        """The sample point in the dtypes that are traced."""
        if self.graphs is not None and self.graphs.sample == self.sample:
            return self.graphs.at
        return SamplePoint(
            self.case,
            self.sample,
            self._dtype_of,
            has_wide_variables=self.narrow is not None,
            is_exact=self.is_exact,
        )

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
        if self.narrow is not None:
            return self.narrow._output_names  # noqa: SLF001 (of one's own class)
        return declared_outputs.names(self.case, len(self._forward.dtypes), self._names)

    @cached_property
    def base_values(self) -> list[Array]:
        """The outputs at the base point, from an unbatched call."""
        return [dtypes.widen(value) for value in self._base.outputs]

    # What of the forward keeps its value as the inputs move.

    @property
    def holds_every_stop(self) -> bool:
        """Whether the spec says so; who writes a reference with a `stop_gradient` in it means it.

        That says what the gradient is. Of the gradient's own gradient `checking.stops` weighs it.
        """
        is_meant = self.case.freeze is True
        if self.surrogate and self.state.vjp is None:
            is_meant = self.case.freeze is not False
        return self.stops is None and is_meant

    def holds(self, key: str) -> bool:
        """Whether a `stop_gradient` of this key is held."""
        return self.holds_every_stop or (self.stops is not None and key in self.stops)

    @cached_property
    def held_stops(self) -> tuple[Any, ...]:
        """The tensors of the `stop_gradient`s that are held, in the graph itself."""
        stops = self._forward.held.stops
        if self.holds_every_stop or not self.stops:
            return stops if self.holds_every_stop else ()
        places = self._forward.held.places
        return tuple(one for one, stop in zip(stops, places, strict=True) if self.holds(stop.key))

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
            built=self.state.built,
            shape_of=self.how.shape,
        )
        return bind(binder, self.state.vjp, self.state.variables)

    @property
    def forward(self) -> tracing.ForwardTrace:
        """The forward alone, traced."""
        return self._forward

    @property
    def vjp_trace(self) -> tracing.VjpTrace:
        """Forward and vjp, traced."""
        return self._vjp

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
        drawn = self.state.draws[self.sample, self.surrogate]
        if held.stand_ins is not None:
            held.stand_ins.use_draws(drawn.inner_values)
        return drawn.cast(held)

    # Traces, each made once, when it is first needed.

    @cached_property
    def _forward(self) -> tracing.ForwardTrace:
        if self.narrow is not None:
            return self._wide_forward.trace
        if self.graphs is not None:
            trace = self.graphs.forward
            # What stand-ins hold is one point's.
            if trace.held.stand_ins is None or self.graphs.sample == self.sample:
                return trace
        with self.state.seeded_at_first_use(self.case.seed):
            return self._traced()

    def _traced(self) -> tracing.ForwardTrace:
        binder = Binder(
            self.case,
            self._dtype_of,
            self.point,
            modified=self._modified,
            names=self._names,
            built=self.state.built,
            shape_of=self.how.shape,
        )
        bound = bind(binder, self.state.vjp, self.state.variables, surrogate=self.surrogate)
        # Never 0, which stands for none. A trace of its own is to draw for itself.
        sample = 0 if self.graphs is None else self.sample
        seed = 1 + (self.case.seed * 1_000_003 + sample) % (2**31 - 1)
        trace = tracing.trace_forward(
            bound,
            self.signature,
            self.at.differentiable,
            stops=self.holds_every_stop or bool(self.stops),
            seed=seed,
            variables=self.state.variables,
            compiled=self.how.compiled,
        )
        role = "reference" if self.surrogate else "forward"
        names = declared_outputs.names(self.case, len(trace.dtypes), self._names)
        declared_outputs.check_dtypes(self.case, names, trace.dtypes, self._dtype_of, role)
        return trace

    @cached_property
    def _vjp(self) -> tracing.VjpTrace:
        if self.narrow is not None:
            return self._wide_vjp.trace
        if self.graphs is not None and not self.anew and self._is_of_shapes(self.graphs):
            return self.graphs.vjp_trace
        try:
            trace = tracing.trace_vjp(
                self.bound(),
                self.signature,
                self.at.differentiable,
                [self.how.shape(output.shape) for output in self.outputs],
                self._forward,
                self.state.variables,
                reverse=self.reverse,
                with_joint=self.with_joint,
                compiled=self.how.compiled,
            )
        except ShapeClashError as error:
            known = [(number, self.inputs[number].name) for number in self.at.differentiable]
            raise error.of_inputs(known) from error
        if self.state.vjp is None and not self.surrogate:
            for site, output, number in trace.sites:
                self.state.gradients.add(site, self.outputs[output].name, self.inputs[number].name)
        return trace

    def _is_of_shapes(self, other: TracedCase) -> bool:
        """Whether another point's forward is the same trace, with outputs of the same shapes."""
        return self.forward is other.forward and [info.shape for info in self.outputs] == [
            info.shape for info in other.outputs
        ]

    @cached_property
    def _wide_forward(self) -> float64_twin.WideForward:
        trace = self._narrow.forward
        numbers = self.at.differentiable
        moving = tracing.moving(trace.function, trace.inputs, numbers, self.state.variables)
        return self.state.twins.forward(trace, moving, is_alone=self.is_exact)

    @cached_property
    def _wide_vjp(self) -> float64_twin.WideVjp:
        return self.state.twins.vjp(self._narrow.vjp_trace, is_alone=self.is_exact)

    @property
    def _narrow(self) -> TracedCase:
        if self.narrow is None:
            raise ValueError("expected a twin")
        return self.narrow

    @cached_property
    def _base(self) -> Base:
        if self.graphs is not None and (self.graphs.sample, self.graphs.stops) == (self.sample, self.stops):
            return self.graphs.base
        if self.narrow is not None:
            self.narrow.base  # noqa: B018 (makes the draws, if there are any)
        return self._run(self.held_stops)

    def _run(self, fetched: Sequence[Any]) -> Base:
        """Run the forward at the base point, and fetch tensors of its graph beside the outputs."""
        point = [
            tf.constant(value, dtype)
            for value, (dtype, _) in zip(self.at.narrow, self.at.arguments, strict=True)
        ]
        try:
            return run_at_base(self._forward, point, self.state, (self.sample, self.surrogate), fetched)
        except tf.errors.OpError as error:
            raise run_error(error, "forward") from error

    def values_at_point(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of tensors of the forward's graph at the base point, with its draws held."""
        self.base  # noqa: B018 (makes the draws, if there are any)
        return self._run(tensors).values[: len(tensors)] if tensors else ()

    @cached_property
    def differenced(self) -> Any:
        """The forward as a function of the inputs and of what it holds."""
        if self.narrow is not None:
            return self._wide_forward.differenced(self.held_stops)
        graphs = self.graphs
        if graphs is not None and self.forward is graphs.forward and self.stops == graphs.stops:
            return graphs.differenced
        return self._forward.pruned((*self.held_stops, *self._forward.held.draws))

    @cached_property
    def _batched_forward(self) -> Batched:
        trace, held = self._forward, self._forward.held
        tensors = (*self.held_stops, *held.draws)
        return self._batched(
            self.differenced,
            held,
            tensors=tensors,
            values=self._base.values,
            upstreams=(),
            results=trace.dtypes,
            random_types=trace.random_types,
        )

    @cached_property
    def _fed_forward(self) -> tuple[Batched, list[list[int]]] | None:
        """The forward with its variables' values among the arguments, and which arguments are each one's.

        `None` where it does more with one than read it.
        """
        trace, held = self._forward, self._forward.held
        reads = trace.reads()
        if reads is None:
            return None
        tensors = [tensor for each in reads for tensor in each]
        values = [
            dtypes.narrow(self.point[self.at.count + number], tensor.dtype.name)
            for number, each in enumerate(reads)
            for tensor in each
        ]
        fed = self._batched(
            trace.pruned((*tensors, *self.held_stops, *held.draws)),
            held,
            tensors=(*tensors, *self.held_stops, *held.draws),
            values=(*values, *self._base.values),
            upstreams=(),
            results=trace.dtypes,
            random_types=trace.random_types,
        )
        places = iter(range(self.at.count, self.at.count + len(tensors)))
        return fed, [[next(places) for _ in each] for each in reads]

    @property
    def values_beside_gradient(self) -> list[Array]:
        """The outputs at the base point, as the graph has them that the gradient is in."""
        trace = self._vjp
        return self._batched(
            subgraph_function(trace.whole, [*trace.inputs, *trace.held.draws], trace.outputs),
            trace.held,
            tensors=trace.held.draws,
            values=self.draws(trace.held),
            upstreams=(),
            results=self._forward.dtypes,
            random_types=trace.random_types,
        ).once()

    def run_beside_gradient(self, fetches: Sequence[Any], samples: Sequence[int]) -> list[Array]:
        """Return the values of tensors of the gradient's graph at some points, for drawn upstreams.

        Args:
            fetches: the tensors.
            samples: numbers of the points; this one's draws of random numbers serve them all.

        Returns:
            Per tensor its values, with a leading axis over the points.

        Raises:
            CaseFailedError: a tensor's shape isn't the same at all of them.
        """
        trace = self._vjp
        infos = [self.outputs[output] for output in trace.joint_outputs]
        for kept in trace.left:
            self.state.written.keep(kept)
        batched = self._batched(
            subgraph_function(
                trace.whole, [*trace.upstreams, *trace.inputs, *trace.held.draws], list(fetches)
            ),
            trace.held,
            tensors=trace.held.draws,
            values=self.draws(trace.held),
            upstreams=infos,
            results=[tensor.dtype for tensor in fetches],
            random_types=trace.random_types,
            left=frozenset(id(kept.handle) for kept in trace.left),
        )
        points = [replace(self.at, sample=sample).point for sample in samples]
        batch = {
            len(infos) + number: np.stack([point[number] for point in points])
            for number, tensor in enumerate(self.case.tensors[: self.at.count])
            if tensor.source.kind not in ("value", "file") and points[0][number].dtype != object
        }
        for place, info in enumerate(infos):
            draws = [np.random.default_rng(sample).standard_normal(info.shape) for sample in samples]
            batch[place] = np.stack(draws)
        try:
            return batched(batch, 1)
        except tf.errors.OpError as error:
            raise run_error(error, "gradient") from error

    def _batched_vjp(self, output: int) -> Batched:
        if output not in self._vjps:
            trace = self._vjp
            self._vjps[output] = self._batched_gradient(
                trace.functions[output], (output,), trace.connected[output]
            )
        return self._vjps[output]

    def _batched_gradient(self, function: Any, outputs: Sequence[int], numbers: Sequence[int]) -> Batched:
        """Batch a function of the upstreams of some outputs, the inputs and the draws."""
        trace = self._vjp
        values = self.draws(trace.held)
        wanted = [tf.as_dtype(self.inputs[number].dtype) for number in numbers]
        infos = [self.outputs[output] for output in outputs]
        for kept in trace.left:
            self.state.written.keep(kept)
        return self._batched(
            function,
            trace.held,
            tensors=trace.held.draws,
            values=values,
            upstreams=infos,
            results=wanted,
            random_types=trace.random_types,
            left=frozenset(id(kept.handle) for kept in trace.left),
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
        left: frozenset[int] = frozenset(),
    ) -> Batched:
        stand_ins = held.stand_ins
        # What holds a stop in a body runs Python, which XLA doesn't compile: such a forward is differenced as
        # a graph. The gradient under test is compiled, or isn't checked.
        is_python = stand_ins is not None and not stand_ins.draw_types()
        flows = [np.zeros(info.shape, tf.as_dtype(info.dtype).as_numpy_dtype) for info in upstreams]
        constant = [(tensor.dtype.name, value.shape) for tensor, value in zip(tensors, values, strict=True)]
        return Batched(
            function,
            [*[(info.dtype, info.shape) for info in upstreams], *self.at.arguments, *constant],
            [*flows, *self.at.narrow, *values],
            results,
            vectorize=not random_types and stand_ins is None and not self.how.compiled,
            rewind=None if stand_ins is None else partial(stand_ins.rewind, self.holds),
            made=None if is_python else self.state.made_of(self.how, function),
            left=left,
            batches=self.state.batches_of(function),
        )

    def _dtype_of(self, dtype: str) -> str:
        if self.in_complex:
            return dtypes.complex_dtype(dtype)
        return dtypes.reference_dtype(dtype) if self.narrow is not None else dtype
