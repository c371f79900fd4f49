"""Moving drawn numbers apart: pairwise at least `min_gap`, inside the room there is, in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradcheck_cli.spec.values.allowed_intervals import Interval


def spread(values: NDArray[np.float64], gap: float, intervals: Sequence[Interval]) -> NDArray[np.float64]:
    """Move values as little as needed for every two to differ by at least `gap`.

    The intervals are thought of as joined end to end: two values that are `gap` apart on the joined line are
    at least that far apart in truth. On that line, subtracting rank times gap turns "at least gap apart"
    into "in ascending order", for which the mean of the running maximum from below and the running minimum
    from above is a symmetric repair; what is in order already stays as it is.

    Args:
        values: a vector.
        gap: least distance.
        intervals: disjoint and ascending, where values may lie; together long enough.

    Returns:
        The moved values; the order of elements by size is that of the input.
    """
    count = values.size
    low, high = np.array(intervals, np.float64).T
    # Length of what is cut out below each interval; the first one has nothing below it.
    cut = np.concatenate([[0.0], np.cumsum(low[1:] - high[:-1])])
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    joined = ascending - cut[np.clip(np.searchsorted(low, ascending, side="right") - 1, 0, None)]
    # Rounding, of the values and of each step back, must not eat into the gap.
    finite = np.abs(np.concatenate([joined, low[np.isfinite(low)], high[np.isfinite(high)]])).max(initial=0.0)
    ranks = (gap * (1 + 1e-9) + 8 * np.spacing(finite + count * gap)) * np.arange(count)
    slack = joined - ranks
    slack = (np.maximum.accumulate(slack) + np.minimum.accumulate(slack[::-1])[::-1]) / 2
    end = high[-1] - cut[-1]
    joined = np.clip(slack, low[0], max(end - ranks[-1], low[0])) + ranks
    moved = np.empty_like(values)
    moved[order] = joined + cut[np.searchsorted(low[1:] - cut[1:], joined, side="right")]
    return moved
