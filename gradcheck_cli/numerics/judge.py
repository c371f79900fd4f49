"""Both stages in turn: a cheap first pass over all columns, then a careful second stage where in doubt."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.differences import first_pass
from gradcheck_cli.numerics.precision import FLOAT32, Float
from gradcheck_cli.numerics.problem import Problem
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
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.numerics.shared_limits import OF_A_VALUE
from gradcheck_cli.numerics.steps import power_of_two
from gradcheck_cli.numerics.tolerance import row_scale


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
    with np.errstate(invalid="ignore"):
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
