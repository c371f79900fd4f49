"""The smooth pieces that a function is made of near a point: where each of them goes along some directions.

A piece is met by stepping off the point in a direction d, which for almost every d ends inside of one, and is
differenced there, by steps far smaller still. One-sided slopes at the point itself wouldn't do: those of the
second of three equal numbers, sorted, say that it is their median, which is no piece.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.sampling import MAX_FLOATS_PER_CALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck_cli.numerics.differences import Mask
    from gradcheck_cli.numerics.precision import Float


@dataclass(frozen=True)
class Reach:
    """How far to step, over the inputs' scale.

    Attributes:
        near: off the tie, where slopes are taken: they change on the way by `near` times the curvature, and
            are rounded by 2 u |f| / (near * spread): in float64 1e-6 and 1e-7, what a gradient may
            be off by; in float32 4e-3 and 2e-4, about twice that.
        far: further off by a factor that shows how the slope changes on the way.
        nearest: here the function must still move as it does at `far`: else what lies between is a kink
            close by, not at the point.
        spread: of the points that a slope is taken from, over the distance from the tie: a piece that is
            narrower than that, as a direction sees it, isn't seen.
        bent: the most that the two halves of a slope may differ by, over the row's largest slope: a curve's
            do by `spread` times its curvature; where a piece ends in between, by as much as the pieces do.
        apart: likewise slopes along d at `far` and `nearest`: a curve's by `far` times its curvature.
    """

    near: float
    far: float
    nearest: float
    spread: float
    bent: float
    apart: float


# Half precision shows no slope of a slope: there elements are judged one by one.
REACHES = {
    "float64": Reach(2.0**-20, 2.0**-17, 2.0**-32, 2.0**-9, 2.0**-6, 2.0**-8),
    "float32": Reach(2.0**-8, 2.0**-6, 2.0**-12, 2.0**-3, 2.0**-4, 2.0**-3),
}
# The last operation isn't the only one that rounds: as in `differences`.
ROUNDINGS = 2.0
# Pieces are at least this many times the uncertainty apart, or there are none.
CLEAR = 8.0


@dataclass
class Neighbourhood:
    """A function of all the inputs that may move, near a point; directions are in units of `scale`.

    Attributes:
        evaluate: (B, n) points, rounded as the inputs are, to (B, m) values.
        point: (n,).
        scale: (n,) steps are relative to.
        below: (n,) the room.
        above: (n,) likewise.
        unit: (m,) unit roundoff of each value.
        input_unit: the coarsest of the inputs.
        round: rounds points to what the inputs can hold.
        reach: how far to step.
        generator: draws directions.
        evaluations: so far.
    """

    evaluate: Callable[[Float], Float]
    point: Float
    scale: Float
    below: Float
    above: Float
    unit: Float
    input_unit: float
    round: Callable[[Float], Float]
    reach: Reach
    generator: np.random.Generator
    evaluations: int = 0
    _free: tuple[Mask, Mask] = field(init=False)

    def __post_init__(self) -> None:
        """See to which side each input can move."""
        # A direction's components are at most 2 (`fit`), and the slopes' points lie beyond its end.
        need = 4 * self.reach.far * self.scale
        self._free = self.above >= need, self.below >= need

    @property
    def can_move(self) -> Mask:
        """Which inputs can move, (n,)."""
        return np.asarray(self._free[0] | self._free[1])

    def fit(self, directions: Float) -> Float:
        """Return directions (K, n) that keep to the domain, and points beside their ends that do, too."""
        up, down = self._free
        edge = 2 * self.reach.spread
        fitted = np.clip(directions, np.where(down, -2.0, edge), np.where(up, 2.0, -edge))
        return np.where(self.can_move, fitted, 0.0)

    def at(self, points: Float) -> tuple[Float, Float]:
        """Evaluate points (B, n), in one call with the base point; return its values, (m,), and theirs."""
        self.evaluations += len(points) + 1
        with np.errstate(all="ignore"):
            values = self.evaluate(self.round(np.concatenate([self.point[None], points])))
        return values[0], values[1:]

    def end(self, step: float, directions: Float) -> Float:
        """Return x + step * d."""
        return np.asarray(self.point + step * self.scale * directions)

    def along(self, directions: Float, step: float) -> tuple[Float, Float]:
        """Return one-sided slopes at the point along directions (K, n), and their rounding, (K, m) each."""
        slopes, errors = [], []
        per_call = max(1, MAX_FLOATS_PER_CALL // max(self.point.size, self.unit.size, 1) - 1)
        for start in range(0, len(directions), per_call):
            base, values = self.at(self.end(step, directions[start : start + per_call]))
            with np.errstate(all="ignore"):
                slopes.append((values - base) / step)
                errors.append(2 * ROUNDINGS * self.unit * np.maximum(np.abs(values), np.abs(base)) / step)
        return np.concatenate(slopes), np.concatenate(errors)

    def pieces(self, ends: Float, directions: Float, rows: np.ndarray) -> Pieces:
        """Difference along directions (q, n), at points next to x in the directions `ends`, (K, n)."""
        # One more, mixed of the others: where a tie is left at the end, slopes don't add up. Those of three
        # equal numbers' median are all zero, but not along all at once.
        mixture = self.generator.uniform(0.5, 1.0, len(directions)) / np.sqrt(len(directions))
        mixture *= self.generator.choice([-1.0, 1.0], len(directions))
        beside = self.reach.spread * np.concatenate([directions, mixture[None] @ directions])
        per_end = 2 * len(beside) + 3
        width = max(self.point.size, self.unit.size, 1)
        per_call = max(1, MAX_FLOATS_PER_CALL // width // per_end)
        found = []
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
            found.append(self._pieces(base[rows], around, (far, nearest), self.unit[rows], mixture))
        return reduce(Pieces.join, found)

    def _pieces(
        self, base: Float, around: Float, checks: tuple[Float, Float], unit: Float, mixture: Float
    ) -> Pieces:
        """Return slopes of (K, 1 + 2 q + 2, R) values next to the point.

        Args:
            base: (R,) values at the point.
            around: those at the ends, and beside them along the directions and their mixture.
            checks: (K, R) values further off, and nearer.
            unit: (R,) unit roundoff.
            mixture: (q,) what the last direction is mixed of.
        """
        far, nearest = checks
        reach, count = self.reach, around.shape[1] // 2
        width = reach.near * reach.spread
        with np.errstate(all="ignore"):
            size = ROUNDINGS * unit * np.maximum(np.abs(base), np.abs(around).max(axis=1))
            middle, above, below = around[:, :1], around[:, 1 : count + 1], around[:, count + 1 :]
            slope = (above - below) / (2 * width)
            bend = np.abs(above - 2 * middle + below) / width
            steps = (reach.far, reach.near, reach.nearest)
            moved = [
                (value - base) / step for value, step in zip((far, middle[:, 0], nearest), steps, strict=True)
            ]
            largest = np.maximum(np.abs(slope).max(axis=1), np.abs(moved).max(axis=0))
            # Two values; and the points they stand for are rounded, too.
            rounding = size / width + 2 * self.input_unit / width * largest
            # So near to the tie the slope is still off by what it changes by on the way there, which is what
            # the slope along the way there changes by, about, and four times that in other directions.
            curved = np.abs(moved[0] - moved[1]) * 4 * reach.near / (reach.far - reach.near)
            curved += 4 * size / reach.near * 4 * reach.near / (reach.far - reach.near)
            bent = np.maximum(bend - 4 * rounding[:, None], 0.0)
            doubt = curved[:, None] + 0.5 * bent + rounding[:, None]
            is_one = np.abs(moved[2] - moved[0]) <= reach.apart * largest + 4 * size / reach.nearest
            is_one &= np.abs(moved[1] - moved[0]) <= reach.apart * largest + 4 * size / reach.near
            is_one &= (bent <= reach.bent * largest[:, None] + 4 * rounding[:, None]).all(axis=1)
            adds_up = np.abs(np.einsum("q,kqr->kr", mixture, slope[:, :-1]) - slope[:, -1])
            is_one &= adds_up <= reach.bent * largest + 8 * rounding
            is_one &= np.isfinite(slope).all(axis=1) & np.isfinite(doubt).all(axis=1)
        return Pieces(slope[:, :-1], doubt[:, :-1], is_one)


@dataclass(frozen=True)
class Pieces:
    """Slopes (K, q, R) of K points' pieces along q directions in R rows, their errors, and where they hold.

    Attributes:
        slope: of the smooth function that holds next to the point.
        doubt: bound on the error of each.
        is_one: (K, R) whether the point lies inside of one piece, which reaches to x.
    """

    slope: Float
    doubt: Float
    is_one: Mask

    def join(self, other: Pieces) -> Pieces:
        """Return both."""
        return Pieces(
            np.concatenate([self.slope, other.slope]),
            np.concatenate([self.doubt, other.doubt]),
            np.concatenate([self.is_one, other.is_one]),
        )


def is_bent(near: Neighbourhood, slopes: Callable[[Float], Float]) -> Mask:
    """Say which rows aren't differentiable at the point, whatever their elements show, (m,).

    The median of three equal numbers is flat along each of them, and moves with all of them.

    Args:
        near: the function.
        slopes: (K, n) directions to (K, m), what the elements' own slopes make of them; NaN where unknown.
    """
    reach = near.reach
    drawn = np.copysign(near.generator.uniform(0.5, 1.0, (2, near.point.size)), 1.0)
    drawn *= near.generator.choice([-1.0, 1.0], drawn.shape)
    # One more that moves all to one side: of a median nothing else is sure to show.
    drawn = np.concatenate([drawn, np.abs(drawn[:1])])
    directions = near.fit(np.concatenate([drawn, -drawn]))
    expected = slopes(directions)
    found = np.zeros(near.unit.size, dtype=bool)
    with np.errstate(all="ignore"):
        (far, _), (close, rounding) = (near.along(directions, step) for step in (reach.far, reach.near))
        expected = np.where(np.isfinite(expected), expected, 0.5 * (close - np.roll(close, 3, axis=0)))
        beyond = [far - expected, close - expected]
        size = np.maximum(np.abs(close), np.abs(expected))
        # At a kink the difference stays as it is; a curve's falls with the step, a jump's and noise grow.
        stays = (np.abs(beyond[1]) > 0.5 * np.abs(beyond[0])) & (np.abs(beyond[1]) < 2 * np.abs(beyond[0]))
        is_clear = np.abs(beyond[1]) > reach.apart * size + CLEAR * rounding
        found |= (stays & is_clear).any(axis=0)
    return found
