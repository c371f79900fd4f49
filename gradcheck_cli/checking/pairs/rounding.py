"""Measure what rounding does to a gradient: run it again, rounded otherwise.

An element may be off by what such runs move it by, and by nothing else. There are two kinds of runs. The same
upstream at other sizes is rounded differently throughout, which shows the remainder of terms that cancel: a
causal softmax's first row is zero by nature, and holds one. And constants of the declared dtype, moved by one
rounding each, show what they were rounded to.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import packed_function, packed_point, pull_back
from gradcheck_cli.checking.ops.packing import pack, packed_magnitude, packed_size, unpack
from gradcheck_cli.checking.pairs.pair_sample import Rule
from gradcheck_cli.numerics import Reason, Verdict
from gradcheck_cli.numerics.agreement import VJP_ROUNDINGS, largest_finite
from gradcheck_cli.numerics.refine.noise import BOUND_PER_SIGMA, OFFSETS, standard_deviation
from gradcheck_cli.numerics.steps import scales

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair import Pair, PairKey
    from gradcheck_cli.checking.pairs.pair_sample import PairSample

# A sum that cancels leaves this many roundings of the largest right element. Up to 3 were seen (the gradient
# of a QR decomposition's Q for columns that Q doesn't depend on).
REMAINDERS = 32.0
# An upstream times these is rounded differently throughout. None is a power of two: that changes no rounding.
_FACTORS = (1 / 3, 0.7, 1.1, 1.3, 1.7, 0.9, 5 / 7, 11 / 13)
# The largest of eight differences is at least half a sigma 999 times in 1,000, so 8 times it bounds 4 sigma.
# Twice that, for the residuals' own rounding, which no upstream changes.
_MEASURED = 16.0
# The most that may be attributed to rounding, in units of the dtype's rounding. It is relative to the pair's
# largest element, or to the output's value over the input's scale: 1e-9 in float64, where 1e-6 is a mistake.
MOST_MEASURED = 2.0**23
# In narrower dtypes, no more than this, relative to the same.
MOST_SHARE = 1e-3
# What is known to this share of itself has digits. A remainder of terms that cancel has none: it changes by
# its own size.
_DIGITS = 1e-3
# Slopes that last for fewer roundings than this are seen by no difference: the nearest sentinel is at 2**-36.
_UNSEEN = 2.0**17
_FEW = 4.0  # roundings
# Seven points this far apart, relative to the inputs: sums round otherwise at each, and what a smooth
# gradient adds to differences of order 4 to 6 is below 2**-48 of it. A power of two would round nothing.
_SPACING = 1.1 * 2.0**-12
_MOST_BESIDE = 8  # rows that are measured so; each takes seven backward passes
# The most rows that are pulled back again.
_MOST_ROWS = 256
# Reasons for an undecided element that a larger bound may resolve.
_COARSE = (Reason.NOISE, Reason.UNRESOLVED, Reason.LOW_PRECISION)
# Runs with each constant moved up or down at random. Errors of three constants are added in one run out of
# four, so that eight runs show the worst nine times in ten.
_DRAWS = 8
# A move is the largest rounding error that a number of its size can have; typical ones are 0.4 of that. One
# and a half times the largest of eight moves is exceeded once in some thousand patterns.
MARGIN = 1.5
# However far constants move an element (the phase of sin(1000.3 x)), no more is attributed to them than this
# many roundings of its row's largest element, or of the output's value over the input.
MOST_ROUNDINGS = 16.0


def allow_own_rounding(pair: Pair, sample: PairSample) -> PairSample:
    """Return the verdicts with the gradient's own rounding added to the tolerance, where that decides.

    If a whole row is zero but for remainders of terms that cancel, nothing there says how small is small. So
    the rounding is measured.

    Args:
        pair: the pair, whose formula has the judged gradient.
        sample: its verdicts.
    """
    is_open = (sample.verdict == Verdict.MISMATCH) | (
        (sample.verdict == Verdict.INCONCLUSIVE) & np.isin(sample.reason, _COARSE)
    )
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(sample.analytic - sample.numeric)
        share = min(MOST_MEASURED * _unit_roundoff(pair), MOST_SHARE)
        most = np.fmax(share * _scale(pair, sample), MOST_SHARE * np.abs(sample.numeric))
        is_open &= (error <= most) & np.isfinite(sample.uncertainty)
    if not is_open.any() or not sample.is_connected:
        return sample
    loss = _MEASURED * _measure(pair, sample, is_open, _scaled_upstreams(pair))
    with np.errstate(invalid="ignore"):
        still_open = is_open & (error > sample.allowed + loss)
    loss = np.fmax(loss, _measure_beside(pair, sample, still_open))
    loss = np.where(is_open & (loss <= most), loss, 0.0)
    uncertainty, allowed = sample.uncertainty, sample.allowed + loss
    with np.errstate(invalid="ignore"):
        passes = is_open & (loss > 0) & (error <= allowed + np.minimum(uncertainty, allowed))
        passes &= uncertainty <= 2 * allowed  # as everywhere: `numerics.verdict`
        doubted = is_open & ~passes & (error <= allowed + uncertainty)
    reason = np.where(sample.reason == Reason.NONE, Reason.LOW_PRECISION, sample.reason).astype(np.int8)
    passed = sample.settle(passes, Verdict.PASS, Rule.OWN_ROUNDING, allowed=allowed)
    return passed.settle(doubted, Verdict.INCONCLUSIVE, Rule.OWN_ROUNDING, reason)


def leave_remainders(pair: Pair, sample: PairSample) -> PairSample:
    """Return the verdicts with mismatches undecided that may be remainders of terms that cancel."""
    upstreams = _scaled_upstreams(pair)
    return doubt_rounding(sample, _unit_roundoff(pair), partial(_measure, pair, sample, upstreams=upstreams))


def leave_steep(pair: Pair, sample: PairSample) -> PairSample:
    """Return the verdicts, with mismatches undecided where the function turns within roundings of the input.

    No step is small enough to see such a slope: every difference spans a turn. But a few
    roundings of the input move the output by a thousandth or more of what the gradient says.
    """
    output, input_index = pair.key
    op, unit = pair.operations.formula, _unit_roundoff(pair)
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(sample.analytic)
        steep = unit * _UNSEEN * size >= np.abs(sample.numeric) + sample.uncertainty
        steep &= (sample.verdict == Verdict.MISMATCH) & np.isfinite(size)
    if not steep.any():
        return sample
    point = packed_point(op, input_index)
    rows, columns = (np.broadcast_to(places, sample.verdict.shape) for places in sample.places())
    moving = np.unique(columns[steep])[:_MOST_ROWS]
    step = _FEW * unit * np.abs(point[moving])
    points = np.tile(point, (moving.size + 1, 1))  # the last one stays
    points[np.arange(moving.size), moving] += step
    values = packed_function(op, input_index, [output])(points)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.abs(values[:-1] - values[-1])  # (moving, m)
        index = np.searchsorted(moving, columns[steep]).clip(max=moving.size - 1)
        claimed = _DIGITS * size[steep] * step[index]
        is_seen = (moving[index] == columns[steep]) & (moved[index, rows[steep]] >= claimed) & (claimed > 0)
    steep[steep] = is_seen
    return sample.settle(steep, Verdict.INCONCLUSIVE, Rule.STEEP, Reason.UNRESOLVED)


def doubt_rounding(
    sample: PairSample,
    unit_roundoff: float,
    measure: Callable[[npt.NDArray[np.bool_]], Float] | None = None,
) -> PairSample:
    """Return the verdicts, with mismatches as small as the other elements' rounding made inconclusive.

    Such an element may be a zero that the gradient computes by cancellation, in a row of nothing but such
    zeros, where no scale says how small is small. It may also be wrong, so it doesn't pass. An element with
    digits on both sides is no such zero, however large the others are (1/x at 1 beside 1e-20): the
    differences stand out from their uncertainty, and the gradient hardly changes if it is rounded otherwise.

    Args:
        sample: the verdicts of one pair.
        unit_roundoff: of the gradient's precision.
        measure: returns how much some elements change if they are rounded differently; without it, no digits
            of the gradient count.
    """
    wrong = sample.verdict == Verdict.MISMATCH
    right = sample.verdict == Verdict.PASS
    if not wrong.any() or not right.any():
        return sample
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.abs(sample.analytic), np.abs(sample.numeric))
        largest = float(np.max(size[right], initial=0.0))
        tiny = wrong & (size <= REMAINDERS * unit_roundoff * largest)
        # A zero shows nothing of its rounding, on either side.
        has_digits = tiny & (sample.uncertainty < _DIGITS * np.abs(sample.numeric)) & (sample.analytic != 0)
    if measure is not None and has_digits.any() and sample.is_connected:
        is_measured = np.cumsum(has_digits.any(axis=1))[:, None] <= _MOST_ROWS
        is_known = _MEASURED * measure(has_digits) <= _DIGITS * np.abs(sample.analytic)
        tiny &= ~(has_digits & is_measured & is_known)
    return sample.settle(tiny, Verdict.INCONCLUSIVE, Rule.REMAINDER, Reason.LOW_PRECISION)


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
        if not sample.is_whole or not sample.numeric_is_zero or sample.analytic_is_zero:
            continue
        pair = pairs[key]
        beside = [
            largest_finite(other.numeric)
            for other_key, other in samples.items()
            if other_key[0] == key[0] and other_key != key and other.is_right
        ]
        largest = float(np.max(np.abs(sample.analytic)))
        if not largest <= VJP_ROUNDINGS * _unit_roundoff(pair) * max(beside, default=0.0):
            continue
        moved = _measure(pair, sample, sample.analytic != 0, _scaled_upstreams(pair))
        if largest <= _MEASURED * float(np.max(moved)):
            samples[key] = replace(sample, is_remainder=True)


def allow_rounded_constants(pair: Pair, sample: PairSample) -> PairSample:
    """Let mismatches pass that are within what rounding of the gradient's own constants does.

    An exact GELU has 1 / sqrt(2 pi) in its gradient, which bfloat16 rounds by 0.3 %. Where the terms of the
    gradient cancel, that is most of what remains.

    Args:
        pair: the pair.
        sample: its verdicts.
    """
    most = _most_of_constants(pair, sample)
    with np.errstate(invalid="ignore"):
        error = np.abs(sample.analytic - sample.numeric) + sample.uncertainty
        is_open = (sample.verdict == Verdict.MISMATCH) & (error <= most)
    if not is_open.any() or not sample.is_connected:
        return sample
    formula = pair.operations.formula
    rounded = ((op, 1.0) for draw in range(_DRAWS) if (op := formula.rounded_otherwise(draw)) is not None)
    moved = np.minimum(MARGIN * _measure(pair, sample, is_open, rounded), most)
    passes = is_open & (error <= moved)
    return sample.settle(passes, Verdict.PASS, Rule.CONSTANTS, allowed=np.maximum(sample.allowed, moved))


def _unit_roundoff(pair: Pair) -> float:
    return pair.precision_in(pair.operations.formula).unit_roundoff


def _scale(pair: Pair, sample: PairSample) -> float:
    """Return a pair's typical size: its largest element, or the output's value over the input's scale."""
    op, (output, input_index) = pair.operations.formula, pair.key
    value = packed_magnitude(op.base_values[output], op.outputs[output])
    step = scales(packed_point(op, input_index)).step
    slopes = max(largest_finite(sample.analytic), largest_finite(sample.numeric))
    return max(slopes, float(largest_finite(value) / np.min(step, initial=np.inf)))


