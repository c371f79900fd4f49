"""Judges one element of a large Jacobian as in a small one, together with the largest elements of its row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.judging.ledger import settle_element
from gradcheck_cli.checking.ops.jacobian import working_dtype, working_precision
from gradcheck_cli.checking.ops.packing import packed_size
from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.numerics import Problem, judge

if TYPE_CHECKING:
    from gradcheck_cli.checking.judging.probe_group import Group
    from gradcheck_cli.checking.ops.budget import Budget
    from gradcheck_cli.checking.ops.packing import Float

# How many elements of the element's row set the scale of its tolerance.
_NEIGHBOURS = 7


def judge_element(group: Group, position: tuple[int, int], budget: Budget, least: int = 0) -> PairSample:
    """Judge one element of a pair, and return the verdict on it alone.

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
    sample = replace(
        PairSample.of_judgement(
            judgement, gradient[columns][None], working_dtype(op, op.inputs[pair.input_index].dtype)
        ),
        shape=(packed_size(pair.output), packed_size(pair.input)),
        rows=np.full((1, 1), row),
        columns=columns[None],
    )
    return replace(settle_element(pair, sample).take(0, 0), evaluations=target.evaluations)
