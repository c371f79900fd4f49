"""A second look at small errors of the formula: can the narrower declared dtype explain them?

The formula is judged in float64, at a point that was rounded to the declared dtype, and it may have been
written for that dtype. Neither is a fault of the gradient. Both are examined only where they could explain
the error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.judging.judge_by_differences import judge_pairs
from gradcheck_cli.checking.ops.analytic import analytic_jacobians
from gradcheck_cli.checking.ops.budget import OverBudgetError
from gradcheck_cli.checking.ops.jacobian import working_precision
from gradcheck_cli.checking.ops.operations import Operations
from gradcheck_cli.checking.pairs.rounding import allow_rounded_constants
from gradcheck_cli.numerics import (
    FLOAT64,
    Precision,
    ToleranceRule,
    Verdict,
    precision_of,
    rule_for,
)
from gradcheck_cli.numerics.precision import coarsest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair import Pair, PairKey
    from gradcheck_cli.checking.pairs.pair_sample import PairSample
    from gradcheck_cli.numerics.sparsity import Sparsity

# What holds exactly for exact inputs (probabilities that add up to 1) holds for rounded ones to within some
# units of their dtype: ten in float32 add up to 1 within 5. A gradient that relies on it is off by the same
# part of its row's largest element. In the half precisions that would be a tenth; there, no more than 2e-3 is
# judged again.
_POINT_ROUNDINGS = 16.0
_POINT_ERROR = 2e-3
# How far off an approximation for a dtype may be, relative to the element: half of float32's digits,
# sqrt(2^-23) = 3.5e-4 (e^x for a sigmoid below -9 is off by 1.2e-4, and its slope by 2.5e-4). In the half
# precisions it is one rounding where that is more, since they can't come nearer to any value: 4.9e-4 and
# 3.9e-3. An error of one per cent is larger than this in every dtype.
_HALF_THE_DIGITS = 2.0**-11.5


def look_again(
    pairs: Mapping[PairKey, Pair],
    judged: Mapping[PairKey, PairSample],
    sparsities: Mapping[PairKey, Sparsity],
) -> tuple[dict[PairKey, PairSample], list[str]]:
    """Judge small mismatches in float64 again, for pairs that are declared in a narrower dtype.

    Args:
        pairs: pairs with a formula in float64 beside the declared op.
        judged: the formula's verdicts, element by element.
        sparsities: of the pairs that are judged without their zeros.

    Returns:
        The verdicts, except on pairs for which there is no time, and a warning for each pair that is right
        only as an approximation.
    """
    samples = dict(judged)
    warnings = []
    for key, first in judged.items():
        pair = pairs[key]
        precision = pair.formula_precision
        if precision == FLOAT64 or first.rows is not None or not (first.verdict == Verdict.MISMATCH).any():
            continue
        if pair.tolerance.atol is not None:  # a tolerance that the spec states is final
            continue
        try:
            sample = _settle_rounded_point(pair, first, sparsities)
        except OverBudgetError:
            del samples[key]
            continue
        sample, warning = _pass_approximations(pair, allow_rounded_constants(pair, sample))
        warnings += [warning] if warning else []
        samples[key] = sample
    return samples, warnings


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
        reason = formula.not_float64 or differenced.not_float64
        precision = coarsest(
            *[working_precision(op, op.inputs[key[1]].dtype) for op in (formula, differenced)],
            *[precision_of(name) for name in formula.vjp_low_precision],
        )
        if not reason or precision == FLOAT64 or not sample.is_connected:
            continue
        samples[key] = replace(sample, not_float64=reason)
        if pair.declared_precision == FLOAT64:
            rtol = rule_for(precision, precision).rtol
            warnings.append(
                f"precision: {pair.label}: declared in float64, but judged in {precision.name}, "
                f"where errors up to {rtol:g} of an element pass: {reason}."
            )
    return samples, warnings


def _settle_rounded_point(
    pair: Pair, sample: PairSample, sparsities: Mapping[PairKey, Sparsity]
) -> PairSample:
    """Judge at the exact point those mismatches that rounding of the inputs could have caused."""
    near = _is_near(pair, sample)
    again = None
    if near.any():
        again = _judge_at_exact_point(pair, sparsities if sample.columns is not None else {})
    if again is None or again.verdict.shape != sample.verdict.shape:
        return sample
    settled = near & np.isin(again.verdict, (Verdict.PASS, Verdict.KINK))
    names = ("analytic", "numeric", "uncertainty", "allowed", "verdict", "reason")
    arrays = {name: np.where(settled, getattr(again, name), getattr(sample, name)) for name in names}
    return replace(sample, **arrays, evaluations=sample.evaluations + again.evaluations)


def _is_near(pair: Pair, sample: PairSample) -> npt.NDArray[np.bool_]:
    """Say which mismatches are within some roundings, in the declared dtype, of their row's largest."""
    table, declared = pair.tolerance, pair.formula_precision.unit_roundoff
    wider = replace(table, ratol=max(table.ratol, min(_POINT_ROUNDINGS * declared, _POINT_ERROR)))
    problem = pair.problem(pair.operations.formula, tolerance=wider)
    allowed = problem.allowed_between(sample.numeric, sample.analytic, sample.columns)
    with np.errstate(invalid="ignore"):
        small = np.abs(sample.analytic - sample.numeric) <= allowed
    return np.asarray((sample.verdict == Verdict.MISMATCH) & small)


