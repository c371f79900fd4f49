"""Says whether rows of a gradient at a tie move as the function does, along all its inputs together.

At a tie each element of a gradient may lie between its own slopes, and the gradient be wrong all the same:
the maximum of two equal numbers, with the full upstream for both, moves by twice what it should when both
move. What a right gradient is there has a name: near the point the function is one of several smooth ones
(`pieces`), and a right gradient is one of theirs, or shares between them, so it lies in their convex hull
(the generalized gradient; Clarke 1983, theorem 2.5.1; of piecewise smooth ones Scholtes 2012, chapter 4).

- What lies in the hull of some pieces lies in the hull of all: to be inside is proof.
- To be outside is proof only where no piece is missing. What is missing is looked for where it would matter:
  along the direction that parts the gradient from the hull (for a convex or a concave function its end is the
  very piece), along random ones, and where the function moves as the gradient says (the piece that the
  gradient is of). A gradient is outside only when that has brought nothing new, and the outermost piece was
  met three times. Of r pieces that are equally wide, 16 r random directions leave out a given one with
  probability exp(-16).

References:
    F. H. Clarke, Optimization and Nonsmooth Analysis, Wiley (1983).
    S. Scholtes, Introduction to Piecewise Differentiable Equations, Springer (2012).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.joint.hull import EXACT, MARGIN, nearest_to_zero
from gradcheck_cli.numerics.joint.pieces import CLEAR

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck_cli.numerics.differences import Mask
    from gradcheck_cli.numerics.joint.pieces import Neighbourhood, Pieces
    from gradcheck_cli.numerics.precision import Float

# Random ends to begin with, as many again in the opposite directions: two pieces are both seen then.
FIRST_ENDS = 2
# ... and in each round after that, beside those along which the gradient seems to be outside.
MORE_ENDS = 6
ROUNDS = 24
# Rounds that brought a gradient no nearer, after which nothing more is expected.
STALE = 3
# Points that must show the outermost piece before it is taken for the outermost.
TOPS = 3
# Directions along which a row moves as its gradient says are looked for among so many per input of its tie.
PER_INPUT = 16
# Rows whose own directions are followed in one round; the others are served by the same points.
LEADS = 64
COMBINED = 4
# A piece whose slopes are known this much worse than is usual isn't used; what is known to a tenth of how far
# the pieces lie apart is known well enough (as at a kink in one element: `verdict.decide`).
PRECISE = 4.0
SHARP = 0.1
# A round that leaves a gradient this near to where it was brought nothing.
NEARER = 0.9
# About a direction, as a part of it, lies what it only touches the edge of.
BLUR = 0.25
# Floats that may be evaluated in all, beyond which what is open stays open.
BUDGET = 2**26


class Place(IntEnum):
    """Where a row's gradient lies, of the slopes that its pieces have."""

    UNKNOWN = 0
    INSIDE = 1
    OUTSIDE = 2
    SMOOTH = 3  # there is one piece: what its elements show is all there is


@dataclass(frozen=True)
class Claims:
    """Gradients of R rows of the function, in units of its inputs' scale.

    Attributes:
        rows: (R,) which rows.
        along: directions (K, n) to (K, R), what the gradients make of them.
        allowed: magnitudes (K, n) of directions to (K, R), what the gradients may be off by along them.
        involved: by a row's number in `rows` the inputs of its tie, and its gradient for them.
        widest: the most inputs of a tie.
    """

    rows: np.ndarray
    along: Callable[[Float], Float]
    allowed: Callable[[Float], Float]
    involved: Callable[[int], tuple[np.ndarray, Float]]
    widest: int


@dataclass(frozen=True)
class Found:
    """What is known of R rows.

    Attributes:
        place: (R,) of `Place`.
        lack: (R, q) what the gradient lies outside by, along each direction.
        doubt: (R,) the largest error of a slope that this rests on.
        is_tie: (R,) whether there is more than one piece.
    """

    place: np.ndarray
    lack: Float
    doubt: Float
    is_tie: Mask


def judge_rows(near: Neighbourhood, claims: Claims, directions: Float) -> Found:
    """Say of each row whether its gradient is one of its pieces', or is shared between them.

    Args:
        near: the function.
        claims: the gradients.
        directions: (q, n) along which they are compared.

    Returns:
        Where they lie.
    """
    return _Search(near, claims, np.where(near.can_move, directions, 0.0)).run()


