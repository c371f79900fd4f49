"""Judge a Jacobian in two stages: the first pass decides what it can, and the second stage refines the rest.

A zero gradient is right for a flat function. On a staircase differences can't tell: the steps may be meant
(floor), or be what is left of a slope (a forward that computes in float16 inside). A staircase continues:
beyond its first riser there are more, about as tall, with treads between them. A relu's edge isn't a stair,
because the function has a slope beyond it. Nor is the single jump of a kink's derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.differences import FirstPass, first_pass, widen_steps
from gradcheck_cli.numerics.elements import Elements
from gradcheck_cli.numerics.precision import FLOAT32, FLOAT64, Float, is_conclusive, row_scale
from gradcheck_cli.numerics.problem import Problem, draw_signs, power_of_two
from gradcheck_cli.numerics.reasons import Reason, Verdict
from gradcheck_cli.numerics.refine.edges import EVEN
from gradcheck_cli.numerics.refine.second_stage import refine
from gradcheck_cli.numerics.refine.series import RATIO
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.numerics.shared_limits import (
    CHEAP,
    DIRECTIONS,
    FEW,
    KNOWN,
    MARGIN,
    OF_A_VALUE,
    OF_SOME_OPERATIONS,
    PATTERN,
)


@dataclass(frozen=True)
class Judgement:
    """Verdicts on a Jacobian, (m, c) each, or (m, slots)."""

    verdict: npt.NDArray[np.int8]  # `Verdict` codes
    # the numeric derivative; at a kink the nearest slope to the analytic one; NaN where unknown
    numeric: Float
    uncertainty: Float  # bound on its error; infinite where unknown
    allowed: Float  # the tolerance
    reason: npt.NDArray[np.int8]  # `Reason` codes, NONE where the verdict isn't INCONCLUSIVE
    evaluations: int  # points at which the function was evaluated
    method: str  # "central", or "ladder" if any column needed the second stage
    noisy: int = 0  # number of elements whose relative tolerance was widened, since the forward is noisy
    # whether the function has the sparsity that it was judged with; if not, the judgement is void
    is_sparse: bool = True

    def decide(
        self, which: npt.NDArray[np.bool_], verdict: npt.ArrayLike, reason: npt.ArrayLike
    ) -> Judgement:
        """Return the same with other verdicts on some elements, (m, c) each or one for all."""
        return replace(
            self,
            verdict=np.where(which, verdict, self.verdict).astype(np.int8),
            reason=np.where(which, reason, self.reason).astype(np.int8),
        )


@np.errstate(all="ignore")
def judge(problem: Problem, analytic: npt.ArrayLike, *, method: str = "auto") -> Judgement:
    """Judge an analytic Jacobian against differences of the function.

    Args:
        problem: the function at its point.
        analytic: (m, c) the Jacobian under test; (m, slots) of it where there is a sparsity. Whether the
            function has that sparsity, too, is confirmed here (`Judgement.is_sparse`).
        method: "auto", "central" (first pass only) or "ladder" (second stage for every column).

    Returns:
        The judgement.

    Raises:
        ValueError: `analytic` doesn't have the Jacobian's shape.
    """
    claimed = np.asarray(analytic, dtype=np.float64)
    if claimed.ndim != 2:  # noqa: PLR2004 (a Jacobian)
        raise ValueError(f"analytic: expected shape (rows, columns), got {claimed.shape}")
    problem = problem.reset(rows=claimed.shape[0])
    if claimed.shape != problem.shape:
        raise ValueError(f"analytic: expected shape {problem.shape}, got {claimed.shape}")
    judged = _pass_or_refine(problem, first_pass(problem), claimed, method)
    if problem.may_round:
        judged = _doubt_fine_stairs(problem, judged, claimed)
    if problem.sparsity is None:
        return judged
    is_sparse = confirm_sparsity(problem, problem.sparsity)
    return replace(judged, is_sparse=is_sparse, evaluations=problem.sampler.evaluations)


@np.errstate(all="ignore")
def estimate(problem: Problem, *, method: str = "auto") -> Judgement:
    """Estimate a Jacobian numerically, each element to within its tolerance where that is possible.

    Args:
        problem: the function at its point.
        method: as in `judge`.

    Returns:
        The judgement on the first pass' own slopes: what counts is its numeric values and their uncertainty.
    """
    problem = problem.reset()
    first = first_pass(problem)
    return _pass_or_refine(problem, first, first.slope, method)


# If more elements than this are in doubt, a few of them are refined first. If one of these is wrong, so is
# the Jacobian, and the first pass is accurate enough for the others.
_MANY = 20_000


def _pass_or_refine(problem: Problem, first: FirstPass, analytic: Float, method: str) -> Judgement:
    """Pass what the first pass can settle; refine the rest."""
    scale = row_scale(first.trusted, problem.weights)
    if method == "auto":
        first = widen_steps(problem, first, problem.allowed(analytic, first.slope, scale))
    numeric = first.slope
    allowed = problem.allowed(analytic, numeric, scale)
    error = np.abs(analytic - numeric)
    agrees = (error <= allowed) & is_conclusive(analytic, numeric, allowed, problem.working)
    is_zero = first.is_flat & (analytic == 0) & np.isfinite(problem.value)[:, None]
    stairs = find_flatness(problem, first, is_zero)
    is_zero &= (stairs != Flatness.ROUNDED)[:, None]
    is_sharp = (first.noise <= allowed) & (first.truncation <= allowed) & np.isfinite(first.slope)
    doubtful = ~is_zero & ~(agrees & is_sharp & (method != "ladder"))
    is_stair = is_zero & (stairs == Flatness.STAIRS)[:, None]
    uncertainty = np.where(is_zero & ~is_stair, 0.0, first.uncertainty)
    passed = np.full(problem.shape, Verdict.PASS, dtype=np.int8)
    judged = Judgement(passed, numeric, uncertainty, allowed, np.zeros_like(passed), 0, "central")
    judged = judged.decide(is_stair, Verdict.INCONCLUSIVE, Reason.STAIRCASE)
    if method == "central":
        unsure = ~(agrees & (uncertainty <= 2 * allowed)) & ~is_zero
        judged = _trust_first_pass(first, judged, unsure, analytic)
        doubtful[:] = False
    for chosen in _take_turns(doubtful, judged, analytic):
        judged = _refine(problem, first, judged, chosen, analytic)
        rest = doubtful & ~chosen
        if (judged.verdict[chosen] == Verdict.MISMATCH).any() and rest.any():
            judged = _trust_first_pass(first, judged, rest, analytic)
            break
    return replace(
        judged,
        evaluations=problem.sampler.evaluations,
        method="ladder" if doubtful.any() else "central",
    )


def _doubt_fine_stairs(problem: Problem, judged: Judgement, analytic: Float) -> Judgement:
    """Return the verdicts, inconclusive where a slope passed that may be that of finer stairs."""
    on_stairs = find_fine_stairs(problem, np.where(judged.verdict == Verdict.PASS, judged.numeric, 0.0))
    undone = on_stairs[:, None] & (judged.verdict == Verdict.PASS) & (analytic != 0)
    return judged.decide(undone, Verdict.INCONCLUSIVE, Reason.STAIRCASE)


def _trust_first_pass(
    first: FirstPass, judged: Judgement, unsure: npt.NDArray[np.bool_], analytic: Float
) -> Judgement:
    """Decide elements that only the first pass has seen: wrong if the error is clear, else unknown."""
    error = np.abs(analytic - judged.numeric)
    beyond = ~(error <= judged.allowed + MARGIN * judged.uncertainty)
    beyond &= np.isfinite(judged.uncertainty)
    is_clear = beyond & (first.truncation <= KNOWN * np.abs(first.slope))
    return judged.decide(
        unsure,
        np.where(is_clear, Verdict.MISMATCH, Verdict.INCONCLUSIVE),
        np.where(is_clear, Reason.NONE, Reason.UNRESOLVED),
    )


def _take_turns(
    doubtful: npt.NDArray[np.bool_], judged: Judgement, analytic: Float
) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield the doubtful elements to refine: all at once or, if many, the worst of a few slots first."""
    if not doubtful.any():
        return
    if np.count_nonzero(doubtful) <= _MANY:
        yield doubtful
        return
    error = np.abs(analytic - judged.numeric) / (judged.allowed + judged.uncertainty)
    error = np.where(doubtful, np.nan_to_num(error, nan=0.0), -1.0)
    worst = np.argsort(error.max(axis=0))[-FEW:]
    chosen = np.zeros(doubtful.shape, dtype=bool)
    # In a sparse Jacobian a slot's elements are of many columns: the worst rows stand for them.
    rows = np.argsort(error[:, worst].max(axis=1))[-CHEAP:]
    chosen[np.ix_(rows, worst)] = True
    chosen &= doubtful
    yield chosen
    yield doubtful & ~chosen


