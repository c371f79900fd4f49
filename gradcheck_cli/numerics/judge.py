"""The way through both stages: a cheap first pass over all columns, a careful second one where in doubt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.confirm_sparsity import confirm_sparsity
from gradcheck_cli.numerics.first_pass import first_pass
from gradcheck_cli.numerics.precision import Float, Precision, coarsest
from gradcheck_cli.numerics.problem import Problem
from gradcheck_cli.numerics.reasons import Reason
from gradcheck_cli.numerics.refine.second_stage import climb
from gradcheck_cli.numerics.refine.series import Elements
from gradcheck_cli.numerics.refine.stages import (
    Judgement,
    by_column,
    in_doubt,
    pass_or_climb,
    without_fine_stairs,
)
from gradcheck_cli.numerics.tolerance import ToleranceRule, row_scale, rule_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.numerics.sampling import Evaluate, EvaluateMoves
    from gradcheck_cli.numerics.sparsity import Sparsity


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
    may_round: bool = False,
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
        may_round: whether the function is known to round on its way; then stairs finer than the first step
            are looked for.

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
    judged = pass_or_climb(problem, first_pass(problem), wanted, method)
    if may_round:
        judged = without_fine_stairs(problem, judged, wanted)
    if sparsity is None:
        return judged
    is_sparse = confirm_sparsity(problem, sparsity)
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
    doubtful = in_doubt(problem, first, allowed, method)
    doubtful &= ~(first.is_flat & (method != "ladder"))
    rows, where = by_column(doubtful)
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
