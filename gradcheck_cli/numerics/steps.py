"""How far to step: typical scales, room inside the domain, and steps that the input's dtype can represent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.precision import Float, Precision

# If the narrower side has less room than this, relative to the scale, a central difference would be lost in
# rounding noise: step to the wider side only. The second stage tries the narrow centre as well.
NARROW = 2.0**-12

# Inputs that are smaller than this part of their steps' scale have a scale of their own: steps of the inner
# rungs, up to an eighth of a scale, cross 0. (empirical)
FAR_BELOW = 1 / 16

_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Scales:
    """Typical sizes per input element.

    Attributes:
        weight: ws = |x|, s at 0, for tolerances only. With xs for both, a 1 % error passed on [1e-8, 1e8, 2].
    """

    step: Float  # xs = max(|x|, s), for steps only
    weight: Float


def scales(point: Float, scale: npt.ArrayLike | None = None) -> Scales:
    """Return the scales of a point. s is a tenth of the median non-zero |x|, or 1 where all are zero.

    Args:
        point: (n,).
        scale: the user's own typical magnitude, scalar or (n,), in place of s.

    Returns:
        Positive, finite scales.
    """
    magnitude = np.where(np.isfinite(point), np.abs(point), 0.0)
    if scale is None:
        typical = np.full(point.shape, typical_size(point, None))
    else:
        typical = np.broadcast_to(np.abs(np.asarray(scale, dtype=np.float64)), point.shape)
    return Scales(np.maximum(magnitude, typical), np.where(magnitude > 0, magnitude, typical))


def typical_size(point: Float, scale: float | None) -> float:
    """Return s for a point (n,), or the user's own scale."""
    if scale is not None:
        return abs(scale)
    magnitude = np.abs(point)
    nonzero = magnitude[(magnitude > 0) & (magnitude < np.inf)]
    return max(0.1 * float(np.median(nonzero, overwrite_input=True)), _TINY) if nonzero.size else 1.0


def own_scale(point: Float, step_scale: Float) -> Float:
    """Return |x| for inputs far below the scale of their steps, and that scale for all others."""
    magnitude = np.abs(point)
    return np.where((magnitude > 0) & (magnitude < FAR_BELOW * step_scale), magnitude, step_scale)


def power_of_two(x: npt.ArrayLike) -> Float:
    """Return the largest power of two not above each positive x: such a step loses nothing in x + h."""
    exponent = np.frexp(np.asarray(x, dtype=np.float64))[1]
    return np.asarray(np.ldexp(1.0, exponent - 1))


@dataclass(frozen=True)
class Domain:
    """The room around each coordinate, (n,) each, infinite where there is no bound."""

    below: Float
    above: Float

    @staticmethod
    def around(point: Float, low: npt.ArrayLike | None, high: npt.ArrayLike | None) -> Domain:
        """Measure the room from a point to the bounds; outside of them there is none."""
        lowest = np.broadcast_to(np.asarray(-np.inf if low is None else low, dtype=np.float64), point.shape)
        highest = np.broadcast_to(np.asarray(np.inf if high is None else high, dtype=np.float64), point.shape)
        with np.errstate(invalid="ignore"):  # an infinite coordinate has no room
            below, above = point - lowest, highest - point
        return Domain(np.fmax(below, 0.0), np.fmax(above, 0.0))

    def take(self, columns: np.ndarray) -> Domain:
        """Return the room of some columns."""
        return Domain(self.below[columns], self.above[columns])

    def fit(self, step_scale: Float) -> Float:
        """Return the scale of the steps: no larger than twice the room, so that half of it can be taken.

        Both sides' room counts, unless one side is too narrow to be used; then only the wider one counts.
        """
        narrower, wider = np.minimum(self.below, self.above), np.maximum(self.below, self.above)
        room = np.where(narrower >= NARROW * step_scale, narrower, wider)
        return np.asarray(np.minimum(step_scale, 2 * room))


@dataclass(frozen=True)
class Neighbours:
    """Coordinates on both sides of x and the steps actually taken; a side that doesn't exist has step 0."""

    up: Float
    down: Float
    step_up: Float
    step_down: Float


def step_to_both_sides(point: Float, step: Float, domain: Domain, precision: Precision) -> Neighbours:
    """Step to both sides of each coordinate.

    Args:
        point: (c,) coordinates.
        step: (c, k) requested steps.
        domain: the room of these coordinates.
        precision: the precision that the coordinates are rounded to.

    Returns:
        (c, k) each. A step that would leave the domain, or that rounds away, isn't taken.
    """
    x = point[:, None]

    def side(sign: float, room: Float) -> tuple[Float, Float]:
        with np.errstate(over="ignore", invalid="ignore"):
            there = precision.round(x + sign * step)
            distance = np.abs(there - x)
        is_possible = (distance > 0) & np.isfinite(there) & (distance <= room[:, None])
        return np.where(is_possible, there, x), np.where(is_possible, distance, 0.0)

    up, step_up = side(1.0, domain.above)
    down, step_down = side(-1.0, domain.below)
    return Neighbours(up, down, step_up, step_down)
