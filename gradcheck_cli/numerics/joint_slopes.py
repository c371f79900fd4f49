"""Says whether rows of a gradient at a tie fit the function's movement along all its inputs together.

At a tie, each element of a gradient may lie between its own slopes although the gradient is wrong. An example
is the maximum of two equal numbers with the full upstream for both: its gradient is twice what it should be
when both move. The right gradients at such a point are known: near the point the function is one of several
smooth ones (`pieces`), and a right gradient is that of one piece, or a weighted mean of several. So it lies
in their convex hull (the generalized gradient; Clarke 1983, theorem 2.5.1; for piecewise smooth functions
Scholtes 2012, chapter 4).

- What lies in the hull of some pieces lies in the hull of all: to be inside is proof.
- To be outside is proof only if no piece is missing. Missing pieces are searched for where they would matter:
  along the direction that separates the gradient from the hull (for a convex or a concave function, this
  direction leads into the extreme piece itself), along random directions, and where the function moves as the
  gradient says (the piece that the gradient belongs to). A gradient is outside only when this search has
  found nothing new, and the outermost piece was met three times. If r pieces are equally wide, 16 r random
  directions miss a given one with probability exp(-16).

References:
    F. H. Clarke, Optimization and Nonsmooth Analysis, Wiley (1983).
    S. Scholtes, Introduction to Piecewise Differentiable Equations, Springer (2012).
    B. F. Mitchell, V. F. Demyanov, V. N. Malozemov, Finding the point of a polyhedron closest to the origin,
    SIAM J. Control 12 (1974), 19-26 (`nearest_to_zero`).
    C. L. Lawson, R. J. Hanson, Solving Least Squares Problems (1974), algorithm NNLS (`_solve`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import reduce

import numpy as np

from gradcheck_cli.numerics.differences import Mask
from gradcheck_cli.numerics.precision import FLOAT64, Float, PieceSteps
from gradcheck_cli.numerics.shared_limits import (
    DIGITS,
    DIRECTIONS,
    FEW,
    FLOATS_AT_ONCE,
    KNOWN,
    MARGIN,
    NO_PROGRESS,
    OF_A_VALUE,
    OF_SOME_OPERATIONS,
    PATTERN,
)


@dataclass
class Neighbourhood:
    """A function of all the inputs that may move, near a point; directions are in units of `scale`."""

    evaluate: Callable[[Float], Float]  # (B, n) points, rounded as the inputs are, to (B, m) values
    point: Float  # (n,)
    scale: Float  # (n,) the scale that steps are relative to
    below: Float  # (n,) the room below the point
    above: Float  # (n,) the room above it
    unit: Float  # (m,) unit roundoff of each value
    input_unit: float  # the coarsest of the inputs' unit roundoffs
    round: Callable[[Float], Float]  # rounds points to what the inputs can hold
    reach: PieceSteps  # how far to step
    generator: np.random.Generator  # draws directions
    evaluations: int = 0  # how many were made so far
    _free: tuple[Mask, Mask] = field(init=False)

    def __post_init__(self) -> None:
        """Find out to which side each input can move."""
        # A direction's components are at most 2 (`fit`), and the points for slopes lie beyond the step's end.
        need = 4 * self.reach.far * self.scale
        self._free = self.above >= need, self.below >= need

    @property
    def can_move(self) -> Mask:
        """Which inputs can move, (n,)."""
        return np.asarray(self._free[0] | self._free[1])

    def fit(self, directions: Float) -> Float:
        """Return directions (K, n) that stay inside the domain, and so do the points beside their ends."""
        up, down = self._free
        edge = 2 * self.reach.spread
        fitted = np.clip(directions, np.where(down, -2.0, edge), np.where(up, 2.0, -edge))
        return np.where(self.can_move, fitted, 0.0)

    def at(self, points: Float) -> tuple[Float, Float]:
        """Evaluate points (B, n) and the base point in one call; return base values, (m,), and the others."""
        self.evaluations += len(points) + 1
        values = self.evaluate(self.round(np.concatenate([self.point[None], points])))
        return values[0], values[1:]

    def end(self, step: float | Float, directions: Float) -> Float:
        """Return x + step * d."""
        return np.asarray(self.point + step * self.scale * directions)

    def slopes_along(self, directions: Float, steps: float | Float) -> tuple[Float, Float]:
        """Return one-sided slopes at the point along directions (K, n), and their rounding, (K, m) each.

        Args:
            directions: where to.
            steps: how far, one for all or one for each, (K, 1).
        """
        slopes, errors = [], []
        steps = np.broadcast_to(steps, (len(directions), 1))
        per_call = max(1, FLOATS_AT_ONCE // max(self.point.size, self.unit.size, 1) - 1)
        for start in range(0, len(directions), per_call):
            step = steps[start : start + per_call]
            base, values = self.at(self.end(step, directions[start : start + per_call]))
            slopes.append((values - base) / step)
            errors.append(2 * OF_A_VALUE * self.unit * np.maximum(np.abs(values), np.abs(base)) / step)
        return np.concatenate(slopes), np.concatenate(errors)

    def find_pieces(self, ends: Float, directions: Float, rows: np.ndarray) -> Pieces:
        """Difference along directions (q, n), at points near x in the directions `ends`, (K, n)."""
        # One more direction is mixed from the others, because slopes don't add up where a tie is left at the
        # end. The slopes of the median of three equal numbers are all zero, but not along all inputs at once.
        mixture = self.generator.uniform(0.5, 1.0, len(directions)) / np.sqrt(len(directions))
        mixture *= self.generator.choice([-1.0, 1.0], len(directions))
        beside = self.reach.spread * np.concatenate([directions, mixture[None] @ directions])
        per_end = 2 * len(beside) + 3
        width = max(self.point.size, self.unit.size, 1)
        per_call = max(1, FLOATS_AT_ONCE // width // per_end)
        batches = []
        for start in range(0, len(ends), per_call):
            some = self.fit(ends[start : start + per_call])
            points = [
                self.end(self.reach.near, np.stack([end, *(end + beside), *(end - beside)])) for end in some
            ]
            points += [self.end(step, some) for step in (self.reach.far, self.reach.nearest)]
            base, values = self.at(np.concatenate(points))
            count = len(some)
            far, nearest = values[-2 * count : -count, rows], values[-count:, rows]
            around = values[: -2 * count, rows].reshape(count, per_end - 2, len(rows))
            batches.append(self._take_slopes(base[rows], around, (far, nearest), self.unit[rows], mixture))
        return reduce(Pieces.join, batches)

    def _take_slopes(
        self, base: Float, around: Float, checks: tuple[Float, Float], unit: Float, mixture: Float
    ) -> Pieces:
        """Return the slopes of (K, 1 + 2 q + 2, R) values near the point.

        Args:
            base: (R,) values at the point.
            around: values at the ends, and beside them along the directions and their mixture.
            checks: (K, R) values at a larger and at a smaller distance.
            unit: (R,) unit roundoff.
            mixture: (q,) the weights of the last direction's mixture.
        """
        far, nearest = checks
        reach, count = self.reach, around.shape[1] // 2
        width = reach.near * reach.spread
        size = OF_A_VALUE * unit * np.maximum(np.abs(base), np.abs(around).max(axis=1))
        middle, above, below = around[:, :1], around[:, 1 : count + 1], around[:, count + 1 :]
        slope = (above - below) / (2 * width)
        bend = np.abs(above - 2 * middle + below) / width
        steps = (reach.far, reach.near, reach.nearest)
        moved = [
            (value - base) / step for value, step in zip((far, middle[:, 0], nearest), steps, strict=True)
        ]
        largest = np.maximum(np.abs(slope).max(axis=1), np.abs(moved).max(axis=0))
        # Two values are rounded, and so are the points at which they are taken.
        rounding = size / width + 2 * self.input_unit / width * largest
        # This near to the tie, a slope still differs from the one at the tie by its change on the way:
        # about as much as is seen along the way, and up to four times that in other directions.
        curved = np.abs(moved[0] - moved[1]) * 4 * reach.near / (reach.far - reach.near)
        curved += 4 * size / reach.near * 4 * reach.near / (reach.far - reach.near)
        bent = np.maximum(bend - 4 * rounding[:, None], 0.0)
        error_bound = curved[:, None] + 0.5 * bent + rounding[:, None]
        is_single = np.abs(moved[2] - moved[0]) <= reach.apart * largest + 4 * size / reach.nearest
        is_single &= np.abs(moved[1] - moved[0]) <= reach.apart * largest + 4 * size / reach.near
        is_single &= (bent <= reach.bent * largest[:, None] + 4 * rounding[:, None]).all(axis=1)
        adds_up = np.abs(np.einsum("q,kqr->kr", mixture, slope[:, :-1]) - slope[:, -1])
        is_single &= adds_up <= reach.bent * largest + 8 * rounding
        is_single &= np.isfinite(slope).all(axis=1) & np.isfinite(error_bound).all(axis=1)
        return Pieces(slope[:, :-1], error_bound[:, :-1], is_single)


@dataclass(frozen=True)
class Pieces:
    """Slopes (K, q, R) of K points' pieces along q directions in R rows, with errors and places."""

    slope: Float  # of the smooth function near the point
    error_bound: Float  # bound on the error of each
    is_single: Mask  # (K, R) whether the point lies inside a single piece that reaches to x

    def join(self, other: Pieces) -> Pieces:
        """Return both sets of pieces together."""
        return Pieces(
            np.concatenate([self.slope, other.slope]),
            np.concatenate([self.error_bound, other.error_bound]),
            np.concatenate([self.is_single, other.is_single]),
        )


