"""A case at one sample point: its graphs, which serve every point, and its run at the base point."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Dtype, Opening, TensorInfo
from gradcheck_cli.checking.pairs.pair import label_between
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.case import Case, InputSpec
from gradcheck_cli.spec.values.draw_values import draw
from gradcheck_cli.spec.values.moves import value_beside, variable_value
from gradcheck_cli.tensorflow_backend import dtypes, frames, graph_path
from gradcheck_cli.tensorflow_backend.binding import flat_tensors
from gradcheck_cli.tensorflow_backend.binding.binder import Binder, Bound
from gradcheck_cli.tensorflow_backend.dtypes import Array
from gradcheck_cli.tensorflow_backend.graph.second_order import Vjp
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs, private_state
from gradcheck_cli.tensorflow_backend.private.private_gradients import GradientLog
from gradcheck_cli.tensorflow_backend.traces.frozen import Held
from gradcheck_cli.tensorflow_backend.traces.state import (
    GRAPH,
    Made,
    Resource,
    State,
    Thing,
    TraceMode,
    call_once,
    find_written,
    restoring_call,
)
from gradcheck_cli.tensorflow_backend.traces.trace_faults import naming_run_errors
from gradcheck_cli.tensorflow_backend.traces.tracing import (
    ForwardTrace,
    OtherCall,
    TraceSubject,
    VjpTrace,
    trace_forward,
    trace_vjp,
)
from gradcheck_cli.tensorflow_backend.twin.float64_twin import (
    WideForward,
    WideVariables,
    WideVjp,
    widen_forward,
    widen_vjp,
)
from gradcheck_cli.tensorflow_backend.twin.perturbing import (
    Perturbed,
    can_be_perturbed,
    perturb_forward,
    perturb_vjp,
)
from gradcheck_cli.tensorflow_backend.twin.rounding_rules import NUMBERS
from gradcheck_cli.tensorflow_backend.twin.running_on import forward_running_on, vjp_running_on
from gradcheck_cli.tensorflow_backend.twin.widening import PIECES
from gradcheck_cli.tensorflow_backend.users_code import seed_globals


@dataclass
class SamplePoint:
    """The point at which a case is traced."""

    case: Case
    sample: int
    dtype: Dtype = "declared"  # the dtypes that are traced; see `Opening`
    # whether `dtype` applies to variables as well; otherwise they keep their dtypes
    has_wide_variables: bool = False
    # whether the values stay as they were drawn, before the declared dtypes round them
    is_exact: bool = False
    # the arguments' values at points that were chosen, by sample number; others are drawn
    chosen: Mapping[int, Sequence[Array]] = field(default_factory=dict)
    # a variable's value at a sample point; `CaseState.value_of` keeps it for all forms of a case
    value_of: Callable[[InputSpec, int], Array] = field(kw_only=True)

    def dtype_of(self, dtype: str) -> str:
        """Return the dtype that is traced where the spec names this one."""
        return dtypes.reference_dtype(dtype) if self.dtype == "float64" else dtype

    @cached_property
    def point(self) -> tuple[Array, ...]:
        """Every value, wide, as the declared dtype can hold it."""
        return tuple(
            self._wide_value(input_index, tensor) for input_index, tensor in enumerate(self.case.tensors)
        )

    def _wide_value(self, input_index: int, tensor: InputSpec) -> Array:
        if self.sample in self.chosen:
            value = np.asarray(self.chosen[self.sample][input_index])
        elif tensor.is_variable:
            value = self.value_of(tensor, self.sample)
        else:
            value = (draw if self.sample >= 0 else value_beside)(self.case, tensor, self.sample)
        if self.is_exact and not tensor.is_variable:
            return dtypes.widen(value)
        return dtypes.widen(dtypes.narrow(value, tensor.dtype))

    def stacked(self, samples: Sequence[int]) -> dict[int, Array]:
        """Return the drawn arguments at several points, by index, (B, *shape) each."""
        points = [replace(self, sample=sample).point for sample in samples]
        return {
            input_index: np.stack([point[input_index] for point in points])
            for input_index, tensor in enumerate(self.case.tensors[: self.count])
            if tensor.source.kind not in ("value", "file") and points[0][input_index].dtype != object
        }

    @cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Every input tensor, lists flattened, in the dtype that is traced; then the variables."""
        return tuple(
            TensorInfo(
                tensor.name,
                tensor.dtype
                if tensor.is_variable and not self.has_wide_variables
                else self.dtype_of(tensor.dtype),
                value.shape,
                tensor.is_differentiable,
                of=tensor.upstream_of,
            )
            for tensor, value in zip(self.case.tensors, self.point, strict=True)
        )

    @cached_property
    def count(self) -> int:
        """How many inputs are arguments of the forward; the rest are variables."""
        return sum(not tensor.is_variable for tensor in self.case.tensors)

    @cached_property
    def arguments(self) -> list[tuple[str, tuple[int, ...]]]:
        """Dtype and shape of every input that is an argument of the forward."""
        return [(info.dtype, info.shape) for info in self.inputs[: self.count]]

    @cached_property
    def narrow(self) -> list[Array]:
        """Every argument's value in the NumPy form of the dtype that is traced."""
        return [
            dtypes.narrow(value, dtype)
            for value, (dtype, _) in zip(self.point[: self.count], self.arguments, strict=True)
        ]

    @property
    def tensors(self) -> list[Any]:
        """Every argument's value as a tensor, made anew each time: a large one takes much memory."""
        return [
            tf.constant(value, dtype) for value, (dtype, _) in zip(self.narrow, self.arguments, strict=True)
        ]

    @cached_property
    def seed(self) -> int:
        """The seed of the case's draws at this point; never 0, which means no seed."""
        return 1 + (self.case.seed * 1_000_003 + self.sample) % (2**31 - 1)

    def split(self, moved: Mapping[int, Any]) -> tuple[dict[int, Any], dict[int, Any]]:
        """Return what is by index of an input for the arguments, and for the variables by their own index."""
        count = self.count
        variables = {index - count: value for index, value in moved.items() if index >= count}
        return {index: value for index, value in moved.items() if index < count}, variables

    @cached_property
    def differentiable(self) -> list[int]:
        """Indices of the inputs that gradients are taken for."""
        return [index for index, info in enumerate(self.inputs) if info.is_differentiable]


