"""Runs a case's traces in batches: its forward at many points, its vjp for many upstreams."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics.precision import coarsest, precision_of
from gradcheck_cli.numerics.sampling import Moves
from gradcheck_cli.numerics.shared_limits import RUNS
from gradcheck_cli.tensorflow_backend import dtypes, graph_path
from gradcheck_cli.tensorflow_backend.dtypes import Array, Stack, value_of
from gradcheck_cli.tensorflow_backend.graph.traced_case import TracedCase
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.traces.state import (
    LARGE_POINT,
    Made,
    at_values,
    call_once,
    is_mappable,
    restoring_call,
)
from gradcheck_cli.tensorflow_backend.traces.trace_faults import (
    ShapeChangesError,
    naming_run_errors,
    require_shapes,
    run_error,
)
from gradcheck_cli.tensorflow_backend.traces.tracing import ForwardTrace, Pullback, VjpTrace
from gradcheck_cli.tensorflow_backend.twin.rounding_rules import round_as_drawn

# Bytes of stacked inputs or outputs in one call; larger batches are split. 64 MiB lets a laptop's memory hold
# a handful of copies, and is far more than is needed to make the cost of a call negligible.
BUDGET_BYTES = 64 * 2**20
# A function is prepared anew for each number of stacks, in a millisecond for every 50 ops. To repeat so many
# elements takes no longer.
CHEAPLY_REPEATED = 2**18
# Of so many points, some of which are refused, each is tried by itself: an exception costs more than a call.
_FEW = 16
# Numbers that are equal are so many roundings apart, at most, where it is seen what rounding does.
_STEPS_BESIDE = 8
# Allocators keep pieces of each size, and the code around a kernel takes some. With 8 pieces, a kernel that
# leaves 128 bytes unwritten got zeros each time; with 100, one time in two. (empirical)
_PIECES = 100
# Bytes that the pieces may take together: larger ones come from the system, and are zero anyway.
_MOST_BYTES = 2**26


@dataclass
class Batched:
    """A traced function, evaluated over a leading batch axis of some of its arguments.

    That is done by a loop inside of one op, or point by point.

    Attributes:
        function: takes the arguments' tensors, returns a list of tensors.
    """

    function: Any  # a concrete function
    arguments: Sequence[tuple[str, tuple[int, ...]]]  # (dtype name, shape) of each argument
    point: Sequence[Array]  # value of each argument where it isn't batched, in the dtype's own NumPy form
    # called before each call, so that calls are independent, as held values in bodies require (decision 9)
    rewind: Callable[[], None] | None = None
    # the function's compiled form, which takes the same tensors and is called instead
    compiled: Callable[..., Any] | None = None
    is_prepared: bool = False  # whether Grappler prepares each call, which it doesn't inside a loop
    unrestored: Collection[int] = ()  # ids of resource handles that are written and not restored
    _tensors: dict[int, Any] = field(default_factory=dict)

    def __call__(self, batch: Mapping[int, Stack], result_size: int) -> list[Array]:
        """Evaluate; `batch` maps argument indices to stacks of wide values; a row has `result_size`."""
        batched_indices = tuple(sorted(batch))
        stacks = [batch[index] for index in batched_indices]
        count, sizes = len(stacks[0]), [math.prod(self.arguments[index][1]) for index in batched_indices]
        # One op repeats the arguments before the last one that moves for each point.
        repeated = self.arguments[: batched_indices[-1]]
        widest = max([result_size, *sizes, *(math.prod(shape) for _, shape in repeated), 1])
        if self.is_mappable and count and 0 not in sizes and widest < LARGE_POINT:
            rows = max(1, BUDGET_BYTES // (16 * widest))
            blocks = [[stack[start : start + rows] for stack in stacks] for start in range(0, count, rows)]
            # A call may succeed: it prepares its graph first, which may give an op a form that has a kernel.
            # Then all blocks are called: a difference must not mix two ways.
            with contextlib.suppress(tf.errors.OpError):
                results = [self._map(batched_indices, block) for block in blocks]
                if len(results) == 1:  # no copy
                    return results[0]
                return [np.concatenate(column) for column in zip(*results, strict=True)]
        return self._run_one_by_one(batched_indices, stacks)

    def once(self, moved: Mapping[int, Stack] = {}) -> list[Array]:
        """Evaluate at the base point, unbatched; or at another, given as stacks of one."""
        if moved:
            return [stack[0] for stack in self(moved, 1)]
        constants = [self._base_argument(index) for index in range(len(self.arguments))]
        values = call_once(self.function, constants) if self.is_mappable else self._call(constants)
        return [*map(dtypes.widen, values)]

    def _call(self, arguments: Sequence[Any]) -> list[Any]:
        if self.rewind is not None:
            self.rewind()
        return list(tf.nest.flatten(self._caller(arguments)))

    @cached_property
    def _caller(self) -> Callable[[Sequence[Any]], Any]:
        return restoring_call(self.function, self.compiled, self.unrestored)

    @cached_property
    def is_mappable(self) -> bool:
        """Whether one op may call the function in a loop; compiled functions are called directly.

        Calls are made one by one where held values are rewound, or variables restored, first.
        """
        is_bound = self.compiled is not None or self.rewind is not None or self.is_prepared
        return not is_bound and is_mappable(self.function)

    def _run_one_by_one(self, batched_indices: tuple[int, ...], stacks: list[Stack]) -> list[Array]:
        arguments = [
            None if index in batched_indices else self._base_argument(index)
            for index in range(len(self.arguments))
        ]
        results: list[Array] = []
        count = len(stacks[0])
        for position in range(count):
            for index, stack in zip(batched_indices, stacks, strict=True):
                dtype, shape = self.arguments[index]
                arguments[index] = dtypes.constant(value_of(stack, position, shape), dtype)
            row = [dtypes.widen(value) for value in self._call(arguments)]
            if count == 1:  # large ones are evaluated one at a time: no copy
                return [value[np.newaxis] for value in row]
            if not results:
                results = [np.empty((count, *value.shape), value.dtype) for value in row]
            for result, value in zip(results, row, strict=True):
                if result.shape[1:] != value.shape:
                    raise ShapeChangesError
                result[position] = value
        return results or [
            np.empty((0, *(dimension or 0 for dimension in tensor.shape)), np.float64)
            for tensor in self.function.outputs
        ]

    def _map(self, batched_indices: tuple[int, ...], stacks: list[Stack]) -> list[Array]:
        """Evaluate by a loop inside one op, which takes the stacked arguments first."""
        count, end = len(stacks[0]), batched_indices[-1] + 1
        if count * sum(math.prod(shape) for _, shape in self.arguments[end:]) <= CHEAPLY_REPEATED:
            end = len(self.arguments)
        stack_of = dict(zip(batched_indices, stacks, strict=True))
        tensors = [
            self._stack(index, stack_of.get(index, np.broadcast_to(self.point[index], (count, *shape))))
            for index, (_, shape) in enumerate(self.arguments[:end])
        ]
        rest = [self._base_argument(index) for index in range(end, len(self.arguments))]
        return [dtypes.widen(value) for value in private_graphs.map_flat(self.function, tensors, rest)]

    def _stack(self, index: int, stack: Stack) -> Any:
        dtype, shape = self.arguments[index]
        values = stack.points().reshape(-1, *shape) if isinstance(stack, Moves) else stack
        return dtypes.constant(values, dtype)

    def _base_argument(self, index: int) -> Any:
        """Return an argument at the base point, made once: making a large one may cost more than a point."""
        if index not in self._tensors:
            self._tensors[index] = tf.constant(self.point[index], dtype=self.arguments[index][0])
        return self._tensors[index]


def refusal_of(error: tf.errors.OpError | ShapeChangesError) -> CaseFailedError:
    """Describe what a forward raised at a point that it refuses.

    Raises:
        CaseFailedError: the point isn't at fault.
    """
    failure = error if isinstance(error, ShapeChangesError) else run_error(error, "forward")
    if failure.kind != "forward" and not isinstance(failure, ShapeChangesError):
        raise failure from error
    return failure


def run_where_accepted(
    run: Callable[[dict[int, Stack]], list[Array]],
    batch: Mapping[int, Stack],
    refuse: Callable[[CaseFailedError], list[Array]],
) -> list[Array]:
    """Run a batch, without the points at which it raises.

    Args:
        run: runs a batch.
        batch: argument index -> stack of values.
        refuse: takes what a point raises, and returns the values there.

    Raises:
        CaseFailedError: it raises, and the point isn't at fault.
    """
    try:
        return run(dict(batch))
    except (tf.errors.OpError, ShapeChangesError) as error:
        values, count = refuse(refusal_of(error)), len(next(iter(batch.values())))
    if count == 1:
        return [value[np.newaxis] for value in values]
    size = -(-count // 2) if count > _FEW else 1
    parts = [
        run_where_accepted(
            run,
            {index: stack[start : start + size] for index, stack in batch.items()},
            refuse,
        )
        for start in range(0, count, size)
    ]
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def pull_in_spoilt_memory(
    pull: Callable[[Stack], Sequence[Array | None]],
    upstream: Stack,
    gradients: Iterable[TensorInfo],
    *,
    eagerly: bool = False,
) -> list[Array | None]:
    """Pull upstreams back one by one, with numbers in free memory before each.

    Otherwise a kernel that writes nothing may find zeros there by luck.
    """
    infos, rows = list(gradients), []
    if not len(upstream):
        return list(pull(upstream))
    for row in range(len(upstream)):
        for info in infos:
            spoil_memory(info, eagerly=eagerly)
        rows.append(pull(upstream[row : row + 1]))
    return [
        None if any(gradient is None for gradient in column) else np.concatenate(column)
        for column in zip(*rows, strict=True)
    ]


def spoil_memory(like: TensorInfo, *, eagerly: bool) -> None:
    """Fill some tensors of a tensor's shape and dtype with numbers, and free them.

    Args:
        eagerly: whether the next ops run in this thread, as eager ops do; a graph's ops run in others. A
            thread first reuses the memory that it freed itself.
    """
    if not like.size or like.size * tf.as_dtype(like.dtype).size * _PIECES > _MOST_BYTES:
        return
    if eagerly:
        pieces = [tf.ones(like.shape, like.dtype) for _ in range(_PIECES)]
        del pieces
    else:
        _filler(like.shape, like.dtype)(tf.cast(tf.range(1, 1 + _PIECES), like.dtype))


@functools.lru_cache(maxsize=64)
def _filler(shape: tuple[int, ...], dtype: str) -> Any:
    def fill(values: Any) -> Any:
        # Constant or equal values would become a single piece, made when the graph is prepared.
        size = tf.constant(shape, tf.int32)
        return tf.add_n([tf.raw_ops.Fill(dims=size, value=value) for value in tf.unstack(values)])

    return tf.compat.v1.wrap_function(fill, [tf.TensorSpec([_PIECES], dtype)])


def are_finite(values: Sequence[Array | None]) -> bool:
    """Whether all numbers of the arrays that exist are finite."""
    return all(value is None or bool(np.isfinite(value).all()) for value in values)


@dataclass
class GraphRuns:
    """Runs a traced case."""

    traced: TracedCase  # the case at one sample point
    wanted: Collection[int] | None = None  # the inputs that a vjp pulls back to; `None` for all
    _pullbacks: Made = field(default_factory=Made)  # what runs, by pullback

    # The forward.

    def evaluate(self, batch: Mapping[int, Stack]) -> list[Array]:
        """Evaluate the forward at several points; see `Operation`.

        If it refuses a point, its floating outputs are NaN there: it accepted the base point, so the point is
        at fault. An example is a Cholesky factor of a matrix that is no longer positive definite.
        """
        outputs = self.traced.outputs
        size = sum(output.size for output in outputs)
        argument_batch, moved = self.traced.at.split(batch)
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
        rows = []
        with at_values(self.traced.variables, moved) as sample_rows:
            for row in sample_rows:
                rest = {input_index: stack[row : row + 1] for input_index, stack in batch.items()}
                try:
                    values = self._forward.once(rest)
                    require_shapes((value.shape for value in values), outputs)
                    rows.append(values)
                except (tf.errors.OpError, ShapeChangesError) as error:
                    rows.append(refuse(refusal_of(error)))
        if not rows:
            return [np.empty((0, *output.shape)) for output in outputs]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    @cached_property
    def _forward(self) -> Batched:
        return self._batched(self.traced.differenced, self.traced.forward, self.traced.held_values)

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
        constants = [*read_values, *traced.held_values]
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

        def pull(stack: Stack) -> list[Array | None]:
            return self._pull(pullback, {output: stack})

        if pullback is None or self.traced.outputs[output].size:
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
        arguments, variables = self.traced.at.split(point)
        pullback = self.traced.vjp_trace.pullbacks.get(output)
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
        columns = (
            [gradient for gradient in each if gradient is not None] for each in zip(*rows, strict=True)
        )
        return [sum(gradients[1:], gradients[0]) if gradients else None for gradients in columns]

    def _pull(
        self, pullback: Pullback | None, upstreams: Mapping[int, Stack], point: Mapping[int, Stack] = {}
    ) -> list[Array | None]:
        """Pull upstreams back, by output, at the base point or with other arguments; missing ones are zero.

        Where no pullback exists, there is no gradient.

        Raises:
            CaseFailedError: the gradient raises.
        """
        infos, count = self.traced.inputs, len(next(iter(upstreams.values())))
        pullback = pullback and self._pullbacks.of(partial(pullback.to, self.wanted), pullback, self.wanted)
        if pullback is None:
            return [None] * len(infos)
        batch: dict[int, Stack] = {
            index: upstreams.get(output, np.zeros((count, *self.traced.outputs[output].shape)))
            for index, output in enumerate(pullback.outputs)
        }
        batch |= {len(pullback.outputs) + input_index: stack for input_index, stack in point.items()}
        batched = self._pullbacks.of(
            lambda: self.batched_gradient(pullback.function, pullback.outputs), pullback
        )
        size = sum(infos[input_index].size for input_index in pullback.inputs)
        with naming_run_errors("gradient"):
            gradients = batched(batch, size)
        by_input = dict(zip(pullback.inputs, gradients, strict=True))
        return [by_input.get(input_index) for input_index in range(len(infos))]

    def batched_gradient(self, function: Any, outputs: Sequence[int]) -> Batched:
        """Batch a function of the upstreams of some outputs, the inputs and the draws."""
        trace = self.traced.vjp_trace
        for resource in trace.unrestored:
            self.traced.state.written.record(resource)
        return self._batched(function, trace, self._draws_of(trace), outputs)

    def part(self, fetches: Sequence[Any], feeds: Sequence[tuple[Any, Array]] = ()) -> Batched:
        """Batch a part of the graph of the declared dtypes' vjp, or for a twin what replaces it there.

        Args:
            fetches: tensors of that graph.
            feeds: others, with their wide values, taken after the inputs, the draws and the upstreams,
                which are zero where they aren't given.
        """
        trace = self.traced.vjp_trace
        whole, own = trace.whole.function, tuple[Any, ...]
        if self.traced.narrow is not None:
            own = whole.tensors
        tensors = own(tensor for tensor, _ in feeds)
        values = [
            dtypes.narrow(value, tensor.dtype.name) for tensor, (_, value) in zip(tensors, feeds, strict=True)
        ]
        fed = [*trace.inputs, *trace.held.draws, *trace.whole.upstreams, *tensors]
        zeros = [
            dtypes.narrow(np.zeros(self.traced.outputs[output].shape), upstream.dtype.name)
            for output, upstream in zip(trace.whole.sources, trace.whole.upstreams, strict=True)
        ]
        constants = [
            *self._draws_of(trace),
            *zip((*trace.whole.upstreams, *tensors), (*zeros, *values), strict=True),
        ]
        return self._batched(private_graphs.subgraph_function(whole, fed, own(fetches)), trace, constants)

    def _draws_of(self, trace: VjpTrace) -> Iterable[tuple[Any, Array]]:
        return zip(trace.held.draws, self.traced.draws(trace.held), strict=True)

    # How its outputs are rounded.

    def rounded_sizes(self, input_index: int) -> list[Array]:
        """Return the size that each output's rounding is relative to at the base point, at least its own.

        The forward runs again, and what moves with the input rounds up or down at random: the rest is rounded
        alike in every evaluation, so that it cancels in differences.
        """
        traced = self.traced
        sizes = dtypes.magnitudes(traced.base_values)
        if self._perturbed is None:
            return sizes
        batched, places_of = self._perturbed
        moves = places_of({op.name for op in graph_path.ops_after(traced.starts(input_index))})
        beside = {input_index: self._beside(input_index)} if input_index < traced.at.count else {}
        runs = []
        with contextlib.suppress(tf.errors.OpError):  # a kernel may refuse what isn't quite symmetric
            for draw in range(1 + RUNS):
                round_as_drawn(draw, moves)
                runs.append(batched.once(beside))
        for index, info in enumerate(traced.outputs):
            changes = [np.abs(run[index] - runs[0][index]) for run in runs[1:] if info.is_differentiable]
            if changes and changes[0].shape == sizes[index].shape:
                unit = coarsest(*map(precision_of, (info.dtype, *traced.narrow_dtypes))).unit_roundoff
                sizes[index] = np.fmax(sizes[index], np.fmax.reduce(changes) / unit)
        return sizes

    def _beside(self, input_index: int) -> Array:
        """Return values of an input some roundings away, (1, *shape): equal ones would be rounded alike."""
        value = self.traced.at.point[input_index]
        unit = precision_of(self.traced.inputs[input_index].dtype).unit_roundoff
        steps = np.random.default_rng(0).integers(
            -_STEPS_BESIDE, _STEPS_BESIDE, np.shape(value), endpoint=True
        )
        return np.asarray(value * (1 + 2 * unit * steps))[np.newaxis]

    @cached_property
    def _perturbed(self) -> tuple[Batched, Callable[[Collection[str]], npt.NDArray[np.bool_]]] | None:
        """The forward that rounds at random, and its places by the names of ops."""
        traced = self.traced.perturbed("forward")
        if traced is None:
            return None
        return GraphRuns(traced)._forward, traced.perturbed_forward.places_of  # noqa: SLF001 (of its own class)

    # The graph that computes the gradient.

    @property
    def values_beside_gradient(self) -> list[Array]:
        """The outputs at the base point, from the graph that also computes the gradient."""
        traced, trace = self.traced, self.traced.vjp_trace
        is_same = partial(trace.has_forward, traced.forward)
        if traced.state.made.of(is_same, trace, traced.forward, kind="has_forward"):
            return traced.base_values
        return self._batched(trace.forward, trace, self._draws_of(trace)).once()

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
        compile_once = partial(traced.trace_mode.compile, function, prepare=prepare)
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
            compiled=None if is_python else state.compiled.of(compile_once, function),
            is_prepared=prepare and not traced.trace_mode.compiled,
            unrestored=frozenset(id(resource.handle) for resource in unrestored),
        )
