"""Choose points that take unseen sides of branches: among candidates, and by steering."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.numerics.steering import Steering
from gradcheck_cli.spec.values.free_inputs import FreeInputs
from gradcheck_cli.spec.values.patterns import make_patterns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.features.search.branches.point_field import Looked, PointField, Points
    from gradcheck_cli.spec.case import Case

    Array = np.ndarray[Any, Any]

_STALE = 2  # rounds without a better point after which a side is given up
_DEEP = 0.05  # of a typical margin: this far in is enough
_FAR_OUT = 5.0  # spreads
_REMEMBERED = 4  # points of each side that are remembered


@dataclass(frozen=True)
class Find:
    """A point that takes a wanted side.

    Attributes:
        point: the inputs that differ, without a leading axis.
        taken: (sides,).
        rank: larger is better: whether the point is ordinary; how far in it is, up to what is enough; how few
            of its components are zero or equal; how near it is to what is drawn.
    """

    point: Mapping[int, Array]
    taken: Array
    rank: tuple[bool, float, float, float]


class PointChooser:
    """Chooses points that take wanted sides.

    Attributes:
        field: looks at them.
        free: the inputs that may be chosen.
        wanted: (sides,) those that no point has taken.
        finds: the best points that take each wanted side, by the side's index.
        left: how many points may still be looked at.
    """

    def __init__(self, field: PointField, case: Case, wanted: Array, *, as_stated: bool, most: int) -> None:
        """Keep what is needed; look at no point yet.

        Args:
            field: looks at points.
            case: says how the inputs are drawn.
            wanted: (sides,) those that no point has taken.
            as_stated: stay where values are likely to be drawn; see `FreeInputs.of`.
            most: how many points may be looked at.
        """
        self.field = field
        self.free = FreeInputs.of(case, as_stated=as_stated)
        self.wanted = wanted
        self.finds: dict[int, list[Find]] = {}
        self.left = most
        self.generator = np.random.default_rng([case.seed, zlib.crc32(f"{case.op} {case.name}".encode())])
        self._typical = np.ones(len(wanted))
        self._starts: tuple[Points, Looked] | None = None

    def look_around(self, drawn: Points, count: int) -> None:
        """Look at drawn points, and at others that are made from them.

        Args:
            drawn: points as the spec draws them, (B, *shape) each.
            count: how many points to look at, if there is time.
        """
        count = self.field.pace.batch(count)
        if not count:
            return
        drawn = {input_index: stack[:count] for input_index, stack in drawn.items()}
        drawn_count = len(next(iter(drawn.values())))
        rows = np.arange(max(drawn_count, count)) % drawn_count
        points = {input_index: stack[rows] for input_index, stack in drawn.items()}
        if self.free.size and count > drawn_count:
            vectors = self.free.pack(points)
            vectors[drawn_count:] = make_patterns(
                self.free, vectors[drawn_count:], self.generator, self.field.constants
            )
            others = self.free.others(points)
            points = self.free.unpack(vectors, others)
        looked = self._look(points, np.arange(len(rows)))
        self._starts = points, looked
        for side in np.flatnonzero(self.wanted).tolist():
            margins = looked.margin(side)
            finite = np.abs(margins[np.isfinite(margins)])
            self._typical[side] = (float(np.median(finite)) if finite.size else 0.0) or 1.0
        self._note(points, looked)

    def is_found(self, side: int) -> bool:
        """Whether an ordinary point takes a side."""
        return side in self.finds and self.finds[side][0].rank[0]

    def steer(self, side: int, rounds: int) -> None:
        """Steer towards a side, from the candidate that is nearest to it.

        If no candidate reaches the line that branches, start from the points that were found for other sides:
        one of them may take the branch that this line is in.
        """
        if not self.free.size or self._starts is None:
            return
        points, looked = self._starts
        scores = self._scores(points, looked, side)
        if not np.isfinite(scores).any() and self.finds:
            finds = [find.point for finds_of_side in self.finds.values() for find in finds_of_side]
            points = {
                input_index: np.stack([point[input_index] for point in finds]) for input_index in points
            }
            looked = self._look(points, np.arange(len(finds)))
            scores = self._scores(points, looked, side)
        row = int(np.argmax(scores))
        if not np.isfinite(scores[row]):
            return
        guards = self._guards(looked, side, row)
        others = {input_index: stack[[row]] for input_index, stack in self.free.others(points).items()}

        def evaluate(vectors: Array) -> Array:
            scores = np.full((len(vectors), 1 + len(guards)), -np.inf)
            for rows in self.field.pace.parts(len(vectors)):
                own = self.free.unpack(vectors[rows], others)
                looked_at = self._look(own, np.full(len(vectors[rows]), row))
                self._note(own, looked_at)
                scores[rows] = score(looked_at)
            return scores

        def score(looked_at: Looked) -> Array:
            own = [looked_at.margin(other) for other in (side, *guards)]
            return np.where(looked_at.is_finite[:, None], np.stack(own, axis=1), -np.inf)

        steering = Steering(evaluate, self.free.clip, self.free.spreads, self.field.constants, self.generator)
        whole = np.stack([scores, *(looked.margin(guard) for guard in guards)], axis=1)
        steering.start(self.free.pack(points), whole)
        if np.ptp(scores[np.isfinite(scores)]) == 0:
            # All points are equally far from it, as for `is_nan`, so no slope leads there. A few jumps may.
            steering.jump()
            return
        stale = 0
        for _ in range(rounds):
            stale = 0 if steering.round(thorough=stale > 0) else stale + 1
            is_over = self.left <= 0 or self.field.pace.left <= 0
            if is_over or stale == _STALE or (self.is_found(side) and self._is_deep(side)):
                return

    def _scores(self, points: Points, looked: Looked, side: int) -> Array:
        """Return how far starting points are on a side; minus infinity for those that aren't usable."""
        scores = np.where(looked.is_finite, looked.margin(side), -np.inf)
        # On the edge of several conditions at once, a step across one of them leads nowhere.
        edge = (scores == 0) & ~looked.taken[:, side]
        if not edge.all():
            scores[edge] = -np.inf
        if side in self.finds:  # only points that aren't ordinary take it
            scores[looked.taken[:, side] | ~self._is_ordinary(self.free.pack(points))] = -np.inf
        return np.asarray(scores)

    def _guards(self, looked: Looked, side: int, row: int) -> list[int]:
        """Return the sides that a point must take to reach the line where another side branches."""
        comes = np.isfinite(looked.margin(side)) & looked.is_finite
        if comes[looked.is_finite].all():
            return []
        is_outside = ~looked.taken & looked.is_finite[:, None]
        leads = looked.taken[row] & is_outside.any(axis=0) & ~(is_outside & comes[:, None]).any(axis=0)
        key = self.field.sides[side][0]
        return [int(other) for other in np.flatnonzero(leads) if self.field.sides[other][0] != key]

    def _is_deep(self, side: int) -> bool:
        return self.finds[side][0].rank[1] >= _DEEP

    def _look(self, points: Points, seeds: Sequence[int] | Array) -> Looked:
        self.left -= len(seeds)
        return self.field.look(points, [int(seed) for seed in seeds])

    def _distances(self, vectors: Array) -> Array:
        return np.asarray(np.abs(vectors - self.free.middles) / self.free.spreads)

    def _is_ordinary(self, vectors: Array) -> Array:
        """Return which vectors aren't mostly zero or equal, and don't lie far out in most components.

        At zero, many wrong gradients look right. Far out, digits are lost, and functions are flat.
        """
        if not vectors.shape[1]:
            return np.ones(len(vectors), bool)
        few = _count_special(vectors) <= max(1.0, vectors.shape[1] / 2)
        return np.asarray(few & (np.median(self._distances(vectors), axis=1) <= _FAR_OUT))

    def _note(self, points: Points, looked: Looked) -> None:
        """Remember the points that take wanted sides."""
        for side in np.flatnonzero(self.wanted & looked.taken.any(axis=0)).tolist():
            rows = np.flatnonzero(looked.taken[:, side])
            depth = np.minimum(looked.margin(side)[rows] / self._typical[side], _DEEP)
            vectors = self.free.pack({input_index: stack[rows] for input_index, stack in points.items()})
            distance = np.max(self._distances(vectors), axis=1, initial=0.0)
            special = _count_special(vectors)
            finds = self.finds.setdefault(side, [])
            is_special = ~self._is_ordinary(vectors)
            for index in np.lexsort((distance, special, -depth, is_special))[:_REMEMBERED]:
                row = rows[index]
                point = {input_index: stack[row] for input_index, stack in points.items()}
                rank = float(depth[index]), -float(special[index]), -float(distance[index])
                finds.append(Find(point, looked.taken[row], (not is_special[index], *rank)))
            finds.sort(key=lambda find: find.rank, reverse=True)
            del finds[_REMEMBERED:]


def _count_special(vectors: Array) -> Array:
    """Return how many components of each vector are zero, or equal to another one."""
    return np.array([vector.size - np.unique(vector[vector != 0]).size for vector in vectors])
