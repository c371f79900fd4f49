"""Evaluates a traced function at many points: by a loop inside of one op, vectorized, or one by one.

Point by point is also how gradients of empty outputs are pulled back, with numbers in free memory: otherwise
a kernel that writes nothing may find zeros there by luck.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.numerics.moves import Moves
from gradcheck_cli.tensorflow_backend import dtypes, work_counts
from gradcheck_cli.tensorflow_backend.dtypes import Array, Stack, take_points, value_of
from gradcheck_cli.tensorflow_backend.graph_path import LOOPS_AND_BRANCHES
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.traces.state import (
    LARGE_POINT,
    call_once,
    find_written,
    is_mappable,
    restoring_call,
)
from gradcheck_cli.tensorflow_backend.traces.trace_faults import ShapeChangesError

# Bytes of stacked inputs or outputs in one call; larger batches are split. 64 MiB lets a laptop's memory hold
# a handful of copies, and is far more than is needed to make the cost of a call negligible.
BUDGET_BYTES = 64 * 2**20
# A point costs 3 to 25 us in a loop inside of one op; such a loop costs 0.2 ms and needs no trace. Conversion
# to a vectorized graph takes 15 ms plus 1.5 ms for each op, and saves about 3 us plus 0.25 us for each op at
# each point. So it pays off from the same number of points on, however many ops there are. A loop in the
# graph converts to many ops in each round. (decision 31)
_VECTORIZED_POINTS = 5_000
_VECTORIZED_POINTS_WITH_LOOPS = 50_000
# A function that can't be mapped like this is called point by point up to here. A call costs 0.05 to 0.1 ms;
# tracing `map_fn` around it costs 20 to 60 ms, and then a point costs 0.03 ms.
_DIRECT_POINTS = 256
# Inside a loop, these return sequences of another length in some rounds, two for three. (TensorFlow 2.21)
_UNMAPPED = frozenset({"FractionalAvgPool", "FractionalMaxPool"})

# In float64 a vectorized value agrees to 1e-12: more closely than two traces must.
_ROUNDINGS = 2.0**13
# Of so many points, some of which are refused, each is tried by itself: an exception costs more than a call.
_FEW = 16

_Key = tuple[tuple[int, ...], tuple[int, ...], bool]  # arguments, which of them are moves, vectorized


@dataclass
class Batches:
    """The batched traces of one function; they serve every point.

    Attributes:
        unvectorized: arguments by which it can't be vectorized.
        trusted: the arguments by which its vectorized form was seen to agree with the function itself.
    """

    traced: dict[_Key, Any] = field(default_factory=dict)  # functions that take batches
    unvectorized: set[tuple[int, ...]] = field(default_factory=set)
    trusted: set[tuple[int, ...]] = field(default_factory=set)


@dataclass
class Batched:
    """A traced function, evaluated over a leading batch axis of some of its arguments.

    Attributes:
        function: takes the arguments' tensors, returns a list of tensors.
        vectorize: whether `tf.vectorized_map` may be tried; it may not where a random op would draw anew.
        rewind: called before each call, so that calls are independent, as held values in bodies require
            (decision 9).
        compiled: the function's compiled form, which takes the same tensors and is called instead.
    """

    function: Any  # a concrete function
    arguments: Sequence[tuple[str, tuple[int, ...]]]  # (dtype name, shape) of each argument
    point: Sequence[Array]  # value of each argument where it isn't batched, in the dtype's own NumPy form
    result_dtypes: Sequence[Any]  # dtype of each result
    vectorize: bool = True
    rewind: Callable[[], None] | None = None
    compiled: Callable[..., Any] | None = None
    is_prepared: bool = False  # whether Grappler prepares each call, which it doesn't inside a loop
    unrestored: Collection[int] = ()  # ids of resource handles that are written and not restored
    batches: Batches = field(default_factory=Batches)  # the batched traces of the function, at any point
    _tensors: dict[int, Any] = field(default_factory=dict)

    def __call__(self, batch: Mapping[int, Stack], result_size: int) -> list[Array]:
        """Evaluate; `batch` maps argument indices to stacks of wide values; a row has `result_size`."""
        batched_indices = tuple(sorted(batch))
        stacks = [batch[index] for index in batched_indices]
        count = len(stacks[0])
        sizes = [math.prod(self.arguments[index][1]) for index in batched_indices]
        sizes_before = [math.prod(shape) for _, shape in self.arguments[: batched_indices[-1]]]
        widest = max([result_size, *sizes, *(sizes_before if self.is_mappable else []), 1])
        if not count or 0 in sizes or widest >= LARGE_POINT or self._needs_single_calls:
            return self._run_one_by_one(batched_indices, stacks)
        rows = max(1, BUDGET_BYTES // (16 * widest))
        blocks = [
            [take_points(stack, slice(start, start + rows)) for stack in stacks]
            for start in range(0, count, rows)
        ]
        results = (
            self._try_vectorized(batched_indices, blocks) if count >= self._points_worth_vectorizing else None
        )
        results = self._try_one_op(batched_indices, blocks) if results is None else results
        if results is None and count <= _DIRECT_POINTS:
            return self._run_one_by_one(batched_indices, stacks)
        if results is None:  # all blocks are evaluated in the same way: a difference must not mix two
            results = [self._run(batched_indices, block, vectorized=False) for block in blocks]
        if len(results) == 1:
            return results[0]
        return [
            np.concatenate([block_result[index] for block_result in results])
            for index in range(len(results[0]))
        ]

    def once(self) -> list[Array]:
        """Evaluate at the base point, unbatched."""
        constants = self._constants()
        if self.is_mappable:
            return [dtypes.widen(value) for value in call_once(self.function, constants)]
        return [dtypes.widen(value.numpy()) for value in self._call(constants)]

    def _call(self, arguments: Sequence[Any]) -> list[Any]:
        if self.rewind is not None:
            self.rewind()
        return list(tf.nest.flatten(self._caller(arguments)))

    @cached_property
    def _caller(self) -> Callable[[Sequence[Any]], Any]:
        return restoring_call(self.function, self.compiled, self.unrestored)

    @cached_property
    def _needs_single_calls(self) -> bool:
        """Whether calls must be made one by one: held values are rewound, or variables restored, first."""
        is_bound = self.rewind is not None or self.is_prepared or bool(find_written(self.function))
        return is_bound or bool(self._types & _UNMAPPED)

    @cached_property
    def _types(self) -> set[str]:
        return {op.type for op in self.function.graph.get_operations()}

    @cached_property
    def is_mappable(self) -> bool:
        """Whether one op may call the function in a loop; compiled functions are called directly."""
        return self.compiled is None and not self._needs_single_calls and is_mappable(self.function)

    def _try_one_op(
        self, batched_indices: tuple[int, ...], blocks: list[list[Stack]]
    ) -> list[list[Array]] | None:
        """Evaluate in a loop inside of one op; `None` where that fails although a call may not.

        A call prepares its graph first, which may give an op another form that has a kernel.
        """
        if not self.is_mappable:
            return None
        try:
            return [self._map(batched_indices, block) for block in blocks]
        except tf.errors.OpError:
            return None

    def _try_vectorized(
        self, batched_indices: tuple[int, ...], blocks: list[list[Stack]]
    ) -> list[list[Array]] | None:
        """Evaluate in a vectorized graph; `None` where there is none that can be trusted."""
        if batched_indices in self.batches.unvectorized:
            return None
        try:
            if batched_indices not in self.batches.trusted:
                self._compare(batched_indices, blocks[0])
            if batched_indices in self.batches.trusted:
                return [self._run(batched_indices, block, vectorized=True) for block in blocks]
        except (ValueError, NotImplementedError, TypeError, KeyError, tf.errors.OpError):
            # There is no converter (a ValueError while it is traced; an OpError if a converter makes what it
            # can't run). A forward that fails at these points fails in a loop as well, with its own message.
            pass
        self.batches.unvectorized.add(batched_indices)
        return None

    def _compare(self, batched_indices: tuple[int, ...], stacks: list[Stack]) -> None:
        """Trust the vectorized form once a row of it agrees with the function itself."""
        first = [take_points(stack, slice(1)) for stack in stacks]
        vectorized, values = (
            self._run(batched_indices, first, vectorized=True),
            self._run_one_by_one(batched_indices, first),
        )
        if all(
            _agree(row, value, tf.as_dtype(dtype))
            for row, value, dtype in zip(vectorized, values, self.result_dtypes, strict=True)
        ):
            self.batches.trusted.add(batched_indices)

    @cached_property
    def _points_worth_vectorizing(self) -> float:
        if not self.vectorize:
            return math.inf
        return _VECTORIZED_POINTS_WITH_LOOPS if self._types & LOOPS_AND_BRANCHES else _VECTORIZED_POINTS

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
                value = dtypes.narrow(value_of(stack, position, shape), dtype)
                arguments[index] = tf.constant(value, dtype=dtype)
            row = [dtypes.widen(value.numpy()) for value in self._call(arguments)]
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
        count, stack_of = len(stacks[0]), dict(zip(batched_indices, stacks, strict=True))
        tensors = [
            self._stack(index, stack_of[index])
            if index in stack_of
            else tf.raw_ops.BroadcastTo(
                input=self._base_argument(index), shape=[count, *self.arguments[index][1]]
            )
            for index in range(batched_indices[-1] + 1)
        ]
        rest = [self._base_argument(index) for index in range(batched_indices[-1] + 1, len(self.arguments))]
        return [
            dtypes.widen(value.numpy()) for value in private_graphs.map_flat(self.function, tensors, rest)
        ]

    def _stack(self, index: int, stack: Stack) -> Any:
        dtype, shape = self.arguments[index]
        values = stack.points().reshape(-1, *shape) if isinstance(stack, Moves) else stack
        return tf.constant(dtypes.narrow(values, dtype), dtype)

    def _run(self, batched_indices: tuple[int, ...], stacks: list[Stack], *, vectorized: bool) -> list[Array]:
        moved = tuple(
            index for index, stack in zip(batched_indices, stacks, strict=True) if isinstance(stack, Moves)
        )
        key = (batched_indices, moved, vectorized)
        if key not in self.batches.traced:
            self.batches.traced[key] = self._trace(batched_indices, moved, vectorized=vectorized)
        tensors: list[Any] = []
        for index, stack in zip(batched_indices, stacks, strict=True):
            dtype = self.arguments[index][0]
            if isinstance(stack, Moves):
                base, targets = dtypes.narrow(stack.base, dtype), dtypes.narrow(stack.targets, dtype)
                tensors += [
                    tf.constant(base, dtype),
                    tf.constant(targets, dtype),
                    *map(tf.constant, (stack.slot, stack.slots, stack.rows)),
                ]
            else:
                tensors.append(tf.constant(dtypes.narrow(stack, dtype), dtype))
        tensors += [
            self._base_argument(index) for index in range(len(self.arguments)) if index not in batched_indices
        ]
        work_counts.add(points=len(stacks[0]) - 1)  # a call counts as one
        values = private_graphs.call_flat(self.batches.traced[key], tensors)
        return [dtypes.widen(value.numpy()) for value in tf.nest.flatten(values)]

    def _trace(self, batched_indices: tuple[int, ...], moved: tuple[int, ...], *, vectorized: bool) -> Any:
        fixed_indices = [index for index in range(len(self.arguments)) if index not in batched_indices]

        def call_rows(*tensors: Any) -> Any:
            remaining = list(tensors)
            stacks = []
            for index in batched_indices:
                if index in moved:
                    stacks.append(_write_out(remaining[:5], self.arguments[index][1]))
                    del remaining[:5]
                else:
                    stacks.append(remaining.pop(0))

            def call_row(row: Sequence[Any]) -> list[Any]:
                arguments = {
                    **dict(zip(batched_indices, row, strict=True)),
                    **dict(zip(fixed_indices, remaining, strict=True)),
                }
                return self._call([arguments[index] for index in range(len(self.arguments))])

            if vectorized:
                return tf.vectorized_map(call_row, stacks, fallback_to_while_loop=False)
            return tf.map_fn(call_row, stacks, fn_output_signature=list(self.result_dtypes))

        signature: list[Any] = []
        for index in batched_indices:
            dtype, shape = self.arguments[index]
            if index in moved:
                size = math.prod(shape)
                signature += [
                    tf.TensorSpec([size], dtype),
                    tf.TensorSpec([None, size], dtype),
                    tf.TensorSpec([size], tf.int32),
                    tf.TensorSpec([None], tf.int32),
                    tf.TensorSpec([None], tf.int32),
                ]
            else:
                signature.append(tf.TensorSpec([None, *shape], dtype))
        signature += [
            tf.TensorSpec(shape, dtype) for dtype, shape in map(self.arguments.__getitem__, fixed_indices)
        ]
        work_counts.add(batch_traces=1)
        return tf.compat.v1.wrap_function(call_rows, signature)

    def _base_argument(self, index: int) -> Any:
        """Return an argument at the base point, made once: making a large one may cost more than a point."""
        if index not in self._tensors:
            self._tensors[index] = tf.constant(self.point[index], dtype=self.arguments[index][0])
        return self._tensors[index]

    def _constants(self) -> list[Any]:
        return [
            tf.constant(value, dtype=dtype)
            for value, (dtype, _) in zip(self.point, self.arguments, strict=True)
        ]


def run_where_accepted(
    run: Callable[[dict[int, Stack]], list[Array]],
    batch: Mapping[int, Stack],
    refuse: Callable[[tf.errors.OpError | ShapeChangesError], list[Array]],
) -> list[Array]:
    """Run a batch, without the points at which it raises.

    Args:
        run: runs a batch.
        batch: argument index -> stack of values.
        refuse: returns the values at a point that raises; it raises if the point isn't at fault.
    """
    try:
        return run(dict(batch))
    except (tf.errors.OpError, ShapeChangesError) as error:
        values, count = refuse(error), len(next(iter(batch.values())))
    if count == 1:
        return [value[np.newaxis] for value in values]
    size = -(-count // 2) if count > _FEW else 1
    parts = [
        run_where_accepted(
            run,
            {index: take_points(stack, slice(start, start + size)) for index, stack in batch.items()},
            refuse,
        )
        for start in range(0, count, size)
    ]
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def _write_out(moves: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Write the points of moves out inside the graph; see `Moves.points`."""
    base, targets, slot, slots, rows = moves
    # Slot -1 equals the number of coordinates in no slot, so these get another number.
    slot_or_none = tf.where(slot < 0, -2, slot)
    points = tf.where(slot_or_none[None, :] == slots[:, None], tf.gather(targets, rows), base[None, :])
    return tf.reshape(points, [-1, *shape])


