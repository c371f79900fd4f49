"""The way through both stages: a cheap first pass over all columns, a careful second one where in doubt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.confirm_sparsity import confirm_sparsity
from gradcheck_cli.numerics.first_pass import FirstPass, first_pass
from gradcheck_cli.numerics.precision import Float, Precision, coarsest
from gradcheck_cli.numerics.problem import Problem
from gradcheck_cli.numerics.reasons import Reason, Verdict
from gradcheck_cli.numerics.second_stage import climb
from gradcheck_cli.numerics.series import Elements
from gradcheck_cli.numerics.staircase import Flatness, find_flatness
from gradcheck_cli.numerics.tolerance import ToleranceRule, row_scale, rule_for
from gradcheck_cli.numerics.verdict import MISMATCH_MARGIN, says_something

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.numerics.sampling import Evaluate, EvaluateMoves
    from gradcheck_cli.numerics.sparsity import Sparsity


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
        is_sparse: whether the function keeps to the sparsity it was judged by; if not, all of this is void.
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


@dataclass(frozen=True)
class Estimate:
    """A numeric Jacobian with its uncertainty, (m, c) each; see `Judgement`."""

    numeric: Float
    uncertainty: Float
    is_kink: npt.NDArray[np.bool_]
    reason: npt.NDArray[np.int8]
    evaluations: int
    method: str


def judge(  # noqa: PLR0913 (a point, and all that is known of it; keyword-only)
    evaluate: Evaluate,
    point: npt.ArrayLike,
    analytic: npt.ArrayLike,
    *,
    input_precision: Precision,
    row_precision: Precision | Sequence[Precision] | npt.NDArray[np.float64],
    gradient_precision: Precision | None = None,
    rule: ToleranceRule | None = None,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    method: str = "auto",
    columns: npt.ArrayLike | None = None,
    base_value: npt.ArrayLike | None = None,
    moves: EvaluateMoves | None = None,
    sparsity: Sparsity | None = None,
) -> Judgement:
    """Judge an analytic Jacobian against differences of the function.

    Args:
        evaluate: (B, n) points, representable in `input_precision`, to (B, m) values, NaN where undefined.
        point: (n,) the base point.
        analytic: (m, c) the Jacobian under test; (m, slots) of it where there is a sparsity.
        input_precision: what points are rounded to.
        row_precision: what values are rounded to: one for all, one per row, or the rows' unit roundoffs (m,).
        gradient_precision: what the analytic Jacobian was computed in; default: the coarsest in play.
        rule: the tolerance; default: the table's.
        low: no point goes below; scalar or (n,).
        high: no point goes above.
        scale: typical magnitude of the inputs, scalar or (n,), for the steps.
        method: "auto", "central" (first pass only) or "ladder" (second stage for every column).
        columns: (c,) the columns to judge; default: all n.
        base_value: (m,) f(x), for tolerances, where the caller knows it better.
        moves: `evaluate` for points that are described instead of written out.
        sparsity: what can differ from zero in the analytic Jacobian; that the function keeps to it, too, is
            confirmed here (`Judgement.is_sparse`).

    Returns:
        The judgement.
    """
    wanted = np.asarray(analytic, dtype=np.float64)
    if wanted.ndim != 2:  # noqa: PLR2004 (a Jacobian)
        raise ValueError(f"analytic: expected shape (rows, columns), got {wanted.shape}")
    problem = Problem.of(
        evaluate,
        point,
        input_precision,
        row_precision,
        low=low,
        high=high,
        scale=scale,
        columns=columns,
        rows=wanted.shape[0],
        moves=moves,
        sparsity=sparsity,
    )
    reference = coarsest(problem.working, input_precision)
    problem.rule = rule if rule is not None else rule_for(gradient_precision or reference, reference)
    if base_value is not None:
        problem.known_value = np.asarray(base_value, dtype=np.float64).ravel()
    if wanted.shape != problem.shape:
        raise ValueError(f"analytic: expected shape {problem.shape}, got {wanted.shape}")
    judged = _judged(problem, first_pass(problem), wanted, method)
    if sparsity is None:
        return judged
    is_sparse = confirm_sparsity(problem, sparsity, judged)
    return replace(judged, is_sparse=is_sparse, evaluations=problem.sampler.evaluations)


def estimate(  # noqa: PLR0913 (as `judge`)
    evaluate: Evaluate,
    point: npt.ArrayLike,
    *,
    input_precision: Precision,
    row_precision: Precision | Sequence[Precision] | npt.NDArray[np.float64],
    rule: ToleranceRule | None = None,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    method: str = "auto",
    columns: npt.ArrayLike | None = None,
) -> Estimate:
    """Estimate a Jacobian numerically, each element to within its tolerance where the numbers allow it.

    Args and tolerances are those of `judge`.

    Returns:
        Slopes with their uncertainties.
    """
    problem = Problem.of(
        evaluate, point, input_precision, row_precision, low=low, high=high, scale=scale, columns=columns
    )
    problem.rule = rule if rule is not None else rule_for(problem.working, problem.working)
    first = first_pass(problem)
    numeric, uncertainty = first.slope.copy(), first.uncertainty
    is_kink = np.zeros(problem.shape, dtype=bool)
    reason = np.where(np.isfinite(uncertainty), Reason.NONE, Reason.SINGULAR).astype(np.int8)
    allowed = problem.allowed(np.zeros(problem.shape), numeric, row_scale(first.trusted, problem.weights))
    doubtful = _doubtful(problem, first, allowed, method)
    doubtful &= ~(first.is_flat & (method != "ladder"))
    rows, where = _by_column(doubtful)
    if rows.size:
        found = climb(problem, first, Elements(rows, where), None)
        numeric[rows, where], uncertainty[rows, where] = found.resolution.slope, found.resolution.uncertainty
        is_kink[rows, where], reason[rows, where] = found.resolution.is_kink, found.resolution.reason
    return Estimate(
        numeric,
        uncertainty,
        is_kink,
        reason,
        problem.sampler.evaluations,
        "ladder" if rows.size else "central",
    )


def _doubtful(problem: Problem, first: FirstPass, allowed: Float, method: str) -> npt.NDArray[np.bool_]:
    if method == "ladder":
        return np.ones(problem.shape, dtype=bool)
    if method == "central":
        return np.zeros(problem.shape, dtype=bool)
    return ~((first.noise <= allowed) & (first.truncation <= allowed) & np.isfinite(first.slope))


def _by_column(mask: npt.NDArray[np.bool_]) -> tuple[np.ndarray, np.ndarray]:
    where, rows = np.nonzero(mask.T)
    return rows, where


def _judged(problem: Problem, first: FirstPass, analytic: Float, method: str) -> Judgement:
    """Pass what the first pass can; climb for the rest."""
    numeric, uncertainty = first.slope.copy(), first.uncertainty
    scale = row_scale(first.trusted, problem.weights)
    allowed = problem.allowed(analytic, numeric, scale)
    verdict = np.full(problem.shape, Verdict.PASS, dtype=np.int8)
    reason = np.zeros(problem.shape, dtype=np.int8)
    with np.errstate(all="ignore"):
        error = np.abs(analytic - numeric)
        agrees = (error <= allowed) & says_something(analytic, numeric, allowed, problem.working)
    is_zero = first.is_flat & (analytic == 0) & np.isfinite(problem.value)[:, None]
    stairs = find_flatness(problem, first, is_zero)
    is_zero &= (stairs != Flatness.ROUNDED)[:, None]
    doubtful = ~is_zero & (_doubtful(problem, first, allowed, method) | ~agrees)
    is_stair = is_zero & (stairs == Flatness.STAIRS)[:, None]
    verdict[is_stair], reason[is_stair] = Verdict.INCONCLUSIVE, Reason.STAIRCASE
    uncertainty[is_zero & ~is_stair] = 0.0
    noisy = 0
    if method == "central":
        with np.errstate(all="ignore"):
            beyond = ~(error <= allowed + MISMATCH_MARGIN * uncertainty) & np.isfinite(uncertainty)
            is_clear = beyond & (first.truncation <= 0.1 * np.abs(first.slope))
        unsure = ~(agrees & (uncertainty <= 2 * allowed)) & ~is_zero
        verdict[unsure], reason[unsure] = Verdict.INCONCLUSIVE, Reason.UNRESOLVED
        verdict[unsure & is_clear], reason[unsure & is_clear] = Verdict.MISMATCH, Reason.NONE
        doubtful[:] = False
    rows, where = _by_column(doubtful)
    if rows.size:
        found = climb(problem, first, Elements(rows, where), analytic[rows, where])
        verdict[rows, where], reason[rows, where] = found.verdict, found.reason
        numeric[rows, where] = np.clip(
            np.where(np.isnan(analytic[rows, where]), found.resolution.slope, analytic[rows, where]),
            found.resolution.low,
            found.resolution.high,
        )
        uncertainty[rows, where] = found.resolution.uncertainty
        allowed[rows, where] = found.allowed
        noisy = found.noisy
    return Judgement(
        verdict=verdict,
        numeric=numeric,
        uncertainty=uncertainty,
        allowed=allowed,
        reason=reason,
        evaluations=problem.sampler.evaluations,
        method="ladder" if rows.size else "central",
        noisy=noisy,
    )
