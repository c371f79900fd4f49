"""Judge every pair at one sample point: which op is differenced, in which dtype, with which tolerance."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gradcheck_cli.checking.budget import Budget, OverBudgetError
from gradcheck_cli.checking.ops.jacobian import (
    Jacobian,
    packed_complex_function,
    packed_function,
    packed_moves,
    packed_point,
    working_dtype,
    working_precision,
)
from gradcheck_cli.checking.ops.packing import packed_magnitude, packed_size
from gradcheck_cli.checking.pairs.cancellation import allow_rounding
from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.checking.pairs.ties import hold_ties
from gradcheck_cli.checking.probing.method_choice import is_probed
from gradcheck_cli.numerics import Precision, ToleranceRule, judge, judge_complex_step, precision_of, rule_for
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.steps import FIRST_STEP, typical_size
from gradcheck_cli.spec.words import METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.spec.case import Case, PairRule

# Roundings of the output's last operations: what a sum that cancels leaves.
_LEFT_BY_ROUNDING = 4.0

Points = TypeVar("Points")
Pair = tuple[int, int]  # output number, input number


@dataclass(frozen=True)
class Operations:
    """The ops that take part at one sample point.

    Attributes:
        declared: the op in the dtypes that the spec names.
        formula: the same op in float64, or `declared` where there's no such thing.
        differenced: what the numeric derivative is taken of: `formula`, or the spec's reference.
        in_complex: the same in complex128, for the complex step.
        budget: what judging element by element may spend.
    """

    declared: Operation
    formula: Operation
    differenced: Operation
    in_complex: Operation | None = None
    budget: Budget = field(default_factory=Budget)

    @property
    def has_reference_precision(self) -> bool:
        """Whether the formula is judged in float64 though the declared dtype is another."""
        return self.formula is not self.declared


def pairs_of(op: Operation) -> list[Pair]:
    """Return the pairs to check: every differentiable output with every differentiable input."""
    return [
        (output, number)
        for output, produced in enumerate(op.outputs)
        if produced.is_differentiable
        for number, taken in enumerate(op.inputs)
        # Of a vjp: a gradient of one output has nothing to do with another one's upstream.
        if taken.is_differentiable and taken.of in {"", produced.of}
    ]


def label_of(op: Operation, pair: Pair) -> str:
    """Return a pair's label, such as `dM1/dM0`; `d2M1/dM0.dt0` where the output is the gradient dM1/dM0."""
    produced, taken = op.outputs[pair[0]], op.inputs[pair[1]]
    return f"d2{produced.name[1:]}.d{taken.name}" if produced.of else f"d{produced.name}/d{taken.name}"


def judge_pairs(
    case: Case,
    operations: Operations,
    analytic: Mapping[Pair, Jacobian | None],
    rules: Mapping[Pair, PairRule | None],
) -> dict[Pair, PairSample]:
    """Judge analytic Jacobians against differences, one input after another.

    Args:
        case: for its tolerances, domains and scales.
        operations: `differenced` is what is evaluated.
        analytic: the Jacobians of `operations.formula`; `None` counts as zero.
        rules: what the spec says of each pair; only its tolerances matter here.

    Returns:
        The verdicts of each pair in `analytic`, but for those whose function doesn't keep to the sparsity of
        its gradient, and that are too large to be judged without; and for those that take too long.
    """
    judged: dict[Pair, PairSample] = {}
    by_input: dict[tuple[int, ToleranceRule], list[Pair]] = defaultdict(list)
    for pair, matrix in analytic.items():
        rule = tolerance_of(case, operations, pair, rules[pair])
        if matrix is not None and matrix.sparsity is not None:
            try:
                sparse = _judge_sparse(case, operations, pair, matrix, rule)
            except OverBudgetError:
                continue
            if sparse is not None:
                judged[pair] = sparse
                continue
            if is_probed(case, operations.differenced, pair, None):
                continue
        by_input[pair[1], rule].append(pair)
    for (number, rule), pairs in sorted(
        by_input.items(), key=lambda one: operations.formula.inputs[one[0][0]].size
    ):
        with contextlib.suppress(OverBudgetError):
            judged |= _judge_input(case, operations, number, pairs, analytic, rule)
    held = hold_ties(case, operations.differenced, judged, rules)
    return {
        pair: replace(
            allow_rounding(
                operations.formula, pair, sample, _gradient_precision(operations.formula, pair).unit_roundoff
            ),
            rtol=tolerance_of(case, operations, pair, rules[pair]).rtol,
            rounding=_rounding(case, operations.differenced, pair),
        )
        for pair, sample in held.items()
    }


def _rounding(case: Case, op: Operation, pair: Pair) -> tuple[float, float]:
    """Return what rounding of an output leaves of a slope that is zero, in a gradient and in differences.

    Inputs count as of size 1 at least. Where they are tiny, values' last bits look like a slope; a gradient's
    own terms don't grow so.
    """
    output, number = pair
    size = np.abs(np.asarray(op.base_values[output]))
    largest = float(np.max(size, initial=0.0, where=np.isfinite(size)))
    working = coarsest(
        working_precision(op, op.inputs[number].dtype), working_precision(op, op.outputs[output].dtype)
    )
    typical = typical_size(packed_point(op, number), case.tensors[number].scale)
    left = _LEFT_BY_ROUNDING * working.unit_roundoff * largest / max(typical, 1.0)
    return left, left / FIRST_STEP[working.name]