def _judge_at_exact_point(pair: Pair, sparsities: Mapping[PairKey, Sparsity]) -> PairSample | None:
    """Judge a pair at the inputs as they were drawn, before rounding; `None` where that isn't possible."""
    operations = pair.operations
    formula = operations.formula.exactly()
    if formula is None or operations.in_complex is not None:
        return None
    differenced = formula
    if operations.differenced is not operations.formula:
        differenced = operations.differenced.exactly() or operations.differenced
    operations.budget.require()
    exact = Operations(operations.declared, formula, differenced, budget=operations.budget)
    matrices = analytic_jacobians(pair.case, formula, [pair.key], sparsities)
    judged = judge_pairs({pair.key: pair.with_operations(exact)}, matrices)
    if pair.key not in judged:
        operations.budget.require()
    return judged.get(pair.key)


def _pass_approximations(pair: Pair, sample: PairSample) -> tuple[PairSample, str]:
    """Let elements pass, with a warning, if they are as accurate as an approximation for the declared dtype.

    Each is judged by itself: no other element, however large its error, makes room for it.

    Returns:
        The verdicts, and a warning; the warning is empty where nothing changed.
    """
    if pair.tolerance.is_rtol_fixed:
        return sample, ""
    wrong = np.isin(sample.verdict, (Verdict.MISMATCH, Verdict.INCONCLUSIVE))
    with np.errstate(invalid="ignore"):
        error = np.abs(sample.analytic - sample.numeric) + sample.uncertainty
        size = np.maximum(np.abs(sample.analytic), np.abs(sample.numeric))
        approximate = wrong & (error <= approximation_rtol(pair.formula_precision) * size)
    if not approximate.any():
        return sample, ""
    passed = replace(
        sample,
        verdict=np.where(approximate, Verdict.PASS, sample.verdict).astype(np.int8),
        allowed=np.where(approximate, np.maximum(sample.allowed, error), sample.allowed),
    )
    return passed, _word_warning(pair, sample, approximate, error / np.where(size > 0, size, 1.0))


def rounded_rule(pair: Pair) -> ToleranceRule | None:
    """Return the tolerance for an approximation for the declared dtype.

    It is `None` where nothing was rounded, or where the spec states the tolerance.
    """
    precision, rule = pair.formula_precision, pair.tolerance
    if not pair.operations.has_reference_precision or precision == FLOAT64 or rule.atol is not None:
        return None
    if rule.is_rtol_fixed:
        return None
    return replace(rule, rtol=max(rule.rtol, approximation_rtol(precision)))


def approximation_rtol(precision: Precision) -> float:
    """Return how far off an approximation for a precision may be, relative to the element."""
    return max(_HALF_THE_DIGITS, precision.unit_roundoff)


def _word_warning(pair: Pair, sample: PairSample, approximate: npt.NDArray[np.bool_], share: Float) -> str:
    at = np.where(approximate & np.isfinite(share), share, -1.0)
    row, column = (int(index) for index in np.unravel_index(int(np.argmax(at)), at.shape))
    return (
        f"precision: {pair.label}: {int(np.count_nonzero(approximate))} of {sample.elements} "
        f"elements are right as an approximation for {pair.formula_precision.name} only, by up to "
        f"{float(at[row, column]):.1e} off; {pair.indices(*sample.place(row, column))}: "
        f"{sample.analytic[row, column]:.6e}, numeric {sample.numeric[row, column]:.6e}."
    )
