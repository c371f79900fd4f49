"""Tells a slope from a stair's tread by what lies beyond the steps that agree with it.

If an intermediate value is far larger than the output (log(1 + x^4) at x = 1e-3), f is a staircase of
rounding whose treads may be wider than every small step. Differences there settle on a slope that isn't f's,
and show no noise. A smooth function leaves its tangent gradually: the truncation error grows by 16 from rung
to rung. A stair or a kink leaves it abruptly. Stairs have treads, a kink has none. A mismatch is reported
only if f was seen to be no staircase that could explain it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gradcheck_cli.numerics.elements import Elements, PerElement
from gradcheck_cli.numerics.precision import Float
from gradcheck_cli.numerics.problem import Problem, power_of_two
from gradcheck_cli.numerics.refine.series import ONE_SIDED, Series
from gradcheck_cli.numerics.sampling import Sampler
from gradcheck_cli.numerics.shared_limits import OF_SOME_OPERATIONS, OWN_ORDER, PATTERN

# Truncation of order h^2 grows by 16 from rung to rung, of order h^4 by 256. A departure that is wrongly
# taken as abrupt costs evaluations, but changes no verdict. (empirical)
ABRUPT = 64.0
# The error must also go on growing, by as much as counts as settling: if it is as large at the next rung, the
# function has another slope there.
GROWTH = ONE_SIDED / 2
# A fine grid from the last step that agrees to four times the first that doesn't. Steps are a factor of 4
# apart and agree on both sides, so a tread is at least half as wide as that first step: six points of the
# grid.
GRID = 48
# A zero relies on the nearer edge of a tread, which may be far nearer than the next riser; and to see several
# risers takes more than one. So it is looked farther for these.
BEYOND = (4.0, 16.0, 64.0, 1024.0)
# Increments that aren't of the order of the largest nearby belong to a tread; if a third of them do, they are
# stairs. (A kink's increments are alike all along; a smooth function's change little from one to the next.)
# The numbers are empirical.
NEARBY = 8
TREADS = 0.35
# An increment of half of the tallest one, or more, is a riser.
RISER = 0.5
# With three even risers or more on each side, the slope is a riser's height over the distance to the next, to
# within half of it and a cell of the grid. The slope of what climbs as evenly as that varies no more.
EVEN = 1.5
# Stairs of height J that start at distance d hide slopes up to J / d; four times that, as both are rough.
HIDDEN = 4.0


# A riser's interval is halved ten times, and the steeper half is kept. A ramp's rise falls to a thousandth;
# a jump's stays the same; that of several small jumps in the interval falls to one of them. A 64th lies
# between, in the middle. Halving three times in one call takes as many points as in three, 9.
HALVINGS = (3, 3, 3, 1)
SAME_RISE = 2.0**-6
_TINY = float(np.finfo(np.float64).tiny)


class Edge(IntEnum):
    """How a function departs from its tangent as steps grow."""

    GRADUAL = 0  # as smooth functions do
    ABRUPT = 1  # a kink or a jump away from the point, or stairs
    NONE = 2  # it doesn't within the steps taken
    LATER = 3  # gradually at first, then abruptly: the treads of stairs may bend


@dataclass(frozen=True)
class Departure(PerElement):
    """How functions depart from their tangents, (e,) each: abruptly at these steps, if anywhere."""

    edge: np.ndarray  # of `Edge`
    low: Float  # the largest step that still agrees with the tangent
    high: Float  # the smallest that doesn't

    @staticmethod
    def empty(size: int) -> Departure:
        """Return departures that aren't known."""
        return Departure(np.full(size, Edge.NONE, np.int8), *(np.zeros(size) for _ in range(2)))

    def without(self, which: np.ndarray) -> Departure:
        """Return the same with some elements whose edges don't matter: they count as gradual."""
        edge = self.edge.copy()
        edge[which] = Edge.GRADUAL
        return replace(self, edge=edge)


@dataclass(frozen=True)
class Stairs(PerElement):
    """Stairs, (e,) each, 0 where there are none.

    Risers that return f to where it was climb nothing: a box's two edges hide no slope. Even stairs hide the
    slope of their climb, and no other.
    """

    hidden: Float  # how large a slope they may hide
    height: Float  # of the tallest riser
    risers: np.ndarray  # how many climb
    jumps: np.ndarray  # how many there are, up and down
    is_even: np.ndarray  # whether risers are alike, and as far from each other on both sides
    least: Float  # the least that they may add to the slope of a tread
    most: Float  # the most

    def refine(self, other: Stairs) -> Stairs:
        """Return the same with more risers, and what even stairs add, from a look farther away."""
        return replace(
            self,
            risers=np.maximum(self.risers, other.risers),
            jumps=np.maximum(self.jumps, other.jumps),
            is_even=self.is_even | other.is_even,
            least=np.where(other.is_even, other.least, self.least),
            most=np.where(other.is_even, other.most, self.most),
        )


