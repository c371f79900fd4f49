"""Evaluates the function under test in batches, and never lets values of different calls be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gradcheck_cli.numerics.precision import Float, Precision

Evaluate = Callable[[Float], Float]

# A call's points and values stay below 64 MB each, so that a Jacobian of a few thousand squared fits a
# laptop.
MAX_FLOATS_PER_CALL = 64 * 2**20 // 8


@dataclass(frozen=True)
class Batch:
    """Values from one call: `base` (m,) and `values` (columns, points, m) may be differenced."""

    columns: slice
    base: Float
    values: Float


class Sampler:
    """A function around one base point; counts evaluations.

    A batched kernel's value at a point depends, in its last bits, on the batch it stands in. So every call
    carries the base point itself, and what is differenced comes from one call.
    """

    def __init__(
        self, evaluate: Evaluate, point: Float, precision: Precision, rows: int | None = None
    ) -> None:
        """Keep the parts; nothing is evaluated yet.

        Args:
            evaluate: takes (B, n), returns (B, m).
            point: (n,), rounded to `precision` here.
            precision: the input's.
            rows: m, where it's known beforehand.
        """
        self._evaluate = evaluate
        self.precision = precision
        self.point = precision.round(np.array(point, dtype=np.float64))
        self.evaluations = 0
        self._rows = rows
        self._base: Float | None = None

    @property
    def base(self) -> Float:
        """f(x), (m,), for scales; not to be differenced against another call's values."""
        if self._base is None:
            self._base = self.at(self.point[None, :])[0]
        return self._base

    @property
    def rows(self) -> int:
        """The number m of outputs."""
        return int(self.base.shape[0]) if self._rows is None else self._rows

    def at(self, points: Float) -> Float:
        """Evaluate at points (B, n) in one call; returns (B, m)."""
        self.evaluations += points.shape[0]
        with np.errstate(all="ignore"):
            values = np.asarray(self._evaluate(points), dtype=np.float64)
        if values.ndim != points.ndim or values.shape[0] != points.shape[0]:
            raise ValueError(
                f"evaluate: expected shape ({points.shape[0]}, rows) for {points.shape[0]} points, "
                f"got {values.shape}"
            )
        if self._rows is not None and values.shape[1] != self._rows:
            raise ValueError(f"evaluate: expected {self._rows} rows, got {values.shape[1]}")
        return values

    def along(
        self, columns: np.ndarray, coordinates: Float, max_columns: int | None = None
    ) -> Iterator[Batch]:
        """Move one coordinate at a time.

        Args:
            columns: (c,) the coordinates' numbers.
            coordinates: (c, p) the values that each of them takes in turn.
            max_columns: the most columns in one call.

        Yields:
            Batches that cover `columns` in order; all p points of a column come from one call.
        """
        count, points = coordinates.shape
        width = max(self.point.size, self.rows, 1)
        per_call = max(1, (MAX_FLOATS_PER_CALL // width - 1) // max(points, 1))
        if max_columns is not None:
            per_call = max(1, min(per_call, max_columns))
        for start in range(0, count, per_call):
            chunk = slice(start, min(start + per_call, count))
            size = chunk.stop - chunk.start
            where = np.repeat(self.point[None, :], size * points + 1, axis=0)
            where[np.arange(1, size * points + 1), np.repeat(columns[chunk], points)] = coordinates[
                chunk
            ].ravel()
            values = self.at(where)
            if self._base is None:
                self._base = values[0]
            yield Batch(chunk, values[0], values[1:].reshape(size, points, -1))
