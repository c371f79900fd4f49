"""Tells a slope from a stair's tread: what lies beyond the steps that agree with it.

Where an intermediate is far larger than the output (log(1 + x^4) at x = 1e-3), f is a staircase of rounding
whose treads may be wider than every small step: differences there settle on a slope that isn't f's, with no
noise to be seen. A smooth function leaves its tangent gradually, a truncation error growing by 16 from rung
to rung; a stair, or a kink, abruptly. Stairs have treads, a kink has none. A mismatch is only called where f
was seen to be no staircase that could explain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gradcheck_cli.numerics.steps import power_of_two

if TYPE_CHECKING:
    from gradcheck_cli.numerics.precision import Float
    from gradcheck_cli.numerics.sampling import Sampler
    from gradcheck_cli.numerics.series import Elements, Series
    from gradcheck_cli.numerics.steps import Domain

# Truncation of order h^2 grows by 16, of order h^4 by 256, from rung to rung. What is called abrupt without
# need costs evaluations, no verdict. (empirical)
ABRUPT = 64.0
# ... and goes on growing: a slope that differs, but by as much at the next rung, is another slope.
GROWTH = 2.7
# A fine grid from the last step that agrees to four times the first that doesn't. Steps are a factor of 4
# apart and agree to both sides, so a tread is at least half of that first step wide: six points of the grid.
GRID = 48
BEYOND = 4.0
# Increments below a tenth of the largest nearby are a tread; a third of them makes stairs (a kink's are alike
# all along, a smooth function's change little from one to the next). (empirical)
TREAD = 0.1
NEARBY = 8
TREADS = 0.35
# Stairs of height J that start at distance d hide slopes up to J / d; four times that, as either is rough.
HIDDEN = 4.0


# A flat function may be one in which what moves is absorbed by a larger intermediate, which nothing shows. 1
# is by far the commonest (1 + x, 1 - x); the rounding of a few operations on it may hide a slope.
COMMONEST_INTERMEDIATE = 1.0
ABSORBED = 16.0


class Edge(IntEnum):
    """How a function leaves its tangent as steps grow."""

    GRADUAL = 0  # as smooth functions do
    ABRUPT = 1  # a kink or a jump away from the point, or stairs
    NONE = 2  # not within the steps taken


@dataclass(frozen=True)
class Stairs:
    """(e,) each, 0 where there are none: the slope they may hide, their height, how many risers were seen."""

    hidden: Float
    height: Float
    risers: np.ndarray


def find_edges(
    series: Series, slope: Float, uncertainty: Float, noise: Float
) -> tuple[np.ndarray, Float, Float]:
    """Find the first rung that disagrees with a slope, and how it does so.

    Args:
        series: the samples.
        slope: (e,) the slope.
        uncertainty: (e,) and its bound.
        noise: (e,) bound on the error of a value, where it was measured.

    Returns:
        `Edge`, the step before it and the step at it, (e,) each.
    """
    at, first = series.at, series.sentinels
    edge = np.full(slope.shape, Edge.NONE, dtype=np.int8)
    low, high = np.zeros(slope.shape), np.zeros(slope.shape)
    is_open = np.isfinite(uncertainty)
    with np.errstate(all="ignore"):
        blur = uncertainty + at.noise * np.maximum(noise / at.error, 1.0)
        away = np.abs(at.slope - slope)
        for k in range(first + 1, at.slope.shape[0]):
            is_usable = at.is_usable[k] & at.is_usable[k - 1]
            leaves = is_open & is_usable & (away[k] > 2 * blur[k])
            scale = np.maximum(np.maximum(away[k - 1], blur[k - 1]), blur[k])
            is_abrupt = away[k] > ABRUPT * scale
            if k + 1 < away.shape[0]:
                is_abrupt |= at.is_usable[k + 1] & ~(away[k + 1] >= GROWTH * away[k])
            edge = np.where(leaves, np.where(is_abrupt, Edge.ABRUPT, Edge.GRADUAL), edge)
            low, high = np.where(leaves, series.step[k - 1], low), np.where(leaves, series.step[k], high)
            is_open = is_open & ~leaves
    return edge.astype(np.int8), low, high


def absorbed_slope(base: Float, unit: Float, step_scale: Float) -> Float:
    """Return how large a slope rounding to a common intermediate may hide from a flat function's values."""
    return ABSORBED * unit * np.maximum(np.abs(base), COMMONEST_INTERMEDIATE) / step_scale


def find_stairs(  # noqa: PLR0913, PLR0917 (elements, their slopes, and the function)
    sampler: Sampler,
    elements: Elements,
    domain: Domain,
    noise: Float,
    slope: Float,
    low: Float,
    high: Float,
) -> Stairs:
    """Look at what lies beyond the steps that agree with a slope.

    Args:
        sampler: the function.
        elements: (e,) those that leave their slopes abruptly.
        domain: (n,) the room.
        noise: (e,) bound on the error of a value.
        slope: (e,).
        low: (e,) the largest step that agrees.
        high: (e,) the smallest that doesn't.

    Returns:
        What stairs there are.
    """
    hidden, heights = np.zeros(slope.shape), np.zeros(slope.shape)
    count = np.zeros(slope.shape, dtype=np.int64)
    # Rows of one column with the same edge share their samples.
    level = power_of_two(np.maximum(high, np.finfo(np.float64).tiny))
    groups, owner = np.unique(
        np.stack([elements.columns.astype(np.float64), level]), axis=1, return_inverse=True
    )
    owner = owner.ravel()
    columns = groups[0].astype(np.int64)
    start, stop = np.zeros(columns.size), np.zeros(columns.size)
    start[owner], stop[owner] = low, high
    distance = start[:, None] + (BEYOND * stop - start)[:, None] * np.linspace(0, 1, GRID)
    x, room = sampler.point[columns], domain.take(columns)
    for sign, limit in ((1.0, room.above), (-1.0, room.below)):
        there = sampler.precision.round(x[:, None] + sign * np.minimum(distance, limit[:, None]))
        for batch in sampler.along(columns, there):
            which, place = batch.among(owner)
            group, row = owner[which], elements.rows[which]
            values = batch.values[place, :, row].T
            step = np.abs(there - x[:, None])[group].T
            base = batch.base[row]
            with np.errstate(all="ignore"):
                rest = values - base - sign * slope[which] * step
                moved = np.abs(np.diff(rest, axis=0))
                height = moved.max(axis=0)
                around = sliding_window_view(
                    np.pad(moved, ((NEARBY, NEARBY), (0, 0))), 2 * NEARBY + 1, axis=0
                ).max(axis=-1)
                is_tread = (moved <= TREAD * around) | (moved <= TREAD**2 * height)
                has_begun = np.logical_or.accumulate(moved > TREAD * height, axis=0)
                # The first movement's own increment is no tread; what follows may be.
                after = has_begun[:-1]
                treads = (after & is_tread[1:]).sum(axis=0)
                is_stair = (height > 8 * noise[which]) & (treads >= TREADS * np.maximum(after.sum(axis=0), 1))
                is_stair |= ~np.isfinite(height)
                risers = np.where(is_stair, (moved > 0.5 * height).sum(axis=0), 0)
                width = np.maximum(step[0], step[1] - step[0])
                found = np.where(is_stair, HIDDEN * height / width, 0.0)
            hidden[which] = np.fmax(hidden[which], np.where(np.isfinite(found), found, np.inf))
            tall = np.where(is_stair & np.isfinite(height), height, 0.0)
            heights[which] = np.maximum(heights[which], tall)
            count[which] += risers
    return Stairs(hidden, heights, count)