@dataclass
class Weights:
    """The variables that a forward reads and doesn't write to: at each point but the first they are moved."""

    # each with what is known of its value; `None` until it is known which there are
    found: Sequence[tuple[Resource, InputSpec]] | None = None
    # in which of `WAYS` each moves, by name, where that isn't the first; 0 for one that stays
    ways: dict[str, int] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)  # the sample points for which that was tried

    @contextlib.contextmanager
    def at(self, values: Sequence[Array], twins: WideVariables) -> Iterator[None]:
        """Give each its value while the block runs, and the wide forms of twins the same."""
        resources = [resource for resource, _ in self.found or ()]
        try:
            with State.of(resources).restore_at_end():
                for resource, value in zip(resources, values, strict=True):
                    resource.write(dtypes.constant(value, resource.dtype))
                twins.follow()
                yield
        finally:
            twins.follow()


@dataclass
class CaseState:
    """What all ops of one case share: the case, and what was built, drawn, traced and written to."""

    case: Case
    # what `build` returned; it is called once, so a layer's weights are the same in every trace
    built: dict[str, Any] = field(default_factory=dict)
    # the random draws by sample point, and by whether the reference draws them
    draws: dict[tuple[int, bool], Draws] = field(default_factory=dict)
    variables: tuple[Any, ...] = ()  # the variables among the inputs, in order
    # the case without these inputs, where its forward was traced to find them
    plain: TracedCase | None = None
    vjp: Vjp | None = None  # set where the case is the vjp of another
    # the variables that take the place of narrower ones in float64 twins
    wide_variables: WideVariables = field(default_factory=WideVariables)
    # what the case's gradients have written to, with the earlier values
    written: State = field(default_factory=State)
    # the first traced case of each form and mode of tracing; its graphs serve every point
    graphs: dict[Any, Any] = field(default_factory=dict)
    # what runs instead of traced functions, since XLA takes its time
    compiled: Made = field(default_factory=Made)
    made: Made = field(default_factory=Made)  # what else was made of traces, functions and opened ops
    # the arguments' values at points that were chosen rather than drawn, by sample number
    chosen: dict[int, Sequence[Any]] = field(default_factory=dict)
    # the hand-written gradients that were made, and those that ran
    gradients: GradientLog = field(default_factory=GradientLog)
    # whether graphs run as those of a `tf.function` do, prepared by Grappler first; `None` if nothing called
    # for a try
    is_prepared: bool | None = None
    is_vjp_prepared: bool | None = None  # the same, for gradients alone
    # what the forward raised at the first point beside a base point that it refused, in words
    refusal: str = ""
    # the variables that the forward reads and doesn't write to, whose values differ from point to point
    weights: Weights = field(default_factory=Weights)

    def value_of(self, variable: InputSpec, sample: int) -> Array:
        """Return a variable's value at a sample point, which is made once; see `variable_value`."""
        way = self.weights.ways.get(variable.name, 1)
        make = partial(variable_value, self.case, variable, sample, way)
        return self.made.of(make, variable, kind=f"{sample} {way}")

    def bind(self, binder: Binder, *, surrogate: bool = False) -> Bound:
        """Bind the case's forward, or the vjp that it stands for; or the same for its reference."""
        if self.vjp is not None:
            return self.vjp.bound(binder, self.variables, surrogate=surrogate)
        return binder.reference() if surrogate else binder.forward()

    def target(self) -> Any:
        """Return the forward as the user named it; see `Binder.target`."""
        return Binder(self.case, built=self.built).target()

    def refuse(self, opened: Any, failure: CaseFailedError) -> list[Array]:
        """Return the outputs of an opened case at a point that its forward refuses: NaN.

        What isn't compared is as at the base point, which it accepted. What was raised is kept; the first
        counts.
        """
        self.refusal = self.refusal or failure.message
        return [
            np.full(output.shape, np.nan) if output.is_differentiable else value
            for output, value in zip(opened.outputs, opened.base_values, strict=True)
        ]

    def seed_at_first_use(self) -> contextlib.AbstractContextManager[None]:
        """Seed the global generators when the forward is called for the first time: it may build layers."""
        return contextlib.nullcontext() if self.draws else seed_globals(self.case.seed)


