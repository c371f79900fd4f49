"""The careful stage for doubtful elements: rounds of ever wider ladders, until each element is decided.

It confirms a verdict by ruling out stairs of rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gradcheck_cli.numerics.differences import FirstPass
from gradcheck_cli.numerics.elements import Elements, PerElement
from gradcheck_cli.numerics.precision import (
    FLOAT64,
    Float,
    Precision,
    allowed_error,
    is_conclusive,
    row_scale,
)
from gradcheck_cli.numerics.problem import Problem, own_scale
from gradcheck_cli.numerics.reasons import Reason, Verdict
from gradcheck_cli.numerics.refine.edges import (
    BEYOND,
    Departure,
    Edge,
    Stairs,
    Tread,
    absorbed_slope,
    find_departure,
    find_stairs,
)
from gradcheck_cli.numerics.refine.series import RATIO, Series, sample
from gradcheck_cli.numerics.refine.slopes import Resolution, resolve, shows_kink
from gradcheck_cli.numerics.shared_limits import (
    BOUND_PER_SIGMA,
    DIGITS,
    KNOWN,
    MARGIN,
    OF_A_VALUE,
    OF_MANY_OPERATIONS,
    OF_SOME_OPERATIONS,
    PATTERN,
)


@dataclass(frozen=True)
class Round:
    """Another round for the elements that are still open."""

    scale: Float  # (n,) the scale of each column's steps
    exponents: tuple[int, ...]  # the rungs
    # which of the open elements it is for, given what is known about them and their columns
    is_for: Callable[[Resolution, np.ndarray], np.ndarray]
    depth: int = 0  # all steps are divided by 2**depth
    # whether each input is stepped by its own magnitude. It is also for elements that larger steps seem to
    # have decided.
    is_own: bool = False


# Steps, as exponents of two of the scale, that are taken only where the format's own don't decide.
OUTER = (-1, 1, 3)
# A noisy forward's own gradient is noisy too: the best step for noise s has a relative error near s^(2/3);
# this many times that was seen. (empirical)
NOISE_SHARE = 50.0
# If no step shows an element to rtol because the last bits of the value are in the way (1 + sin(x) / 1e8), it
# is judged by what was seen of it. An error of 1e-4, which is promised to be found, exceeds the tolerance and
# the uncertainty of the same size that is allowed in addition.
MOST_ROUNDED = 4e-5


@dataclass(frozen=True)
class Refined:
    """What the second stage found about its elements, (e,) each."""

    resolution: Resolution
    verdict: np.ndarray
    reason: np.ndarray
    allowed: Float
    noisy: int


def refine(problem: Problem, first: FirstPass, elements: Elements, analytic: Float) -> Refined:
    """Resolve doubtful elements; columns of `elements` are slots of the problem.

    Args:
        first: what the first pass found about all elements.
        elements: the doubtful ones, ordered by column.
        analytic: (e,) their analytic values.

    Returns:
        Resolutions and verdicts.
    """
    rows, slots = elements.rows, elements.columns
    sampled = Elements(rows, np.broadcast_to(problem.table, problem.shape)[rows, slots])
    doubtful = _Doubtful(elements, sampled, analytic, first.trusted)
    resolution, nobody = Resolution.empty(rows.size), np.zeros(rows.size, dtype=bool)
    is_rough, is_open = nobody, ~nobody
    # Steps far beyond an input's own size may pass over a pole or a kink: what they show to be wrong is
    # doubted until smaller ones show the same.
    is_doubted = is_small = _is_small(problem)[sampled.columns]
    for this_round in _plan_rounds(problem):
        is_wanted = is_open | is_doubted if this_round.is_own else is_open & ~_is_settled(problem, resolution)
        chosen = np.flatnonzero(is_wanted & this_round.is_for(resolution, sampled.columns))
        if chosen.size:
            resolution, rough = _sample(problem, sampled, chosen, this_round, resolution)
            is_rough = is_rough | rough
            refined = _decide_all(problem, doubtful, resolution, is_rough, nobody)
            resolution = refined.resolution
            is_small = is_small & (not this_round.is_own)
            is_doubted = is_small & (refined.verdict == Verdict.MISMATCH)
            # There may be a kink close to the point: closer still, one side's slope is the only one.
            is_open = (refined.verdict == Verdict.INCONCLUSIVE) | resolution.is_kink
            if not (is_open | is_doubted).any():
                return refined
    return _decide_all(problem, doubtful, resolution, is_rough, is_open)


def _decide_all(
    problem: Problem, doubtful: _Doubtful, resolution: Resolution, is_rough: np.ndarray, is_spent: np.ndarray
) -> Refined:
    """Decide the elements by what is known about them, unless stairs could undo the verdict.

    Args:
        is_rough: (e,) which elements can't be wrong, since larger steps show no slope of theirs.
        is_spent: (e,) for which elements no round is left.
    """
    refined = _apply_tolerances(problem, doubtful, resolution, is_spent)
    resolution, is_hidden = confirm(problem, doubtful.sampled, refined, doubtful.analytic)
    is_hidden |= is_rough & (refined.verdict == Verdict.MISMATCH)
    if not is_hidden.any():
        return replace(refined, resolution=resolution)
    return _apply_tolerances(problem, doubtful, resolution.hide(is_hidden), is_spent)


def _plan_rounds(problem: Problem) -> Iterator[Round]:
    reach = problem.working.ladder
    fitted = problem.domain.fit(problem.step_scale)
    own, is_small = own_scale(problem.sampler.point, problem.step_scale), _is_small(problem)

    def anything(_resolution: Resolution, columns: np.ndarray) -> np.ndarray:
        return np.ones(columns.size, dtype=bool)

    yield Round(fitted, reach.inner, anything)
    yield Round(fitted, reach.inner + OUTER, lambda resolution, _columns: ~resolution.is_kink)
    yield Round(own, reach.inner, lambda _resolution, columns: is_small[columns], is_own=True)
    # Effects whose scale is far below x: a phase, a pole, an edge or a tie close by.
    for depth in reach.depths:
        yield Round(fitted, reach.inner, anything, depth)


def _is_small(problem: Problem) -> np.ndarray:
    """Say which inputs have a scale of their own."""
    return np.asarray(own_scale(problem.sampler.point, problem.step_scale) < problem.step_scale)


def _is_settled(problem: Problem, resolution: Resolution) -> np.ndarray:
    """Say which elements are on stairs of which steps closer to the point show no more.

    A tread there is as flat, or bends as before. Below float64, whose few digits made the stairs, nothing
    else shows more, either.
    """
    is_shown = (resolution.departure.edge == Edge.LATER) | (problem.working is not FLOAT64)
    return np.asarray(is_shown & (resolution.reason == Reason.STAIRCASE) & ~resolution.is_kink)


def _sample(
    problem: Problem, sampled: Elements, chosen: np.ndarray, this_round: Round, resolution: Resolution
) -> tuple[Resolution, np.ndarray]:
    """Sample some elements, and keep the better of the old and the new result.

    Returns:
        What is known now, and (e,) which elements are rough at the scale of their own input, as a remainder
        is by a tiny divisor: nothing settles there, or only on an unclear slope amid noise far beyond
        rounding. Then what larger steps show is no slope.
    """
    is_rough = np.zeros(sampled.rows.size, dtype=bool)
    for series in sample(problem, sampled[chosen], this_round.scale, this_round.exponents, this_round.depth):
        which = chosen[series.which]
        columns = sampled.columns[which]
        usual, own = problem.domain.fit(problem.step_scale)[columns], this_round.scale[columns]
        depth = this_round.depth + np.frexp(usual)[1].astype(np.int64) - np.frexp(own)[1]
        new, old = resolve(series, depth), resolution[which]
        is_clear = _is_clear(new)
        if this_round.is_own:  # the derivative is what the smaller steps show, if they show it clearly
            rounding = OF_MANY_OPERATIONS * series.unit * np.maximum(np.abs(series.base), series.size)
            is_noisy = np.maximum(series.noise, series.middle_noise) > rounding
            is_rough[which] = ~is_clear & ~new.is_flat & (is_noisy | ~np.isfinite(new.uncertainty))
        gains = (new.uncertainty < old.uncertainty) | (
            ~np.isfinite(old.uncertainty) & (np.isfinite(new.uncertainty) | (this_round.depth == 0))
        )
        leaves_stairs = ~new.is_flat & ~_is_settled(problem, old) | (old.reason != Reason.STAIRCASE)
        # Closer to a jump, rounding may hide it. Beside a jump, there is a clear slope or none.
        leaves_jump = is_clear | new.is_flat | (old.reason != Reason.JUMP)
        is_better = np.where(old.is_kink, _is_off_kink(series, new, old), gains & leaves_stairs & leaves_jump)
        resolution = resolution.put(which[is_better], new[is_better])
    return resolution, is_rough


def _is_clear(resolution: Resolution) -> np.ndarray:
    """Say which elements have a slope that is certain to a tenth, (e,)."""
    return ~resolution.is_flat & (resolution.uncertainty <= KNOWN * np.abs(resolution.slope))


def _is_off_kink(series: Series, new: Resolution, old: Resolution) -> np.ndarray:
    """Say where smaller steps show that a kink isn't at the point: their slope doesn't change with the step.

    It does if both sides differ as before at the steps that show it. A function that doesn't move at all is
    one side of a relu, or rounded: exp(x) - 1 is 0 below 1e-16. It is rounded if neither side of the kink,
    nor what lies between them, is level.
    """
    width = KNOWN * (old.high - old.low)
    is_straight = ~new.is_kink & (new.uncertainty <= width) & ~shows_kink(series, new.uncertainty, width)
    return np.asarray(is_straight & (~new.is_flat | ((old.low <= width) & (old.high >= -width))))


@dataclass(frozen=True)
class _Doubtful:
    """The doubtful elements, (e,), by slot and by column."""

    elements: Elements  # where they are, by slot
    sampled: Elements  # where they are, by column of the point
    analytic: Float  # their analytic values
    trusted: Float  # (m, slots) the slopes of which the first pass is certain


def _apply_tolerances(
    problem: Problem, doubtful: _Doubtful, resolution: Resolution, is_spent: np.ndarray
) -> Refined:
    """Apply tolerances, scaled by what is known so far; wider ones after the last round."""
    elements, sampled, analytic = doubtful.elements, doubtful.sampled, doubtful.analytic
    rows, slots = elements.rows, elements.columns
    size = np.maximum(np.abs(resolution.low), np.abs(resolution.high))
    is_sure = (resolution.uncertainty <= KNOWN * size) & (resolution.reason == Reason.NONE)
    sure_size = np.where(is_sure, size, 0.0)
    numeric = doubtful.trusted.copy()
    numeric[rows, slots] = sure_size
    scale = row_scale(numeric, problem.weights)
    own, rounded = problem.size, problem.size_of_terms[rows]
    # Noise seen in one column is in the row's values, whichever input moves.
    noise, bias = (
        _spread_over_rows(each, elements, resolution) for each in (resolution.noise, resolution.bias)
    )
    share = noise / BOUND_PER_SIGMA * own[rows] / np.maximum(own, scale)[rows]
    widened = np.minimum(DIGITS, NOISE_SHARE * share ** (2 / 3))
    seen = np.where(is_spent & ~resolution.is_kink, resolution.uncertainty / size, np.inf)
    widened = np.fmax(widened, np.where(seen <= MOST_ROUNDED, seen, 0.0))
    rtol = np.maximum(problem.rule.rtol, np.where(np.isfinite(widened), widened, 0.0))
    if problem.rule.is_rtol_fixed:
        rtol = np.full(rtol.shape, problem.rule.rtol)
    # Where f and its slope are 0 (x^2 at 0), values further out show how large f is. They are ignored if the
    # slope is certain, because they may be larger by any factor (a Gaussian's tail).
    value = np.where(is_sure, rounded, np.maximum(rounded, resolution.value))
    allowed = allowed_error(
        problem.rule, (analytic, sure_size), scale[rows], value, problem.step_scale[sampled.columns], rtol
    )
    # If a gradient and a slope are both hidden by the forward's noise (an attention key's bias, which doesn't
    # affect the softmax), they are equal as far as can be seen. That is enough if the noise is within what
    # the table allows for the row's largest slope, here for the output's largest value: all slopes of the row
    # may be zero, and the gradient as well.
    floor = (
        problem.rule.ratol
        * np.maximum(rounded, problem.size_beside[rows])
        / problem.step_scale[sampled.columns]
    )
    is_lost = is_spent & ~resolution.is_kink & (resolution.uncertainty <= floor)
    is_lost &= np.maximum(np.abs(analytic), np.abs(resolution.slope)) <= resolution.uncertainty
    allowed = np.where(is_lost, np.maximum(allowed, resolution.uncertainty), allowed)
    verdict, reason = decide(resolution, analytic, allowed, bias, problem.unit[rows], problem.working)
    return Refined(resolution, verdict, reason, allowed, int((rtol > problem.rule.rtol).sum()))


def _spread_over_rows(noise: Float, elements: Elements, resolution: Resolution) -> Float:
    """Return the largest noise of each element's row; a kink has its own."""
    largest = np.zeros(int(elements.rows.max(initial=-1)) + 1)
    np.maximum.at(largest, elements.rows, np.where(resolution.is_kink, 0.0, noise))
    return np.asarray(np.maximum(noise, largest[elements.rows]))