def _most_of_constants(pair: Pair, sample: PairSample) -> Float:
    """Return the most that may be attributed to rounded constants, as `sample.analytic`."""
    op, (output, input_index) = pair.operations.formula, pair.key
    value = packed_magnitude(op.base_values[output], op.outputs[output])
    step = scales(packed_point(op, input_index), pair.scale).step
    rows, columns = sample.places()
    with np.errstate(invalid="ignore", over="ignore"):
        slopes = np.nan_to_num(np.abs(sample.numeric), posinf=0.0)
        largest = np.max(slopes, axis=1, keepdims=True, initial=0.0)
        terms = np.nan_to_num(value, posinf=0.0)[rows] / step[columns]
    return np.asarray(MOST_ROUNDINGS * pair.formula_precision.unit_roundoff * np.maximum(largest, terms))


def _measure_beside(pair: Pair, sample: PairSample, where: npt.NDArray[np.bool_]) -> Float:
    """Measure a gradient's noise along the inputs, as `sample.analytic`; 0 where it may be shape instead.

    No upstream changes the rounding of what a gradient adds before it meets its upstream: (cos x - sin x / x)
    / x is off by 1e-10 at 1e-6. So the gradient is taken at evenly spaced points beside the sample point.
    """
    op, (output, input_index) = pair.operations.formula, pair.key
    noise = np.zeros(sample.analytic.shape)
    at_rows, at_columns = sample.places()
    for row in np.flatnonzero(where.any(axis=1))[:_MOST_BESIDE]:
        upstream = np.zeros((1, packed_size(pair.output)))
        upstream[0, at_rows[row, 0]] = 1.0
        values = []
        for offset in OFFSETS:
            point = {
                index: np.multiply(value, 1.0 + _SPACING * offset)[np.newaxis]
                for index, (value, info) in enumerate(zip(op.point, op.inputs, strict=True))
                if info.is_differentiable
            }
            pulled = op.vjp_beside(output, unpack(upstream, op.outputs[output]), point)
            gradient = None if pulled is None else pulled[input_index]
            if gradient is None:
                return noise
            values.append(pack(gradient, op.inputs[input_index])[0])
        sigma = standard_deviation(np.array(values), only_noise=True)[at_columns[row]]
        noise[row] = np.where(np.isfinite(sigma), BOUND_PER_SIGMA * sigma, 0.0)
    return noise