@dataclass
class OpenedCase(ABC):
    """One case at one sample point, traced or called."""

    state: CaseState  # what all ops of the case share
    # the form of the case that is opened, with its sample point
    opening: Opening = field(default_factory=Opening)
    # keys of the `stop_gradient`s that are held while the inputs move; `None`: as the spec says
    stops: frozenset[str] | None = None
    _names: list[str] = field(default_factory=list)  # the outputs', from what the forward returned

    @property
    def case(self) -> Case:
        """The case."""
        return self.state.case

    @cached_property
    def at(self) -> SamplePoint:
        """The sample point in the dtypes that are opened."""
        return SamplePoint(
            self.case,
            self.opening.sample,
            self.opening.dtype,
            chosen=self.state.chosen,
            value_of=self.state.value_of,
        )

    def binder(self, **more: Any) -> Binder:
        """Return what binds the case's functions at the point; `more` is known of one trace or call."""
        return Binder(self.case, self.at.dtype_of, self.at.point, built=self.state.built, **more)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Every input tensor, lists flattened."""
        return self.at.inputs

    @cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Every output, with its shape at the base point."""
        shapes = [value.shape for value in self.base_values]
        return flat_tensors.infos(self.case, self.output_names, self.output_dtypes, shapes)

    @property
    def output_names(self) -> list[str]:
        """The outputs' names."""
        return flat_tensors.names(self.case, len(self.output_dtypes), self._names)

    @property
    @abstractmethod
    def output_dtypes(self) -> Sequence[Any]:
        """The outputs' dtypes."""

    @property
    @abstractmethod
    def base_values(self) -> list[Array]:
        """The outputs at the base point."""

    @property
    @abstractmethod
    def gradient_variables(self) -> tuple[Any, ...]:
        """The variables for which a custom gradient of the forward has gradients."""

    def check_dtypes(self, output_dtypes: Sequence[Any]) -> None:
        """Compare the outputs' number and dtypes with the spec.

        Raises:
            CaseFailedError: one differs.
        """
        names = flat_tensors.names(self.case, len(output_dtypes), self._names)
        flat_tensors.check_dtypes(self.case, names, output_dtypes, self.at.dtype_of, self.opening.of)