# The powers of two, over x's scale, up to which a flat function is followed: float32's range and more.
FURTHEST = 31


@dataclass(frozen=True)
class _Claims(PerElement):
    """Elements, (e,), whose verdicts stairs could undo: which fail, their tolerances and gradients."""

    fails: np.ndarray
    allowed: Float
    analytic: Float


def confirm(
    problem: Problem, sampled: Elements, refined: Refined, analytic: Float
) -> tuple[Resolution, np.ndarray]:
    """Say which verdicts stairs could undo.

    Args:
        sampled: (e,) the elements, with columns of the point.
        refined: what is known about them, with the verdicts so far.
        analytic: (e,) the gradient under test.

    Returns:
        What is known now, with the edges and the noise that were seen, and (e,) whether stairs could undo the
        verdict.
    """
    rows, resolution, verdict = sampled.rows, refined.resolution, refined.verdict
    fails = verdict == Verdict.MISMATCH
    size = np.fmax(problem.size_of_terms[rows], resolution.value)
    # A function that is level at 0, as log(1 + exp(-x^2)) or x - sqrt(x^2 - 1) far out, may be what is left
    # of larger terms: rounding of a 1 inside, or of x, may hide a slope, or let the value jump to and fro.
    x, scale = np.abs(problem.sampler.point[sampled.columns]), problem.step_scale[sampled.columns]
    is_zero = (problem.size_of_terms[rows] == 0) & (resolution.slope == 0) & (resolution.uncertainty == 0)
    is_zero |= size == 0
    of_terms = absorbed_slope(np.fmax(x, 1), problem.unit[rows], np.fmax(scale, 1))
    absorbed = np.where(is_zero, of_terms, absorbed_slope(size, problem.unit[rows], scale))
    is_level = resolution.is_flat | is_zero
    is_hidden = np.asarray(fails & is_level & (np.abs(analytic) <= absorbed))
    # A tread is straight. So a straight function may be on one; if its verdict is a pass, only where that
    # rests on its being flat, or on steps close to the point.
    passes = verdict == Verdict.PASS
    on_trust = passes & ((resolution.is_flat & (analytic == 0)) | (resolution.depth > 0))
    unseen = np.flatnonzero((fails | on_trust) & (resolution.departure.edge == Edge.NONE))
    departure = _look_further(problem, sampled, unseen, resolution, fails & resolution.is_flat)
    bias = resolution.bias.copy()
    noise = np.maximum(OF_A_VALUE * problem.unit[rows], resolution.noise)
    # Stairs must be taller than the noise of the values that they are made of. To undo a pass, they must be
    # taller than that of all values seen, which may be larger by any factor.
    least = np.where(fails, problem.size_of_terms[rows], size)
    claims = _Claims(fails, refined.allowed, analytic)
    on_zero = on_trust & resolution.is_flat & (departure.high > 0)
    is_abrupt = (departure.edge == Edge.ABRUPT) & (fails | passes)
    is_abrupt |= (departure.edge == Edge.LATER) & fails
    is_abrupt &= ~resolution.is_kink
    for beyond, chosen in ((BEYOND[0], is_abrupt | on_zero), *((far, on_zero) for far in BEYOND[1:])):
        which = np.flatnonzero(chosen & ~is_hidden)
        if which.size:
            tread = Tread(
                resolution.slope[which],
                noise[which],
                least[which],
                departure.low[which],
                departure.high[which],
                departure.edge[which] == Edge.LATER,
            )
            stairs = find_stairs(problem, sampled[which], tread, beyond)
            uneven, further = np.arange(which.size), beyond
            # As far as x itself, at most. Treads that rounding makes flat may be wider: their risers are no
            # taller than some roundings, also of a constant such as the 1 of `log(1 + x)`.
            rounding = OF_SOME_OPERATIONS * problem.unit[rows[which]] * np.fmax(size[which], 1.0)
            is_rounded = resolution.is_flat[which] & (stairs.height <= rounding)
            most = np.where(is_rounded, RATIO**3, RATIO)
            while uneven.size:
                further *= RATIO
                is_near = further * tread.high <= most * problem.step_scale[sampled.columns[which]]
                uneven = np.flatnonzero(fails[which] & (stairs.hidden > 0) & ~stairs.is_even & is_near)
                if uneven.size:
                    there = find_stairs(problem, sampled[which[uneven]], tread[uneven], further)
                    stairs = stairs.put(uneven, stairs[uneven].refine(there))
            is_undone = _is_undone(tread, stairs, claims[which])
            is_hidden[which] |= is_undone
            departure = departure.without(which[~is_undone])
            # Stairs are noise for the whole row.
            relative = np.where(is_undone, stairs.height / np.abs(problem.value[rows[which]]), 0.0)
            relative = np.where(np.isfinite(relative), relative, 0.0)
            bias[which] = np.maximum(bias[which], relative)
    return replace(resolution, departure=departure, bias=bias), is_hidden