def is_bent(near: Neighbourhood, slopes: Callable[[Float], Float]) -> Mask:
    """Say which rows aren't differentiable at the point, whatever their elements show, (m,).

    The median of three equal numbers is flat along each of them, and moves with all of them.

    Args:
        slopes: (K, n) maps directions to (K, m), the slopes that follow from the elements' own; NaN where
            unknown.
    """
    reach = near.reach
    drawn = np.copysign(near.generator.uniform(0.5, 1.0, (2, near.point.size)), 1.0)
    drawn *= near.generator.choice([-1.0, 1.0], drawn.shape)
    # One more direction moves all inputs to one side: for a median, no other is sure to show the bend.
    drawn = np.concatenate([drawn, np.abs(drawn[:1])])
    directions = near.fit(np.concatenate([drawn, -drawn]))
    expected = slopes(directions)
    bends = np.zeros(near.unit.size, dtype=bool)
    steps = np.repeat([reach.far, reach.near], len(directions))[:, np.newaxis]
    along, roundings = near.slopes_along(np.concatenate([directions, directions]), steps)
    (far, close), rounding = np.split(along, 2), roundings[len(directions) :]
    expected = np.where(np.isfinite(expected), expected, 0.5 * (close - np.roll(close, 3, axis=0)))
    beyond = [far - expected, close - expected]
    size = np.maximum(np.abs(close), np.abs(expected))
    # At a kink the difference doesn't depend on the step. It falls with the step for a curve, and grows
    # for a jump and for noise.
    stays = (np.abs(beyond[1]) > 0.5 * np.abs(beyond[0])) & (np.abs(beyond[1]) < 2 * np.abs(beyond[0]))
    is_clear = np.abs(beyond[1]) > reach.apart * size + MARGIN * rounding
    bends |= (stays & is_clear).any(axis=0)
    return bends


