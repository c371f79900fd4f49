"""Evaluates a traced function at many points: by a loop inside of one op, by one in a graph, or one by one.

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
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics.sampling import Moves
from gradcheck_cli.tensorflow_backend import dtypes, work_counts
from gradcheck_cli.tensorflow_backend.dtypes import Array, Stack, take_points, value_of
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.traces.state import (
    LARGE_POINT,
    call_once,
    find_written,
    is_mappable,
    restoring_call,
)
from gradcheck_cli.tensorflow_backend.traces.trace_faults import ShapeChangesError, run_error

# Bytes of stacked inputs or outputs in one call; larger batches are split. 64 MiB lets a laptop's memory hold
# a handful of copies, and is far more than is needed to make the cost of a call negligible.
BUDGET_BYTES = 64 * 2**20
# A function that can't be mapped inside of one op is called point by point up to here. A call costs 0.3 ms;
# tracing `map_fn` around it costs 20 to 60 ms, and then a point costs 0.05 ms. (decision 31)
_DIRECT_POINTS = 256
# Inside a loop, these return sequences of another length in some rounds, two for three. (TensorFlow 2.21)
_UNMAPPED = frozenset({"FractionalAvgPool", "FractionalMaxPool"})

# Of so many points, some of which are refused, each is tried by itself: an exception costs more than a call.
_FEW = 16
# Allocators keep pieces of each size, and the code around a kernel takes some. With 8 pieces, a kernel that
# leaves 128 bytes unwritten got zeros each time; with 100, one time in two. (empirical)
_PIECES = 100
# Bytes that the pieces may take together: larger ones come from the system, and are zero anyway.
_MOST_BYTES = 2**26


@dataclass
class Batched:
    """A traced function, evaluated over a leading batch axis of some of its arguments.

    Attributes:
        function: takes the arguments' tensors, returns a list of tensors.
        rewind: called before each call, so that calls are independent, as held values in bodies require
            (decision 9).
        compiled: the function's compiled form, which takes the same tensors and is called instead.
    """

    function: Any  # a concrete function
    arguments: Sequence[tuple[str, tuple[int, ...]]]  # (dtype name, shape) of each argument
    point: Sequence[Array]  # value of each argument where it isn't batched, in the dtype's own NumPy form
    rewind: Callable[[], None] | None = None
    compiled: Callable[..., Any] | None = None
    is_prepared: bool = False  # whether Grappler prepares each call, which it doesn't inside a loop
    unrestored: Collection[int] = ()  # ids of resource handles that are written and not restored
    # its loops in a graph, which serve every point, by the arguments that they take stacks of
    loops: dict[tuple[int, ...], Any] = field(default_factory=dict)
    _tensors: dict[int, Any] = field(default_factory=dict)

    def __call__(self, batch: Mapping[int, Stack], result_size: int) -> list[Array]:
        """Evaluate; `batch` maps argument indices to stacks of wide values; a row has `result_size`."""
        batched_indices = tuple(sorted(batch))
        stacks = [batch[index] for index in batched_indices]
        count, sizes = len(stacks[0]), [math.prod(self.arguments[index][1]) for index in batched_indices]
        # One op repeats the arguments before the last one that moves for each point.
        repeated = self.arguments[: batched_indices[-1]] if self.is_mappable else []
        widest = max([result_size, *sizes, *(math.prod(shape) for _, shape in repeated), 1])
        if not count or 0 in sizes or widest >= LARGE_POINT or self._needs_single_calls:
            return self._run_one_by_one(batched_indices, stacks)
        rows = max(1, BUDGET_BYTES // (16 * widest))
        blocks = [
            [take_points(stack, slice(start, start + rows)) for stack in stacks]
            for start in range(0, count, rows)
        ]
        results = self._try_one_op(batched_indices, blocks)
        if results is None and count <= _DIRECT_POINTS:
            return self._run_one_by_one(batched_indices, stacks)
        if results is None:  # all blocks are evaluated in the same way: a difference must not mix two
            results = [self._loop(batched_indices, block) for block in blocks]
        if len(results) == 1:  # no copy
            return results[0]
        return [np.concatenate(column) for column in zip(*results, strict=True)]

    def once(self) -> list[Array]:
        """Evaluate at the base point, unbatched."""
        constants = [self._base_argument(index) for index in range(len(self.arguments))]
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
        types = {op.type for op in self.function.graph.get_operations()}
        is_bound = self.rewind is not None or self.is_prepared or bool(find_written(self.function))
        return is_bound or bool(types & _UNMAPPED)

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

    def _loop(self, batched_indices: tuple[int, ...], stacks: list[Stack]) -> list[Array]:
        """Evaluate by a loop in a graph, which is traced the first time."""
        if batched_indices not in self.loops:
            self.loops[batched_indices] = self._trace(batched_indices)
        tensors = [self._stack(index, stack) for index, stack in zip(batched_indices, stacks, strict=True)]
        tensors += [
            self._base_argument(index) for index in range(len(self.arguments)) if index not in batched_indices
        ]
        work_counts.add(points=len(stacks[0]) - 1)  # a call counts as one
        values = private_graphs.call_flat(self.loops[batched_indices], tensors)
        return [dtypes.widen(value.numpy()) for value in tf.nest.flatten(values)]

    def _trace(self, batched_indices: tuple[int, ...]) -> Any:
        fixed_indices = [index for index in range(len(self.arguments)) if index not in batched_indices]
        count, result_dtypes = len(batched_indices), [tensor.dtype for tensor in self.function.outputs]

        def call_rows(*tensors: Any) -> Any:
            def call_row(row: Sequence[Any]) -> list[Any]:
                indices, values = (*batched_indices, *fixed_indices), (*row, *tensors[count:])
                arguments = dict(zip(indices, values, strict=True))
                return self._call([arguments[index] for index in range(len(arguments))])

            return tf.map_fn(call_row, list(tensors[:count]), fn_output_signature=result_dtypes)

        signature = [
            tf.TensorSpec([None, *shape], dtype)
            for dtype, shape in map(self.arguments.__getitem__, batched_indices)
        ]
        signature += [
            tf.TensorSpec(shape, dtype) for dtype, shape in map(self.arguments.__getitem__, fixed_indices)
        ]
        work_counts.add(batch_traces=1)
        return tf.compat.v1.wrap_function(call_rows, signature)

    def _stack(self, index: int, stack: Stack) -> Any:
        dtype, shape = self.arguments[index]
        values = stack.points().reshape(-1, *shape) if isinstance(stack, Moves) else stack
        return tf.constant(dtypes.narrow(values, dtype), dtype)

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
            {index: take_points(stack, slice(start, start + size)) for index, stack in batch.items()},
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
