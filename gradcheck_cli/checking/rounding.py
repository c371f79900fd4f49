"""Tell rounding from slopes: elements that are zero but for what their pair's other elements leave behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics import Reason, Verdict

if TYPE_CHECKING:
    from gradcheck_cli.checking.pair_sample import PairSample

# Roundings of the largest right element: what sums that cancel leave of it. Seen up to 3 (the gradient of a
# QR decomposition's Q, of columns that Q doesn't depend on).
ROUNDINGS = 16.0


def without_rounding(sample: PairSample, unit_roundoff: float) -> PairSample:
    """Return the verdicts, inconclusive where what mismatches is as small as rounding of the rest.

    Such an element may be a zero that a gradient computes by cancelling, while its row is all such zeros, so
    that no scale says how small is small. It may be wrong as well: it isn't called right.

    Args:
        sample: the verdicts of one pair.
        unit_roundoff: of the gradient's precision.
    """
    wrong = sample.verdict == Verdict.MISMATCH
    right = sample.verdict == Verdict.PASS
    if not wrong.any() or not right.any():
        return sample
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.abs(sample.analytic), np.abs(sample.numeric))
        largest = float(np.max(size[right], initial=0.0))
        tiny = wrong & (size <= ROUNDINGS * 2 * unit_roundoff * largest)
    if not tiny.any():
        return sample
    return replace(
        sample,
        verdict=np.where(tiny, Verdict.INCONCLUSIVE, sample.verdict).astype(np.int8),
        reason=np.where(tiny, Reason.LOW_PRECISION, sample.reason).astype(np.int8),
    )