# Further random steps in each later round, beside those along which the gradient seems to be outside.
MORE_ENDS = 6
# A row whose gradient comes nearer each time, or that no sharp piece shows, ends with these.
ROUNDS = 24
# How many directions per input of the tie are searched for one along which a row moves as its gradient says.
PER_INPUT = 16
# How many rows' own directions are followed in one round; the other rows use the same points.
LEADS = 64
COMBINED = 4
# How far random directions deviate from a given one, as a part of it: the given one may only touch the edge
# of a piece.
BLUR = 0.25
# How many floats may be evaluated in all; beyond this, open rows stay open.
BUDGET = FEW * FLOATS_AT_ONCE


class Place(IntEnum):
    """Where a row's gradient lies relative to the slopes of its pieces."""

    UNKNOWN = 0
    INSIDE = 1
    OUTSIDE = 2
    SMOOTH = 3  # there is only one piece: its elements show everything


@dataclass(frozen=True)
class Claims:
    """Gradients of R rows of the function, in units of its inputs' scale."""

    rows: np.ndarray  # (R,) which rows
    # maps directions (K, n) to (K, R), the gradients' slopes along them
    slopes_along: Callable[[Float], Float]
    # maps magnitudes (K, n) of directions to (K, R), the allowed error of these slopes
    allowed: Callable[[Float], Float]
    # maps a row's index in `rows` to the inputs of its tie and its gradient for them
    involved: Callable[[int], tuple[np.ndarray, Float]]
    widest: int  # the largest number of inputs in a tie


