"""A second look at small errors of the formula: can the narrower declared dtype explain them?

The formula is judged in float64, at a point that was rounded to the declared dtype, and it may have been
written for that dtype. Neither is a fault of the gradient. Both are examined only where they could explain
the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.analytic import analytic_jacobians
from gradcheck_cli.checking.ops.jacobian import Jacobian, PairKey, working_precision
from gradcheck_cli.checking.ops.opener import Operations
from gradcheck_cli.checking.pairs.pair import Pair
from gradcheck_cli.checking.pairs.pair_sample import PairSample, Rule
from gradcheck_cli.numerics import (
    FLOAT32,
    FLOAT64,
    Precision,
    Verdict,
    precision_of,
    rule_for,
)
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.numerics.shared_limits import OF_SOME_OPERATIONS

JudgePairs = Callable[[Mapping[PairKey, Pair], Mapping[PairKey, Jacobian | None]], dict[PairKey, PairSample]]


def note_lower_precision(
    pairs: Mapping[PairKey, Pair], judged: Mapping[PairKey, PairSample]
) -> tuple[dict[PairKey, PairSample], list[str]]:
    """Note on each pair that wasn't judged in float64 why not.

    Returns:
        The verdicts, and a warning for each pair that is declared in float64 but was judged to less accuracy.
    """
    samples, warnings = dict(judged), []
    for key, sample in judged.items():
        pair = pairs[key]
        formula, differenced = pair.operations.formula, pair.operations.differenced
        reason = formula.facts.not_float64 or differenced.facts.not_float64
        precision = coarsest(
            *[working_precision(op, op.inputs[key[1]].dtype) for op in (formula, differenced)],
            *[precision_of(name) for name in formula.facts.vjp_low_precision],
        )
        if not reason or precision == FLOAT64 or not sample.is_connected:
            continue
        samples[key] = sample.with_differencing(not_float64=reason)
        if pair.declared_precision == FLOAT64:
            rtol = rule_for(precision, precision).rtol
            warnings.append(
                f"precision: {pair.label}: declared in float64, but judged in {precision.name}, "
                f"where errors up to {rtol:g} of an element pass: {reason}."
            )
    return samples, warnings


def judge_exact_point(
    pair: Pair, sample: PairSample, sparsities: Mapping[PairKey, Sparsity], judge: JudgePairs
) -> PairSample:
    """Judge at the exact point those mismatches that rounding of the inputs could have caused.

    Raises:
        OverBudgetError: that takes too long.
    """
    near = _is_near(pair, sample)
    if not near.any():
        return sample
    again = _judge_at_exact_point(pair, sparsities if sample.columns is not None else {}, judge)
    if again is None or again.verdict.shape != sample.verdict.shape:
        return sample
    right = near & np.isin(again.verdict, (Verdict.PASS, Verdict.KINK))
    settled = sample.settle(
        right,
        again.verdict,
        Rule.EXACT_POINT,
        again.reason,
        **{name: getattr(again, name) for name in ("analytic", "numeric", "uncertainty", "allowed")},
    )
    evaluations = sample.differencing.evaluations + again.differencing.evaluations
    return settled.with_differencing(evaluations=evaluations)


def _is_near(pair: Pair, sample: PairSample) -> npt.NDArray[np.bool_]:
    """Say which mismatches are within some roundings, in the declared dtype, of their row's largest.

    What holds exactly for exact inputs (probabilities that add up to 1) holds for rounded ones to within some
    units of their dtype: ten in float32 add up to 1 within 5. A gradient that relies on it is off by the same
    part of its row's largest element.
    """
    table, declared = pair.tolerance, pair.formula_precision.unit_roundoff
    wider = replace(table, ratol=max(table.ratol, OF_SOME_OPERATIONS * declared))
    problem = pair.problem(pair.operations.formula, tolerance=wider)
    allowed = problem.allowed_between(sample.numeric, sample.analytic, sample.columns)
    with np.errstate(invalid="ignore"):
        small = np.abs(sample.analytic - sample.numeric) <= allowed
    return np.asarray((sample.verdict == Verdict.MISMATCH) & small)


def _judge_at_exact_point(
    pair: Pair, sparsities: Mapping[PairKey, Sparsity], judge: JudgePairs
) -> PairSample | None:
    """Judge a pair at the inputs as they were drawn, before rounding; `None` where that isn't possible."""
    operations = pair.operations
    formula = operations.formula.forms.at_unrounded_point()
    if formula is None or operations.in_complex is not None:
        return None
    differenced = formula
    if operations.differenced is not operations.formula:
        differenced = operations.differenced.forms.at_unrounded_point() or operations.differenced
    operations.budget.require()
    exact = Operations(operations.declared, formula, differenced, budget=operations.budget)
    matrices = analytic_jacobians(pair.case, formula, [pair.key], sparsities)
    judged = judge({pair.key: pair.with_operations(exact)}, matrices)
    if pair.key not in judged:
        operations.budget.require()
    return judged.get(pair.key)


def pass_approximations(pair: Pair, sample: PairSample) -> PairSample:
    """Let elements pass if they are as accurate as an approximation for the declared dtype.

    Each is judged by itself: no other element, however large its error, makes room for it.
    """
    if not pair.may_be_rounded or not sample.is_wrong or pair.tolerance.is_rtol_fixed:
        return sample
    wrong = np.isin(sample.verdict, (Verdict.MISMATCH, Verdict.INCONCLUSIVE))
    with np.errstate(invalid="ignore"):
        error = np.abs(sample.analytic - sample.numeric) + sample.uncertainty
        size = np.maximum(np.abs(sample.analytic), np.abs(sample.numeric))
        approximate = wrong & (error <= approximation_rtol(pair.formula_precision) * size)
    allowed = np.maximum(sample.allowed, error)
    return sample.settle(approximate, Verdict.PASS, Rule.APPROXIMATION, allowed=allowed)


def approximation_rtol(precision: Precision) -> float:
    """Return how far off an approximation for a precision may be, relative to the element.

    It is half of float32's digits, 3.5e-4 (e^x for a sigmoid below -9 is off by 1.2e-4, and its slope by
    2.5e-4). In the half precisions it is one rounding where that is more, since they can't come nearer to any
    value: 4.9e-4 and 3.9e-3. An error of one per cent is larger than this in every dtype.
    """
    return max(FLOAT32.half_the_digits, precision.unit_roundoff)


def warn_of_approximations(pair: Pair, sample: PairSample) -> list[str]:
    """Return a warning if some elements pass as an approximation only."""
    approximate = sample.decided_by == Rule.APPROXIMATION
    if not approximate.any():
        return []
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.maximum(np.abs(sample.analytic), np.abs(sample.numeric))
        share = (np.abs(sample.analytic - sample.numeric) + sample.uncertainty) / size
    at = np.where(approximate, share, -1.0)
    row, column = (int(index) for index in np.unravel_index(int(np.argmax(at)), at.shape))
    warning = (
        f"precision: {pair.label}: {int(np.count_nonzero(approximate))} of {sample.elements} "
        f"elements are right as an approximation for {pair.formula_precision.name} only, by up to "
        f"{float(at[row, column]):.1e} off; {pair.indices(*sample.place(row, column))}: "
        f"{sample.analytic[row, column]:.6e}, numeric {sample.numeric[row, column]:.6e}."
    )
    return [warning]
