"""An op in graph mode, as the checks see it: `Operation` over two traces of one case at one sample point."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.binding import declared_outputs
from gradcheck_cli.tensorflow_backend.binding.variable_inputs import plain_name
from gradcheck_cli.tensorflow_backend.graph.sites import sites_of
from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.paths.graph_path import STOP
from gradcheck_cli.tensorflow_backend.spoiling import in_spoilt_memory
from gradcheck_cli.tensorflow_backend.stacks import part_of
from gradcheck_cli.tensorflow_backend.traces import frozen
from gradcheck_cli.tensorflow_backend.traces.frozen import Stop
from gradcheck_cli.tensorflow_backend.traces.state import at_values, written_before_read
from gradcheck_cli.tensorflow_backend.traces.trace_faults import SHAPE_CHANGES, run_error

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gradcheck_cli.checking.ops.unseen_sides import Site
    from gradcheck_cli.tensorflow_backend.graph.batching import Batched
    from gradcheck_cli.tensorflow_backend.stacks import Stack
    from gradcheck_cli.tensorflow_backend.twin.widening import Kept

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class UnheldStop:
    """Where a `stop_gradient` is, and whether it is one of the forward's, not of a gradient function."""

    place: str
    is_of_forward: bool


@dataclass
class GraphOperation(TracedCase):
    """One case in graph mode; its graphs are those of `TracedCase`.

    Attributes:
        no_twin: why there is no float64 twin to judge it by, once that was tried.
    """

    no_twin: str = ""

    def afresh(self) -> GraphOperation:
        """Return the op with its vjp to be traced again, but not the forward that is differenced."""
        return replace(self, with_joint=False, graphs=self, anew=True, _vjps={})

    def at_sample(self, sample: int) -> GraphOperation:
        """Return the op at another point, with the same graphs."""
        return replace(self, sample=sample, graphs=self, _vjps={})

    def in_float64(self) -> GraphOperation:
        """Return the op's float64 twin: of the same traces, at the same point."""
        return replace(self, narrow=self, graphs=None, anew=False, _vjps={})

    @property
    def random_types(self) -> tuple[str, ...]:
        """Stateful op types that make the forward draw anew at each call."""
        return self._forward.random_types

    @property
    def frozen(self) -> Mapping[str, int]:
        """How many ops are held at their base value, by type."""
        held = self._forward.held
        types = [op.type for op in dict.fromkeys(tensor.op for tensor in (*self.held_stops, *held.draws))]
        if held.stand_ins is not None:
            types += held.stand_ins.draw_types()
            types += [STOP for site in held.stand_ins.stops if self.holds(site.key)]
        return Counter(types)

    @property
    def held_places(self) -> tuple[str, ...]:
        """Where each `stop_gradient` is that is held."""
        if self.narrow is not None:
            return self._declared.held_places
        return tuple(
            dict.fromkeys(stop.place for stop in self._stops(self.held_stops) if self.holds(stop.key))
        )

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Names of ops with a `stop_gradient` inside that should be held, but can't be reached."""
        return tuple(op.name for op in self._forward.held.closed) if self.holds_every_stop else ()

    def _stops(self, tensors: Sequence[Any]) -> list[Stop]:
        """Describe tensors of `stop_gradient`s, and with them all those in bodies."""
        stand_ins = self._forward.held.stand_ins
        inner = [] if stand_ins is None else [site.op for site in stand_ins.stops]
        return [Stop.of(op) for op in (*(tensor.op for tensor in tensors), *inner)]

    @property
    def _declared(self) -> GraphOperation:
        """Of a twin, the op that it is the twin of."""
        return cast("GraphOperation", self.narrow)

    @cached_property
    def _holding(self) -> GraphOperation:
        """The same op, traced so that every `stop_gradient` that can be held can be."""
        if not self._forward.held.can_be_opened:
            return self
        # Any key will do to have it opened: none is held yet.
        return replace(self, graphs=None, stops=frozenset([""]), _vjps={}, _modified=[])

    def stops_between(self, output: int, number: int) -> dict[str, str]:
        """Return the `stop_gradient`s that can be held between an input and an output; see `Operation`."""
        if self.narrow is not None:  # whose ops know where they come from
            return self._declared.stops_between(output, number)
        op = self._holding
        trace, starts = op.forward, op.starts(number)
        between = set(graph_path.ops_between(starts, [trace.outputs[output]]))
        found = [tensor for tensor in frozen.stops_among(starts, trace.met) if tensor.op in between]
        return {stop.key: stop.place for stop in op._stops(found)}  # noqa: SLF001

    def closed(self, output: int, number: int) -> list[str]:
        """Return what between an input and an output has a `stop_gradient` inside that nothing can hold."""
        if self.narrow is not None:
            return self._declared.closed(output, number)
        op = self._holding
        trace = op.forward
        between = set(graph_path.ops_between(op.starts(number), [trace.outputs[output]]))
        return [one.name for one in trace.held.closed if one in between]

    def holding(self, stops: Collection[str]) -> GraphOperation:
        """Return the same op with these `stop_gradient`s held, and no others; see `Operation`."""
        if not (stops or self.stops or self.holds_every_stop):
            return self
        if self.narrow is not None:
            held = self._declared.holding(stops)
            return replace(self, narrow=held, graphs=None, stops=frozenset(stops), _vjps={}, _modified=[])
        op = self._holding
        return replace(op, graphs=op, anew=False, stops=frozenset(stops), _vjps={}, _modified=[])

    @property
    def trainable(self) -> tuple[Any, ...]:
        """The trainable variables that the forward uses, the oldest first."""
        return self._forward.trainable

    @property
    def written_before_read(self) -> set[int]:
        """The ids of the handles of variables that the forward reads after it has written to them."""
        return written_before_read(self._forward.function, self._forward.outputs)

    @property
    def gradient_variables(self) -> tuple[str, ...]:
        """Names of the variables that a custom gradient of the forward has gradients for."""
        return tuple(plain_name(variable) for variable in self.variables_of_gradients)

    @property
    def variables_of_gradients(self) -> tuple[Any, ...]:
        """The variables that a custom gradient of the forward has gradients for."""
        return self._forward.gradient_variables

    @property
    def quantisers(self) -> tuple[str, ...]:
        """Types of ops between inputs and outputs that round."""
        return self._forward.quantisers

    @property
    def low_precision(self) -> tuple[str, ...]:
        """Dtypes below float64 between the differentiable inputs and the outputs."""
        return self._forward.low_precision if self.narrow is None else _dtypes_of(self._kept)

    @property
    def vjp_low_precision(self) -> tuple[str, ...]:
        """Of a twin, dtypes below float64 in which its vjp computes all the same."""
        return () if self.narrow is None else _dtypes_of(self._wide_vjp.kept)

    @property
    def has_rounded_arrays(self) -> bool:
        """Whether weights or tables of constants were rounded to a dtype below float64, which it widens."""
        return self.narrow is not None and self._wide_forward.twin.has_rounded_arrays

    @property
    def not_float64(self) -> str:
        """Why it isn't float64 that it is judged in, in words; empty where it is."""
        if self.narrow is None:
            return self.no_twin
        kept = [*self._kept, *self._wide_vjp.kept]
        types = dict.fromkeys(one.op_type for one in kept)
        return f"there is no float64 form of {', '.join(types)}" if kept else ""

    @property
    def _kept(self) -> Sequence[Kept]:
        """Of a twin, the ops on the forward's way that keep their dtypes."""
        self._base  # noqa: B018 (what a NumPy function takes shows as it is called)
        return self._wide_forward.kept

    def exactly(self) -> GraphOperation | None:
        """Return a twin at the point before that was rounded; see `Operation`."""
        if self.narrow is None or self.is_exact:
            return None
        exact = replace(self, is_exact=True, _vjps={})
        same = all(np.array_equal(one, other) for one, other in zip(exact.point, self.point, strict=True))
        return None if same else exact

    @property
    def modified_inputs(self) -> tuple[str, ...]:
        """Names of inputs that a NumPy forward was seen to write to."""
        return tuple(self._modified)

    @property
    def dtype_faults(self) -> Mapping[int, str]:
        """Per input number, what is wrong with its gradient's dtype."""
        return self._vjp.dtype_faults

    @property
    def missed_by_override(self) -> tuple[str, ...]:
        """Names of the ops that an override was meant for, and didn't reach."""
        return self._vjp.missed

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
        own = {number: stack for number, stack in batch.items() if number < self.at.count}
        batched = self._batched_forward
        if moved:
            fed = self._fed(moved)
            if fed is None:
                return self._at_variables(own, moved)
            batched, values = fed
            own |= values
        try:
            return batched(own, size)
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

    def _fed(self, moved: Mapping[int, Stack]) -> tuple[Batched, dict[int, Stack]] | None:
        """Return what takes variables' values as arguments, and these; `None`: they must be written."""
        if self._fed_forward is None:
            return None
        batched, places = self._fed_forward
        values = {place: stack for number, stack in moved.items() for place in places[number]}
        return (batched, values) if values and batched.is_mappable else None

    def _at_variables(self, batch: Mapping[int, Stack], moved: Mapping[int, Stack]) -> list[Array]:
        """Evaluate at several points of the variables, one by one, and put these back."""
        size = sum(output.size for output in self.outputs)
        rows = []
        with at_values(self._variables, moved) as each:
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

    @property
    def _variables(self) -> Sequence[Any]:
        variables = self.state.variables
        return variables if self.narrow is None else [*map(self.state.twins.variables.of, variables)]

    def sites(self, pairs: Sequence[tuple[int, int]]) -> list[Site]:
        """Return where the gradients of some pairs could be wrong unseen; see `Operation`."""
        return sites_of(self, pairs)

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
            graph_path.leads_to(
                start, trace.outputs[output], self.held_stops, stops=not self.holds_every_stop
            )
            for start in self.starts(number)
        )

    def unheld_stops(self, output: int, number: int) -> list[UnheldStop]:
        """Return the `stop_gradient`s between this input and this output that aren't held.

        Of a vjp: those in gradient functions, if there are any, since these alone would be enough.
        """
        trace, starts = self._forward, self.starts(number)
        held = {id(tensor) for tensor in self.held_stops}
        forwards = {id(tensor) for tensor in frozen.stops_among(starts, trace.met)}
        between = graph_path.ops_between(starts, [trace.outputs[output]])
        stops = [op.outputs[0] for op in between if op.type == STOP and id(op.outputs[0]) not in held]
        found = [UnheldStop(Stop.of(tensor.op).place, id(tensor) in forwards) for tensor in stops]
        return [stop for stop in found if not stop.is_of_forward] or found

    def starts(self, number: int) -> list[Any]:
        """Return the graph's tensors that hold an input; of a variable, what is read from its handle."""
        trace = self._forward
        if number < self.at.count:
            return [trace.inputs[number]]
        handle = trace.handles[number - self.at.count]
        return [] if handle is None else [made for op in handle.consumers() for made in op.outputs]

    def passes_numpy(self, output: int, number: int) -> bool:
        """Whether this input moves this output through NumPy functions alone, which have no gradient."""
        trace = self._forward
        return any(
            graph_path.passes_numpy(trace.function.graph, start, trace.outputs[output])
            for start in self.starts(number)
        )

    def vjp(self, output: int, upstream: Stack) -> list[Array | None]:
        """Pull upstreams of one output back to every input; see `Operation`."""
        result: list[Array | None] = [None] * len(self.inputs)
        connected = self._vjp.connected.get(output, ())
        if not connected:
            return result
        size = sum(self.inputs[number].size for number in connected)

        def pull(stack: Stack) -> list[Array]:
            return self._batched_vjp(output)({0: stack}, size)

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
        batch = {place: flows[output] for place, output in enumerate(trace.joint_outputs)}
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


def _dtypes_of(kept: Sequence[Kept]) -> tuple[str, ...]:
    return tuple(sorted({dtype for one in kept for dtype in one.dtypes}))