def _is_undone(tread: Tread, stairs: Stairs, claims: _Claims) -> np.ndarray:
    """Say which verdicts on treads these stairs could undo, (e,)."""
    more = claims.analytic - tread.slope
    explains = (more >= stairs.least) & (more <= stairs.most)
    # A single riser, however far one looks, is a jump of another kind: sign's at 0. The last bit of what
    # cancels climbs nothing, but jumps to and fro.
    explains &= (stairs.risers > 1) | (stairs.jumps >= 2 * PATTERN)
    # A curve with a jump or two beside it is no staircase, unless the function is known to be one: of
    # round(x) * cos(x), the risers are few where the cosine passes 0.
    is_climb = tread.is_bent & (stairs.is_even | (stairs.risers >= PATTERN))
    explains &= ~tread.is_bent | is_climb | (explains & is_climb).any()
    # The slope of a tread isn't the function's, even if the gradient equals it. A single riser may be a
    # jump at some distance, which doesn't concern this slope.
    belies = (stairs.risers > 1) & (stairs.hidden > MARGIN * claims.allowed)
    return np.where(claims.fails, explains, belies)


def _look_further(
    problem: Problem, sampled: Elements, which: np.ndarray, resolution: Resolution, by_sides: np.ndarray
) -> Departure:
    """Return the edges, also those of functions that are straight as far as was seen; there may be none.

    A flat function is followed further: the intermediate value that absorbs its movement may be far larger
    than x.
    """
    departure, reach = resolution.departure, problem.working.ladder
    if not which.size:
        return departure
    top, step = reach.inner[-1], reach.inner[-1] - reach.inner[-2]
    scale = problem.domain.fit(problem.step_scale)
    # From a tiny input as far as from one of size 1: what absorbs its movement is often a constant.
    of_unit = OUTER[-1] - np.frexp(scale[sampled.columns[which]])[1]
    furthest = np.where(of_unit > FURTHEST, of_unit.max(), FURTHEST)
    groups = np.stack([resolution.depth[which], np.where(resolution.is_flat[which], furthest, OUTER[-1])])
    for depth, last in np.unique(groups, axis=1).T:
        alike = which[(groups == [[depth], [last]]).all(axis=0)]
        rungs = tuple(range(top, int(last + depth) + 1, step))
        for series in sample(problem, sampled[alike], scale, rungs, int(depth)):
            here = alike[series.which]
            noise = resolution.noise[here] * np.abs(series.base)
            slope, uncertainty = resolution.slope[here], resolution.uncertainty[here]
            edges = find_departure(series, slope, uncertainty, noise, by_sides=by_sides[here])
            departure = departure.put(here, edges)
    return departure.without(which[departure.edge[which] == Edge.NONE])  # straight all the way


