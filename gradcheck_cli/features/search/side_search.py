"""Finds points that take sides of branches that none has taken, without knowing what the branches are.

Two means: points that differ from one that comes near in one component or some, which other points lend; and
segments between two points at which some comparison differs, cut at the change to the last bit. The cuts lie
at all distances from the change, so a narrow band beside it is met, whatever its width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradcheck_cli.features.search.branches.point_field import Looked
from gradcheck_cli.features.search.mixed_points import MixedPoints

Array = np.ndarray[Any, Any]
Points = dict[int, Array]

_CHILDREN = 24  # points with other components, for each side that is sought
_SIDES = 12  # sides that are sought in one round
_SEGMENTS = 10  # in one round
_CUTS = 3  # points of a segment in one call: each call divides it by four
_LEVELS = 27  # 4**-27 is below a rounding
_KEPT = 2_000  # points that are remembered


@dataclass
class SideSearch:
    """Points that were looked at, and the search for other sides from there."""

    mixed: MixedPoints  # the inputs that move
    look: Callable[[Points], Looked | None]  # looks at points, and notes which wanted sides they take
    generator: np.random.Generator  # of random numbers
    # those that are remembered, (N, *shape) by the input's index
    points: Points = field(default_factory=dict)
    taken: Array = field(default_factory=lambda: np.zeros((0, 0), bool))  # (N, sides) which sides they take
    scores: Array = field(default_factory=lambda: np.zeros((0, 0)))  # (N, sides); see `Looked`
    _before: Points = field(default_factory=dict)
    _scores_before: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def remember(self, points: Mapping[int, Array], looked: Looked) -> None:
        """Remember points, the newest if there are too many."""
        sides = looked.taken.shape[1]
        usable = np.flatnonzero(looked.is_finite)
        before = slice(max(0, len(self.taken) + len(usable) - _KEPT), None)
        wider = [(0, 0), (0, sides - self.taken.shape[1])]
        self.taken = np.concatenate([np.pad(self.taken, wider)[before], looked.taken[usable]])
        self.scores = np.concatenate([np.pad(self.scores, wider)[before], looked.scores[usable]])
        self.points = {
            index: np.concatenate([self.points[index][before], stack[usable]])
            if index in self.points
            else stack[usable]
            for index, stack in points.items()
        }

    def round(self, wanted: Array, siblings: Array, *, cuts: bool) -> None:
        """Look at points near those that come nearest to wanted sides.

        Args:
            wanted: (sides,) those that are sought.
            siblings: (sides, sides) whether two sides are of one branch.
            cuts: whether to cut segments, too.
        """
        sought = self.generator.permutation(np.flatnonzero(wanted))[:_SIDES]
        if not len(self.taken) or not len(sought):
            return
        starts = [self._start(side, siblings) for side in sought]
        children = [self._exchange(start) for start in starts]
        joined = {index: np.concatenate([child[index] for child in children]) for index in self.points}
        before = np.asarray(self.taken.any(axis=0))
        self._before, self._scores_before = self.points, self.scores
        looked = self.look(joined)
        if looked is None:
            return
        self.remember(joined, looked)
        self._combine(joined, looked, starts, sought)
        if (
            not cuts
            or not (wanted & ~before[: len(wanted)] & ~looked.taken[:, : len(wanted)].any(axis=0)).any()
        ):
            return
        self._cut(starts)

    def _start(self, side: int, siblings: Array) -> int:
        """Return the point that comes nearest to a side: its branch is reached, and much of it holds."""
        reached = self.taken[:, siblings[side]].any(axis=1)
        noise = self.generator.random(len(self.taken))
        return int(np.argmax(self.scores[:, side] + 2.0 * reached + 0.01 * noise))

    def _exchange(self, start: int) -> Points:
        """Return copies of a point with one component, some, or an input of other points."""
        count = _CHILDREN
        rows = self.generator.integers(len(self.taken), size=count)
        children = {index: stack[[start] * count].copy() for index, stack in self.points.items()}
        if self.mixed.free.size:
            vectors, lent = self.mixed.free.pack(children), self.mixed.free.pack(_rows(self.points, rows))
            chosen = self.generator.random(vectors.shape) < np.where(np.arange(count) % 4, 0.0, 0.3)[:, None]
            chosen[np.arange(count), self.generator.integers(vectors.shape[1], size=count)] = True
            vectors = np.where(chosen, lent, vectors)
            children |= self.mixed.free.unpack(vectors, {})
        others = [
            index for index in self.points if index not in {part.index for part in self.mixed.free.parts}
        ]
        for row in range(1, count, 2):
            if others:
                index = others[self.generator.integers(len(others))]
                children[index][row] = self.points[index][rows[row]]
        return children

    def _combine(self, joined: Points, looked: Looked, starts: list[int], sought: Array) -> None:
        """Look at points that have all the components by which more of a condition holds."""
        free = self.mixed.free
        if not free.size:
            return
        vectors, rows = free.pack(joined), []
        scores = looked.scores[np.arange(len(vectors)), np.repeat(sought, _CHILDREN)].reshape(-1, _CHILDREN)
        begin = free.pack(_rows(self._before, np.array(starts)))
        for index, (side, start) in enumerate(zip(sought, begin, strict=True)):
            better = np.flatnonzero(scores[index] > self._scores_before[starts[index], side])
            if len(better) > 1:
                own = vectors[index * _CHILDREN + better]
                changed = own != start
                rows.append(
                    np.where(changed.any(axis=0), own[np.argmax(changed, axis=0), range(len(start))], start)
                )
        if rows:
            others = _rows(free.others(self._before), np.array(starts[:1] * len(rows)))
            combined = free.unpack(np.array(rows), others)
            looked_at = self.look(combined)
            if looked_at is not None:
                self.remember(combined, looked_at)

    def _cut(self, starts: list[int]) -> None:
        """Cut segments at changes of sides, rare ones first."""
        pairs: list[tuple[int, int, int]] = []
        free = self.mixed.free
        if not free.size:
            return
        share = self.taken.mean(axis=0)
        rare = np.minimum(share, 1.0 - share)
        changing = np.flatnonzero(rare > 0)
        for side in changing[np.argsort(rare[changing] + 0.05 * self.generator.random(len(changing)))]:
            start = starts[len(pairs) % len(starts)]
            differing = np.flatnonzero(self.taken[:, side] != self.taken[start, side])
            if not len(differing):
                continue
            apart = (self.taken[differing] != self.taken[start]).sum(axis=1)
            pairs.append((start, int(differing[np.argmin(apart)]), int(side)))
            if len(pairs) == _SEGMENTS:
                break
        if not pairs:
            return
        vectors = free.pack(self.points)
        low, high, sides = (np.array(each) for each in zip(*pairs, strict=True))
        begin, end = vectors[low], vectors[high]
        was = self.taken[low, sides]
        others = {
            index: np.repeat(stack[low], _CUTS, axis=0) for index, stack in free.others(self.points).items()
        }
        left, width = np.zeros(len(pairs)), 1.0
        parts = np.arange(1, _CUTS + 1) / (_CUTS + 1)
        for _ in range(_LEVELS):
            at = (left[:, None] + width * parts).reshape(-1, 1)
            cut = np.repeat(begin, _CUTS, axis=0) + at * np.repeat(end - begin, _CUTS, axis=0)
            points = free.unpack(free.clip(cut), others)
            looked = self.look(points)
            if looked is None:
                return
            same = (
                looked.taken[np.arange(len(at)), np.repeat(sides, _CUTS)] == np.repeat(was, _CUTS)
            ).reshape(len(pairs), _CUTS)
            width /= _CUTS + 1
            left = left + width * np.cumprod(same, axis=1).sum(axis=1)


def _rows(points: Mapping[int, Array], rows: Array) -> Points:
    return {index: stack[rows] for index, stack in points.items()}