def find_departure(
    series: Series, slope: Float, uncertainty: Float, noise: Float, *, by_sides: np.ndarray | bool = False
) -> Departure:
    """Find the first rung that disagrees with a slope, and how the disagreement grows.

    Args:
        series: the samples.
        slope: (e,) the slope.
        uncertainty: (e,) and its bound.
        noise: (e,) bound on the error of a value, where it was measured.
        by_sides: (e,) whether the slopes of both sides count, since f is flat, and a gradient isn't zero. The
            central differences of an even function are zero at any step.
    """
    at = series.at
    edge = np.full(slope.shape, Edge.NONE, dtype=np.int8)
    low, high = np.zeros(slope.shape), np.zeros(slope.shape)
    is_open = np.isfinite(uncertainty)
    blur = uncertainty + at.noise * np.maximum(noise / at.error, 1.0)
    away = np.abs(at.slope - slope)
    # Halved, as if one side alone moved: then they are as noisy as the central ones.
    away = np.where(by_sides, 0.5 * np.fmax(np.abs(at.up), np.abs(at.down)), away)
    for k in range(1, at.slope.shape[0]):
        # A one-sided slope errs by h where both sides err by h^2: compare like with like.
        is_usable = at.is_usable[k] & at.is_usable[k - 1] & (at.is_central[k] == at.is_central[k - 1])
        leaves = is_open & is_usable & (away[k] > 2 * blur[k])
        scale = np.maximum(np.maximum(away[k - 1], blur[k - 1]), blur[k])
        is_abrupt = away[k] > ABRUPT * scale
        is_later = (edge == Edge.GRADUAL) & is_usable & is_abrupt
        edge = np.where(is_later, Edge.LATER, edge)
        # Only a further step shows whether what leaves by less grows as smooth functions do.
        otherwise = Edge.NONE
        if k + 1 < away.shape[0]:
            is_abrupt |= at.is_usable[k + 1] & ~(away[k + 1] >= GROWTH * away[k])
            otherwise = Edge.GRADUAL
        edge = np.where(leaves, np.where(is_abrupt, Edge.ABRUPT, otherwise), edge)
        is_here = leaves | is_later
        low, high = np.where(is_here, series.step[k - 1], low), np.where(is_here, series.step[k], high)
        is_open = is_open & ~leaves
    low = np.where(away[0] > 2 * blur[0], 0.0, low)  # one side left it already
    return Departure(edge.astype(np.int8), low, high)


def absorbed_slope(size: Float, unit: Float, step_scale: Float) -> Float:
    """Return how large a slope rounding may hide in the values, of this size, of a flat function."""
    return OF_SOME_OPERATIONS * unit * size / step_scale


@dataclass(frozen=True)
class Tread(PerElement):
    """(e,) each: a slope, values' relative noise and least size, the steps between which f leaves the slope.

    `is_bent` says for which elements f leaves its tangent before that.
    """

    slope: Float
    noise: Float
    size: Float
    low: Float
    high: Float
    is_bent: np.ndarray


