"""Tell rounding from slopes: elements that would be zero if nothing cancelled inside the gradient."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import packed_point, pull_back
from gradcheck_cli.checking.ops.packing import packed_magnitude, packed_size
from gradcheck_cli.numerics import Judgement, Reason, Verdict
from gradcheck_cli.numerics.agreement import VJP_ROUNDINGS, largest_finite
from gradcheck_cli.numerics.steps import scales

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair import Pair, PairKey
    from gradcheck_cli.checking.pairs.pair_sample import PairSample

Judged = TypeVar("Judged", "PairSample", "Judgement")

# A sum that cancels leaves this many roundings of the largest right element. Up to 3 were seen (the gradient
# of a QR decomposition's Q for columns that Q doesn't depend on).
ROUNDINGS = 16.0
# An upstream times these is rounded differently throughout. None is a power of two: that changes no rounding.
_FACTORS = (1 / 3, 0.7, 1.1, 1.3, 1.7, 0.9, 5 / 7, 11 / 13)
# The largest of eight differences is at least half a sigma 999 times in 1,000, so 8 times it bounds 4 sigma.
# Twice that, for the residuals' own rounding, which no upstream changes.
_MEASURED = 16.0
# The most that may be attributed to rounding, in units of the dtype's rounding. It is relative to the pair's
# largest element, or to the output's value over the input's scale: 1e-9 in float64, where 1e-6 is a mistake.
_MOST = 2.0**23
# What is known to this share of itself has digits. A remainder of terms that cancel has none: it changes by
# its own size.
_DIGITS = 1e-3
# The most rows that are pulled back again.
_MOST_ROWS = 256
# Reasons for an undecided element that a larger bound may resolve.
_COARSE = (Reason.NOISE, Reason.UNRESOLVED, Reason.LOW_PRECISION)


def allow_rounding(pair: Pair, sample: PairSample) -> PairSample:
    """Return the verdicts with the gradient's own rounding added to the tolerance, where that decides.

    A gradient that is zero by nature (a causal softmax's first row) may hold the remainder of terms that
    cancel. If its whole row is such zeros, nothing there says how small is small. So the rounding is
    measured: the same upstream at other sizes is rounded differently.

    Args:
        pair: the pair, whose formula has the judged gradient.
        sample: its verdicts.
    """
    unit_roundoff = pair.precision_in(pair.operations.formula).unit_roundoff
    allowed = _allow_measured(pair, sample, unit_roundoff)
    return doubt_rounding(allowed, unit_roundoff, partial(_measure_rounding, pair))


def allow_rounding_of_element(
    pair: Pair, row: int, column: int, gradient: Float, judgement: Judgement
) -> Judgement:
    """Return the verdicts of a row with the gradient's own rounding added to one mismatch's tolerance.

    Args:
        pair: the pair, too large to be judged whole.
        row: of the Jacobian.
        column: of the Jacobian.
        gradient: that row of the analytic Jacobian, (n,).
        judgement: of some of its elements, (1, k); the first is this one, a mismatch.

    Returns:
        As in `allow_rounding`, what the measured rounding explains passes, or is inconclusive.
    """
    moved = _measure_row_rounding(pair, np.array([row]), gradient[None])[0, column]
    unit_roundoff = pair.precision_in(pair.operations.formula).unit_roundoff
    largest_loss = min(_MOST * unit_roundoff, 1e-3) * _scale_of_slopes(pair, gradient)
    error, loss = np.full(judgement.verdict.shape, np.inf), np.zeros(judgement.verdict.shape)
    error[0, 0], loss[0, 0] = np.abs(gradient[column] - judgement.numeric[0, 0]), _MEASURED * moved
    is_open = (loss > 0) & (np.maximum(loss, error) <= largest_loss) & np.isfinite(judgement.uncertainty)
    return _allow_loss(judgement, is_open, error, loss)


def mark_remainders(pairs: Mapping[PairKey, Pair], samples: dict[PairKey, PairSample]) -> None:
    """Mark the pairs that are zero by symmetry, such as a key's bias in attention, in place.

    Their output doesn't move at all, and their gradient is what terms that cancel leave: it is below the
    rounding of the slopes that the same output has in another input, and changes by its own size if it is
    rounded differently. A saturated sigmoid's gradient is as small, but has digits.

    Args:
        pairs: the pairs at one sample point.
        samples: their verdicts.
    """
    for key, sample in samples.items():
        if sample.rows is not None or not sample.numeric_is_zero or sample.analytic_is_zero:
            continue
        beside = [
            largest_finite(other.numeric)
            for other_key, other in samples.items()
            if other_key[0] == key[0] and other_key != key and other.is_right
        ]
        unit_roundoff = pairs[key].precision_in(pairs[key].operations.formula).unit_roundoff
        largest = float(np.max(np.abs(sample.analytic)))
        if not largest <= VJP_ROUNDINGS * unit_roundoff * max(beside, default=0.0):
            continue
        rows = np.flatnonzero(sample.analytic.any(axis=1))[:_MOST_ROWS]
        moved = _measure_rounding(pairs[key], sample, rows)
        if largest <= _MEASURED * float(np.max(moved)):
            samples[key] = replace(sample, is_remainder=True)


def _allow_measured(pair: Pair, sample: PairSample, unit_roundoff: float) -> PairSample:
    is_open = (sample.verdict == Verdict.MISMATCH) | (
        (sample.verdict == Verdict.INCONCLUSIVE) & np.isin(sample.reason, _COARSE)
    )
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(sample.analytic - sample.numeric)
        largest_loss = min(_MOST * unit_roundoff, 1e-3) * _scale(pair, sample)
        is_open &= (error <= largest_loss) & np.isfinite(sample.uncertainty)
    rows = np.flatnonzero(is_open.any(axis=1))[:_MOST_ROWS]
    if not rows.size or not sample.is_connected or sample.rows is not None:
        return sample
    loss = np.zeros(sample.analytic.shape)
    loss[rows] = _MEASURED * _measure_rounding(pair, sample, rows)
    loss = np.where(is_open & (loss <= largest_loss), loss, 0.0)
    return _allow_loss(sample, is_open, error, loss)


def _allow_loss(judged: Judged, is_open: npt.NDArray[np.bool_], error: Float, loss: Float) -> Judged:
    """Return the verdicts with a loss added to the tolerance of open elements, where that decides."""
    uncertainty, allowed = judged.uncertainty, judged.allowed + loss
    with np.errstate(invalid="ignore"):
        passes = is_open & (loss > 0) & (error <= allowed + np.minimum(uncertainty, allowed))
        passes &= uncertainty <= 2 * allowed  # as everywhere: `numerics.verdict`
        doubted = is_open & ~passes & (error <= allowed + uncertainty)
    verdict = np.where(doubted, Verdict.INCONCLUSIVE, np.where(passes, Verdict.PASS, judged.verdict))
    reason = np.where(passes, Reason.NONE, judged.reason)
    reason = np.where(doubted & (reason == Reason.NONE), Reason.LOW_PRECISION, reason)
    return replace(
        judged,
        verdict=verdict.astype(np.int8),
        reason=reason.astype(np.int8),
        allowed=np.where(passes, allowed, judged.allowed),
    )


def _scale(pair: Pair, sample: PairSample) -> float:
    """Return a pair's typical size: its largest element, or the output's value over the input's scale."""
    return _scale_of_slopes(pair, np.concatenate([sample.analytic.ravel(), sample.numeric.ravel()]))


def _scale_of_slopes(pair: Pair, slopes: Float) -> float:
    op, (output, input_index) = pair.operations.formula, pair.key
    value = packed_magnitude(op.base_values[output], op.outputs[output])
    step = scales(packed_point(op, input_index)).step
    return max(largest_finite(slopes), float(largest_finite(value) / np.min(step, initial=np.inf)))


def _measure_rounding(pair: Pair, sample: PairSample, rows: npt.NDArray[np.intp]) -> Float:
    """Measure how much the elements of some rows change when they are rounded differently."""
    columns = None
    if sample.columns is not None:
        columns = np.broadcast_to(sample.columns, sample.analytic.shape)[rows]
    return _measure_row_rounding(pair, rows, sample.analytic[rows], columns)


def _measure_row_rounding(
    pair: Pair,
    rows: npt.NDArray[np.intp],
    analytic: Float,
    columns: npt.NDArray[np.integer] | None = None,
) -> Float:
    op, (output, input_index) = pair.operations.formula, pair.key
    size = packed_size(op.outputs[output])
    upstream = np.zeros((rows.size, size))
    upstream[np.arange(rows.size), rows] = 1.0
    moved = np.zeros(analytic.shape)
    for factor in _FACTORS:
        gradient = pull_back(op, output, factor * upstream)[input_index]
        if gradient is None:
            return moved
        if columns is not None:
            gradient = np.take_along_axis(gradient, columns, axis=1)
        # The factor is itself rounded to the op's dtype. That error has the gradient's own size: no matter.
        with np.errstate(invalid="ignore"):
            change = np.abs(gradient / factor - analytic)
        moved = np.maximum(moved, np.where(np.isfinite(change), change, 0.0))
    return moved


def doubt_rounding(
    sample: PairSample,
    unit_roundoff: float,
    measure: Callable[[PairSample, npt.NDArray[np.intp]], Float] | None = None,
) -> PairSample:
    """Return the verdicts, with mismatches as small as the other elements' rounding made inconclusive.

    Such an element may be a zero that the gradient computes by cancellation, in a row of nothing but such
    zeros, where no scale says how small is small. It may also be wrong, so it doesn't pass. An element with
    digits on both sides is no such zero, however large the others are (1/x at 1 beside 1e-20): the
    differences stand out from their uncertainty, and the gradient hardly changes if it is rounded otherwise.

    Args:
        sample: the verdicts of one pair.
        unit_roundoff: of the gradient's precision.
        measure: returns how much the elements of some rows change if they are rounded differently,
            (rows, columns); without it, no digits of the gradient count.
    """
    wrong = sample.verdict == Verdict.MISMATCH
    right = sample.verdict == Verdict.PASS
    if not wrong.any() or not right.any():
        return sample
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.abs(sample.analytic), np.abs(sample.numeric))
        largest = float(np.max(size[right], initial=0.0))
        tiny = wrong & (size <= ROUNDINGS * 2 * unit_roundoff * largest)
        # A zero shows nothing of its rounding, on either side.
        has_digits = tiny & (sample.uncertainty < _DIGITS * np.abs(sample.numeric)) & (sample.analytic != 0)
    rows = np.flatnonzero(has_digits.any(axis=1))[:_MOST_ROWS]
    if measure is not None and rows.size and sample.is_connected and sample.rows is None:
        moved = np.full(sample.analytic.shape, np.inf)
        moved[rows] = measure(sample, rows)
        tiny &= ~(has_digits & (_MEASURED * moved <= _DIGITS * np.abs(sample.analytic)))
    if not tiny.any():
        return sample
    return replace(
        sample,
        verdict=np.where(tiny, Verdict.INCONCLUSIVE, sample.verdict).astype(np.int8),
        reason=np.where(tiny, Reason.LOW_PRECISION, sample.reason).astype(np.int8),
    )