@dataclass
class _Search:
    near: Neighbourhood
    claims: Claims
    directions: Float
    place: np.ndarray = field(init=False)
    lack: Float = field(init=False)
    doubt: Float = field(init=False)
    is_tie: Mask = field(init=False)
    is_known: Mask = field(init=False)

    def run(self) -> Found:
        """Look for pieces until every row is known, or nothing new comes up."""
        near, count = self.near, len(self.claims.rows)
        shape = (count, len(self.directions))
        self.place = np.zeros(count, dtype=np.int8)
        self.lack, self.doubt, self.is_tie = np.zeros(shape), np.zeros(count), np.zeros(count, dtype=bool)
        self.is_known = self.is_tie.copy()
        self.wanted = self.claims.along(self.directions).T
        self.allowed = self.claims.allowed(np.abs(self.directions)).T
        self.nearest, self.stale = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
        half = self._random(FIRST_ENDS)
        self.ends = np.concatenate([half, -half])
        pieces = near.pieces(self.ends, self.directions, self.claims.rows)
        for turn in range(ROUNDS):
            towards = self._weigh(pieces)
            # What is unknown for want of points has some more to come.
            patience = np.where((self.place == Place.UNKNOWN) & self.is_tie, 2 * STALE, STALE)
            rows = np.flatnonzero((self.place != Place.INSIDE) & (self.stale < patience))
            if not rows.size or near.evaluations * max(near.point.size, near.unit.size) > BUDGET:
                break
            ends = [self._random(MORE_ENDS), *self._guided(rows, towards, turn)]
            if turn == 1:
                ends.append(self._matched(rows))
            pieces = pieces.join(near.pieces(np.concatenate(ends), self.directions, self.claims.rows))
        is_smooth = self.is_known & ~self.is_tie
        self.place[is_smooth] = Place.SMOOTH
        return Found(self.place, self.lack, self.doubt, self.is_tie)

    def _random(self, count: int) -> Float:
        return self.near.generator.standard_normal((count, self.near.point.size))

    def _weigh(self, pieces: Pieces) -> Float:
        """Place every open row by the pieces known by now; return the directions (R, q) that part them."""
        towards = np.zeros(self.wanted.shape)
        rows = np.flatnonzero(self.place != Place.INSIDE)
        slope, doubt = (each[:, :, rows].transpose(2, 0, 1) for each in (pieces.slope, pieces.doubt))
        is_one, allowed = pieces.is_one[:, rows].T.copy(), self.allowed[rows]
        # A piece that is known far worse than the others says less than they do.
        most = doubt.max(axis=2)
        ranked = np.sort(np.where(is_one, most, np.inf), axis=1)
        usual = ranked[np.arange(rows.size), (is_one.sum(axis=1) - 1) // 2]
        is_one &= most <= (PRECISE * usual + allowed.max(axis=1))[:, None]
        is_known = is_one.sum(axis=1) > 1  # two points
        self.stale[rows[~is_known]] += 1
        rows, slope, doubt, is_one = rows[is_known], slope[is_known], doubt[is_known], is_one[is_known]
        if not rows.size:
            return towards
        seen = is_one[:, :, None]
        worst = np.where(seen, doubt, 0.0).max(axis=1)
        apart = np.where(seen, slope, -np.inf).max(axis=1) - np.where(seen, slope, np.inf).min(axis=1)
        bound = self.allowed[rows] + worst
        is_tie = (apart > CLEAR * bound).any(axis=1)
        is_sharp = (worst <= np.maximum(2 * self.allowed[rows], SHARP * apart.max(axis=1)[:, None])).all(
            axis=1
        )
        # Of what is exact on both sides the smallest of differences is one.
        bound += EXACT * apart.max(axis=1)[:, None]
        points = np.where(seen, (slope - self.wanted[rows][:, None]) / bound[:, None], 0.0)
        nearest, outside = nearest_to_zero(points, is_one)
        reached = np.abs(nearest).max(axis=1)
        is_inside = (reached <= 1) & is_sharp
        # Along what parts a gradient from its pieces: how many show the outermost of them.
        level = (
            np.einsum("rkq,rq->rk", points, nearest)
            / np.maximum(np.abs(nearest).sum(axis=1), 1e-300)[:, None]
        )
        tops = (is_one & (level <= outside[:, None] + 1)).sum(axis=1)
        is_outside = (outside > MARGIN) & is_sharp & (tops >= TOPS)
        self.stale[rows] += reached > NEARER * self.nearest[rows]
        self.nearest[rows] = np.minimum(reached, self.nearest[rows])
        self.place[rows] = np.select(
            [is_tie & is_inside, is_tie & is_outside], [Place.INSIDE, Place.OUTSIDE], Place.UNKNOWN
        )
        self.lack[rows] = -nearest * bound
        self.is_known[rows] = True
        self.is_tie[rows] = is_tie
        self.doubt[rows] = worst.max(axis=1)
        towards[rows] = -nearest / bound
        return towards

    def _guided(self, rows: np.ndarray, towards: Float, turn: int) -> list[Float]:
        """Return ends in the directions in which rows seem to lie outside, and about those."""
        near = self.near
        chosen = near.generator.permutation(rows)[:LEADS]
        wanted = []
        for row in chosen:
            columns, gradient = self.claims.involved(row)
            wanted.append((columns, towards[row] @ self.directions[:, columns]))
            if turn == 0:
                wanted.append((columns, gradient))
        ends = []
        for _ in range(COMBINED):
            # Rows that share no input are served by one end.
            end, is_taken = self._random(1)[0], np.zeros(near.point.size, dtype=bool)
            left = []
            for columns, lead in wanted:
                largest = float(np.abs(lead).max(initial=0.0))
                if is_taken[columns].any():
                    left.append((columns, lead))
                elif largest > 0 and np.isfinite(largest):
                    is_taken[columns] = True
                    end[columns] = lead / largest
            if not is_taken.any():
                break
            blur = np.where(is_taken, BLUR * self._random(1)[0], 0.0)
            ends += [end, -end, end + blur, -end + blur]
            wanted = left
        return [np.array(ends)] if ends else []

    def _matched(self, rows: np.ndarray) -> Float:
        """Return random directions along which rows move as their gradients say: of one piece, maybe."""
        near, claims = self.near, self.claims
        width = max(near.point.size, near.unit.size)
        count = max(1, min(PER_INPUT * claims.widest, BUDGET // 4 // width))
        ends = near.fit(self._random(count))
        slopes, rounding = near.along(ends, near.reach.near)
        slopes, rounding = slopes[:, claims.rows[rows]], rounding[:, claims.rows[rows]]
        with np.errstate(all="ignore"):
            off = np.abs(slopes - claims.along(ends)[:, rows]) - rounding
            off = np.nan_to_num(off / np.abs(slopes), nan=np.inf)
        best = np.argmin(off, axis=0)
        matched = np.unique(best[off[best, np.arange(rows.size)] <= near.reach.apart])
        return np.asarray(ends[matched])
