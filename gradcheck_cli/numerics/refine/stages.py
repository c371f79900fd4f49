"""The two stages: the first pass decides what it can, and the second stage refines the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.reasons import Reason, Verdict
from gradcheck_cli.numerics.refine.second_stage import refine
from gradcheck_cli.numerics.refine.series import Elements
from gradcheck_cli.numerics.refine.staircase import Flatness, find_fine_stairs, find_flatness
from gradcheck_cli.numerics.tolerance import row_scale
from gradcheck_cli.numerics.verdict import MISMATCH_MARGIN, is_conclusive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck_cli.numerics.first_pass import FirstPass
    from gradcheck_cli.numerics.precision import Float
    from gradcheck_cli.numerics.problem import Problem

# If more elements than this are in doubt, a few of them are refined first. If one of these is wrong, so is
# the Jacobian, and the first pass is accurate enough for the others.
_MANY = 20_000
_FIRST_SLOTS = 16
_FIRST_ELEMENTS = 4_000


@dataclass(frozen=True)
class Judgement:
    """Verdicts on a Jacobian, (m, c) each, or (m, slots).

    Attributes:
        verdict: `Verdict` codes.
        numeric: the numeric derivative; at a kink the nearest slope to the analytic one; NaN where unknown.
        uncertainty: bound on its error; infinite where unknown.
        allowed: the tolerance.
        reason: `Reason` codes, NONE where the verdict isn't INCONCLUSIVE.
        evaluations: points at which the function was evaluated.
        method: "central", or "ladder" if any column needed the second stage, or "complex_step".
        noisy: number of elements whose relative tolerance was widened, since the forward is noisy.
        is_sparse: whether the function has the sparsity that it was judged with; if not, the judgement is
            void.
    """

    verdict: npt.NDArray[np.int8]
    numeric: Float
    uncertainty: Float
    allowed: Float
    reason: npt.NDArray[np.int8]
    evaluations: int
    method: str
    noisy: int = 0
    is_sparse: bool = True


def find_doubtful(problem: Problem, first: FirstPass, allowed: Float, method: str) -> npt.NDArray[np.bool_]:
    """Say which elements the first pass leaves in doubt, whatever they are compared with."""
    if method == "ladder":
        return np.ones(problem.shape, dtype=bool)
    if method == "central":
        return np.zeros(problem.shape, dtype=bool)
    return ~((first.noise <= allowed) & (first.truncation <= allowed) & np.isfinite(first.slope))


def list_by_slot(mask: npt.NDArray[np.bool_]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and the slots of a mask, slot by slot."""
    slots, rows = np.nonzero(mask.T)
    return rows, slots


def pass_or_refine(problem: Problem, first: FirstPass, analytic: Float, method: str) -> Judgement:
    """Pass what the first pass can settle; refine the rest."""
    numeric, uncertainty = first.slope.copy(), first.uncertainty
    scale = row_scale(first.trusted, problem.weights)
    allowed = problem.allowed(analytic, numeric, scale)
    verdict = np.full(problem.shape, Verdict.PASS, dtype=np.int8)
    reason = np.zeros(problem.shape, dtype=np.int8)
    with np.errstate(all="ignore"):
        error = np.abs(analytic - numeric)
        agrees = (error <= allowed) & is_conclusive(analytic, numeric, allowed, problem.working)
    is_zero = first.is_flat & (analytic == 0) & np.isfinite(problem.value)[:, None]
    stairs = find_flatness(problem, first, is_zero)
    is_zero &= (stairs != Flatness.ROUNDED)[:, None]
    doubtful = ~is_zero & (find_doubtful(problem, first, allowed, method) | ~agrees)
    is_stair = is_zero & (stairs == Flatness.STAIRS)[:, None]
    verdict[is_stair], reason[is_stair] = Verdict.INCONCLUSIVE, Reason.STAIRCASE
    uncertainty[is_zero & ~is_stair] = 0.0
    judged = Judgement(verdict, numeric, uncertainty, allowed, reason, 0, "central")
    if method == "central":
        unsure = ~(agrees & (uncertainty <= 2 * allowed)) & ~is_zero
        _trust_first_pass(first, judged, unsure, analytic)
        doubtful[:] = False
    noisy = 0
    for chosen in _take_turns(doubtful, judged, analytic):
        noisy += _refine(problem, first, judged, chosen, analytic)
        left = doubtful & ~chosen
        if (verdict[chosen] == Verdict.MISMATCH).any() and left.any():
            _trust_first_pass(first, judged, left, analytic)
            break
    return replace(
        judged,
        evaluations=problem.sampler.evaluations,
        method="ladder" if doubtful.any() else "central",
        noisy=noisy,
    )


