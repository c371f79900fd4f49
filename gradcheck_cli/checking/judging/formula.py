"""A second look at small errors of the formula: can the narrower declared dtype explain them?

The formula is judged in float64, at a point that was rounded to the declared dtype, and it may have been
written for that dtype. Neither is a fault of the gradient. Both are examined only where they could explain
the error.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.judging.judge_by_differences import judge_pairs
from gradcheck_cli.checking.ops.analytic import analytic_jacobians
from gradcheck_cli.checking.ops.budget import OverBudgetError
from gradcheck_cli.checking.ops.jacobian import packed_point, working_precision
from gradcheck_cli.checking.ops.operations import Operations
from gradcheck_cli.numerics import (
    FLOAT64,
    Precision,
    Reason,
    ToleranceRule,
    Verdict,
    precision_of,
    rule_for,
)
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.steps import scales

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gradcheck_cli.checking.ops.jacobian import Jacobian
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair import Pair, PairKey
    from gradcheck_cli.checking.pairs.pair_sample import PairSample
    from gradcheck_cli.numerics.sparsity import Sparsity

# What holds exactly for exact inputs (probabilities that add up to 1) holds for rounded ones to within some
# units of their dtype: ten in float32 add up to 1 within 5. A gradient that relies on it is off by the same
# part of its row's largest element. In the half precisions that would forgive everything; there, no more than
# 2e-3 is allowed.
_POINT_ROUNDINGS = 16.0
_POINT_ERROR = 2e-3
# Constants in a gradient's formula are rounded to the dtype, while the forward's kernel has more accurate
# ones (the 2 / sqrt(pi) of erf's slope). This is what sums of such terms leave of an element that is small
# beside its row.
ROUNDED_CONSTANTS = 2.0
# How far off an approximation for a dtype may be, relative to the element: half of float32's digits,
# sqrt(2^-23) = 3.5e-4 (e^x for a sigmoid below -9 is off by 1.2e-4, and its slope by 2.5e-4). In the half
# precisions it is one rounding where that is more, since they can't come nearer to any value: 4.9e-4 and
# 3.9e-3. An error of one per cent is larger than this in every dtype.
_HALF_THE_DIGITS = 2.0**-11.5
# An error within this factor of the largest rounding seen among such elements is no larger than what the
# declared dtype rounds anyway. With some ten terms of random sign, one element in ten shows less than a
# quarter of the bound. (empirical; gelu's zero slope is a difference of two halves)
_SEEN_ROUNDING = 4.0


def look_again(
    pairs: Mapping[PairKey, Pair],
    judged: Mapping[PairKey, PairSample],
    declared: Mapping[PairKey, Jacobian | None],
    sparsities: Mapping[PairKey, Sparsity],
    are_right_alone: Callable[[PairKey], bool],
) -> tuple[dict[PairKey, PairSample], list[str]]:
    """Judge small mismatches in float64 again, for pairs that are declared in a narrower dtype.

    Args:
        pairs: pairs with a formula in float64 beside the declared op.
        judged: the formula's verdicts, element by element.
        declared: the Jacobians in the declared dtypes.
        sparsities: of the pairs that are judged without their zeros.
        are_right_alone: whether the user's own gradients on a pair's path are right, each by itself.

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
        try:
            sample = _settle_rounded_point(pair, first, sparsities)
        except OverBudgetError:
            del samples[key]
            continue
        rule = pair.tolerance
        if rule.atol is None:  # a tolerance that the spec states is final
            rtol = 0.0 if rule.is_rtol_fixed else approximation_rtol(precision)
            near = _is_near(pair, first, ROUNDED_CONSTANTS)
            seen = _bound_seen_rounding(sample, declared[key], near)
            sample, warning = _pass_approximations(pair, sample, (rtol, near, seen))
            warnings += [warning] if warning else []
            if (sample.verdict == Verdict.MISMATCH).any():
                sample, warning = _pass_rounded_constants(pair, sample, partial(are_right_alone, key))
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
    """Judge at the exact point those mismatches that rounding of the inputs could have caused.

    If something else was rounded, too (weights, a table of constants, values from a file), an element that
    mismatches there as well is inconclusive: its exact value is unknown.
    """
    if pair.tolerance.atol is not None:
        return sample
    near = _is_near(pair, sample, _POINT_ROUNDINGS)
    if not near.any():
        return sample
    again = _judge_at_exact_point(pair, sparsities if sample.columns is not None else {})
    if again is not None and again.verdict.shape == sample.verdict.shape:
        settled = near & np.isin(again.verdict, (Verdict.PASS, Verdict.KINK))
        names = ("analytic", "numeric", "uncertainty", "allowed", "verdict", "reason")
        arrays = {name: np.where(settled, getattr(again, name), getattr(sample, name)) for name in names}
        sample = replace(sample, **arrays, evaluations=sample.evaluations + again.evaluations)
        near &= ~settled
    is_rounded = pair.operations.formula.has_rounded_arrays or any(
        tensor.source.kind == "file" for tensor in pair.case.tensors
    )
    if not is_rounded or not near.any():
        return sample
    return replace(
        sample,
        verdict=np.where(near, Verdict.INCONCLUSIVE, sample.verdict).astype(np.int8),
        reason=np.where(near, Reason.ROUNDED_POINT, sample.reason).astype(np.int8),
    )