def find_stairs(problem: Problem, elements: Elements, tread: Tread, beyond: float) -> Stairs:
    """Examine what lies beyond the steps that agree with a slope.

    Args:
        elements: (e,) the elements that leave their slopes.
        tread: what may be a tread.
        beyond: how far to look, over the first step that doesn't agree.

    Returns:
        The stairs that were found.
    """
    sampler, slope, noise = problem.sampler, tread.slope, tread.noise
    hidden, heights = np.zeros(slope.shape), np.zeros(slope.shape)
    top, bottom = np.zeros(slope.shape), np.zeros(slope.shape)  # of the sum of the risers
    climbs = [_Climb.empty(slope.size), _Climb.empty(slope.size)]
    columns, owner, grids = _place_grids(problem, elements, tread, beyond)
    x = sampler.point[columns]
    for batch in sampler.move_columns(columns, np.concatenate(grids, axis=1)):
        which, value_index = batch.among(owner)
        group, row = owner[which], elements.rows[which]
        on_sides = np.split(batch.values[value_index, :, row].T, 2)
        for side, (sign, there, values) in enumerate(zip((1.0, -1.0), grids, on_sides, strict=True)):
            step = np.abs(there - x[:, None])[group].T
            base = batch.base[row]
            rest = values - base - sign * slope[which] * step
            size = np.where(np.isfinite(values), np.abs(values), 0.0).max(axis=0)
            size = np.fmax(size, tread.size[which])
            rise = np.abs(np.diff(rest, axis=0))
            change = _unusual_increments(rest, tread.is_bent[which])
            moved = np.abs(change)
            height = moved.max(axis=0)
            # A flat part is a tread itself: the root of what cancels has few others that are as wide.
            has_treads = _has_treads(moved, height) | (slope[which] == 0)
            is_stair = (height > 8 * noise[which] * size) & has_treads
            is_stair &= np.isfinite(height)
            is_stair[is_stair] = _are_jumps(
                sampler,
                elements[which[is_stair]],
                there[group[is_stair]],
                (moved[:, is_stair], rise[:, is_stair]),
                slope[which[is_stair]],
            )
            is_stair |= ~np.isfinite(height)
            riser = np.where(is_stair & (moved >= RISER * height), change, 0.0)
            climbed = np.cumsum(riser, axis=0)
            climbs[side] = climbs[side].put(which, _Climb.of(sign * riser, change, step))
            width = np.maximum(step[0], step[1] - step[0])
            hidden_here = np.where(is_stair, HIDDEN * height / width, 0.0)
            hidden[which] = np.fmax(hidden[which], np.where(np.isfinite(hidden_here), hidden_here, np.inf))
            tall = np.where(is_stair & np.isfinite(height), height, 0.0)
            heights[which] = np.maximum(heights[which], tall)
            top[which] = np.fmax(top[which], climbed.max(axis=0))
            bottom[which] = np.fmin(bottom[which], climbed.min(axis=0))
    risers = np.ceil((top - bottom) / heights - RISER)
    risers = np.nan_to_num(risers, nan=0.0, posinf=0.0)
    jumps = climbs[0].count + climbs[1].count
    return Stairs(hidden, heights, risers, jumps, *_combine_climbs(climbs, hidden))


def _place_grids(
    problem: Problem, elements: Elements, tread: Tread, beyond: float
) -> tuple[np.ndarray, np.ndarray, list[Float]]:
    """Place a grid to each side of the points; rows of one column with the same edge share theirs.

    Returns:
        The columns of the grids, the index of each element's, and the grids above and below.
    """
    level = power_of_two(np.maximum(tread.high, _TINY))
    groups, owner = np.unique(
        np.stack([elements.columns.astype(np.float64), level]), axis=1, return_inverse=True
    )
    owner = owner.ravel()
    columns = groups[0].astype(np.int64)
    start, stop = np.zeros(columns.size), np.zeros(columns.size)
    start[owner], stop[owner] = tread.low, tread.high
    distance = start[:, None] + (beyond * stop - start)[:, None] * np.linspace(0, 1, GRID)
    x, room = problem.sampler.point[columns], problem.domain[columns]
    grids = []
    for sign, limit in ((1.0, room.above), (-1.0, room.below)):
        # A grid that the domain cuts short is finer; points that coincide would look like a tread.
        share = np.clip((limit - start) / np.maximum(distance[:, -1] - start, _TINY), 0.0, 1.0)
        far = start[:, None] + share[:, None] * (distance - start[:, None])
        grids.append(problem.sampler.precision.round(x[:, None] + sign * np.minimum(far, limit[:, None])))
    return columns, owner, grids


@dataclass(frozen=True)
class _Climb(PerElement):
    """The risers of one side, (e,) each: how many, their heights, the first one's place, the gaps between.

    `share` is the part of all movement that they are; the rest is of risers that are too low to count.
    """

    count: np.ndarray
    share: Float
    lowest: Float
    highest: Float
    first: Float
    narrowest: Float
    widest: Float

    @staticmethod
    def empty(size: int) -> _Climb:
        """Return a side without risers."""
        return _Climb(np.zeros(size), *(np.full(size, np.nan) for _ in range(6)))

    @staticmethod
    def of(riser: Float, change: Float, step: Float) -> _Climb:
        """Return the climb by risers, (points - 1, e) of all changes, at points of these distances."""
        is_riser, cell = riser != 0, np.diff(step, axis=0)
        riser_at = np.where(is_riser, step[:-1] + 0.5 * cell, -np.inf)
        before = np.maximum.accumulate(riser_at, axis=0)[:-1]
        gap = riser_at[1:] - before
        is_gap = is_riser[1:] & np.isfinite(before)
        return _Climb(
            count=is_riser.sum(axis=0),
            share=np.abs(riser).sum(axis=0) / np.abs(change).sum(axis=0),
            lowest=np.where(is_riser, riser, np.inf).min(axis=0),
            highest=np.where(is_riser, riser, -np.inf).max(axis=0),
            first=np.where(is_riser, riser_at, np.inf).min(axis=0),
            narrowest=np.where(is_gap, gap - cell[1:], np.inf).min(axis=0),
            widest=np.where(is_gap, gap + cell[1:], 0.0).max(axis=0),
        )