# A pass needs an uncertainty near the tolerance; a mismatch needs an error far beyond both (`MARGIN`), at a
# sufficient number of steps. (empirical)
PASS_REACH = 2.0
MISMATCH_RUNGS = 5


def decide(  # noqa: PLR0913, PLR0917 (the slopes, the gradient, and what is allowed)
    resolution: Resolution, analytic: Float, allowed: Float, noise: Float, unit: Float, working: Precision
) -> tuple[np.ndarray, np.ndarray]:
    """Decide on some elements.

    Args:
        resolution: what is known about their slopes.
        analytic: (e,) the gradient under test.
        allowed: (e,) its tolerance.
        noise: (e,) the noise of the rows' values over their size.
        unit: (e,) the rows' unit roundoff.
        working: the coarsest precision in play.

    Returns:
        Verdicts and reasons, (e,) each. What is wrong at a kink says so by its reason.
    """
    uncertainty = resolution.uncertainty
    reach = working.ladder
    rungs_needed = min(MISMATCH_RUNGS, len(reach.sentinels) + len(reach.inner))
    error = np.maximum(np.maximum(resolution.low - analytic, analytic - resolution.high), 0.0)
    is_known = np.isfinite(uncertainty)
    # The uncertainty counts only up to the tolerance. With all of it, up to twice the tolerance, a 1 %
    # error passed in float32.
    granted = np.where(resolution.is_kink, uncertainty, np.minimum(uncertainty, allowed))
    within = is_known & (error <= allowed + granted)
    spread = resolution.high - resolution.low
    is_sharp = uncertainty <= np.maximum(
        PASS_REACH * allowed, np.where(resolution.is_kink, KNOWN * spread, 0)
    )
    # Rounding far above that of the last operation is a bias rather than noise: more steps don't average
    # it out.
    is_biased = (noise > OF_MANY_OPERATIONS * unit) & (uncertainty > KNOWN * np.abs(resolution.slope))
    # A bias of the value is also one of the slope, and no step shows it: log(1 + x^2) with 1e-11 for x^2
    # is off by 1e-5 throughout, and so is everything it is multiplied by.
    bias = np.where(noise > OF_MANY_OPERATIONS * unit, noise * np.abs(resolution.slope), 0.0)
    beyond = is_known & ~(error <= allowed + MARGIN * (uncertainty + bias))
    tells = is_conclusive(analytic, resolution.slope, allowed, working)
    # Close to the point, f may agree with the gradient and contradict a slope that settled further out (a
    # fine ripple that passed for noise).
    agrees_closer = (analytic >= resolution.local_low) & (analytic <= resolution.local_high)
    agrees_closer &= (
        resolution.local_differs
        | (resolution.slope + uncertainty < resolution.local_low)
        | (resolution.slope - uncertainty > resolution.local_high)
    )
    beyond &= ~agrees_closer | resolution.is_kink
    # Bitwise flat counts as zero, unless larger steps found a slope after all, or rounding on the way to the
    # value may hide one.
    is_zero = resolution.is_flat & (analytic == 0) & (resolution.reason == Reason.NONE) & within
    is_zero &= ~(noise > OF_MANY_OPERATIONS * unit)
    passes = (within & is_sharp & tells) | is_zero
    fails = beyond & ~is_biased & (resolution.rungs >= rungs_needed) & ~passes
    verdict = np.full(analytic.shape, Verdict.INCONCLUSIVE, dtype=np.int8)
    verdict[passes] = Verdict.PASS
    verdict[passes & resolution.is_kink] = Verdict.KINK
    verdict[fails] = Verdict.MISMATCH
    # The wider summand of the uncertainty names the reason: noise, or truncation.
    is_lost = resolution.is_lost | (noise > OF_MANY_OPERATIONS * unit)
    reason = np.where(is_lost, Reason.NOISE, Reason.UNRESOLVED)
    if working.unit_roundoff > 2.0**-53:
        reason = np.where(noise > OF_MANY_OPERATIONS * unit, reason, Reason.LOW_PRECISION)
    reason = np.where(resolution.reason != Reason.NONE, resolution.reason, reason)
    reason = np.where(verdict == Verdict.INCONCLUSIVE, reason, Reason.NONE)
    reason = np.where(fails & resolution.is_kink, Reason.JOINED_KINKS, reason)
    return verdict, reason.astype(np.int8)