def _refine(
    problem: Problem, first: FirstPass, judged: Judgement, chosen: npt.NDArray[np.bool_], analytic: Float
) -> Judgement:
    """Return the judgement with some elements refined."""
    slots, rows = np.nonzero(chosen.T)  # slot by slot
    if not rows.size:
        return judged
    claimed = analytic[rows, slots]
    refined = refine(problem, first, Elements(rows, slots), claimed)
    slopes = refined.resolution
    nearest = np.clip(np.where(np.isnan(claimed), slopes.slope, claimed), slopes.low, slopes.high)

    def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        changed: np.ndarray = old.copy()
        changed[rows, slots] = new
        return changed

    return replace(
        judged,
        verdict=put(judged.verdict, refined.verdict),
        numeric=put(judged.numeric, nearest),
        uncertainty=put(judged.uncertainty, slopes.uncertainty),
        allowed=put(judged.allowed, refined.allowed),
        reason=put(judged.reason, refined.reason),
        noisy=judged.noisy + refined.noisy,
    )


# The probe moves every input at once by this part of its scale, up or down at random.
PROBE = 1 / 16
# Rows that the probe moves are examined over ranges a factor of four apart, with one grid for each. The
# widest range is eight probes to both sides, half of the scale: what happens at 0 doesn't concern points far
# from it. The narrowest is the step that is known to be flat. In one of these ranges, stairs have at least
# three steps, and so at most twelve: less than half of the 32 intervals. All rows share the grids, so many
# rows cost no more.
WIDEST = 8.0
INTERVALS = 32
CLIMBS = 0.8  # how much of all rises a slope's stairs keep (empirical): all of them, except for rounding
# Stairs that the first pass can't see are narrower than rtol times its step, 2^-15: 2^-35 of the scale. Four
# steps below that are tried, the smallest of which is 64 ulp of x, for a missing movement of some roundings.
FINE = (-46, -43, -40, -37)


