"""Measure what rounding does to a gradient: run it again with its constants rounded otherwise.

An element may be off by what such runs move it by, and by nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import packed_point, pull_back
from gradcheck_cli.checking.ops.packing import packed_magnitude, packed_size
from gradcheck_cli.numerics import FLOAT64, Verdict
from gradcheck_cli.numerics.steps import scales

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair import Pair
    from gradcheck_cli.checking.pairs.pair_sample import PairSample

# Runs with each constant moved up or down at random. Errors of three constants are added in one run out of
# four, so that eight runs show the worst nine times in ten.
_DRAWS = 8
# A move is the largest rounding error that a number of its size can have; typical ones are 0.4 of that. One
# and a half times the largest of eight moves is exceeded once in some thousand patterns.
_MARGIN = 1.5
# However far constants move an element (the phase of sin(1000.3 x)), no more is attributed to them than this
# many roundings of its row's largest element, or of the output's value over the input.
_MOST = 16.0
# The most rows that are pulled back again.
_MOST_ROWS = 256


def allow_rounded_constants(pair: Pair, sample: PairSample) -> PairSample:
    """Let mismatches pass that are within what rounding of the gradient's own constants does.

    An exact GELU has 1 / sqrt(2 pi) in its gradient, which bfloat16 rounds by 0.3 %. Where the terms of the
    gradient cancel, that is most of what remains.

    Args:
        pair: the pair.
        sample: its verdicts.
    """
    limit = _limit(pair, sample)
    with np.errstate(invalid="ignore"):
        error = np.abs(sample.analytic - sample.numeric) + sample.uncertainty
        is_open = (sample.verdict == Verdict.MISMATCH) & (error <= limit)
    if not is_open.any():
        return sample
    moved = np.minimum(_MARGIN * measure_constants(pair, sample, is_open), limit)
    passes = is_open & (error <= moved)
    return replace(
        sample,
        verdict=np.where(passes, Verdict.PASS, sample.verdict).astype(np.int8),
        allowed=np.where(passes, np.maximum(sample.allowed, moved), sample.allowed),
    )


def _limit(pair: Pair, sample: PairSample) -> Float:
    """Return the most that may be attributed to rounded constants, as `sample.analytic`."""
    op, (output, input_index) = pair.operations.formula, pair.key
    value = packed_magnitude(op.base_values[output], op.outputs[output])
    step = scales(packed_point(op, input_index), pair.scale).step
    rows, columns = sample.places()
    with np.errstate(invalid="ignore", over="ignore"):
        slopes = np.nan_to_num(np.abs(sample.numeric), posinf=0.0)
        largest = np.max(slopes, axis=1, keepdims=True, initial=0.0)
        terms = np.nan_to_num(value, posinf=0.0)[rows] / step[columns]
    return np.asarray(_MOST * pair.formula_precision.unit_roundoff * np.maximum(largest, terms))


def measure_constants(pair: Pair, sample: PairSample, where: npt.NDArray[np.bool_]) -> Float:
    """Measure how far some elements move if constants, weights and files' values are rounded otherwise."""
    op, (output, input_index) = pair.operations.formula, pair.key
    moved = np.zeros(sample.analytic.shape)
    chosen = np.flatnonzero(where.any(axis=1))[:_MOST_ROWS]
    if pair.formula_precision == FLOAT64 or not chosen.size or not sample.is_connected:
        return moved
    at_rows, at_columns = (places[chosen] for places in sample.places())
    upstream = np.zeros((chosen.size, packed_size(op.outputs[output])))
    upstream[np.arange(chosen.size), at_rows[:, 0]] = 1.0
    for draw in range(_DRAWS):
        rounded = op.rounded_otherwise(draw)
        gradient = None if rounded is None else pull_back(rounded, output, upstream)[input_index]
        if gradient is None:
            break
        with np.errstate(invalid="ignore"):
            change = np.abs(np.take_along_axis(gradient, at_columns, axis=1) - sample.analytic[chosen])
        moved[chosen] = np.maximum(moved[chosen], np.where(np.isfinite(change), change, 0.0))
    return moved
