"""Both stages in turn: a cheap first pass over all columns, then a careful second stage where in doubt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.first_pass import first_pass
from gradcheck_cli.numerics.precision import Float
from gradcheck_cli.numerics.reasons import Reason
from gradcheck_cli.numerics.refine.second_stage import refine
from gradcheck_cli.numerics.refine.series import Elements
from gradcheck_cli.numerics.refine.stages import (
    Judgement,
    doubt_fine_stairs,
    find_doubtful,
    list_by_slot,
    pass_or_refine,
)
from gradcheck_cli.numerics.sparsity import confirm_sparsity
from gradcheck_cli.numerics.tolerance import row_scale

if TYPE_CHECKING:
    from gradcheck_cli.numerics.problem import Problem


@dataclass(frozen=True)
class Estimate:
    """A numeric Jacobian with its uncertainty, (m, c) each; see `Judgement`."""

    numeric: Float
    uncertainty: Float
    is_kink: npt.NDArray[np.bool_]
    reason: npt.NDArray[np.int8]
    evaluations: int
    method: str


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
    judged = pass_or_refine(problem, first_pass(problem), claimed, method)
    if problem.may_round:
        judged = doubt_fine_stairs(problem, judged, claimed)
    if problem.sparsity is None:
        return judged
    is_sparse = confirm_sparsity(problem, problem.sparsity)
    return replace(judged, is_sparse=is_sparse, evaluations=problem.sampler.evaluations)


def estimate(problem: Problem, *, method: str = "auto") -> Estimate:
    """Estimate a Jacobian numerically, each element to within its tolerance where that is possible.

    Args:
        problem: the function at its point.
        method: as in `judge`.

    Returns:
        Slopes with their uncertainties.
    """
    problem = problem.reset()
    first = first_pass(problem)
    numeric, uncertainty = first.slope.copy(), first.uncertainty
    is_kink = np.zeros(problem.shape, dtype=bool)
    reason = np.where(np.isfinite(uncertainty), Reason.NONE, Reason.SINGULAR).astype(np.int8)
    allowed = problem.allowed(np.zeros(problem.shape), numeric, row_scale(first.trusted, problem.weights))
    doubtful = find_doubtful(problem, first, allowed, method)
    doubtful &= ~(first.is_flat & (method != "ladder"))
    rows, slots = list_by_slot(doubtful)
    if rows.size:
        refined = refine(problem, first, Elements(rows, slots), None)
        numeric[rows, slots], uncertainty[rows, slots] = (
            refined.resolution.slope,
            refined.resolution.uncertainty,
        )
        is_kink[rows, slots], reason[rows, slots] = refined.resolution.is_kink, refined.resolution.reason
    return Estimate(
        numeric,
        uncertainty,
        is_kink,
        reason,
        problem.sampler.evaluations,
        "ladder" if rows.size else "central",
    )