class Flatness(IntEnum):
    """What lies beyond the flat neighbourhood of a row."""

    FLAT = 0  # nothing moves, or only at some distance: a kink, or a jump
    STAIRS = 1
    ROUNDED = 2  # a slope too small for the first pass to see


def find_flatness(problem: Problem, first: FirstPass, is_zero: np.ndarray) -> np.ndarray:
    """Probe the rows that are flat everywhere.

    Args:
        first: what the first pass found.
        is_zero: (m, c) where a zero gradient rests on f being flat.

    Returns:
        (m,) of `Flatness`.
    """
    flatness = np.zeros(problem.shape[0], dtype=np.int8)
    narrow = problem.working.first_step / PROBE  # the first pass's step, over the probe's
    if problem.sampler.point.size == 0 or narrow >= 1:
        return flatness
    rows = np.flatnonzero(first.is_flat.all(axis=1) & is_zero.any(axis=1))
    if rows.size == 0:
        return flatness
    direction = _draw_direction(problem)
    along = narrow * np.exp2(np.arange(np.log2(1 / narrow) + 1))
    change = _measure_changes(problem, rows, direction, along)
    moves = change[-1] != 0  # NaN counts as movement: nothing is known there
    if not moves.any():
        return flatness
    rows, change = rows[moves], change[:, moves]
    total = np.abs(change[-1])
    base = np.maximum(problem.size_of_terms[rows], total)
    error = OF_A_VALUE * problem.unit[rows] * base + np.finfo(np.float64).tiny
    # A row that is no larger than some roundings of its output's largest element, and moves by no more, is
    # the rounding of cancelling terms (a Sobel filter where the border is a mirror). The slope that half of
    # the scale may hide then is 64 u of that element over the scale: a part in 10,000 of what the table
    # allows.
    left = OF_SOME_OPERATIONS * problem.unit[rows] * problem.size_beside[rows]
    is_left = base <= left
    error = np.where(is_left, np.maximum(left / MARGIN, error), error)
    # If rounding alone explains the flat part, the slope continues below it, as far as twice the step
    # that is still flat.
    is_rounded = ~is_left & (total * along[np.argmax(change != 0, axis=0)] <= 8 * error)
    is_stair = _has_stairs(problem, rows, direction, narrow, error)
    if not problem.may_round and is_stair.any():
        # The gradient of an element that becomes the largest of three windows of a pool, one after the other,
        # looks like stairs too if neighbouring upstreams are similar, but only along some directions. Stairs
        # that stand for a slope climb along nearly all.
        again = np.flatnonzero(is_stair)
        for _ in range(DIRECTIONS):
            other = _draw_direction(problem)
            is_stair[again] &= _has_stairs(problem, rows[again], other, narrow, error[again])
    is_stair |= ~np.isfinite(total)
    flatness[rows] = np.where(
        is_rounded, Flatness.ROUNDED, np.where(is_stair, Flatness.STAIRS, Flatness.FLAT)
    )
    return flatness


