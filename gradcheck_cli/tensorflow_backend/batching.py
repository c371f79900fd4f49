"""Evaluate a traced function at many points at once: called point by point, vectorized, or mapped."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics.moves import Moves
from gradcheck_cli.tensorflow_backend import dtypes, private
from gradcheck_cli.tensorflow_backend.stacks import part_of, value_of
from gradcheck_cli.tensorflow_backend.state import put_back, written

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.stacks import Stack

    Array = np.ndarray[Any, Any]

SHAPE_CHANGES = (
    "an output's shape changes as the inputs' values do (boolean_mask, unique and the like): there is no "
    "derivative across such a change; choose inputs away from it (away_from, domain), or check what comes "
    "before it."
)
# Bytes of stacked inputs or outputs in one call; larger batches are cut. 64 MiB keeps a chunk within
# the reach of a laptop's memory at a handful of copies, and is far above what amortises a call.
BUDGET_BYTES = 64 * 2**20
# Up to here the traced graph is called point by point: a call costs 0.13 ms (an LSTM step), to trace a
# batch around it 20 to 60 ms, after which a mapped point costs 0.03 ms (decision 0007).
_DIRECT_POINTS = 256
# From here on a vectorized graph is worth its conversion, about 1.5 ms for each op: it saves some 2 us for
# each op at each point over `map_fn`. A loop converts to many ops, each round of it.
_VECTORIZED_POINTS = 257
_VECTORIZED_POINTS_WITH_LOOPS = 20_000
_LOOPS = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})
# A point of this many elements costs far more than its call: nothing is gained by batching it.
_LARGE_POINT = 2**17
# Inside a loop these give sequences of another length in some rounds, two for three. (TensorFlow 2.21)
_UNMAPPED = frozenset({"FractionalAvgPool", "FractionalMaxPool"})
# A vectorized value may differ from a mapped one in its last bits (Cholesky 4e-16, float32 batch-norm
# 5e-7, both relative to the largest value), but no more: beyond these the converter computes something else.
_AGREEMENT = {"float64": 1e-12, "float32": 5e-4, "float16": 0.05, "bfloat16": 0.25}

_Key = tuple[tuple[int, ...], tuple[int, ...], bool]  # arguments, which of them are moves, vectorized


@dataclass
class Batched:
    """A traced function, evaluated over a leading batch axis of some of its arguments.

    Attributes:
        function: takes the arguments' tensors, returns a list of tensors.
        arguments: (dtype name, shape) of each argument.
        point: value of each argument where it isn't batched, in the dtype's own NumPy form.
        result_dtypes: dtype of each result.
        vectorize: whether `tf.vectorized_map` may be tried; not where a random op would draw anew.
        rewind: called before each call, which then stands alone, as stand-ins need (decision 0009).
        made: what is called in place of the function: its compiled form, which takes the same tensors.
        left: ids of the handles of what the function writes to and isn't put back after each call.
    """

    function: Any  # a concrete function
    arguments: Sequence[tuple[str, tuple[int, ...]]]
    point: Sequence[Array]
    result_dtypes: Sequence[Any]
    vectorize: bool = True
    rewind: Callable[[], None] | None = None
    made: Callable[..., Any] | None = None
    left: Collection[int] = ()
    _traced: dict[_Key, Any] = field(default_factory=dict)
    _unvectorized: set[tuple[int, ...]] = field(default_factory=set)
    _trusted: set[tuple[int, ...]] = field(default_factory=set)
    _tensors: dict[int, Any] = field(default_factory=dict)

    def __call__(self, batch: Mapping[int, Stack], result_size: int) -> list[Array]:
        """Evaluate; `batch` maps argument numbers to stacks of wide values, `result_size` is a row's."""
        which = tuple(sorted(batch))
        stacks = [batch[number] for number in which]
        count = len(stacks[0])
        sizes = [math.prod(self.arguments[number][1]) for number in which]
        widest = max([result_size, *sizes, 1])
        if count <= _DIRECT_POINTS or widest >= _LARGE_POINT or self._stands_alone:
            return self._one_by_one(which, stacks)
        rows = max(1, BUDGET_BYTES // (16 * widest))
        parts = [
            self._evaluate(which, [part_of(stack, slice(start, start + rows)) for stack in stacks])
            for start in range(0, count, rows)
        ]
        return [np.concatenate([part[number] for part in parts]) for number in range(len(parts[0]))]

    def once(self) -> list[Array]:
        """Evaluate at the base point, unbatched."""
        return [dtypes.widen(value.numpy()) for value in self._call(self._constants())]

    def _call(self, arguments: Sequence[Any]) -> list[Any]:
        if self.rewind is not None:
            self.rewind()
        return list(tf.nest.flatten(self._caller(arguments)))

    @cached_property
    def _caller(self) -> Callable[[Sequence[Any]], Any]:
        return put_back(self.function, self.made, self.left)

    @cached_property
    def _stands_alone(self) -> bool:
        """Whether a call relies on what was done before it: stand-ins rewound, variables put back."""
        return self.rewind is not None or bool(written(self.function)) or bool(self._types & _UNMAPPED)

    @cached_property
    def _types(self) -> set[str]:
        return {op.type for op in self.function.graph.get_operations()}

    def _evaluate(self, which: tuple[int, ...], stacks: list[Stack]) -> list[Array]:
        if len(stacks[0]) >= self._worth_vectorizing and which not in self._unvectorized:
            try:
                if which not in self._trusted:
                    self._compare(which, stacks)
                if which in self._trusted:
                    return self._run(which, stacks, vectorized=True)
            except (ValueError, NotImplementedError, TypeError, KeyError, tf.errors.OpError):
                # No converter (ValueError as it is traced; an OpError where one lets through what it
                # can't run). A forward that fails at these points fails mapped too, and says so there.
                pass
            self._unvectorized.add(which)
        return self._run(which, stacks, vectorized=False)

    def _compare(self, which: tuple[int, ...], stacks: list[Stack]) -> None:
        """Trust the vectorized form once a row of it agrees with the function itself."""
        first = [part_of(stack, slice(1)) for stack in stacks]
        vectorized, alone = self._run(which, first, vectorized=True), self._one_by_one(which, first)
        if all(
            _agree(row, value, tf.as_dtype(dtype))
            for row, value, dtype in zip(vectorized, alone, self.result_dtypes, strict=True)
        ):
            self._trusted.add(which)

    @cached_property
    def _worth_vectorizing(self) -> float:
        if not self.vectorize:
            return math.inf
        return _VECTORIZED_POINTS_WITH_LOOPS if self._types & _LOOPS else _VECTORIZED_POINTS

    def _one_by_one(self, which: tuple[int, ...], stacks: list[Stack]) -> list[Array]:
        arguments = [None if number in which else self._kept(number) for number in range(len(self.arguments))]
        results: list[Array] = []
        count = len(stacks[0])
        for position in range(count):
            for number, stack in zip(which, stacks, strict=True):
                dtype, shape = self.arguments[number]
                value = dtypes.narrow(value_of(stack, position, shape), dtype)
                arguments[number] = tf.constant(value, dtype=dtype)
            row = [dtypes.widen(value.numpy()) for value in self._call(arguments)]
            if count == 1:  # large ones are evaluated one at a time: no copy
                return [value[np.newaxis] for value in row]
            if not results:
                results = [np.empty((count, *value.shape), value.dtype) for value in row]
            for result, value in zip(results, row, strict=True):
                if result.shape[1:] != value.shape:
                    raise CaseFailedError("outputs", SHAPE_CHANGES)
                result[position] = value
        return results or [
            np.empty((0, *(dimension or 0 for dimension in tensor.shape)), np.float64)
            for tensor in self.function.outputs
        ]

    def _run(self, which: tuple[int, ...], stacks: list[Stack], *, vectorized: bool) -> list[Array]:
        moved = tuple(number for number, stack in zip(which, stacks, strict=True) if isinstance(stack, Moves))
        key = (which, moved, vectorized)
        if key not in self._traced:
            self._traced[key] = self._trace(which, moved, vectorized=vectorized)
        tensors: list[Any] = []
        for number, stack in zip(which, stacks, strict=True):
            dtype = self.arguments[number][0]
            if isinstance(stack, Moves):
                base, targets = dtypes.narrow(stack.base, dtype), dtypes.narrow(stack.targets, dtype)
                tensors += [
                    tf.constant(base, dtype),
                    tf.constant(targets, dtype),
                    *map(tf.constant, (stack.slot, stack.slots, stack.rows)),
                ]
            else:
                tensors.append(tf.constant(dtypes.narrow(stack, dtype), dtype))
        values = private.call_flat(self._traced[key], tensors)
        return [dtypes.widen(value.numpy()) for value in tf.nest.flatten(values)]

    def _trace(self, which: tuple[int, ...], moved: tuple[int, ...], *, vectorized: bool) -> Any:
        def one(row: Sequence[Any]) -> list[Any]:
            arguments = self._constants()
            for position, number in enumerate(which):
                arguments[number] = row[position]
            return self._call(arguments)

        def many(*tensors: Any) -> Any:
            left = list(tensors)
            stacks = []
            for number in which:
                if number in moved:
                    stacks.append(_written_out(left[:5], self.arguments[number][1]))
                    del left[:5]
                else:
                    stacks.append(left.pop(0))
            if vectorized:
                return tf.vectorized_map(one, stacks, fallback_to_while_loop=False)
            return tf.map_fn(one, stacks, fn_output_signature=list(self.result_dtypes))

        signature: list[Any] = []
        for number in which:
            dtype, shape = self.arguments[number]
            if number in moved:
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
        return tf.compat.v1.wrap_function(many, signature)

    def _kept(self, number: int) -> Any:
        """Return an argument at the base point, made once: it may be large, and a point is soon evaluated."""
        if number not in self._tensors:
            self._tensors[number] = tf.constant(self.point[number], dtype=self.arguments[number][0])
        return self._tensors[number]

    def _constants(self) -> list[Any]:
        return [
            tf.constant(value, dtype=dtype)
            for value, (dtype, _) in zip(self.point, self.arguments, strict=True)
        ]


def _written_out(moves: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Write the points of moves out, inside the graph; see `Moves.points`."""
    base, targets, slot, slots, rows = moves
    # Slot -1 never equals a coordinate's, but for those in no slot: these are given another number.
    own = tf.where(slot < 0, -2, slot)
    points = tf.where(own[None, :] == slots[:, None], tf.gather(targets, rows), base[None, :])
    return tf.reshape(points, [-1, *shape])


def _agree(row: Array, alone: Array, dtype: Any) -> bool:
    if row.shape != alone.shape:
        return False
    if not dtypes.is_differentiable(dtype):
        return bool(np.array_equal(row, alone))
    finite = np.isfinite(alone)
    if not np.array_equal(finite, np.isfinite(row)):
        return False
    scale = float(np.max(np.abs(alone[finite]), initial=0.0))
    allowed = _AGREEMENT[dtype.real_dtype.name] * scale
    return bool(np.all(np.abs(row[finite] - alone[finite]) <= allowed))