def _pass_rounded_constants(
    pair: Pair, sample: PairSample, are_right_alone: Callable[[], bool]
) -> tuple[PairSample, str]:
    """Let mismatches pass, with a warning, that rounded constants of TensorFlow's own gradients make.

    In bfloat16 2 / sqrt(pi) is 1.125, 0.3 % off, and so is a gelu's gradient: by more than 2e-3 of what
    remains where terms cancel. Nobody wrote a wrong gradient if those that the user wrote are right by
    themselves.

    Returns:
        The verdicts, and a warning; it is empty where nothing changed.
    """
    unit = pair.formula_precision.unit_roundoff
    rule = pair.tolerance
    if ROUNDED_CONSTANTS * unit <= _POINT_ERROR or rule.is_rtol_fixed or pair.case.reference is not None:
        return sample, ""
    wrong = sample.verdict == Verdict.MISMATCH
    near = _is_near(pair, sample, ROUNDED_CONSTANTS, ROUNDED_CONSTANTS * unit)
    if (wrong & ~near).any():  # a mismatch that must be reported
        return sample, ""
    if not pair.operations.formula.is_plain_chain(*pair.key) and not are_right_alone():
        return sample, ""
    error = np.abs(sample.analytic - sample.numeric) + sample.uncertainty
    size = np.maximum(np.abs(sample.analytic), np.abs(sample.numeric))
    passed = replace(
        sample,
        verdict=np.where(near, Verdict.PASS, sample.verdict).astype(np.int8),
        allowed=np.where(near, np.maximum(sample.allowed, error), sample.allowed),
    )
    return passed, _word_warning(pair, sample, near, error / np.where(size > 0, size, 1.0))


def _is_near(
    pair: Pair, sample: PairSample, roundings: float, most: float = _POINT_ERROR
) -> npt.NDArray[np.bool_]:
    """Say which mismatches are within this many roundings, in the declared dtype, of a row's largest."""
    table, declared = pair.tolerance, pair.formula_precision.unit_roundoff
    wider = replace(table, ratol=max(table.ratol, min(roundings * declared, most)))
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


def _bound_seen_rounding(sample: PairSample, declared: Jacobian | None, near: npt.NDArray[np.bool_]) -> float:
    """Bound the declared dtype's rounding of some elements by the largest rounding seen there."""
    if declared is None or declared.values.shape != sample.analytic.shape:
        return 0.0
    with np.errstate(invalid="ignore"):
        rounded = np.abs(declared.values - sample.analytic)
    return _SEEN_ROUNDING * float(np.max(rounded, initial=0.0, where=near & np.isfinite(rounded)))


def _pass_approximations(
    pair: Pair,
    sample: PairSample,
    allowed: tuple[float, npt.NDArray[np.bool_], float],
) -> tuple[PairSample, str]:
    """Let elements pass, with a warning, if they are as accurate as an approximation for the declared dtype.

    An element counts as an approximation if its error is small relative to itself, and no larger than such
    errors elsewhere in the pair, measured by their effect on the output. (A polynomial erf and the slope of
    the true one differ as much in the tail as at the centre, but the slope is smaller there.) A zero also
    counts if it is off by less than one rounding of the pair's largest element: constants of the formula are
    rounded to the dtype (the cosine of float32's pi / 2 is 4e-8), and nothing in that dtype is nearer. So
    does an element that is off by such a rounding of its row's largest, if the declared dtype is seen to
    round as much there. This last case gives no warning, since such an error has no visible effect.

    Args:
        pair: the pair.
        sample: its verdicts.
        allowed: how far off an approximation may be, relative to the element; the elements that are off
            by a rounding of their row's largest; and the most that the declared dtype rounds among those.

    Returns:
        The verdicts, and a warning; the warning is empty where nothing changed.
    """
    rtol, near, seen = allowed
    wrong = np.isin(sample.verdict, (Verdict.MISMATCH, Verdict.INCONCLUSIVE))
    steps = scales(packed_point(pair.operations.formula, pair.input_index), pair.scale).step
    columns = np.arange(wrong.shape[1])[None] if sample.columns is None else sample.columns
    with np.errstate(invalid="ignore"):
        error = np.abs(sample.analytic - sample.numeric) + sample.uncertainty
        size = np.maximum(np.abs(sample.analytic), np.abs(sample.numeric))
        small = wrong & (error <= rtol * size)
        unit = pair.formula_precision.unit_roundoff
        slopes = float(np.nanmax(np.abs(sample.numeric), initial=0.0))
        small |= wrong & (error <= unit * slopes) & (np.abs(sample.numeric) <= sample.uncertainty)
        effect = error * steps[columns]
        largest = float(np.max(effect, initial=0.0, where=small))
        approximate = wrong & (small | (near & (error <= seen)) | (effect <= largest))
    if not approximate.any():
        return sample, ""
    passed = replace(
        sample,
        verdict=np.where(approximate, Verdict.PASS, sample.verdict).astype(np.int8),
        allowed=np.where(approximate, np.maximum(sample.allowed, error), sample.allowed),
    )
    if error[approximate].max() <= seen:
        return passed, ""
    return passed, _word_warning(pair, sample, approximate, error / np.where(size > 0, size, 1.0))


def rounded_rule(pair: Pair) -> ToleranceRule | None:
    """Return the tolerance that accounts for rounding to the declared dtype.

    It is `None` where nothing was rounded, or where the spec states the tolerance.
    """
    precision, rule = pair.formula_precision, pair.tolerance
    if not pair.operations.has_reference_precision or precision == FLOAT64 or rule.atol is not None:
        return None
    ratol = max(rule.ratol, min(_POINT_ROUNDINGS * precision.unit_roundoff, _POINT_ERROR))
    rtol = rule.rtol if rule.is_rtol_fixed else max(rule.rtol, approximation_rtol(precision))
    return replace(rule, ratol=ratol, rtol=rtol)


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