def _draw_direction(problem: Problem) -> Float:
    """Draw a direction that moves every input by the probe's length, up or down, inside the domain."""
    sign = draw_signs(problem.generator, problem.sampler.point.size)
    room = np.where(sign > 0, problem.domain.above, problem.domain.below)
    return np.asarray(sign * np.minimum(PROBE * problem.step_scale, room))


def find_fine_stairs(problem: Problem, jacobian: Float) -> np.ndarray:
    """Say which rows stay exactly the same at a tiny step although their Jacobian says that they move.

    Args:
        jacobian: (m, slots).

    Returns:
        (m,); no rows in less than float64, whose steps are seldom far above its rounding.
    """
    on_stairs = np.zeros(problem.shape[0], dtype=bool)
    if problem.working is not FLOAT64 or not on_stairs.size or not problem.sampler.point.size:
        return on_stairs
    sign, room = draw_signs(problem.generator, problem.sampler.point.size), problem.domain
    # Rounding of the inputs moves a row by this, times their unit roundoff. A value that is smaller may lose
    # this movement on the way, for example where a mean is subtracted.
    rounded = np.maximum(
        problem.size_of_terms, (np.abs(jacobian) * np.abs(problem.sampler.point)[problem.table]).sum(axis=1)
    )
    for exponent in FINE:
        size = power_of_two(problem.step_scale) * 2.0**exponent
        moved = np.where(sign > 0, np.minimum(size, room.above), -np.minimum(size, room.below))
        expected = np.abs((jacobian * moved[problem.table]).sum(axis=1))
        rows = np.arange(on_stairs.size)
        change = _measure_changes(problem, rows, moved, np.ones(1))[0]
        on_stairs |= (change == 0) & (expected > OF_SOME_OPERATIONS * problem.unit * rounded)
    return on_stairs


