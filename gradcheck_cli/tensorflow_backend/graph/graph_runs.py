"""Runs a case's traces in batches: its forward at many points, its vjp for many upstreams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes, graph_path
from gradcheck_cli.tensorflow_backend.dtypes import Array, Stack, take_points
from gradcheck_cli.tensorflow_backend.graph import terms
from gradcheck_cli.tensorflow_backend.graph.batching import (
    Batched,
    pull_in_spoilt_memory,
    refusal_of,
    run_where_accepted,
)
from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase
from gradcheck_cli.tensorflow_backend.private.private_graphs import subgraph_function
from gradcheck_cli.tensorflow_backend.traces.forward_trace import ForwardTrace
from gradcheck_cli.tensorflow_backend.traces.state import at_values
from gradcheck_cli.tensorflow_backend.traces.trace_faults import ShapeChangesError, require_shapes, run_error
from gradcheck_cli.tensorflow_backend.traces.vjp_trace import Pullback, VjpTrace


def are_finite(values: Sequence[Array | None]) -> bool:
    """Whether all numbers of the arrays that exist are finite."""
    return all(value is None or bool(np.isfinite(value).all()) for value in values)


def _sums(rows: Sequence[Sequence[Array | None]]) -> list[Array | None]:
    """Return the sum of the gradients of each input that exist; `None` where none does."""
    by_input = [
        [gradient for gradient in column if gradient is not None] for column in zip(*rows, strict=True)
    ]
    return [sum(gradients[1:], gradients[0]) if gradients else None for gradients in by_input]


@dataclass
class GraphRuns:
    """Runs a traced case."""

    traced: TracedCase  # the case at one sample point
    # by the outputs whose upstreams they take
    _pullbacks: dict[tuple[int, ...], Batched] = field(default_factory=dict)
    _beside: dict[tuple[int, ...], Batched] = field(default_factory=dict)

    # The forward.

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the forward at several points; see `Operation`.

        If it refuses a point, its floating outputs are NaN there: it accepted the base point, so the point is
        at fault. An example is a Cholesky factor of a matrix that is no longer positive definite.
        """
        count, outputs = self.traced.at.count, self.traced.outputs
        size = sum(output.size for output in outputs)
        moved = {input_index - count: batch[input_index] for input_index in batch if input_index >= count}
        argument_batch = {input_index: stack for input_index, stack in batch.items() if input_index < count}
        batched = self._forward
        if moved:
            fed = self._feed_variables(moved)
            if fed is None:
                return self._evaluate_at_variables(argument_batch, moved)
            batched, values = fed
            argument_batch |= values

        def run(part: dict[int, Stack]) -> list[Array]:
            values = batched(part, size)
            require_shapes((value.shape[1:] for value in values), outputs)
            return values

        return run_where_accepted(run, argument_batch, partial(self.traced.state.refuse, self.traced))

    def once(self) -> list[Array]:
        """Run the forward at the base point as for differences, and return its outputs."""
        return self._forward.once()

    def _feed_variables(self, moved: Mapping[int, Stack]) -> tuple[Batched, dict[int, Stack]] | None:
        """Return a function that also takes variables' values, and these values; `None` if there is none."""
        if self._fed_forward is None:
            return None
        batched, argument_indices = self._fed_forward
        values = {
            index: stack
            for variable_index, stack in moved.items()
            for index in argument_indices[variable_index]
        }
        return (batched, values) if values and batched.is_mappable else None

    def _evaluate_at_variables(self, batch: Mapping[int, Stack], moved: Mapping[int, Stack]) -> list[Array]:
        """Evaluate at several points of the variables, one by one, and restore the variables."""
        outputs, refuse = self.traced.outputs, partial(self.traced.state.refuse, self.traced)
        size = sum(output.size for output in outputs)
        rows = []
        with at_values(self.traced.variables, moved) as sample_rows:
            for row in sample_rows:
                rest = {
                    input_index: take_points(stack, slice(row, row + 1))
                    for input_index, stack in batch.items()
                }
                try:
                    values = (
                        [stack[0] for stack in self._forward(rest, size)] if rest else self._forward.once()
                    )
                    require_shapes((value.shape for value in values), outputs)
                    rows.append(values)
                except (tf.errors.OpError, ShapeChangesError) as error:
                    rows.append(refuse(refusal_of(error)))
        if not rows:
            return [np.empty((0, *output.shape)) for output in outputs]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    @cached_property
    def _forward(self) -> Batched:
        trace, traced = self.traced.forward, self.traced
        held = zip((*traced.held_tensors, *trace.held.draws), traced.base.values, strict=True)
        return self._batched(traced.differenced, trace, held)

    @cached_property
    def _fed_forward(self) -> tuple[Batched, list[list[int]]] | None:
        """The forward with its variables' values among the arguments, and the arguments' indices by variable.

        It is `None` if the forward does more with a variable than read it.
        """
        trace, traced = self.traced.forward, self.traced
        reads, count = trace.reads(), traced.at.count
        if reads is None:
            return None
        read_values = [
            (tensor, dtypes.narrow(value, tensor.dtype.name))
            for value, read_tensors in zip(traced.at.point[count:], reads, strict=True)
            for tensor in read_tensors
        ]
        held = zip((*traced.held_tensors, *trace.held.draws), traced.base.values, strict=True)
        constants = [*read_values, *held]
        function = trace.pruned([tensor for tensor, _ in constants])
        indices = iter(range(count, count + len(read_values)))
        return (
            self._batched(function, trace, constants),
            [[next(indices) for _ in read_tensors] for read_tensors in reads],
        )

    # The vjp.

    def vjp(self, output: int, upstream: Stack) -> list[Array | None]:
        """Pull upstreams of one output back to every input; see `Operation`."""
        pullback = self.traced.vjp_trace.pullbacks.get(output)
        if pullback is None:
            return [None] * len(self.traced.inputs)

        def pull(stack: Stack) -> list[Array | None]:
            return self._pull(pullback, {output: stack})

        if self.traced.outputs[output].size:
            return self._prepare_if_not_finite(partial(pull, upstream))
        connected = [self.traced.inputs[input_index] for input_index in pullback.inputs]
        return pull_in_spoilt_memory(pull, upstream, connected)

    def _prepare_if_not_finite(self, pull: Callable[[], list[Array | None]]) -> list[Array | None]:
        """Pull back; if that isn't finite, let Grappler prepare gradients, as those of a `tf.function`.

        u * 1e200 * 1e-200 may overflow; Grappler makes one product of it. That is tried once for a case.
        """
        gradients, state = pull(), self.traced.state
        if self.traced.trace_mode.compiled or state.is_vjp_prepared is not None or are_finite(gradients):
            return gradients
        for state.is_vjp_prepared in (True, False):
            state.compiled.clear()
            self._pullbacks.clear()
            gradients = pull()
            if are_finite(gradients):
                break
        return gradients

    def vjp_beside(self, output: int, upstream: Array, point: Mapping[int, Array]) -> list[Array | None]:
        """Pull one upstream of an output back at another point; see `Operation`."""
        count = self.traced.at.count
        variables = {index - count: stack for index, stack in point.items() if index >= count}
        arguments = {index: stack for index, stack in point.items() if index < count}
        pullback = self.traced.vjp_trace.pullbacks.get(output)
        if pullback is None:
            return [None] * len(self.traced.inputs)
        with at_values(self.traced.variables, variables) as rows:
            next(rows)
            return self._pull(pullback, {output: upstream}, arguments)

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> list[Array | None]:
        """Pull upstreams of all differentiable outputs back at once; see `Operation`."""
        joint = self.traced.vjp_trace.joint
        together = [] if joint is None else upstreams.keys() & set(joint.outputs)
        rows = [self.vjp(*flow) for flow in upstreams.items() if flow[0] not in together]
        if joint is not None and together:
            rows.append(self._pull(joint, upstreams))
        return _sums(rows)

    def _pull(
        self, pullback: Pullback, upstreams: Mapping[int, Stack], point: Mapping[int, Stack] = {}
    ) -> list[Array | None]:
        """Pull upstreams back, by output, at the base point or with other arguments; missing ones are zero.

        Raises:
            CaseFailedError: the gradient raises.
        """
        infos, count = self.traced.inputs, len(next(iter(upstreams.values())))
        if pullback.outputs not in self._pullbacks:
            self._pullbacks[pullback.outputs] = self._batched_gradient(pullback.function, pullback.outputs)
        batch: dict[int, Stack] = {
            index: upstreams.get(output, np.zeros((count, *self.traced.outputs[output].shape)))
            for index, output in enumerate(pullback.outputs)
        }
        batch |= {len(pullback.outputs) + input_index: stack for input_index, stack in point.items()}
        try:
            gradients = self._pullbacks[pullback.outputs](
                batch, sum(infos[input_index].size for input_index in pullback.inputs)
            )
        except tf.errors.OpError as error:
            raise run_error(error, "gradient") from error
        by_input = dict(zip(pullback.inputs, gradients, strict=True))
        return [by_input.get(input_index) for input_index in range(len(infos))]

    def _batched_gradient(self, function: Any, outputs: Sequence[int]) -> Batched:
        """Batch a function of the upstreams of some outputs, the inputs and the draws."""
        trace = self.traced.vjp_trace
        for resource in trace.unrestored:
            self.traced.state.written.record(resource)
        return self._batched(function, trace, self._draws_of(trace), outputs)

    def _draws_of(self, trace: VjpTrace) -> Iterable[tuple[Any, Array]]:
        return zip(trace.held.draws, self.traced.draws(trace.held), strict=True)

    # How its outputs are rounded.

    def rounded_sizes(self, input_index: int) -> list[Array]:
        """Return the size that each output's rounding is relative to at the base point; see `terms`."""
        starts, values = self.traced.starts(input_index), self._values_of_terms
        moving_ops = graph_path.ops_after(starts) | {start.op for start in starts}
        return [
            terms.rounded_size(output, values, moving_ops)
            if id(output) in values
            else dtypes.magnitude(value)
            for output, value in zip(self.traced.forward.outputs, self.traced.base_values, strict=True)
        ]

    @cached_property
    def _values_of_terms(self) -> dict[int, Array]:
        """The values of the outputs' terms at the base point, by id."""
        terms_by_output = [terms.terms_of(output) for output in self.traced.forward.outputs]
        tensors = list({id(term): term for output_terms in terms_by_output for term in output_terms}.values())
        values = self.traced.values_at_point(tensors)
        return {id(tensor): dtypes.widen(value) for tensor, value in zip(tensors, values, strict=True)}

    # The graph that computes the gradient.

    @property
    def values_beside_gradient(self) -> list[Array]:
        """The outputs at the base point, from the graph that also computes the gradient."""
        trace = self.traced.vjp_trace
        return self._batched(trace.forward, trace, self._draws_of(trace)).once()

    def beside_gradient(
        self,
        fetches: Sequence[Any],
        points: Mapping[int, Array],
        upstreams: Sequence[Array],
        copy: Any = None,
    ) -> list[Array]:
        """Return the values of tensors of the gradient's graph at some points.

        Args:
            fetches: the tensors.
            points: input index -> (B, *shape), without variables; other inputs stay at the base point, whose
                random draws are used at all points.
            upstreams: for each differentiable output, (B, *shape).
            copy: a copy of that graph (`SideGraph`) to call instead; its tensors may be fetched, too.

        Returns:
            The values of each tensor, with a leading axis over the points.

        Raises:
            CaseFailedError: the called code raises, or a tensor's shape isn't the same at all points.
        """
        key = tuple(map(id, fetches))
        if key not in self._beside:
            trace = self.traced.vjp_trace
            feeds, results = [*trace.upstreams, *trace.inputs, *trace.held.draws], list(fetches)
            if copy is not None:
                feeds, results = copy.tensors(feeds), copy.tensors(results)
            self._beside[key] = self._batched_gradient(
                subgraph_function(trace.whole if copy is None else copy, feeds, results),
                trace.sources,
            )
        first = len(upstreams)
        batch = {first + input_index: stack for input_index, stack in points.items()} | dict(
            enumerate(upstreams)
        )
        try:
            return self._beside[key](batch, 1)
        except tf.errors.OpError as error:
            raise run_error(error, "gradient") from error

    def _batched(
        self,
        function: Any,
        trace: ForwardTrace | VjpTrace,
        constants: Iterable[tuple[Any, Array]],
        outputs: Sequence[int] = (),
    ) -> Batched:
        """Batch a part of a traced graph as a function of upstreams, of the arguments and of constants.

        Args:
            constants: tensors, after the arguments, that have the same values at each point, with the values.
            outputs: for a part of the gradient, the outputs whose upstreams come before the arguments.
        """
        traced, state, body_holds = self.traced, self.traced.state, trace.held.body_holds
        # A stop in a body is held by Python code, which XLA doesn't compile: such a forward is differenced as
        # a graph. The gradient under test is compiled, or isn't checked.
        is_python = body_holds is not None and not body_holds.draw_types()
        infos, values = [traced.outputs[output] for output in outputs], list(constants)
        prepare = bool(state.is_prepared or (infos and state.is_vjp_prepared))
        # What a gradient writes lasts until the case ends.
        unrestored = trace.unrestored if outputs and isinstance(trace, VjpTrace) else ()
        return Batched(
            function,
            [
                *[(info.dtype, info.shape) for info in infos],
                *traced.at.arguments,
                *[(tensor.dtype.name, value.shape) for tensor, value in values],
            ],
            [
                *[np.zeros(info.shape, tf.as_dtype(info.dtype).as_numpy_dtype) for info in infos],
                *traced.at.narrow,
                *[value for _, value in values],
            ],
            rewind=None if body_holds is None else partial(body_holds.rewind, traced.holds),
            compiled=None if is_python else state.compiled_form(traced.trace_mode, function, prepare=prepare),
            is_prepared=prepare and not traced.trace_mode.compiled,
            unrestored=frozenset(id(resource.handle) for resource in unrestored),
            loops=state.loops_around(function),
        )