def _agree(row: Array, value: Array, dtype: Any) -> bool:
    """Whether a vectorized value is a mapped one but for rounding; else the converter computes another thing.

    The last bits differ: by 4e-16 in a Cholesky factor, by 5e-7 in a float32 batch normalisation, relative to
    the largest value.
    """
    if row.shape != value.shape:
        return False
    if not dtypes.is_differentiable(dtype):
        return bool(np.array_equal(row, value))
    finite = np.isfinite(value)
    if not np.array_equal(finite, np.isfinite(row)):
        return False
    scale = float(np.max(np.abs(value[finite]), initial=0.0))
    precision = precision_of(dtype.real_dtype.name)
    allowed = min(precision.agreement, _ROUNDINGS * precision.unit_roundoff) * scale
    return bool(np.all(np.abs(row[finite] - value[finite]) <= allowed))


# Allocators keep pieces of each size, and the code around a kernel takes some. With 8 pieces, a kernel that
# leaves 128 bytes unwritten got zeros each time; with 100, one time in two. (empirical)
_PIECES = 100
# Bytes that the pieces may take together: larger ones come from the system, and are zero anyway.
_MOST = 2**26


def pull_in_spoilt_memory(
    pull: Callable[[Stack], Sequence[Array | None]],
    upstream: Stack,
    gradients: Iterable[TensorInfo],
    *,
    eagerly: bool = False,
) -> list[Array | None]:
    """Pull upstreams back one by one, with numbers in free memory before each."""
    infos, rows = list(gradients), []
    if not len(upstream):
        return list(pull(upstream))
    for row in range(len(upstream)):
        for info in infos:
            spoil_memory(info, eagerly=eagerly)
        rows.append(pull(take_points(upstream, slice(row, row + 1))))
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
    if not like.size or like.size * tf.as_dtype(like.dtype).size * _PIECES > _MOST:
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