def doubt_fine_stairs(problem: Problem, judged: Judgement, analytic: Float) -> Judgement:
    """Return the verdicts, inconclusive where a slope passed that may be that of finer stairs."""
    on_stairs = find_fine_stairs(problem, np.where(judged.verdict == Verdict.PASS, judged.numeric, 0.0))
    undone = on_stairs[:, None] & (judged.verdict == Verdict.PASS) & (analytic != 0)
    return replace(
        judged,
        verdict=np.where(undone, Verdict.INCONCLUSIVE, judged.verdict).astype(np.int8),
        reason=np.where(undone, Reason.STAIRCASE, judged.reason).astype(np.int8),
    )


def _trust_first_pass(
    first: FirstPass, judged: Judgement, unsure: npt.NDArray[np.bool_], analytic: Float
) -> None:
    """Decide elements that only the first pass has seen: wrong if the error is clear, else unknown."""
    with np.errstate(all="ignore"):
        error = np.abs(analytic - judged.numeric)
        beyond = ~(error <= judged.allowed + MISMATCH_MARGIN * judged.uncertainty)
        beyond &= np.isfinite(judged.uncertainty)
        is_clear = beyond & (first.truncation <= 0.1 * np.abs(first.slope))
    judged.verdict[unsure], judged.reason[unsure] = Verdict.INCONCLUSIVE, Reason.UNRESOLVED
    wrong = unsure & is_clear
    judged.verdict[wrong], judged.reason[wrong] = Verdict.MISMATCH, Reason.NONE


def _take_turns(
    doubtful: npt.NDArray[np.bool_], judged: Judgement, analytic: Float
) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield the doubtful elements to refine: all at once or, if many, the worst of a few slots first."""
    if not doubtful.any():
        return
    if np.count_nonzero(doubtful) <= _MANY:
        yield doubtful
        return
    with np.errstate(all="ignore"):
        error = np.abs(analytic - judged.numeric) / (judged.allowed + judged.uncertainty)
    error = np.where(doubtful, np.nan_to_num(error, nan=0.0), -1.0)
    worst = np.argsort(error.max(axis=0))[-_FIRST_SLOTS:]
    chosen = np.zeros(doubtful.shape, dtype=bool)
    # In a sparse Jacobian a slot's elements are of many columns: the worst rows stand for them.
    rows = np.argsort(error[:, worst].max(axis=1))[-max(1, _FIRST_ELEMENTS // _FIRST_SLOTS) :]
    chosen[np.ix_(rows, worst)] = True
    chosen &= doubtful
    yield chosen
    yield doubtful & ~chosen


def _refine(
    problem: Problem, first: FirstPass, judged: Judgement, chosen: npt.NDArray[np.bool_], analytic: Float
) -> int:
    """Refine some elements of the judgement, and return how many were noisy."""
    rows, slots = list_by_slot(chosen)
    if not rows.size:
        return 0
    claimed = analytic[rows, slots]
    refined = refine(problem, first, Elements(rows, slots), claimed)
    judged.verdict[rows, slots], judged.reason[rows, slots] = refined.verdict, refined.reason
    judged.numeric[rows, slots] = np.clip(
        np.where(np.isnan(claimed), refined.resolution.slope, claimed),
        refined.resolution.low,
        refined.resolution.high,
    )
    judged.uncertainty[rows, slots] = refined.resolution.uncertainty
    judged.allowed[rows, slots] = refined.allowed
    return refined.noisy
