"""Lets a verdict stand only where no staircase of rounding could undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.edges import Edge, absorbed_slope, find_edges, find_stairs
from gradcheck_cli.numerics.reasons import Verdict
from gradcheck_cli.numerics.series import REACHES, Elements, sample
from gradcheck_cli.numerics.verdict import MISMATCH_MARGIN

if TYPE_CHECKING:
    from gradcheck_cli.numerics.precision import Float
    from gradcheck_cli.numerics.problem import Problem
    from gradcheck_cli.numerics.resolve import Resolution

# A jump further off than this part of the scale is one of another kind, unless there are more.
FAR = 0.75


def confirm(  # noqa: PLR0913, PLR0917 (elements, and all that is known of them)
    problem: Problem,
    sampled: Elements,
    resolution: Resolution,
    verdict: np.ndarray,
    allowed: Float,
    analytic: Float,
) -> np.ndarray:
    """Say which verdicts stairs could undo; notes the edges and the noise seen in `resolution`.

    Args:
        problem: the function.
        sampled: (e,) the elements, columns counted in the point.
        resolution: what is known of them; changed in place.
        verdict: (e,) as decided so far.
        allowed: (e,) tolerances.
        analytic: (e,) the gradient under test.

    Returns:
        (e,) whether the verdict can't stand.
    """
    rows = sampled.rows
    fails = verdict == Verdict.MISMATCH
    absorbed = absorbed_slope(problem.value[rows], problem.unit[rows], problem.step_scale[sampled.columns])
    with np.errstate(invalid="ignore"):
        is_hidden = np.asarray(fails & resolution.is_flat & (np.abs(analytic) <= absorbed))
    unseen = np.flatnonzero(fails & (resolution.edge == Edge.NONE))
    if unseen.size:  # straight as far as was seen: look further
        _look_further(problem, sampled, unseen, resolution)
    is_abrupt = (resolution.edge == Edge.ABRUPT) & ~resolution.is_kink
    abrupt = np.flatnonzero(is_abrupt & (fails | (verdict == Verdict.PASS)))
    if abrupt.size:
        slope = resolution.slope[abrupt]
        size = np.maximum(np.abs(problem.value[rows]), resolution.value)[abrupt]
        noise = np.maximum(2 * problem.unit[rows[abrupt]], resolution.noise[abrupt]) * size
        stairs = find_stairs(
            problem.sampler,
            sampled.take(abrupt),
            problem.domain,
            noise,
            slope,
            resolution.edge_low[abrupt],
            resolution.edge_high[abrupt],
        )
        with np.errstate(all="ignore"):  # a value that isn't finite is wrong on any stairs
            explains = np.abs(analytic[abrupt] - slope) <= stairs.hidden
            # One riser as far off as x itself is a jump of another kind: sign's at 0.
            is_far = resolution.edge_high[abrupt] > FAR * problem.step_scale[sampled.columns[abrupt]]
            explains &= ~is_far | (stairs.risers > 1)
            relative = stairs.height / np.abs(problem.value[rows[abrupt]])
            # A right slope of a tread isn't the function's. One riser may be a jump some way off, and none of
            # this slope's business.
            belies = (stairs.risers > 1) & (stairs.hidden > MISMATCH_MARGIN * allowed[abrupt])
        is_undone = np.where(fails[abrupt], explains, belies)
        is_hidden[abrupt] |= is_undone
        # Stairs are noise to the whole row.
        relative = np.where(is_undone & np.isfinite(relative), relative, 0.0)
        resolution.bias[abrupt] = np.maximum(resolution.bias[abrupt], relative)
        resolution.edge[abrupt[~is_undone]] = Edge.GRADUAL  # seen to be no stairs that matter
    return is_hidden


def _look_further(problem: Problem, sampled: Elements, which: np.ndarray, resolution: Resolution) -> None:
    """Find the edges of functions that are straight as far as was seen; there may be none."""
    reach = REACHES[problem.working.name]
    for series in sample(
        problem.sampler,
        sampled.take(which),
        problem.domain.fitted(problem.step_scale),
        problem.domain,
        problem.unit,
        problem.working,
        reach.inner[-1:] + reach.outer + reach.far,
        problem.generator,
    ):
        here = which[series.which]
        noise = resolution.noise[here] * np.abs(series.base)
        found = find_edges(series, resolution.slope[here], resolution.uncertainty[here], noise)
        resolution.edge[here], resolution.edge_low[here], resolution.edge_high[here] = found
    resolution.edge[which[resolution.edge[which] == Edge.NONE]] = Edge.GRADUAL  # straight all the way