@dataclass
class TracedCase(OpenedCase):
    """One case at one sample point, traced into graphs when they are first needed."""

    trace_mode: TraceMode = GRAPH  # with which shapes it is traced, and whether it is compiled
    graphs: TracedCase | None = None  # the same case, at this point or another; its graphs are used here too
    anew: bool = False  # whether to trace the vjp although `graphs` has one
    # for a float64 twin: the case in its declared dtypes, whose graphs are widened. The inputs have values
    # that the declared dtypes can hold.
    narrow: TracedCase | None = None
    # for a twin: whether the inputs have the values from before the declared dtypes round them
    is_exact: bool = False
    # what is rounded at random (`twin/perturbing.py`): the vjp and the forward's constants, or all of the
    # forward; then `graphs` isn't
    perturbs: Literal["", "vjp", "forward"] = ""
    # for a twin: whether kinked ops keep each element on the side that it has at the point
    is_on_one_piece: bool = False
    # how often loops that values stop go round, as a multiple of what `graphs` lets them; 0: as often
    runs_on: int = 0
    # whether functions are inlined where forward and gradient are in one graph, to show their ops one by one
    is_inlined: bool = False
    # names of inputs that a NumPy forward was seen to write to
    modified: list[str] = field(default_factory=list)
    no_twin: str = ""  # why there is no float64 twin to judge it by, if one was tried in vain

    # The same case in other forms.

    def retraced(self) -> TracedCase:
        """Return the case with its vjp traced again; the forward that is differenced is kept."""
        return replace(self, graphs=self, anew=True)

    def at_sample(self, sample: int) -> TracedCase:
        """Return the case at another point, with the same graphs."""
        return replace(self, opening=replace(self.opening, sample=sample), graphs=self, no_twin="")

    def in_float64(self) -> TracedCase:
        """Return the float64 twin, made from the same traces, at the same point."""
        opening = replace(self.opening, dtype="float64")
        return replace(self, opening=opening, narrow=self, graphs=None, anew=False)

    def inlined(self) -> TracedCase:
        """Return the case with a graph of forward and gradient that shows the ops of functions one by one."""
        narrow = None if self.narrow is None else self.narrow.inlined()
        return replace(self, narrow=narrow, graphs=self, anew=False, is_inlined=True)

    def exactly(self) -> TracedCase | None:
        """Return a twin at the values as they were drawn; `None` where the declared dtypes round none."""
        if self.narrow is None or self.is_exact:
            return None
        exact = replace(self, is_exact=True)
        return None if all(map(np.array_equal, exact.at.point, self.at.point)) else exact

    def perturbed(self, perturbs: Literal["vjp", "forward"] = "vjp") -> TracedCase | None:
        """Return the case with a vjp or a forward that rounds at random; `None` if it can't be seen into."""
        trace = self.vjp_trace if perturbs == "vjp" else self.forward
        if self.trace_mode.compiled or not can_be_perturbed(trace):
            return None
        perturbed = replace(self, perturbs=perturbs, graphs=self)
        with contextlib.suppress(ValueError, KeyError):  # a graph that its own text doesn't give again
            _ = perturbed.perturbed_vjp if perturbs == "vjp" else perturbed.forward
            return perturbed
        return None

    def running_on(self, times: int) -> TracedCase | None:
        """Return the case with loops that run on where values stop them; `None` where there are none."""
        if self.trace_mode.compiled or self.forward.held.body_holds is not None:
            return None
        on = replace(self, graphs=self, runs_on=times)
        with contextlib.suppress(ValueError, KeyError):  # a graph that its own text doesn't give again
            return None if None in (on.forward_running_on, on.vjp_running_on) else on
        return None

    @property
    def forward_running_on(self) -> ForwardTrace | None:
        """The form of the forward of `graphs` in which loops run on: one for all points."""
        trace, times = (self.graphs or self).forward, self.runs_on
        return self.state.made.of(lambda: forward_running_on(trace, times), trace, kind=f"on {times}")

    @property
    def vjp_running_on(self) -> VjpTrace | None:
        """The same of the vjp."""
        trace, times = (self.graphs or self).vjp_trace, self.runs_on
        return self.state.made.of(lambda: vjp_running_on(trace, times), trace, kind=f"on {times}")

    def on_one_piece(self) -> TracedCase | None:
        """Return a twin whose kinked ops keep each element on its side, to be differenced.

        It has one more output; see `WideForward.on_one_piece`. It is `None` where there are no such ops, or
        where XLA compiles the case.
        """
        types = {op.type for op in self.forward.function.graph.get_operations()}
        if self.trace_mode.compiled or not types & PIECES.keys():
            return None
        twin = self if self.narrow is not None else self.in_float64()
        piece = replace(twin, is_on_one_piece=True, graphs=None)
        return piece if piece.wide_forward.trace.held.sides else None

    @cached_property
    def with_open_stops(self) -> TracedCase:
        """The same case, traced so that as many `stop_gradient`s as possible can be held."""
        if self.runs_on or not self.forward.held.can_be_opened:
            return self
        # Any key makes the trace open them: none is held yet.
        return replace(self, graphs=None, stops=frozenset([""]))

    def holding(self, stops: Collection[str]) -> TracedCase | None:
        """Return the same case with exactly these `stop_gradient`s held; `None` if it holds none anyway."""
        if not (stops or self.stops or self.holds_every_stop):
            return None
        if self.narrow is not None:
            narrow = self.narrow.holding(stops) or self.narrow
            return replace(self, narrow=narrow, graphs=None, stops=frozenset(stops))
        opened = self.with_open_stops
        return replace(opened, graphs=opened, anew=False, stops=frozenset(stops))

    # The point, and the inputs and outputs there.

    @property
    def declared(self) -> TracedCase:
        """The case in its declared dtypes: for a twin, the one whose graphs are widened."""
        return self if self.narrow is None else self.narrow

    @property
    def sample(self) -> int:
        """The index of the sample point."""
        return self.opening.sample

    @cached_property
    def at(self) -> SamplePoint:
        """The sample point in the dtypes that are traced."""
        if self.graphs is not None and self.graphs.sample == self.sample:
            return self.graphs.at
        return replace(super().at, has_wide_variables=self.narrow is not None, is_exact=self.is_exact)

    @property
    def output_names(self) -> list[str]:
        """The outputs' names."""
        if self.narrow is not None:
            return [*self.narrow.output_names, *(["sides changed"] if self.forward.held.sides else [])]
        return super().output_names

    @property
    def output_dtypes(self) -> Sequence[Any]:
        """The outputs' dtypes."""
        return self.forward.dtypes

    @property
    def gradient_variables(self) -> tuple[Any, ...]:
        """The variables for which a custom gradient of the forward has gradients."""
        return self.forward.gradient_variables

    @cached_property
    def base_values(self) -> list[Array]:
        """The outputs at the base point, from an unbatched call."""
        return [dtypes.widen(value) for value in self.base.outputs]

    @property
    def variables(self) -> Sequence[Any]:
        """The variables among the inputs; for a twin, the variables that replace them."""
        variables = self.state.variables
        return variables if self.narrow is None else [*map(self.state.wide_variables.of, variables)]

    def starts(self, input_index: int) -> list[Any]:
        """Return the graph's tensors that hold an input; for a variable, what is read from its handle."""
        trace = self.forward
        if input_index < self.at.count:
            return [trace.inputs[input_index]]
        handle = trace.handles[input_index - self.at.count]
        return [] if handle is None else graph_path.values_from(handle)

    # What in the forward keeps its value while the inputs move.

    @property
    def holds_every_stop(self) -> bool:
        """Whether the spec holds every `stop_gradient`. A reference does by default: its author means it.

        This holds for the gradient itself. For the gradient's own gradient, `checking.judging.stop_gradients`
        decides.
        """
        is_meant = self.case.judging.freeze is True
        if self.opening.is_reference and self.state.vjp is None:
            is_meant = self.case.judging.freeze is not False
        return self.stops is None and is_meant

    def holds(self, key: str) -> bool:
        """Whether a `stop_gradient` of this key is held."""
        return self.holds_every_stop or (self.stops is not None and key in self.stops)

    @cached_property
    def held_stops(self) -> tuple[Any, ...]:
        """The tensors of the `stop_gradient`s that are held, in the graph itself."""
        stops = self.forward.held.stops
        if self.holds_every_stop or not self.stops:
            return stops if self.holds_every_stop else ()
        origins = self.forward.held.stop_origins
        return tuple(tensor for tensor, stop in zip(stops, origins, strict=True) if self.holds(stop.key))

    @property
    def held_values(self) -> Iterable[tuple[Any, Array]]:
        """All tensors of the forward's graph that keep their base value, draws last, with these values."""
        return zip((*self.held_tensors, *self.forward.held.draws), self.base.values, strict=True)

    @property
    def held_tensors(self) -> tuple[Any, ...]:
        """All tensors of the forward's graph that keep their base value, except draws."""
        return (*self.held_stops, *self.forward.held.sides)

    # What another trace of the same case at the same point is made from.

    def subject(self, bound: Bound) -> TraceSubject:
        """Return a bound function for tracing, with only the shapes that the mode lets the trace know."""
        return TraceSubject(
            bound,
            self.trace_mode.signature(self.at.arguments),
            self.at.differentiable,
            self.state.variables,
            compiled=self.trace_mode.compiled,
            inlined=self.is_inlined,
        )

    def bound(self) -> Bound:
        """Bind forward and gradient, for a trace with a gradient."""
        shapes = [output.shape for output in self.outputs]
        return self.state.bind(
            self.binder(modified=self.modified, output_shapes=shapes, shape_of=self.trace_mode.shape)
        )

    def draws(self, held: Held) -> list[Array]:
        """Return the case's random draws at this point, to use in another trace.

        Raises:
            CaseFailedError: that trace has other draws.
        """
        _ = self.base  # makes the draws, if there are any
        drawn = self.state.draws[self._draws_key]
        if held.body_holds is not None:
            held.body_holds.use_draws(drawn.inner_values)
        return drawn.cast(held)

    @property
    def _draws_key(self) -> tuple[int, bool]:
        return self.sample, self.opening.is_reference

    # Traces, each made when it is first needed and then cached.

    @cached_property
    def forward(self) -> ForwardTrace:
        """The forward alone, traced."""
        if self.perturbs:
            return self.perturbed_forward.trace
        if self.runs_on and (trace_on := self.forward_running_on) is not None:
            return trace_on
        if self.narrow is not None:
            return self.wide_forward.trace
        if self.graphs is not None:
            trace = self.graphs.forward
            # Values that are held in bodies belong to one point.
            if trace.held.body_holds is None or self.graphs.sample == self.sample:
                return trace
        with self.state.seed_at_first_use():
            return self._trace_forward()

    def _trace_forward(self) -> ForwardTrace:
        plain = self._plain
        if plain is not None:
            self.modified, self._names = plain.modified, plain._names  # noqa: SLF001 (of its own class)
        binder = self.binder(modified=self.modified, names=self._names, shape_of=self.trace_mode.shape)
        bound = self.state.bind(binder, surrogate=self.opening.is_reference)
        # A separate trace at another point must make draws of its own.
        at = self.at if self.graphs is not None else replace(self.at, sample=0)
        stops = self.holds_every_stop or bool(self.stops)
        earlier = None if plain is None else plain.forward
        trace = trace_forward(self.subject(bound), stops=stops, seed=at.seed, plain=earlier)
        self.check_dtypes(trace.dtypes)
        return trace

    @property
    def _plain(self) -> TracedCase | None:
        """The same forward, as it was traced to find the variables that it uses; `None` if it wasn't."""
        plain = self.state.plain
        is_same = plain is not None and (plain.opening, plain.trace_mode) == (self.opening, self.trace_mode)
        return plain if is_same and self.state.vjp is None else None

    @cached_property
    def vjp_trace(self) -> VjpTrace:
        """Forward and vjp, traced."""
        if self.perturbs == "vjp":
            return self.perturbed_vjp.trace
        if self.runs_on and (trace_on := self.vjp_running_on) is not None:
            return trace_on
        if self.narrow is not None:
            return self.wide_vjp.trace
        if self.is_inlined:
            shapes = [output.shape for output in self.outputs]
            return self.state.made.of(self._trace_vjp, self.forward, kind=f"inlined {shapes}")
        earlier = (
            self.graphs.vjp_trace if self.graphs is not None and self._is_of_shapes(self.graphs) else None
        )
        if earlier is not None and (not self.anew or self._repeats(earlier)):
            return earlier
        trace = self._trace_vjp(("run" if self._runs_beside else "traced") if self.anew else "")
        if not self.opening.is_reference:
            for site, output, input_index in trace.sites:
                label = label_between(self.outputs[output], self.inputs[input_index])
                self.state.gradients.add(site, label)
        # Functions of an earlier trace are prepared.
        return earlier if earlier is not None and trace.computes_as(earlier) else trace

    def _trace_vjp(self, other_call: OtherCall = "") -> VjpTrace:
        shapes = [self.trace_mode.shape(output.shape) for output in self.outputs]
        subject = self.subject(self.bound())
        return trace_vjp(subject, shapes, self.forward, self.opening, other_call=other_call)

    def _repeats(self, earlier: VjpTrace) -> bool:
        """Whether another trace of the vjp must be the earlier one again, as one of the forward shows.

        What TensorFlow's own gradient of a single op returns depends on that op alone.
        """
        trace, names = self.forward, earlier.gradients_seen
        if not graph_path.is_plain(trace.function.graph) or not all(
            map(private_gradients.is_tensorflows, map(private_graphs.registered_gradient, names))
        ):
            return False
        again = trace_forward(self.subject(self.bound()), seed=replace(self.at, sample=0).seed)
        return graph_path.compute_alike(trace.outputs, again.outputs)

    @property
    def perturbed_vjp(self) -> Perturbed[VjpTrace]:
        """The form of the vjp of `graphs` that rounds at random: one for each trace, at all its points."""
        trace = (self.graphs or self).vjp_trace
        units = self.wide_vjp.twin.units if self.narrow is not None else {}
        return self.state.made.of(lambda: perturb_vjp(trace, units, self._kept, self.narrow_dtypes), trace)

    @property
    def perturbed_forward(self) -> Perturbed[ForwardTrace]:
        """The form of the forward of `graphs` that rounds at random: in a twin's constants, unless in all."""
        trace, is_whole = (self.graphs or self).forward, self.perturbs == "forward"
        units = self.wide_forward.twin.units if self.narrow is not None and not is_whole else {}
        if not (units or is_whole) or trace.held.body_holds is not None:
            return Perturbed(trace, (), 0)
        dtypes = NUMBERS if is_whole else ()
        return self.state.made.of(
            lambda: perturb_forward(trace, units, self._kept, dtypes), trace, kind=self.perturbs
        )

    @property
    def _kept(self) -> list[Any]:
        return [variable.handle for variable in self.variables]

    def place_of(self, name: str) -> str:
        """Return the user's line that an op of the vjp's graph comes from; empty if there is none."""
        graph = private_graphs.whole_graph(self.declared.vjp_trace.whole.function)
        op = private_graphs.op_named(graph, name)
        return "" if op is None else frames.place_in_users_code(op)

    @property
    def narrow_dtypes(self) -> tuple[str, ...]:
        """Dtypes below float64 between the differentiable inputs and the outputs."""
        if self.narrow is None:
            return self.forward.low_precision
        _ = self.base  # a call shows whether a NumPy function takes float64
        return tuple(sorted({dtype for op in self.wide_forward.narrow_ops for dtype in op.dtypes}))

    @property
    def _runs_beside(self) -> bool:
        """Whether the forward leaves something behind when it runs, and runs at another call's values too."""
        function = self.forward.function
        ops = function.graph.get_operations()
        # TensorFlow assumes of one kind of calls of Python that they have no state.
        calls_python = any(op.type == "PyFuncStateless" or private_state.calls_python(op) for op in ops)
        if not (calls_python or find_written(function)):
            return False
        with contextlib.suppress(tf.errors.OpError):
            call_once(self.forward.pruned(), [*map(dtypes.moved, self.at.tensors)])
            return True
        return False

    def _is_of_shapes(self, other_case: TracedCase) -> bool:
        """Whether another point's forward is the same trace, with outputs of the same shapes."""
        return self.forward is other_case.forward and [info.shape for info in self.outputs] == [
            info.shape for info in other_case.outputs
        ]

    @cached_property
    def wide_forward(self) -> WideForward:
        """For a twin: the forward of the declared dtypes, widened."""
        has_sides = self.is_on_one_piece
        widen = partial(widen_forward, has_sides=has_sides)
        return self._widen(widen, self.declared.forward, "piece" if has_sides else "twin")

    @cached_property
    def wide_vjp(self) -> WideVjp:
        """For a twin: the vjp of the declared dtypes, widened."""
        return self._widen(widen_vjp, self.declared.vjp_trace, "twin")

    def _widen(
        self, widen: Callable[[Any, WideVariables], Thing], trace: ForwardTrace | VjpTrace, kind: str
    ) -> Thing:
        """Return the twin of a trace: one for all points, unless values in bodies belong to this one."""
        variables = self.state.wide_variables
        if self.is_exact and trace.held.body_holds is not None:
            return widen(trace, variables)
        return self.state.made.of(lambda: widen(trace, variables), trace, kind=kind)

    @property
    def differenced(self) -> Any:
        """The forward as a function of the inputs and of what it holds."""
        return self.forward.pruned((*self.held_tensors, *self.forward.held.draws))

    # The run at the base point.

    @cached_property
    def base(self) -> Base:
        """The forward's results at the base point."""
        own, of = [(case.sample, case.stops, case.runs_on) for case in (self, self.graphs or self)]
        if self.graphs is not None and own == of:
            return self.graphs.base
        if self.narrow is not None:
            _ = self.narrow.base  # makes the draws, if there are any
        return self._run(self.held_tensors)

    def _run(self, fetched: Sequence[Any]) -> Base:
        """Run the forward at the base point, and fetch tensors of its graph beside the outputs.

        The case's earlier draws at this point are used; those of a first run are kept for later ones.

        Raises:
            CaseFailedError: the forward raises, or has other draws than in the trace before.
        """
        trace, state = self.forward, self.state
        held, earlier_draws = trace.held, state.draws.get(self._draws_key)
        drawn = [] if earlier_draws is None else earlier_draws.cast(held)
        fed = held.draws if earlier_draws is not None else ()
        function = trace.pruned(fed, [*fetched, *(() if earlier_draws is not None else held.draws)])
        draws = [tf.constant(value, tensor.dtype) for value, tensor in zip(drawn, fed, strict=True)]
        with naming_run_errors("forward"):
            values = self._call_at_base(function, draws)
        count = len(trace.outputs)
        outputs, rest = values[:count], [*values[count:], *drawn]
        if earlier_draws is None:
            body_holds = held.body_holds
            state.draws[self._draws_key] = Draws(
                tuple(tensor.op.type for tensor in held.draws),
                tuple(rest[len(fetched) :]),
                body_holds.draw_types() if body_holds else (),
                body_holds.draw_values() if body_holds else (),
            )
        return Base(tuple(outputs), tuple(rest))

    def _call_at_base(self, function: Any, draws: Sequence[Any]) -> list[Array]:
        """Call a part of the forward at the base point with earlier draws, if any; record what is held."""
        point, body_holds = self.at.tensors, self.forward.held.body_holds
        earlier_draws = self.state.draws.get(self._draws_key)
        if earlier_draws is None and (self.forward.held.draws or body_holds is not None):
            # Each point has its own draw, whichever point is opened first: any seed makes new kernels, whose
            # draws begin again.
            with private_state.restore_seed():
                tf.random.set_seed(self.at.seed)
            for _ in range(self.sample if self.forward.held.draws else 0):
                restoring_call(function)(point)
        if body_holds is None:
            run = GRAPH.compile(function, prepare=bool(self.state.is_prepared))
            if run is None:
                return call_once(function, [*point, *draws])
            return [value.numpy() for value in restoring_call(function, run)([*point, *draws])]
        if earlier_draws is not None:
            body_holds.use_draws(earlier_draws.inner_values)
        with body_holds.record_base():
            return [value.numpy() for value in restoring_call(function)([*point, *draws])]

    def values_at_point(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of tensors of the forward's graph at the base point, with its draws held."""
        _ = self.base  # makes the draws, if there are any
        return self._run(tensors).values[: len(tensors)] if tensors else ()


@dataclass(frozen=True)
class Draws:
    """The draws at one sample point, which all its traces share: their op types, and the values in order."""

    types: tuple[str, ...]
    values: tuple[Array, ...]
    inner_types: tuple[str, ...]
    inner_values: tuple[tuple[list[Array], ...], ...]  # per op, per call, its outputs

    def cast(self, held: Held) -> list[Array]:
        """Return the values for the draws of another trace, in its own dtypes.

        Raises:
            CaseFailedError: that trace has other draws.
        """
        inner = held.body_holds.draw_types() if held.body_holds else ()
        own = tuple(tensor.op.type for tensor in held.draws)
        pairs = list(zip(self.values, held.draws, strict=False))  # as many, if they are of the same types
        is_same = (self.types, self.inner_types) == (own, inner)
        if not (is_same and all(tensor.shape.is_compatible_with(value.shape) for value, tensor in pairs)):
            raise CaseFailedError(
                "forward",
                "the forward draws other random numbers each time it is traced (their number, kinds or "
                "shapes differ), so that no draw can be held; keep no state between calls.",
            )
        return [value.astype(tensor.dtype.as_numpy_dtype) for value, tensor in pairs]


@dataclass(frozen=True)
class Base:
    """A run at the base point: the outputs, and the values held from then on, stops before draws."""

    outputs: tuple[Array, ...]
    values: tuple[Array, ...]