def _has_stairs(
    problem: Problem, rows: np.ndarray, direction: Float, narrow: float, error: Float
) -> np.ndarray:
    """Say which rows rise or fall by even steps, over some range."""
    has_stairs = np.zeros(rows.size, dtype=bool)
    reach = WIDEST
    while reach >= narrow:
        values = _measure_changes(problem, rows, direction, reach * np.linspace(-1, 1, INTERVALS + 1))
        rise = np.diff(values, axis=0)
        height = np.abs(rise)
        is_riser = height > MARGIN * error
        tallest = height.max(axis=0)
        least = np.where(is_riser, height, np.inf).min(axis=0)
        count = is_riser.sum(axis=0)
        # A ramp at the end of the range rises from one interval to the next; a stair has a tread between.
        adjoining = (is_riser[1:] & is_riser[:-1]).sum(axis=0)
        # A rounding's risers have the same height to within a factor of two, on both sides of a power of
        # two; a little more allows for their own rounding.
        is_even = (tallest <= EVEN**2 * least) & (count >= PATTERN) & (count < INTERVALS / 2)
        is_even &= adjoining <= count / PATTERN / 2
        if not problem.may_round:
            # A function that also goes back hides no slope: the elements of a pool, each of which is
            # sometimes the largest. A sum of roundings may do so too.
            net = np.abs(np.where(is_riser, rise, 0.0).sum(axis=0))
            is_even &= net >= CLIMBS * np.where(is_riser, height, 0.0).sum(axis=0)
        has_stairs |= is_even
        reach /= RATIO
    return has_stairs


def _measure_changes(problem: Problem, rows: np.ndarray, direction: Float, along: Float) -> Float:
    """Return f - f(x) of some rows at distances along a direction, inside the domain, (d, r)."""
    sampler, domain = problem.sampler, problem.domain
    changes = np.empty((along.size, rows.size))
    at_once = sampler.points_per_call
    for start in range(0, along.size, at_once):
        batch = slice(start, start + at_once)
        moved = np.clip(along[batch, None] * direction, -domain.below, domain.above)
        points = sampler.precision.round(sampler.point + moved)
        values = sampler.at(np.concatenate([sampler.point[None], points]))
        changes[batch] = values[1:, rows] - values[0, rows]
    return changes


def confirm_sparsity(problem: Problem, sparsity: Sparsity) -> bool:
    """Say whether no row moves with the columns of another class.

    All classes whose number has a given bit set move at once, in a random direction; the rows of the other
    classes may not move by more than rounding. After each bit has been tried, set and clear, every row has
    seen every class but its own move. That takes twice as many evaluations as the number of classes has bits.
    Several elements cancel with probability 0, since the direction's components are random reals.

    An element outside of its class isn't seen if it moves its row by less than 4u|f| over a 64th of the
    input's scale: in float64 3e-14 of the row's value, in float32 2e-5.

    Returns:
        Whether it is confirmed; if not, the whole Jacobian must be taken.
    """
    sampler, steps = problem.sampler, _draw_steps(problem)
    bits = int(sparsity.table.shape[0] - 1).bit_length()
    halves = [(bit, value) for bit in range(bits) for value in (0, 1)]
    at_once = sampler.points_per_call
    for start in range(0, len(halves), at_once):
        chosen = halves[start : start + at_once]
        moves = np.stack([(sparsity.column_class >> bit & 1) == value for bit, value in chosen])
        there = sampler.precision.round(sampler.point + np.where(moves, steps, 0.0))
        values = sampler.at(np.concatenate([sampler.point[None], there]))
        for (bit, value), far in zip(chosen, values[1:], strict=True):
            resting = (sparsity.row_class >> bit & 1) != value
            if not _are_same(values[0, resting], far[resting], problem.unit[resting]):
                return False
    return True


def _are_same(base: Float, far: Float, unit: Float) -> bool:
    stays = np.abs(far - base) <= 2 * OF_A_VALUE * unit * np.abs(base)
    return bool((stays | (far == base) | (np.isnan(far) & np.isnan(base))).all())


def _draw_steps(problem: Problem) -> Float:
    """Draw a step for each input, (n,), up or down, to the side where the bounds leave more room."""
    x, domain = problem.sampler.point, problem.domain
    # Far enough to lift small slopes above rounding. It needn't be a good difference: a row that doesn't
    # depend on an input stays the same however far the input goes.
    size = FLOAT32.first_step * power_of_two(domain.fit(problem.step_scale))
    size *= problem.generator.uniform(0.5, 1.0, x.size)
    up = problem.generator.choice([True, False], x.size)
    up = (up | (domain.below < size)) & (domain.above >= size)
    return np.where(up, np.minimum(size, domain.above), -np.minimum(size, domain.below))
