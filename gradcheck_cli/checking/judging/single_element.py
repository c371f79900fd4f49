"""Judges one element of a large Jacobian as in a small one, together with the largest elements of its row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.judging.formula import rounded_rule
from gradcheck_cli.checking.ops.jacobian import working_precision
from gradcheck_cli.checking.pairs.cancellation import allow_rounding_of_element
from gradcheck_cli.numerics import Problem, Verdict, judge

if TYPE_CHECKING:
    from gradcheck_cli.checking.judging.probe_group import Group
    from gradcheck_cli.checking.ops.budget import Budget
    from gradcheck_cli.checking.ops.packing import Float

# How many elements of the element's row set the scale of its tolerance.
_NEIGHBOURS = 7


@dataclass(frozen=True)
class Element:
    """One element, as the ladder judged it; verdict and reason are `numerics` codes."""

    row: int
    column: int
    analytic: float
    numeric: float
    uncertainty: float
    allowed: float
    verdict: int
    reason: int
    evaluations: int
    is_approximate: bool = False  # right only as an approximation for the declared dtype


def judge_element(group: Group, position: tuple[int, int], budget: Budget, least: int = 0) -> Element:
    """Judge one element.

    Args:
        group: the group, of one pair.
        position: the element's row and column.
        budget: limits the time.
        least: how many evaluations it may take in any case.

    Raises:
        OverBudgetError: it takes longer.
    """
    (row, column), pair = position, group.first
    target = group.target()
    gradient = target.row(row)
    with np.errstate(invalid="ignore"):
        effect = np.nan_to_num(np.abs(gradient) * np.abs(target.point))
    effect[column] = -1.0
    largest = np.argpartition(effect, -min(_NEIGHBOURS, effect.size))[-_NEIGHBOURS:]
    columns = np.array([column, *largest[largest != column]])

    def evaluate(points: Float) -> Float:
        values = np.empty((len(points), 1))
        for index, point in enumerate(points):
            if target.evaluations >= least:
                budget.require()
            there = target.point.copy()
            there[columns] = point
            values[index] = target.at(there)[row]
        return values

    op = group.operations.differenced
    low, high = pair.domain
    problem = Problem(
        evaluate,
        target.point[columns],
        target.spans[0].precision,
        working_precision(op, op.outputs[pair.output_index].dtype),
        tolerance=pair.tolerance,
        low=low,
        high=high,
        scale=target.spans[0].typical,
    )
    judgement = judge(problem, gradient[columns][None])
    is_approximate = False
    rule = rounded_rule(pair)
    if rule is not None and judgement.verdict[0, 0] == Verdict.MISMATCH:
        again = judge(replace(problem, tolerance=rule), gradient[columns][None])
        is_approximate = bool(again.verdict[0, 0] in (Verdict.PASS, Verdict.KINK))
        judgement = again if is_approximate else judgement
    if judgement.verdict[0, 0] == Verdict.MISMATCH and np.isfinite(gradient[column]):
        judgement = allow_rounding_of_element(pair, row, column, gradient, judgement)
    return Element(
        row,
        column,
        float(gradient[column]),
        float(judgement.numeric[0, 0]),
        float(judgement.uncertainty[0, 0]),
        float(judgement.allowed[0, 0]),
        int(judgement.verdict[0, 0]),
        int(judgement.reason[0, 0]),
        target.evaluations,
        is_approximate,
    )
