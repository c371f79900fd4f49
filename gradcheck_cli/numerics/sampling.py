"""Evaluates the function under test in batches, and never compares values from different calls.

Points that differ from the base point in a few coordinates are described as moves, instead of written out.
If rows and columns of a Jacobian fall into independent classes, one column of each class moves at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.precision import Float, Precision
from gradcheck_cli.numerics.shared_limits import FLOATS_AT_ONCE

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sparsity:
    """A Jacobian with a block structure: a row depends only on the columns of its own class.

    Columns of different classes never meet in a row, so one evaluation can move one column of each class: as
    many evaluations as the largest class has columns. `judge` shows that the function has its gradient's
    sparsity, without differencing each element that is left out.

    References:
        A. R. Curtis, M. J. D. Powell and J. K. Reid, On the estimation of sparse Jacobian matrices, J. Inst.
        Maths Applics 13 (1974), 117-119.
    """

    row_class: Index  # (m,) the class of each row
    column_class: Index  # (n,) the class of each column
    table: Index  # (classes, slots) the columns of each class; all classes have the same size

    @property
    def slots(self) -> int:
        """How many columns a class has."""
        return int(self.table.shape[1])

    @property
    def columns(self) -> Index:
        """The column that element (row, slot) stands for, (m, slots)."""
        return self.table[self.row_class]

    @cached_property
    def rows(self) -> Index:
        """The rows of each class, (classes, most rows of a class); m stands for none."""
        counts = np.bincount(self.row_class, minlength=len(self.table))
        rows = np.full((len(self.table), counts.max(initial=0)), self.row_class.size)
        rows[self.row_class, rank_in_class(self.row_class)] = np.arange(self.row_class.size)
        return rows


def rank_in_class(classes: Index) -> Index:
    """Number the members of each class in their order: (c,) classes to (c,) ranks."""
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.maximum.accumulate(np.where(first, np.arange(classes.size), 0))
    rank = np.empty(classes.size, dtype=np.int64)
    rank[order] = np.arange(classes.size) - starts
    return rank


@dataclass(frozen=True)
class Moves:
    """B points around a base point: point p moves the coordinates of one slot to one row of targets.

    In this form, a thousand points of a thousand coordinates take two rows, not a million numbers. The code
    that evaluates them can write them out block by block where they are needed (inside TensorFlow's graph).
    """

    base: Float  # (n,) the base point
    slot: npt.NDArray[np.int32]  # (n,) the slot that each coordinate belongs to; -1 for none
    targets: Float  # (T, n) values to move to
    slots: npt.NDArray[np.int32]  # (B,) the slot that moves at each point; -1 moves none
    rows: npt.NDArray[np.int32]  # (B,) the row of targets that it moves to

    def __len__(self) -> int:
        """Return the number of points, B."""
        return int(self.slots.size)

    def __getitem__(self, points: slice) -> Moves:
        """Return some of the points."""
        return Moves(self.base, self.slot, self.targets, self.slots[points], self.rows[points])

    def point(self, index: int) -> Float:
        """Write out one point, (n,)."""
        slot = self.slots[index]
        if slot < 0:
            return self.base
        return np.where(self.slot == slot, self.targets[self.rows[index]], self.base)

    def points(self) -> Float:
        """Write all points out, (B, n)."""
        moves = (self.slot == self.slots[:, None]) & (self.slots >= 0)[:, None]
        return np.where(moves, self.targets[self.rows], self.base)


Evaluate = Callable[[Any], Float]  # takes points, (B, n), or perhaps `Moves`; returns (B, m)


@dataclass(frozen=True)
class Batch:
    """Values from one call, which may be differenced."""

    which: Index  # positions, among the requested columns, of those moved here
    value_index: Index  # for each of them, the index of its values
    slots: slice  # for a pass over all columns: the slots that these values belong to
    base: Float  # (m,) f(x)
    values: Float  # (columns, points, m)

    def among(self, owner: Index) -> tuple[Index, Index]:
        """Return which columns of `owner` were moved here, as positions in it, and where their values are."""
        index_of = np.full(int(max(owner.max(initial=-1), self.which.max(initial=-1))) + 1, -1)
        index_of[self.which] = self.value_index
        value_index = index_of[owner]
        which = np.flatnonzero(value_index >= 0)
        return which, value_index[which]


class Sampler:
    """A function around one base point; counts evaluations.

    The last bits of a batched kernel's value at a point depend on the rest of the batch. So every call
    includes the base point, and values that are differenced come from one call.
    """

    def __init__(  # noqa: PLR0913 (a function, and all that is known about it)
        self,
        evaluate: Evaluate,
        point: Float,
        precision: Precision,
        rows: int | None = None,
        *,
        takes_moves: bool = False,
        sparsity: Sparsity | None = None,
    ) -> None:
        """Keep the parts; nothing is evaluated yet.

        Args:
            evaluate: the function.
            point: (n,), rounded to `precision` here.
            rows: m, where it is known beforehand.
            takes_moves: whether it takes points that are described instead of written out.
            sparsity: which rows may depend on which columns; `None` if any row may depend on any column.
        """
        self._evaluate = evaluate
        self.precision = precision
        self.point = precision.round(np.array(point, dtype=np.float64))
        self.evaluations = 0
        self._rows = rows
        self._takes_moves = takes_moves
        self._sparsity = sparsity
        self._base: Float | None = None
        self._refused = np.full((2, self.point.size), np.inf)  # the least moves down and up that are refused

    @property
    def base(self) -> Float:
        """f(x), (m,), for scales; it must not be differenced against another call's values."""
        if self._base is None:
            self._base = self.at(self.point[None, :])[0]
        return self._base

    @property
    def rows(self) -> int:
        """The number m of outputs."""
        return int(self.base.shape[0]) if self._rows is None else self._rows

    @property
    def points_per_call(self) -> int:
        """How many points a call may have beside the base point."""
        return max(1, FLOATS_AT_ONCE // max(self.point.size, self.rows) - 1)

    def at(self, points: Float) -> Float:
        """Evaluate at points (B, n) in one call; returns (B, m)."""
        return self._call(points.shape[0], lambda: self._evaluate(points))

    def at_moves(self, moves: Moves) -> Float:
        """Evaluate at points around the base point in one call; returns (B, m)."""
        if not self._takes_moves:
            return self.at(moves.points())
        return self._call(len(moves), lambda: self._evaluate(moves))

    def _call(self, count: int, evaluate: Callable[[], Float]) -> Float:
        self.evaluations += count
        values = np.asarray(evaluate(), dtype=np.float64)
        if values.ndim != 2 or values.shape[0] != count:  # noqa: PLR2004 (points, rows)
            raise ValueError(
                f"evaluate: expected shape ({count}, rows) for {count} points, got {values.shape}"
            )
        if self._rows is not None and values.shape[1] != self._rows:
            raise ValueError(f"evaluate: expected {self._rows} rows, got {values.shape[1]}")
        return values

    def move_columns(
        self, columns: np.ndarray, coordinates: Float, max_columns: int | None = None
    ) -> Iterator[Batch]:
        """Move one coordinate at a time; coordinates that share no row move together.

        Args:
            columns: (c,) the coordinates' indices; one may occur more than once.
            coordinates: (c, p) the values that each of them takes in turn.
            max_columns: the most columns of one class in one call.

        Yields:
            Batches that cover `columns`; all p points of a column come from one call.
        """
        again = rank_in_class(columns)  # a coordinate can't be in two places at once
        for time in range(int(again.max(initial=-1)) + 1):
            chosen = np.flatnonzero(again == time)
            for batch in self._move_distinct_columns(columns[chosen], coordinates[chosen], max_columns):
                yield Batch(chosen[batch.which], batch.value_index, batch.slots, batch.base, batch.values)

    def _move_distinct_columns(
        self, columns: np.ndarray, coordinates: Float, max_columns: int | None
    ) -> Iterator[Batch]:
        count, points = coordinates.shape
        width = max(self.point.size, self.rows, 1)
        per_call = max(1, (FLOATS_AT_ONCE // width - 1) // max(points, 1))
        if max_columns is not None:
            per_call = max(1, min(per_call, max_columns))
        sparsity = self._sparsity
        rank = np.arange(count) if sparsity is None else rank_in_class(sparsity.column_class[columns])
        targets = np.repeat(self.point[None], points, axis=0)
        targets[:, columns] = coordinates.T
        slots = int(rank.max(initial=-1)) + 1
        for start in range(0, slots, per_call):
            chunk = slice(start, min(start + per_call, slots))
            which = np.flatnonzero((rank >= chunk.start) & (rank < chunk.stop))
            value_index = rank[which] - chunk.start
            size = chunk.stop - chunk.start
            slot = np.full(self.point.size, -1, dtype=np.int32)
            slot[columns[which]] = value_index
            there = np.repeat(np.arange(-1, size, dtype=np.int32), [1, *[points] * size])
            rows = np.concatenate([[0], np.tile(np.arange(points), size)]).astype(np.int32)
            values = self._move_where_accepted(Moves(self.point, slot, targets, there, rows))
            if self._base is None:
                self._base = values[0]
            yield Batch(which, value_index, chunk, values[0], values[1:].reshape(size, points, -1))

    def _move_where_accepted(self, moves: Moves) -> Float:
        """Evaluate at points around the base point, without those that lie beyond one that has no value.

        A function that raises there (a lookup outside of its table) takes long to say so, each time.
        """
        movers = np.flatnonzero(moves.slot >= 0)
        if not movers.size:
            return self.at_moves(moves)
        slot = moves.slot[movers]
        is_alone = np.bincount(slot)[slot] == 1
        mover = np.full(int(slot.max()) + 1, -1)
        mover[slot[is_alone]] = movers[is_alone]
        alone = np.where(moves.slots >= 0, mover[np.maximum(moves.slots, 0)], -1)  # -1: none, or several
        moved = np.where(alone >= 0, moves.targets[moves.rows, alone] - self.point[alone], 0.0)
        side, size = (moved > 0).astype(int), np.abs(moved)
        kept = size < self._refused[side, alone]  # where none moves alone, 0 < infinity
        if kept.all():
            values = self.at_moves(moves)
        else:
            some = self.at_moves(replace(moves, slots=moves.slots[kept], rows=moves.rows[kept]))
            values = np.full((len(moves), some.shape[1]), np.nan)
            values[kept] = some
        is_refused = (size > 0) & np.isnan(values).all(axis=1)
        np.minimum.at(self._refused, (side[is_refused], alone[is_refused]), size[is_refused])
        return values


# How many elements are handled at a time, so that temporary arrays stay small beside the tensors themselves.
CHUNK = 2**18


def chunks(size: int) -> Iterator[slice]:
    """Split a length into slices that are small enough for temporary arrays."""
    for start in range(0, size, CHUNK):
        yield slice(start, min(start + CHUNK, size))
