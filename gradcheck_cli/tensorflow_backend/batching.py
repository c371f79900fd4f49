"""Evaluate a traced function at many points at once: vectorized where TensorFlow can, else mapped."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHAPE_CHANGES = (
    "an output's shape changes as the inputs' values do (boolean_mask, unique and the like): there is no "
    "derivative across such a change; choose inputs away from it (away_from, domain), or check what comes "
    "before it."
)
# Bytes of stacked inputs or outputs in one call; larger batches are cut. 64 MiB keeps a chunk within
# the reach of a laptop's memory at a handful of copies, and is far above what amortises a call.
BUDGET_BYTES = 64 * 2**20
# Up to here the traced graph is called point by point: a call costs 0.1 to 0.9 ms, to trace a batch around
# it 20 to 60 ms (decision 0007).
_DIRECT_POINTS = 16
# From here on a vectorized graph is worth its conversion, about 1.5 ms for each op: it saves some 2 us for
# each op at each point over `map_fn`. A loop converts to many ops, each round of it.
_VECTORIZED_POINTS = 512
_VECTORIZED_POINTS_WITH_LOOPS = 20_000
_LOOPS = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})
# A vectorized value may differ from a mapped one in its last bits (Cholesky 4e-16, float32 batch-norm
# 5e-7, both relative to the largest value), but no more: beyond these the converter computes something else.
_AGREEMENT = {"float64": 1e-12, "float32": 5e-4, "float16": 0.05, "bfloat16": 0.25}


@dataclass
class Batched:
    """A traced function, evaluated over a leading batch axis of some of its arguments.

    Attributes:
        function: takes the arguments' tensors, returns a list of tensors.
        arguments: (dtype name, shape) of each argument.
        point: value of each argument where it isn't batched, in the dtype's own NumPy form.
        result_dtypes: dtype of each result.
        vectorize: whether `tf.vectorized_map` may be tried; not where a random op would draw anew.
        one_by_one: call it point by point however many there are, as stand-ins need (decision 0009).
    """

    function: Any  # a concrete function
    arguments: Sequence[tuple[str, tuple[int, ...]]]
    point: Sequence[np.ndarray[Any, Any]]
    result_dtypes: Sequence[Any]
    vectorize: bool = True
    one_by_one: bool = False
    _traced: dict[tuple[tuple[int, ...], bool], Any] = field(default_factory=dict)
    _unvectorized: set[tuple[int, ...]] = field(default_factory=set)
    _trusted: set[tuple[int, ...]] = field(default_factory=set)

    def __call__(
        self, batch: Mapping[int, np.ndarray[Any, Any]], result_size: int
    ) -> list[np.ndarray[Any, Any]]:
        """Evaluate; `batch` maps argument numbers to stacks of wide values, `result_size` is a row's."""
        which = tuple(sorted(batch))
        stacks = [dtypes.narrow(batch[number], self.arguments[number][0]) for number in which]
        count = len(stacks[0])
        widest = max([result_size, *[int(np.prod(stack.shape[1:])) for stack in stacks], 1])
        rows = max(1, BUDGET_BYTES // (16 * widest))
        parts = [
            self._evaluate(which, [stack[start : start + rows] for stack in stacks])
            for start in range(0, max(count, 1), rows)
        ]
        return [np.concatenate([part[number] for part in parts]) for number in range(len(parts[0]))]

    def once(self) -> list[np.ndarray[Any, Any]]:
        """Evaluate at the base point, unbatched."""
        return [dtypes.widen(value.numpy()) for value in self._flat(self.function(*self._constants()))]

    def _evaluate(
        self, which: tuple[int, ...], stacks: list[np.ndarray[Any, Any]]
    ) -> list[np.ndarray[Any, Any]]:
        points = len(stacks[0])
        if points and (self.one_by_one or points <= _DIRECT_POINTS):
            return self._one_by_one(which, stacks)
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

    def _compare(self, which: tuple[int, ...], stacks: list[np.ndarray[Any, Any]]) -> None:
        """Trust the vectorized form once a row of it agrees with the function itself."""
        first = [stack[:1] for stack in stacks]
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
        types = {op.type for op in self.function.graph.get_operations()}
        return _VECTORIZED_POINTS_WITH_LOOPS if types & _LOOPS else _VECTORIZED_POINTS

    def _one_by_one(
        self, which: tuple[int, ...], stacks: list[np.ndarray[Any, Any]]
    ) -> list[np.ndarray[Any, Any]]:
        arguments = self._constants()
        rows = []
        for row in zip(*stacks, strict=True):
            for number, value in zip(which, row, strict=True):
                arguments[number] = tf.constant(value, dtype=self.arguments[number][0])
            rows.append([dtypes.widen(value.numpy()) for value in self._flat(self.function(*arguments))])
        columns = list(zip(*rows, strict=True))
        for column in columns:
            if len({value.shape for value in column}) > 1:
                raise CaseFailedError("outputs", SHAPE_CHANGES)
        return [np.stack(column) for column in columns]

    def _run(
        self, which: tuple[int, ...], stacks: list[np.ndarray[Any, Any]], *, vectorized: bool
    ) -> list[np.ndarray[Any, Any]]:
        key = (which, vectorized)
        if key not in self._traced:
            self._traced[key] = self._trace(which, vectorized=vectorized)
        tensors = [
            tf.constant(stack, dtype=self.arguments[number][0])
            for number, stack in zip(which, stacks, strict=True)
        ]
        return [dtypes.widen(value.numpy()) for value in self._flat(self._traced[key](*tensors))]

    def _trace(self, which: tuple[int, ...], *, vectorized: bool) -> Any:
        def one(row: Sequence[Any]) -> list[Any]:
            arguments = self._constants()
            for position, number in enumerate(which):
                arguments[number] = row[position]
            return self._flat(self.function(*arguments))

        def many(*tensors: Any) -> Any:
            if vectorized:
                return tf.vectorized_map(one, list(tensors), fallback_to_while_loop=False)
            return tf.map_fn(one, list(tensors), fn_output_signature=list(self.result_dtypes))

        signature = [
            tf.TensorSpec([None, *self.arguments[number][1]], self.arguments[number][0]) for number in which
        ]
        return tf.compat.v1.wrap_function(many, signature)

    def _constants(self) -> list[Any]:
        return [
            tf.constant(value, dtype=dtype)
            for value, (dtype, _) in zip(self.point, self.arguments, strict=True)
        ]

    @staticmethod
    def _flat(result: Any) -> list[Any]:
        return list(tf.nest.flatten(result))


def _agree(row: np.ndarray[Any, Any], alone: np.ndarray[Any, Any], dtype: Any) -> bool:
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
