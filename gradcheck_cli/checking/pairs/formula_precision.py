"""The declared dtype against the formula: a right formula can lose its digits in float32 or below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.ops.jacobian import Jacobian
from gradcheck_cli.checking.ops.packing import index_of
from gradcheck_cli.checking.pairs.allowance import allowed_at
from gradcheck_cli.checking.pairs.formula import declared_precision
from gradcheck_cli.checking.pairs.sample import Operations, Pair, judge_pairs, label_of
from gradcheck_cli.numerics import FLOAT64, Verdict, rule_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair_sample import PairSample
    from gradcheck_cli.spec.case import Case, PairRule

# A declared dtype that contradicts even its own differences is a fault, not a loss of digits, once the error
# is two per cent of the value: what float32 differences get wrong themselves is about one (docs/verdicts.md).
GROSS = 0.02


def judge_declared(
    case: Case,
    operations: Operations,
    declared: Mapping[Pair, Jacobian | None],
    judged: Mapping[Pair, PairSample],
    rules: Mapping[Pair, PairRule | None],
) -> tuple[dict[Pair, PairSample], list[str]]:
    """Hold the declared dtype's gradient against the formula's, pair by pair.

    Args:
        case: for its tolerances.
        operations: with a formula in float64 beside the declared op.
        declared: the declared op's Jacobians.
        judged: the formula's verdicts.
        rules: what the spec says of each pair.

    Returns:
        Pairs that the declared dtype gets wrong outright, with the verdicts in that dtype; and a warning
        for each pair whose gradient is right but loses more digits than its dtype's tolerance.
    """
    pairs = [pair for pair, sample in judged.items() if sample.verdict.size and sample.method != "probe"]
    wrong: dict[Pair, PairSample] = {}
    warnings: list[str] = []
    for pair in pairs:
        matrix, formula = declared[pair], judged[pair]
        if not formula.is_connected:
            continue
        if matrix is None:  # only the declared dtype has no path: as good as zero
            matrix = Jacobian(np.zeros(formula.analytic.shape), formula.size[1])
        if formula.is_whole:
            matrix = matrix.whole()
        found = matrix.values
        beyond = _beyond(case, operations, pair, found, formula)
        if not beyond.any():
            continue
        own = Operations(operations.declared, operations.declared, operations.declared)
        again = None
        if operations.differenced is operations.formula:  # a surrogate's own differences say nothing
            again = judge_pairs(case, own, {pair: matrix}, {pair: rules[pair]})[pair]
        if again is not None and _is_gross(again, beyond):
            wrong[pair] = again
        else:
            warnings.append(_warning(operations, pair, found, formula, beyond))
    return wrong, warnings


def _beyond(case: Case, operations: Operations, pair: Pair, found: Float, formula: PairSample) -> np.ndarray:
    """Return where the declared dtype is off by more than its tolerance, elements decided right only."""
    op = operations.declared
    number = pair[1]
    # Its declared dtypes' own: of a float64 op, what computes in float32 inside loses digits, too.
    rule = rule_for(declared_precision(op, pair), FLOAT64)
    allowed = allowed_at(
        op,
        pair,
        rule,
        formula.analytic,
        formula.analytic,
        columns=formula.columns,
        scale=case.tensors[number].scale,
    )
    with np.errstate(invalid="ignore"):
        right = np.abs(found - formula.analytic) <= allowed
    decided = (formula.verdict == Verdict.PASS) & np.isfinite(formula.analytic)
    return np.asarray(decided & ~right)


def _is_gross(again: PairSample, beyond: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        error = np.abs(again.analytic - again.numeric)
        size = np.maximum(np.abs(again.analytic), np.abs(again.numeric))
        small = error <= GROSS * size
    return bool(np.any((again.verdict == Verdict.MISMATCH) & beyond & ~small))


def _warning(
    operations: Operations, pair: Pair, found: Float, formula: PairSample, beyond: np.ndarray
) -> str:
    op = operations.declared
    with np.errstate(invalid="ignore"):
        error = np.where(beyond, np.abs(found - formula.analytic), -1.0)
    error = np.where(np.isnan(error), np.inf, error)
    row, column = (int(index) for index in np.unravel_index(int(np.argmax(error)), error.shape))
    at_row, at_column = formula.place(row, column)
    output = list(index_of(at_row, op.outputs[pair[0]]))
    taken = list(index_of(at_column, op.inputs[pair[1]]))
    return (
        f"precision: {label_of(op, pair)}: the formula is right in float64, but "
        f"{int(np.count_nonzero(beyond))} of {beyond.size} elements lose more than "
        f"{declared_precision(op, pair).name}'s tolerance; output {output}, input {taken}: "
        f"{found[row, column]:.6e}, in float64 {formula.analytic[row, column]:.6e}."
    )