def tolerance_of(case: Case, operations: Operations, pair: Pair, rule: PairRule | None) -> ToleranceRule:
    """Return the tolerance rule of a pair: the table's, the case's own, the pair's own, in rising order."""
    formula = operations.formula
    gradient = coarsest(
        _gradient_precision(formula, pair), *[precision_of(name) for name in formula.vjp_low_precision]
    )
    reference = _gradient_precision(operations.differenced, pair)
    table = rule_for(gradient, reference)
    table = table.with_user(case.tolerance.atol, case.tolerance.rtol)
    return table if rule is None else table.with_user(rule.atol, rule.rtol)


def _gradient_precision(op: Operation, pair: Pair) -> Precision:
    output, number = pair
    return coarsest(
        working_precision(op, op.inputs[number].dtype), working_precision(op, op.outputs[output].dtype)
    )


def _judge_sparse(
    case: Case, operations: Operations, pair: Pair, matrix: Jacobian, rule: ToleranceRule
) -> PairSample | None:
    """Judge a compressed Jacobian; `None` where the function doesn't keep to its sparsity."""
    op, (output, number) = operations.differenced, pair
    low, high = case.tensors[number].domain
    judgement = judge(
        _within(operations.budget, packed_function(op, number, [output])),
        packed_point(op, number),
        matrix.values,
        input_precision=working_precision(op, op.inputs[number].dtype),
        row_precision=working_precision(op, op.outputs[output].dtype),
        rule=rule,
        low=low,
        high=high,
        scale=case.tensors[number].scale,
        method=METHODS[case.method].differences,
        base_value=packed_magnitude(op.base_values[output], op.outputs[output]),
        moves=_within(operations.budget, packed_moves(op, number, [output])),
        may_round=bool(op.quantisers),
        sparsity=matrix.sparsity,
    )
    if not judgement.is_sparse:
        return None
    return PairSample(
        analytic=matrix.values,
        numeric=judgement.numeric,
        uncertainty=judgement.uncertainty,
        allowed=judgement.allowed,
        verdict=judgement.verdict,
        reason=judgement.reason,
        is_connected=True,
        evaluations=judgement.evaluations,
        method=judgement.method,
        numeric_dtype=working_dtype(op, op.inputs[number].dtype),
        noisy=judgement.noisy,
        shape=(matrix.values.shape[0], matrix.width),
        columns=matrix.columns,
    )


def _within(budget: Budget, evaluate: Callable[[Points], Float] | None) -> Any:  # noqa: ANN401 (of either form)
    """Return a function that raises, in place of evaluating, once the time is up."""
    if evaluate is None or budget.seconds == math.inf:
        return evaluate

    def timed(points: Points) -> Float:
        budget.require()
        return evaluate(points)

    return timed


def _judge_input(  # noqa: PLR0913, PLR0917 (an input, its pairs and what judges them)
    case: Case,
    operations: Operations,
    number: int,
    pairs: list[Pair],
    analytic: Mapping[Pair, Jacobian | None],
    rule: ToleranceRule,
) -> dict[Pair, PairSample]:
    op = operations.differenced
    info = op.inputs[number]
    columns = packed_size(info)
    outputs = [output for output, _ in pairs]
    heights = [packed_size(op.outputs[output]) for output in outputs]
    matrices = [
        matrix.whole().values if (matrix := analytic[pair]) is not None else np.zeros((height, columns))
        for pair, height in zip(pairs, heights, strict=True)
    ]
    whole = np.concatenate(matrices)
    low, high = case.tensors[number].domain
    judgement = None
    if whole.size and operations.in_complex is not None:
        judgement = judge_complex_step(
            packed_function(op, number, outputs),
            packed_complex_function(operations.in_complex, number, outputs),
            packed_point(op, number),
            whole,
            precision=working_precision(op, info.dtype),
            rule=rule,
            low=low,
            high=high,
            scale=case.tensors[number].scale,
        )
    elif whole.size:
        judgement = judge(
            _within(operations.budget, packed_function(op, number, outputs)),
            packed_point(op, number),
            whole,
            input_precision=working_precision(op, info.dtype),
            row_precision=[
                working_precision(op, op.outputs[output].dtype)
                for output, height in zip(outputs, heights, strict=True)
                for _ in range(height)
            ],
            rule=rule,
            low=low,
            high=high,
            scale=case.tensors[number].scale,
            method=METHODS[case.method].differences,
            base_value=np.concatenate(
                [packed_magnitude(op.base_values[output], op.outputs[output]) for output in outputs]
            ),
            moves=_within(operations.budget, packed_moves(op, number, outputs)),
            may_round=bool(op.quantisers),
        )
    judged = {}
    start = 0
    for pair, height, values in zip(pairs, heights, matrices, strict=True):
        rows = slice(start, start + height)
        start += height
        empty = np.zeros((height, columns))
        judged[pair] = PairSample(
            analytic=values,
            numeric=empty if judgement is None else judgement.numeric[rows],
            uncertainty=empty if judgement is None else judgement.uncertainty[rows],
            allowed=empty if judgement is None else judgement.allowed[rows],
            verdict=empty.astype(np.int8) if judgement is None else judgement.verdict[rows],
            reason=empty.astype(np.int8) if judgement is None else judgement.reason[rows],
            is_connected=analytic[pair] is not None,
            evaluations=0 if judgement is None else judgement.evaluations,
            method="none" if judgement is None else judgement.method,
            numeric_dtype=working_dtype(op, op.inputs[number].dtype),
            noisy=0 if judgement is None else judgement.noisy,
        )
    return judged