def _combine_climbs(climbs: Sequence[_Climb], hidden: Float) -> tuple[np.ndarray, Float, Float]:
    """Return where stairs are even, and the least and the most they may add to a tread's slope, (e,) each."""
    above, below = climbs
    across = above.first + below.first  # the tread that the point is on
    widest = np.maximum(np.maximum(above.widest, below.widest), across)
    narrowest = np.minimum(above.narrowest, below.narrowest)
    lowest, highest = np.minimum(above.lowest, below.lowest), np.maximum(above.highest, below.highest)
    is_even = (np.minimum(above.count, below.count) >= PATTERN) & (lowest * highest > 0)
    is_even &= (narrowest > 0) & (widest <= EVEN**2 * narrowest) & np.isfinite(hidden)
    is_even &= EVEN * np.minimum(above.share, below.share) >= 1
    small, large = (
        np.minimum(np.abs(lowest), np.abs(highest)),
        np.maximum(np.abs(lowest), np.abs(highest)),
    )
    near, far = small / widest / EVEN, large / narrowest * EVEN
    is_up = lowest > 0
    least = np.where(is_even, np.where(is_up, near, -far), -hidden)
    most = np.where(is_even, np.where(is_up, far, -near), hidden)
    return is_even, least, most


def _unusual_increments(rest: Float, is_bent: np.ndarray) -> Float:
    """Return the increments of f, (points - 1, e), for bent treads less the median around each: a tread's."""
    change = np.diff(rest, axis=0)
    padded = np.pad(change[:, is_bent], ((NEARBY, NEARBY), (0, 0)), mode="reflect")
    change[:, is_bent] -= np.median(sliding_window_view(padded, 2 * NEARBY + 1, axis=0), axis=-1)
    return change


def _has_treads(moved: Float, height: Float) -> np.ndarray:
    """Say which series of increments, (points, e), are mostly flat after their first movement.

    Args:
        moved: the size of each increment.
        height: (e,) of the tallest.
    """
    padded = np.pad(moved, ((NEARBY, NEARBY), (0, 0)))
    around = sliding_window_view(padded, 2 * NEARBY + 1, axis=0).max(axis=-1)
    is_tread = (moved <= OWN_ORDER * around) | (moved <= OWN_ORDER**2 * height)
    has_begun = np.logical_or.accumulate(moved > OWN_ORDER * height, axis=0)
    # The increment of the first movement is no tread; those after it may be.
    after = has_begun[:-1]
    treads = (after & is_tread[1:]).sum(axis=0)
    return np.asarray(treads >= TREADS * np.maximum(after.sum(axis=0), 1))


def _are_jumps(
    sampler: Sampler, elements: Elements, there: Float, grid: tuple[Float, Float], slope: Float
) -> np.ndarray:
    """Say for which elements the steepest rise on a grid is a jump, not a ramp between two plateaus.

    Args:
        elements: (e,).
        there: (e, points) the grid.
        grid: (points - 1, e) how much each element moves from point to point, what is usual there aside; and
            its slope aside.
        slope: (e,).

    Returns:
        (e,) whether the rise is the same over a thousandth of the interval.
    """
    if not elements.rows.size:
        return np.zeros(0, dtype=bool)
    every = np.arange(elements.rows.size)
    moved, from_tangent = grid
    steepest = np.argmax(moved, axis=0)
    near, far = there[every, steepest], there[every, steepest + 1]
    rise = full = from_tangent[steepest, every]
    for levels in HALVINGS:
        points = np.stack([near, far], axis=1)
        for _level in range(levels):
            middles = sampler.precision.round(0.5 * (points[:, :-1] + points[:, 1:]))
            points = np.insert(points, np.arange(1, points.shape[1]), middles, axis=1)
        values = _evaluate_at(sampler, elements, points)
        left, width = np.zeros_like(every), 2**levels
        while width > 1:
            width //= 2
            ends = [(every, left + half * width) for half in range(3)]
            first, second = (
                np.abs(values[high] - values[low] - slope * (points[high] - points[low]))
                for low, high in itertools.pairwise(ends)
            )
            is_first = first >= second
            rise, left = np.where(is_first, first, second), np.where(is_first, left, left + width)
        near, far = points[every, left], points[every, left + 1]
    return np.asarray(~(rise < SAME_RISE * full))


def _evaluate_at(sampler: Sampler, elements: Elements, there: Float) -> Float:
    """Return each element's row at coordinates of its own column, (e, p) each; rows share equal ones."""
    values = np.empty(there.shape)
    distinct, owner = np.unique(np.column_stack([elements.columns, there]), axis=0, return_inverse=True)
    for batch in sampler.move_columns(distinct[:, 0].astype(np.int64), distinct[:, 1:]):
        which, value_index = batch.among(owner.ravel())
        values[which] = batch.values[value_index, :, elements.rows[which]]
    return values
