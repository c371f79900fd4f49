"""An op in graph mode, as the checks see it: what its graphs show, what runs, and its other forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np

from gradcheck_cli.checking.ops.operation import (
    Gradients,
    OpenedOperation,
    Opening,
    Operation,
    OpFacts,
    OpForms,
    Stack,
    TensorInfo,
)
from gradcheck_cli.tensorflow_backend import graph_path
from gradcheck_cli.tensorflow_backend.binding.flat_tensors import plain_name
from gradcheck_cli.tensorflow_backend.dtypes import Array, is_differentiable
from gradcheck_cli.tensorflow_backend.graph.graph_runs import GraphRuns
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState, OpenedCase, TracedCase
from gradcheck_cli.tensorflow_backend.op_types import STOP, STOPS
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs, private_state
from gradcheck_cli.tensorflow_backend.traces.frozen import Stop
from gradcheck_cli.tensorflow_backend.traces.state import (
    GRAPH,
    Resource,
    TraceMode,
    find_read,
    written_before_read,
)
from gradcheck_cli.tensorflow_backend.twin.rounding_rules import round_as_drawn


@dataclass(frozen=True)
class CaseFacts(OpFacts):
    """What is known of an opened case."""

    opened: OpenedCase = field(kw_only=True)

    @property
    def point(self) -> tuple[Array, ...]:
        """The base point, wide, with values that the declared dtypes can hold."""
        return self.opened.at.point

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Every input tensor, lists flattened."""
        return self.opened.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Every output, with its shape at the base point."""
        return self.opened.outputs

    @property
    def base_values(self) -> list[Array]:
        """The outputs at the base point, from an unbatched call."""
        return self.opened.base_values

    @property
    def refusal(self) -> str:
        """What the forward raised beside the point, in words."""
        return self.opened.state.refusal

    @property
    def gradient_variables(self) -> tuple[str, ...]:
        """Names of the variables for which a custom gradient of the forward has gradients."""
        return tuple(map(plain_name, self.opened.gradient_variables))


@dataclass(frozen=True)
class GraphFacts(CaseFacts):
    """What a case's graphs show."""

    traced: TracedCase = field(kw_only=True)
    _stops: dict[int, list[Any]] = field(default_factory=dict, init=False)  # by output

    @property
    def values_beside_gradient(self) -> list[Array]:
        """The outputs at the base point, from the graph that also computes the gradient."""
        return GraphRuns(self.traced).values_beside_gradient

    # What the forward's graph shows.

    @property
    def random_types(self) -> tuple[str, ...]:
        """Stateful op types that make the forward draw anew at each call."""
        return self.traced.forward.random_types

    @property
    def quantisers(self) -> tuple[str, ...]:
        """Types of ops between inputs and outputs that round."""
        return self.traced.forward.quantisers

    @property
    def modified_inputs(self) -> tuple[str, ...]:
        """Which NumPy code was seen to write to which of its arrays."""
        traced, modified = self.traced, {*self.traced.modified}
        if traced.case.mode == "eager":  # its gradient may not be traceable
            return tuple(modified)
        if any(map(private_state.calls_python, traced.vjp_trace.whole.function.graph.get_operations())):
            with private_graphs.around_python_calls(modified):
                for output, info in enumerate(traced.outputs):
                    GraphRuns(traced).vjp(output, np.ones((1, *info.shape)))
        return tuple(sorted(modified))

    def leads_to(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output through floating tensors, as far as the graph shows."""
        traced = self.traced
        moved = _moved_by(traced, input_index, traced.held_stops, stops=not traced.holds_every_stop)
        return id(traced.forward.outputs[output]) in moved

    def reaches(self, output: int, input_index: int) -> bool:
        """Whether anything in the graph leads from this input to this output."""
        traced = self.traced
        return any(
            graph_path.reaches(start, traced.forward.outputs[output]) for start in traced.starts(input_index)
        )

    def passes_numpy(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output only through NumPy functions, which have no gradient."""
        trace = self.traced.forward
        return any(
            graph_path.passes_numpy(start, trace.outputs[output]) for start in self.traced.starts(input_index)
        )

    # What is held while the inputs move. Only ops of the declared dtypes' graph know where they come from.

    @property
    def frozen(self) -> Mapping[str, int]:
        """How many ops are held at their base value, by type."""
        traced, held = self.traced, self.traced.forward.held
        types = [op.type for op in dict.fromkeys(tensor.op for tensor in (*traced.held_stops, *held.draws))]
        if held.body_holds is not None:
            types += held.body_holds.draw_types()
            types += [STOP for site in held.body_holds.stops if traced.holds(site.key)]
        return Counter(types)

    @property
    def held_places(self) -> tuple[str, ...]:
        """The place of each `stop_gradient` that is held."""
        declared = self.traced.declared
        stops = [stop for stop in _describe_stops(declared, declared.held_stops) if declared.holds(stop.key)]
        return tuple(dict.fromkeys(stop.place for stop in stops))

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Names of ops with a `stop_gradient` inside that should be held, but can't be reached."""
        traced = self.traced
        return tuple(op.name for op in traced.forward.held.closed) if traced.holds_every_stop else ()

    @property
    def passed_over(self) -> tuple[str, ...]:
        """Places of `stop_gradient`s that should be held, but that backpropagation never meets.

        They are inside a custom gradient's own forward: its gradient function takes the place of all of that.
        """
        if not self.traced.holds_every_stop:
            return ()
        declared = self.traced.declared
        trace = declared.forward
        indices = range(declared.at.count + len(trace.handles))
        starts = [tensor for index in indices for tensor in declared.starts(index)]
        starts = [tensor for tensor in starts if is_differentiable(tensor.dtype)]
        met = set(graph_path.ops_met(trace.backprop_starts))
        between = graph_path.ops_between(starts, trace.outputs)
        stops = [op for op in between if op.type in STOPS and op not in met]
        return tuple(dict.fromkeys(Stop.of(op).place for op in stops))

    def stops_between(self, output: int, input_index: int) -> dict[str, str]:
        """Return the `stop_gradient`s that can be held between an input and an output; see `OpFacts`.

        One that an input moves through integers alone (an argmax, an index) changes no derivative by it.
        """
        opened = self.traced.declared.with_open_stops
        stops = self._stops_before(opened, output)
        moved = _moved_by(opened, input_index) if stops else set()
        moving = [stop for tensor, stop in stops if id(tensor.op.inputs[0]) in moved]
        return {stop.key: stop.place for stop in (*moving, *_describe_stops(opened, ()))}

    def _stops_before(self, opened: TracedCase, output: int) -> list[tuple[Any, Stop]]:
        """Return the tensors of the `stop_gradient`s that backpropagation meets and an output depends on."""
        trace = opened.forward
        if output not in self._stops:
            met = [op for op in graph_path.ops_met(trace.backprop_starts) if op.type in STOPS]
            before = set(graph_path.ops_before([trace.outputs[output]]) if met else ())
            tensors = [op.outputs[0] for op in met if op in before]
            ordered = sorted(tensors, key=lambda tensor: str(tensor.name))
            self._stops[output] = [(tensor, Stop.of(tensor.op)) for tensor in ordered]
        return self._stops[output]

    def closed(self, output: int, input_index: int) -> list[str]:
        """Return the ops between an input and an output whose inner `stop_gradient` can't be held."""
        opened = self.traced.declared.with_open_stops
        trace = opened.forward
        between = set(graph_path.ops_between(opened.starts(input_index), [trace.outputs[output]]))
        return [op.name for op in trace.held.closed if op in between]

    # The precision in which it computes.

    @property
    def low_precision(self) -> tuple[str, ...]:
        """Dtypes below float64 between the differentiable inputs and the outputs."""
        return self.traced.narrow_dtypes

    def low_precision_between(self, output: int, input_index: int) -> list[str]:
        """Return the dtypes below float64 between an input and an output of the traced forward."""
        starts, end = self.traced.starts(input_index), self.traced.forward.outputs[output]
        return graph_path.dtypes_of(graph_path.ops_between(starts, [end]))

    @property
    def vjp_low_precision(self) -> tuple[str, ...]:
        """For a twin: dtypes below float64 in which its vjp still computes."""
        if self.traced.narrow is None:
            return ()
        return tuple(sorted({dtype for op in self.traced.wide_vjp.narrow_ops for dtype in op.dtypes}))

    @property
    def not_float64(self) -> str:
        """Why it isn't judged in float64, in words; empty where it is."""
        if self.traced.narrow is None:
            return self.traced.no_twin
        _ = self.traced.base  # a call shows whether a NumPy function takes float64
        narrow_ops = [*self.traced.wide_forward.narrow_ops, *self.traced.wide_vjp.narrow_ops]
        types = sorted({op.op_type for op in narrow_ops})
        return f"there is no float64 form of {', '.join(types)}" if types else ""

    # What the graph of the gradient shows.

    @property
    def dtype_faults(self) -> Mapping[int, str]:
        """What is wrong with the dtype of a gradient, by input index."""
        return self.traced.vjp_trace.dtype_faults

    @property
    def draws_anew(self) -> bool:
        """Whether a call of the gradient draws."""
        return self.traced.vjp_trace.draws_anew

    @property
    def own_draws(self) -> Sequence[str]:
        """Types of the gradient's ops that draw from a `tf.random.Generator`."""
        return self.traced.vjp_trace.own_draws

    @property
    def missed_by_override(self) -> tuple[str, ...]:
        """Names of the ops that an override was meant for but didn't reach."""
        return self.traced.vjp_trace.missed


def _moved_by(
    traced: TracedCase, input_index: int, held: Sequence[Any] = (), *, stops: bool = True
) -> set[int]:
    """Return the ids of what an input moves through floating tensors, found once for all points."""
    starts = traced.starts(input_index)
    moved = partial(graph_path.moved_by, starts, held, stops=stops)
    return traced.state.made.of(moved, *starts, *held, kind=f"moved {len(starts)} {stops}")


def _describe_stops(traced: TracedCase, tensors: Sequence[Any]) -> list[Stop]:
    """Describe tensors of `stop_gradient`s, and all those in bodies as well."""
    body_holds = traced.forward.held.body_holds
    inner = [] if body_holds is None else [site.op for site in body_holds.stops]
    return [Stop.of(op) for op in (*(tensor.op for tensor in tensors), *inner)]


def _is_connected(traced: TracedCase, output: int, input_index: int) -> bool:
    return input_index in traced.vjp_trace.connected(output)


def _library_gradients(traced: TracedCase, output: int, input_index: int) -> int:
    trace, case = traced.vjp_trace, traced.case
    hand_written = {(of_output, of_input) for _, of_output, of_input in trace.sites}
    is_own = case.code.gradient is not None or (output, input_index) in hand_written
    return 0 if is_own else sum(trace.gradients_seen.values())


@dataclass(frozen=True, kw_only=True)
class GraphOperation(OpenedOperation):
    """One case in graph mode."""

    traced: TracedCase
    runs: GraphRuns

    @staticmethod
    def of(traced: TracedCase, wanted: Collection[int] | None = None) -> GraphOperation:
        """Return a traced case as an op, whose vjp may pull back to some of its inputs alone."""
        runs, perturbed = GraphRuns(traced, wanted), cache(partial(_form, traced.perturbed))
        return GraphOperation(
            opening=traced.opening,
            traced=traced,
            runs=runs,
            facts=GraphFacts(
                partial(_is_connected, traced),
                partial(_library_gradients, traced),
                opened=traced,
                traced=traced,
            ),
            forms=OpForms(
                partial(_form, traced.holding),
                cache(partial(_form, traced.exactly)),
                partial(_rounded, perturbed),
                partial(_place_of_rounding, perturbed),
                partial(_form, traced.on_one_piece),
                partial(_running_on, traced),
                partial(GraphOperation.of, traced),
            ),
            evaluate=runs.evaluate,
            vjp=runs.vjp,
            joint_vjp=runs.joint_vjp,
            vjp_beside=runs.vjp_beside,
            rounded_sizes=cache(runs.rounded_sizes),
        )

    @staticmethod
    def open(state: CaseState, opening: Opening, mode: TraceMode = GRAPH) -> GraphOperation:
        """Open a form of a case with the graphs of the first sample point at which it was opened."""
        key = (mode, replace(opening, sample=0))
        if key in state.graphs:
            return GraphOperation.of(state.graphs[key].at_sample(opening.sample))
        state.graphs[key] = TracedCase(state, opening, trace_mode=mode)
        return GraphOperation.of(state.graphs[key])

    def retraced(self) -> GraphOperation:
        """Return the op with its vjp traced again, or itself where that computes the same, op by op.

        The forward that is differenced is kept.
        """
        retraced = self.traced.retraced()
        return self if retraced.vjp_trace is self.traced.vjp_trace else GraphOperation.of(retraced)

    def in_float64(self) -> GraphOperation:
        """Return the op's float64 twin, made from the same traces, at the same point."""
        return GraphOperation.of(self.traced.in_float64())

    @property
    def trainable(self) -> tuple[Any, ...]:
        """The trainable variables that the forward uses, the oldest first."""
        return self.traced.forward.trainable

    @property
    def weights(self) -> list[Resource]:
        """The variables that the forward reads and doesn't write to."""
        return find_read(self.traced.forward.function)

    @cached_property
    def written_before_read(self) -> set[int]:
        """The ids of the handles of variables that the forward reads after it has written to them."""
        return written_before_read(self.traced.forward.function, self.traced.forward.outputs)

    @property
    def gradients_seen(self) -> Mapping[str, int]:
        """How often each registered gradient function was called when the vjp was built."""
        return self.traced.vjp_trace.gradients_seen

    def gradients_seen_anew(self) -> Mapping[str, int]:
        """Return the same for a second vjp, built with functions that were differentiated before."""
        with private_gradients.differentiate_functions_anew():
            traced = self.traced
            opening = replace(traced.opening, dtype="declared")
            retraced = TracedCase(traced.state, opening, trace_mode=traced.trace_mode)
            return retraced.vjp_trace.gradients_seen


def _form(make: Callable[..., TracedCase | None], *arguments: Any) -> GraphOperation | None:
    """Return another form of a traced case as an op."""
    traced = make(*arguments)
    return None if traced is None else GraphOperation.of(traced)


def _running_on(traced: TracedCase, times: int) -> Operation | None:
    """Return a traced case with loops that run on; of its other forms, it has those that round."""
    op = _form(traced.running_on, times)
    return op and replace(op, forms=OpForms(rounded_otherwise=op.forms.rounded_otherwise))


def _rounded(
    perturbed: Callable[[], GraphOperation | None], draw: int, ops: range | None = None
) -> Operation | None:
    """Return a form of a traced case as it rounds in one draw; in all its ops, or in some of them."""
    op = perturbed()
    if op is None:
        return None
    rounded_vjp, forward = op.traced.perturbed_vjp, op.traced.perturbed_forward
    chosen = rounded_vjp.owners if ops is None else rounded_vjp.owners[ops.start : ops.stop]
    moves = rounded_vjp.places_of({name for _, name in chosen})

    def vjp(output: int, upstream: Stack) -> Gradients:
        round_as_drawn(draw, moves)
        return op.vjp(output, upstream)

    def evaluate(batch: Mapping[int, Stack]) -> list[Array]:
        round_as_drawn(draw, np.ones(forward.count, np.bool_))
        return op.evaluate(batch)

    return replace(op, evaluate=evaluate, vjp=vjp)


def _place_of_rounding(
    perturbed: Callable[[], GraphOperation | None], measure: Callable[[Callable[[int], Any]], float]
) -> str:
    """Return the line at which most of what rounding moves arises; see `OpForms`."""
    op = perturbed()
    if op is None:
        return ""
    owners = op.traced.perturbed_vjp.owners
    ops, whole, moved = range(len(owners)), measure(partial(_rounded, perturbed)), 0.0
    while len(ops) > 1:
        halves = ops[: len(ops) // 2], ops[len(ops) // 2 :]
        moved, ops = max(
            ((measure(partial(_rounded, perturbed, ops=half)), half) for half in halves), key=itemgetter(0)
        )
    return op.traced.place_of(owners[ops[0]][1]) if moved > whole / 4 else ""
