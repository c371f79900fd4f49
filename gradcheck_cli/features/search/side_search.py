"""Finds points on sides of branches that none has taken, without knowing what the branches are.

Two means: points that differ in one component from one that comes as far as such a branch; and segments
between points, cut where sides change.

The cuts lie at all distances from a change, down to the last bit, so a narrow band beside it is met, whatever
its width. A branch inside another one's rare side changes between points on that side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradcheck_cli.features.search.branches.point_field import Looked
from gradcheck_cli.features.search.free_inputs import FreeInputs

Array = np.ndarray[Any, Any]
Points = dict[int, Array]

_CHILDREN = 96  # points with another component, in one round
_SEGMENTS = 6  # in one round
_CUTS = 7  # points of a segment in one call: each call divides it by eight
_LEVELS = 18  # 8**-18 is below a rounding
_KEPT = 256  # points that are remembered


@dataclass
class SideSearch:
    """A point for each combination of sides, and the search for others between them."""

    free: FreeInputs  # the inputs that move
    look: Callable[[Points], Looked | None]  # looks at points, and remembers them
    generator: np.random.Generator  # of random numbers
    points: dict[tuple[int, ...], Points] = field(default_factory=dict)  # one each, by the sides it takes
    # (N, size), vectors whose components other points are given, one at a time
    lenders: Array = field(default_factory=lambda: np.zeros((0, 0)))
    turn: int = 0  # how many components took a special value

    def remember(self, points: Mapping[int, Array], looked: Looked) -> None:
        """Remember points with other sides than those before; the newest, if there are too many."""
        for row in np.flatnonzero(looked.is_finite):
            taken = tuple(np.flatnonzero(looked.taken[row]).tolist())
            if taken not in self.points:
                self.points[taken] = {index: stack[[row]] for index, stack in points.items()}
        for taken in list(self.points)[:-_KEPT]:
            del self.points[taken]

    def exchange(self, near: set[int], specials: Array) -> None:
        """Look at points with one component of others, or on or beside a special value.

        Args:
            near: the sides of branches of which some side is sought.
            specials: special values; each component takes each in turn.
        """
        reached = [taken for taken in self.points if not near.isdisjoint(taken)]
        if not reached or not self.lenders.size:
            return
        points = self._stack([reached[row] for row in self.generator.integers(len(reached), size=_CHILDREN)])
        vectors = self.free.pack(points)
        size = vectors.shape[1]
        rows, columns = (self.generator.integers(most, size=_CHILDREN) for most in self.lenders.shape)
        values = self.lenders[rows, columns]
        turns = self.turn + np.arange(_CHILDREN // 2)
        self.turn += len(turns)
        special = specials[turns // size % len(specials)]
        away = self.generator.choice([-1.0, 1.0], len(turns)) * 10.0 ** self.generator.uniform(-6, -1)
        is_beside = turns // (size * len(specials)) % 2  # on each one first, then beside each
        values[: len(turns)] = special + is_beside * away * np.where(special, np.abs(special), 1.0)
        columns[: len(turns)] = turns % size
        vectors[np.arange(_CHILDREN), columns] = values
        self.look(self.free.unpack(self.free.clip(vectors), self.free.others(points)))

    def _stack(self, combinations: list[tuple[int, ...]]) -> Points:
        own = [self.points[taken] for taken in combinations]
        return {index: np.concatenate([point[index] for point in own]) for index in own[0]}

    def cut(self) -> None:
        """Cut segments at changes of sides, rare ones first."""
        if not self.free.size or not self.points:
            return
        combinations = list(self.points)
        taken = np.zeros((len(combinations), 1 + max(map(max, filter(None, combinations)), default=0)), bool)
        for row, sides in enumerate(combinations):
            taken[row, list(sides)] = True
        share = taken.mean(axis=0)
        rare = np.minimum(share, 1.0 - share) + 0.05 * self.generator.random(len(share))
        changing = np.flatnonzero((share > 0) & (share < 1))
        chosen = changing[np.argsort(rare[changing])][:_SEGMENTS]
        if not len(chosen):
            return
        starts = [int(self.generator.choice(np.flatnonzero(~taken[:, side]))) for side in chosen]
        ends = [
            int(min(np.flatnonzero(taken[:, side]), key=lambda row: (taken[row] != taken[start]).sum()))
            for side, start in zip(chosen, starts, strict=True)
        ]
        self._cut([combinations[row] for row in starts], [combinations[row] for row in ends], chosen)

    def _cut(self, starts: list[tuple[int, ...]], ends: list[tuple[int, ...]], sides: Array) -> None:
        low, high = self._stack(starts), self._stack(ends)
        begin, end = self.free.pack(low), self.free.pack(high)
        others = {index: np.repeat(stack, _CUTS, axis=0) for index, stack in self.free.others(low).items()}
        left, width = np.zeros(len(sides)), 1.0
        parts = np.arange(1, _CUTS + 1) / (_CUTS + 1)
        for _ in range(_LEVELS):
            at = left[:, None] + width * parts
            vectors = begin[:, None] + at[:, :, None] * (end - begin)[:, None]
            looked = self.look(self.free.unpack(self.free.clip(vectors.reshape(-1, self.free.size)), others))
            if looked is None:
                return
            same = ~looked.taken[np.arange(at.size), np.repeat(sides, _CUTS)].reshape(at.shape)
            width /= _CUTS + 1
            left = left + width * np.cumprod(same, axis=1).sum(axis=1)
