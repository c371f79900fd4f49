"""The smooth pieces of a function near a point, and the slope of each along some directions.

A piece is found by stepping off the point in a direction d. For almost every d the step ends inside one
piece, which is differenced there with far smaller steps. One-sided slopes at the point itself wouldn't do: at
three equal numbers, sorted, those of the second are the slopes of the median, which is no piece.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from gradcheck_cli.numerics.differences import Mask
from gradcheck_cli.numerics.precision import Float, PieceSteps
from gradcheck_cli.numerics.shared_limits import FLOATS_AT_ONCE, MARGIN, OF_A_VALUE


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
        with np.errstate(all="ignore"):
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
            with np.errstate(all="ignore"):
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
        with np.errstate(all="ignore"):
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
            doubt = curved[:, None] + 0.5 * bent + rounding[:, None]
            is_single = np.abs(moved[2] - moved[0]) <= reach.apart * largest + 4 * size / reach.nearest
            is_single &= np.abs(moved[1] - moved[0]) <= reach.apart * largest + 4 * size / reach.near
            is_single &= (bent <= reach.bent * largest[:, None] + 4 * rounding[:, None]).all(axis=1)
            adds_up = np.abs(np.einsum("q,kqr->kr", mixture, slope[:, :-1]) - slope[:, -1])
            is_single &= adds_up <= reach.bent * largest + 8 * rounding
            is_single &= np.isfinite(slope).all(axis=1) & np.isfinite(doubt).all(axis=1)
        return Pieces(slope[:, :-1], doubt[:, :-1], is_single)


@dataclass(frozen=True)
class Pieces:
    """Slopes (K, q, R) of K points' pieces along q directions in R rows, with errors and places."""

    slope: Float  # of the smooth function near the point
    doubt: Float  # bound on the error of each
    is_single: Mask  # (K, R) whether the point lies inside a single piece that reaches to x

    def join(self, other: Pieces) -> Pieces:
        """Return both sets of pieces together."""
        return Pieces(
            np.concatenate([self.slope, other.slope]),
            np.concatenate([self.doubt, other.doubt]),
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
    with np.errstate(all="ignore"):
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
