"""Confirms verdicts that no staircase of rounding could explain away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.reasons import Verdict
from gradcheck_cli.numerics.refine.edges import (
    BEYOND,
    EVEN_BEYOND,
    FAR_BEYOND,
    Edge,
    Stairs,
    Tread,
    absorbed_slope,
    find_edges,
    find_stairs,
)
from gradcheck_cli.numerics.refine.series import REACHES, Elements, sample
from gradcheck_cli.numerics.verdict import MISMATCH_MARGIN

if TYPE_CHECKING:
    from gradcheck_cli.numerics.precision import Float
    from gradcheck_cli.numerics.problem import Problem
    from gradcheck_cli.numerics.refine.second_stage import Refined
    from gradcheck_cli.numerics.refine.slopes import Resolution

# A jump further away than this part of the scale is of another kind, unless there are more jumps.
FAR = 0.75
# A flat part may hide a slope of 4u|f| over its width. If this is less than a thousandth of the slope beyond
# the flat part's edge, that slope isn't hidden here: the edge is a kink.
CLEAR = 1e-3
# The powers of two, over x's scale, up to which a flat function is followed: float32's range and more.
FURTHEST = 31


@dataclass(frozen=True)
class _Claims:
    """Elements, (e,), whose verdicts stairs could undo: which fail, their tolerances and gradients."""

    sampled: Elements
    fails: np.ndarray
    allowed: Float
    analytic: Float


def confirm(problem: Problem, sampled: Elements, refined: Refined, analytic: Float) -> np.ndarray:
    """Say which verdicts stairs could undo; record the edges and the noise seen in the resolution.

    Args:
        problem: the function.
        sampled: (e,) the elements, with columns of the point.
        refined: what is known about them, with the verdicts so far; its resolution is changed in place.
        analytic: (e,) the gradient under test.

    Returns:
        (e,) whether stairs could undo the verdict.
    """
    rows, resolution, verdict = sampled.rows, refined.resolution, refined.verdict
    fails = verdict == Verdict.MISMATCH
    size = np.fmax(problem.size_of_terms[rows], resolution.value)
    absorbed = absorbed_slope(size, problem.unit[rows], problem.step_scale[sampled.columns])
    with np.errstate(invalid="ignore"):
        is_hidden = np.asarray(fails & resolution.is_flat & (np.abs(analytic) <= absorbed))
    # A function that is straight as far as was seen may be on a tread. So may one whose right zero relies on
    # flatness that wasn't seen as far as the first pass looked, or was seen only close to the point.
    passes = verdict == Verdict.PASS
    on_trust = passes & ((resolution.is_flat & (analytic == 0)) | (resolution.depth > 0))
    unseen = np.flatnonzero((fails | on_trust) & (resolution.edge == Edge.NONE))
    if unseen.size:
        _look_further(problem, sampled, unseen, resolution)
    # A flat part belongs to the slope beyond it if rounding alone may make it that wide.
    with np.errstate(all="ignore"):
        hides = 4 * problem.unit[rows] * size / resolution.edge_low
        is_hidden |= (
            on_trust & resolution.is_flat & (resolution.beyond > 0) & ~(hides <= CLEAR * resolution.beyond)
        )
    with np.errstate(all="ignore"):
        noise = np.maximum(2 * problem.unit[rows], resolution.noise) * size
    claims = _Claims(sampled, fails, refined.allowed, analytic)
    on_zero = on_trust & resolution.is_flat & (resolution.edge_high > 0)
    is_abrupt = (resolution.edge == Edge.ABRUPT) & ~resolution.is_kink & (fails | passes)
    for beyond, chosen in ((BEYOND, is_abrupt | on_zero), *((far, on_zero) for far in FAR_BEYOND)):
        which = np.flatnonzero(chosen & ~is_hidden)
        if which.size:
            tread = Tread(
                resolution.slope[which],
                noise[which],
                resolution.edge_low[which],
                resolution.edge_high[which],
            )
            stairs = find_stairs(problem, sampled.take(which), tread, beyond)
            for further in EVEN_BEYOND:
                uneven = np.flatnonzero(fails[which] & (stairs.hidden > 0) & ~stairs.is_even)
                if uneven.size:
                    there = find_stairs(problem, sampled.take(which[uneven]), tread.take(uneven), further)
                    stairs.refine(uneven, there)
            is_hidden[which] |= _is_undone(problem, resolution, which, stairs, claims)
    return is_hidden


def _is_undone(
    problem: Problem, resolution: Resolution, which: np.ndarray, stairs: Stairs, claims: _Claims
) -> np.ndarray:
    """Say which verdicts these stairs could undo, (w,); record them in `resolution`."""
    sampled, fails, allowed, analytic = claims.sampled, claims.fails, claims.allowed, claims.analytic
    slope = resolution.slope[which]
    with np.errstate(all="ignore"):  # a value that isn't finite is wrong on any stairs
        more = analytic[which] - slope
        explains = (more >= stairs.least) & (more <= stairs.most)
        # A single riser as far away as x itself is a jump of another kind: sign's at 0.
        is_far = resolution.edge_high[which] > FAR * problem.step_scale[sampled.columns[which]]
        explains &= ~is_far | (stairs.risers > 1)
        relative = stairs.height / np.abs(problem.value[sampled.rows[which]])
        # The slope of a tread isn't the function's, even if the gradient equals it. A single riser may be a
        # jump at some distance, which doesn't concern this slope.
        belies = (stairs.risers > 1) & (stairs.hidden > MISMATCH_MARGIN * allowed[which])
    is_undone = np.where(fails[which], explains, belies)
    # Stairs are noise for the whole row.
    relative = np.where(is_undone & np.isfinite(relative), relative, 0.0)
    resolution.bias[which] = np.maximum(resolution.bias[which], relative)
    resolution.edge[which[~is_undone]] = Edge.GRADUAL  # these stairs don't matter
    return np.asarray(is_undone)


def _look_further(problem: Problem, sampled: Elements, which: np.ndarray, resolution: Resolution) -> None:
    """Find the edges of functions that are straight as far as was seen; there may be none.

    A flat function is followed further: the intermediate value that absorbs its movement may be far larger
    than x.
    """
    reach = REACHES[problem.working.name]
    top, step = reach.inner[-1], reach.inner[-1] - reach.inner[-2]
    groups = np.stack([resolution.depth[which], np.where(resolution.is_flat[which], FURTHEST, reach.far[-1])])
    for depth, furthest in np.unique(groups, axis=1).T:
        alike = which[(groups == [[depth], [furthest]]).all(axis=0)]
        rungs = tuple(range(top, int(furthest + depth) + 1, step))
        scale = problem.domain.fit(problem.step_scale)
        for series in sample(problem, sampled.take(alike), scale, rungs, int(depth)):
            here = alike[series.which]
            noise = resolution.noise[here] * np.abs(series.base)
            edges = find_edges(series, resolution.slope[here], resolution.uncertainty[here], noise)
            resolution.edge[here], resolution.edge_low[here], resolution.edge_high[here] = edges[:3]
            resolution.beyond[here] = edges[3]
    resolution.edge[which[resolution.edge[which] == Edge.NONE]] = Edge.GRADUAL  # straight all the way
