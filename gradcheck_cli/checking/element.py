"""Judges one element of a large Jacobian as those of a small one are, beside the largest of its row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.jacobian import working_precision
from gradcheck_cli.numerics import judge

if TYPE_CHECKING:
    from gradcheck_cli.checking.packing import Float
    from gradcheck_cli.checking.sample import Operations, Pair
    from gradcheck_cli.numerics import ToleranceRule
    from gradcheck_cli.numerics.probe import Target
    from gradcheck_cli.spec.case import Case

# Elements of the guilty row that its tolerance is scaled by.
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


def judge_element(  # noqa: PLR0913, PLR0917 (a pair, and where in it)
    case: Case,
    operations: Operations,
    pair: Pair,
    rule: ToleranceRule,
    target: Target,
    place: tuple[int, int],
) -> Element:
    """Judge one element.

    Args:
        case: for its domain.
        operations: what `target` evaluates.
        pair: output number, input number.
        rule: the pair's tolerance.
        target: the pair, one point at a time.
        place: the element's row and column.
    """
    (row, column), (output, number) = place, pair
    gradient = target.row(row)
    with np.errstate(invalid="ignore"):
        effect = np.nan_to_num(np.abs(gradient) * np.abs(target.point))
    effect[column] = -1.0
    largest = np.argpartition(effect, -min(_NEIGHBOURS, effect.size))[-_NEIGHBOURS:]
    columns = np.array([column, *largest[largest != column]])

    def evaluate(points: Float) -> Float:
        values = np.empty((len(points), 1))
        for number_of, point in enumerate(points):
            there = target.point.copy()
            there[columns] = point
            values[number_of] = target.at(there)[row]
        return values

    op = operations.differenced
    low, high = case.tensors[number].domain
    found = judge(
        evaluate,
        target.point[columns],
        gradient[columns][None],
        input_precision=target.precision,
        row_precision=working_precision(op, op.outputs[output].dtype),
        rule=rule,
        low=low,
        high=high,
        scale=target.typical,
    )
    return Element(
        row,
        column,
        float(gradient[column]),
        float(found.numeric[0, 0]),
        float(found.uncertainty[0, 0]),
        float(found.allowed[0, 0]),
        int(found.verdict[0, 0]),
        int(found.reason[0, 0]),
    )