def _scaled_upstreams(pair: Pair) -> list[tuple[Operation, float]]:
    return [(pair.operations.formula, factor) for factor in _FACTORS]


def _measure(
    pair: Pair,
    sample: PairSample,
    where: npt.NDArray[np.bool_],
    upstreams: Iterable[tuple[Operation, float]],
) -> Float:
    """Measure how far rounding moves some elements; the others are given as 0, or as their rows' own.

    Args:
        pair: the pair.
        sample: its verdicts.
        where: which elements; no more than a number of rows are measured.
        upstreams: forms of the formula, and factors of the upstream.
    """
    output, input_index = pair.key
    chosen = np.flatnonzero(where.any(axis=1))[:_MOST_ROWS]
    at_rows, at_columns = (places[chosen] for places in sample.places())
    upstream = np.zeros((chosen.size, packed_size(pair.output)))
    upstream[np.arange(chosen.size), at_rows[:, 0]] = 1.0
    moved = np.zeros(sample.analytic.shape)
    for op, factor in upstreams:
        gradient = pull_back(op, output, factor * upstream)[input_index]
        if gradient is None:
            break
        # The factor is itself rounded to the op's dtype. That error has the gradient's own size: no matter.
        with np.errstate(invalid="ignore"):
            change = np.take_along_axis(gradient, at_columns, axis=1) / factor - sample.analytic[chosen]
        moved[chosen] = np.fmax(moved[chosen], np.where(np.isfinite(change), np.abs(change), 0.0))
    return moved
