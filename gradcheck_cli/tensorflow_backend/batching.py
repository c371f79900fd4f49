"""Evaluate a traced function at many points in one graph call: vectorized where TensorFlow can, else mapped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Bytes of stacked inputs or outputs in one call; larger batches are cut. 64 MiB keeps a chunk within
# the reach of a laptop's memory at a handful of copies, and is far above what amortises a call.
BUDGET_BYTES = 64 * 2**20
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
    """

    function: Callable[..., Any]
    arguments: Sequence[tuple[str, tuple[int, ...]]]
    point: Sequence[np.ndarray[Any, Any]]
    result_dtypes: Sequence[Any]
    vectorize: bool = True
    _traced: dict[tuple[tuple[int, ...], bool], Any] = field(default_factory=dict)
    _mapped_only: set[tuple[int, ...]] = field(default_factory=set)
    _trusted: set[tuple[int, ...]] = field(default_factory=set)

    def __call__(self, batch: Mapping[int, np.ndarray[Any, Any]], result_size: int) -> list[np.ndarray[Any, Any]]:
        """Evaluate; `batch` maps argument numbers to stacks of wide values, `result_size` counts elements a row."""
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
        if self.vectorize and which not in self._mapped_only:
            try:
                if which not in self._trusted:
                    self._compare(which, stacks)
                if which in self._trusted:
                    return self._run(which, stacks, vectorized=True)
            except (ValueError, NotImplementedError, TypeError, KeyError, tf.errors.OpError):
                # No converter (ValueError as it is traced; an OpError where one lets through what it
                # can't run). A forward that fails at these points fails mapped too, and says so there.
                pass
            self._mapped_only.add(which)
        return self._run(which, stacks, vectorized=False)

    def _compare(self, which: tuple[int, ...], stacks: list[np.ndarray[Any, Any]]) -> None:
        """Trust the vectorized form once a row of it agrees with the function itself."""
        first = [stack[:1] for stack in stacks]
        vectorized = self._run(which, first, vectorized=True)
        arguments = self._constants()
        for position, number in enumerate(which):
            arguments[number] = tf.constant(first[position][0], dtype=self.arguments[number][0])
        alone = self._flat(self.function(*arguments))
        if all(_agree(row[0], value) for row, value in zip(vectorized, alone, strict=True)):
            self._trusted.add(which)

    def _run(
        self, which: tuple[int, ...], stacks: list[np.ndarray[Any, Any]], *, vectorized: bool
    ) -> list[np.ndarray[Any, Any]]:
        key = (which, vectorized)
        if key not in self._traced:
            self._traced[key] = self._trace(which, vectorized=vectorized)
        tensors = [
            tf.constant(stack, dtype=self.arguments[number][0]) for number, stack in zip(which, stacks, strict=True)
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
            tf.constant(value, dtype=dtype) for value, (dtype, _) in zip(self.point, self.arguments, strict=True)
        ]

    @staticmethod
    def _flat(result: Any) -> list[Any]:
        return list(tf.nest.flatten(result))


def _agree(row: np.ndarray[Any, Any], value: Any) -> bool:
    alone = dtypes.widen(value.numpy())
    if row.shape != alone.shape:
        return False
    if not np.issubdtype(alone.dtype, np.inexact):
        return bool(np.array_equal(row, alone))
    finite = np.isfinite(alone)
    if not np.array_equal(finite, np.isfinite(row)):
        return False
    scale = float(np.max(np.abs(alone[finite]), initial=0.0))
    allowed = _AGREEMENT[value.dtype.real_dtype.name] * scale
    return bool(np.all(np.abs(row[finite] - alone[finite]) <= allowed))