@dataclass(frozen=True)
class Placement:
    """What is known about R rows."""

    place: np.ndarray  # (R,) of `Place`
    lack: Float  # (R, q) how far outside the gradient lies, along each direction
    error_bound: Float  # (R,) the largest error of a slope that this relies on
    is_tie: Mask  # (R,) whether there is more than one piece


def judge_rows(near: Neighbourhood, claims: Claims, directions: Float) -> Placement:
    """Say for each row whether its gradient is that of one of its pieces, or a weighted mean of several.

    Args:
        claims: the gradients.
        directions: (q, n) along which they are compared.

    Returns:
        Where the gradients lie.
    """
    return _Search(near, claims, np.where(near.can_move, directions, 0.0)).run()


@dataclass
class _Search:
    near: Neighbourhood
    claims: Claims
    directions: Float
    place: np.ndarray = field(init=False)
    lack: Float = field(init=False)
    error_bound: Float = field(init=False)
    is_tie: Mask = field(init=False)
    is_known: Mask = field(init=False)

    def run(self) -> Placement:
        """Search for pieces until every row is decided, or nothing new is found."""
        near, count = self.near, len(self.claims.rows)
        shape = (count, len(self.directions))
        self.place = np.zeros(count, dtype=np.int8)
        self.lack, self.error_bound, self.is_tie = (
            np.zeros(shape),
            np.zeros(count),
            np.zeros(count, dtype=bool),
        )
        self.is_known = self.is_tie.copy()
        self.wanted = self.claims.slopes_along(self.directions).T
        self.allowed = self.claims.allowed(np.abs(self.directions)).T
        self.nearest, self.stale = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
        # As many in the opposite directions: of two pieces, both are seen then.
        half = self._draw_ends(DIRECTIONS)
        self.ends = np.concatenate([half, -half])
        pieces = near.find_pieces(self.ends, self.directions, self.claims.rows)
        seems_outside = np.zeros_like(self.is_tie)
        for turn in range(ROUNDS):
            towards = self._place_rows(pieces)
            # Rows that are undecided for lack of points get more of them. So do those outside: of many pieces
            # one may be missing. They stay outside unless a later hull holds them.
            seems_outside |= (self.place == Place.OUTSIDE) & (self.stale >= PATTERN)
            patience = np.where(self.is_tie, 2 * PATTERN, PATTERN)
            rows = np.flatnonzero((self.place != Place.INSIDE) & (self.stale < patience))
            if not rows.size or near.evaluations * max(near.point.size, near.unit.size) > BUDGET:
                break
            ends = [self._draw_ends(MORE_ENDS), *self._step_outward(rows, towards, turn)]
            if turn == 1:
                ends.append(self._find_matching(rows))
            pieces = pieces.join(near.find_pieces(np.concatenate(ends), self.directions, self.claims.rows))
        self.place[(self.place == Place.OUTSIDE) & (self.stale < PATTERN)] = Place.UNKNOWN
        self.place[(self.place == Place.UNKNOWN) & seems_outside] = Place.OUTSIDE
        is_smooth = self.is_known & ~self.is_tie
        self.place[is_smooth] = Place.SMOOTH
        return Placement(self.place, self.lack, self.error_bound, self.is_tie)

    def _draw_ends(self, count: int) -> Float:
        return self.near.generator.standard_normal((count, self.near.point.size))

    def _place_rows(self, pieces: Pieces) -> Float:
        """Place every open row by the pieces known so far; return the directions (R, q) between them."""
        towards = np.zeros(self.wanted.shape)
        rows = np.flatnonzero(self.place != Place.INSIDE)
        slope, error_bound = (
            each[:, :, rows].transpose(2, 0, 1) for each in (pieces.slope, pieces.error_bound)
        )
        is_single, allowed = pieces.is_single[:, rows].T.copy(), self.allowed[rows]
        # A piece with far larger errors than the others shows less than they do.
        most = error_bound.max(axis=2)
        ranked = np.sort(np.where(is_single, most, np.inf), axis=1)
        usual = ranked[np.arange(rows.size), (is_single.sum(axis=1) - 1) // 2]
        is_single &= most <= (MARGIN * usual + allowed.max(axis=1))[:, None]
        is_known = is_single.sum(axis=1) > 1  # two points
        self.stale[rows[~is_known]] += 1
        rows, slope, error_bound, is_single = (
            rows[is_known],
            slope[is_known],
            error_bound[is_known],
            is_single[is_known],
        )
        if not rows.size:
            return towards
        seen = is_single[:, :, None]
        worst = np.where(seen, error_bound, 0.0).max(axis=1)
        apart = np.where(seen, slope, -np.inf).max(axis=1) - np.where(seen, slope, np.inf).min(axis=1)
        bound = self.allowed[rows] + worst
        is_tie = (apart > MARGIN * bound).any(axis=1)
        # As at a kink in one element: `second_stage.decide`.
        is_sharp = (worst <= np.maximum(2 * self.allowed[rows], KNOWN * apart.max(axis=1)[:, None])).all(
            axis=1
        )
        # Where both sides are exact, the smallest difference counts.
        bound += EXACT * apart.max(axis=1)[:, None]
        points = np.where(seen, (slope - self.wanted[rows][:, None]) / bound[:, None], 0.0)
        nearest, outside = nearest_to_zero(points, is_single)
        reached = np.abs(nearest).max(axis=1)
        is_inside = (reached <= 1) & is_sharp
        # Along the separating direction: how many points show the outermost piece.
        level = (
            np.einsum("rkq,rq->rk", points, nearest)
            / np.maximum(np.abs(nearest).sum(axis=1), 1e-300)[:, None]
        )
        tops = (is_single & (level <= outside[:, None] + 1)).sum(axis=1)
        is_outside = (outside > MARGIN) & is_sharp & (tops >= PATTERN)
        # In its squared distance: if k of n pieces are missing, their mean's is k / (n (n - k)).
        # In the largest component, a tie of many inputs comes no nearer until its last piece is found.
        distance = np.square(nearest).sum(axis=1)
        self.stale[rows] += distance > NO_PROGRESS * self.nearest[rows]
        self.nearest[rows] = np.minimum(distance, self.nearest[rows])
        self.place[rows] = np.select(
            [is_tie & is_inside, is_tie & is_outside], [Place.INSIDE, Place.OUTSIDE], Place.UNKNOWN
        )
        self.lack[rows] = -nearest * bound
        self.is_known[rows] = True
        self.is_tie[rows] = is_tie
        self.error_bound[rows] = worst.max(axis=1)
        towards[rows] = np.nan_to_num(-nearest / bound)
        return towards

    def _step_outward(self, rows: np.ndarray, towards: Float, turn: int) -> list[Float]:
        """Return steps in the directions in which rows seem to lie outside, and near these."""
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
            # Rows that share no input can use one step together.
            end, is_taken = self._draw_ends(1)[0], np.zeros(near.point.size, dtype=bool)
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
            blur = np.where(is_taken, BLUR * self._draw_ends(1)[0], 0.0)
            ends += [end, -end, end + blur, -end + blur]
            wanted = left
        return [np.array(ends)] if ends else []

    def _find_matching(self, rows: np.ndarray) -> Float:
        """Return random directions along which rows move as their gradients say: perhaps into their piece."""
        near, claims = self.near, self.claims
        width = max(near.point.size, near.unit.size)
        count = max(1, min(PER_INPUT * claims.widest, BUDGET // 4 // width))
        ends = near.fit(self._draw_ends(count))
        slopes, rounding = near.slopes_along(ends, near.reach.near)
        slopes, rounding = slopes[:, claims.rows[rows]], rounding[:, claims.rows[rows]]
        off = np.abs(slopes - claims.slopes_along(ends)[:, rows]) - rounding
        off = np.nan_to_num(off / np.abs(slopes), nan=np.inf)
        best = np.argmin(off, axis=0)
        matched = np.unique(best[off[best, np.arange(rows.size)] <= near.reach.apart])
        return np.asarray(ends[matched])


# Hulls that are still open then are solved one by one, such as those of 16 and more equal elements, whose
# gradient may be a mean of all pieces.
MOST_STEPS = 200
# A few roundings: shares and gains below it are zero.
EXACT = OF_SOME_OPERATIONS * FLOAT64.unit_roundoff


def nearest_to_zero(points: Float, is_there: Mask) -> tuple[Float, Float]:
    """Find the point of each hull that is nearest to zero, until it is clear on which side of 1 it lies.

    Args:
        points: (R, K, q) the hulls' points, in units of what is allowed along each direction.
        is_there: (R, K) which of them count; at least one of each hull.

    Returns:
        The points, (R, q); and a lower bound (R,) on the distance from zero, in the largest component, of
        every point of the hull: at most 0 where zero may be inside.
    """
    best, bound = np.zeros((len(points), points.shape[2])), np.zeros(len(points))
    todo = np.arange(len(points))
    hulls, there = points, is_there
    start = np.argmin(np.where(there, np.square(hulls).sum(axis=2), np.inf), axis=1)
    share = np.zeros(hulls.shape[:2])
    share[todo, start] = 1.0
    at = hulls[todo, start]
    for _step in range(MOST_STEPS):
        row = np.arange(len(todo))
        level = np.einsum("rkq,rq->rk", hulls, at)
        ahead = np.argmin(np.where(there, level, np.inf), axis=1)
        behind = np.argmax(np.where(share > 0, level, -np.inf), axis=1)
        norm, total = np.square(at).sum(axis=1), np.abs(at).sum(axis=1)
        least = level[row, ahead]
        lower = np.where(total > 0, least / total, 0.0)
        best[todo], bound[todo] = at, np.maximum(bound[todo], lower)
        is_known = (np.abs(at).max(axis=1) <= 1) | (lower > MARGIN) | (norm - least <= DIGITS * norm)
        if is_known.all():
            return best, bound
        step = hulls[row, ahead] - hulls[row, behind]
        wanted = (level[row, behind] - least) / np.square(step).sum(axis=1)
        wanted = np.clip(np.nan_to_num(wanted), 0.0, share[row, behind])
        at = at + wanted[:, None] * step
        share[row, behind] -= wanted
        share[row, ahead] += wanted
        keep = ~is_known
        todo, hulls, there, share, at = todo[keep], hulls[keep], there[keep], share[keep], at[keep]
    for index, hull, counts in zip(todo, hulls, there, strict=True):
        best[index] = nearest = _solve(hull[counts])
        total = float(np.abs(nearest).sum())
        if total > 0:
            bound[index] = max(bound[index], float(np.min(hull[counts] @ nearest)) / total)
    return best, bound


def _solve(hull: Float) -> Float:
    """Find the point of one hull, (K, q), that is nearest to zero: least squares with non-negative shares.

    The algorithm is NNLS of Lawson and Hanson, Solving Least Squares Problems (1974). That the shares add up
    to 1 is one more equation; scaling the result makes it exact.
    """
    unit = float(np.abs(hull).max())
    matrix = np.concatenate([hull.T / unit, np.ones((1, len(hull)))])
    wanted = np.zeros(len(matrix))
    wanted[-1] = 1.0
    share, is_used = np.zeros(len(hull)), np.zeros(len(hull), dtype=bool)
    for _ in range(3 * len(hull)):
        gain = np.where(is_used, -np.inf, matrix.T @ (wanted - matrix @ share))
        if not gain.max() > EXACT:
            break
        is_used[np.argmax(gain)] = True
        while is_used.any():
            tried = np.zeros(len(hull))
            tried[is_used] = np.linalg.lstsq(matrix[:, is_used], wanted, rcond=None)[0]
            falls = is_used & (tried <= 0)
            if not falls.any():
                share = tried
                break
            step = float(np.min(share[falls] / (share[falls] - tried[falls])))
            share += step * (tried - share)
            is_used &= share > EXACT
            share[~is_used] = 0.0
    return np.asarray(share @ hull / share.sum())
