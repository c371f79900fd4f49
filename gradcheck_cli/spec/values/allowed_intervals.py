"""Where drawn values may lie: a distribution's range, without what `domain` and `away_from` exclude.

Pure arithmetic on intervals: validation checks that enough is left, and drawing checks which values are
inside.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.values.distributions import ElementDistribution, Interval

# Elements keep 0.1 of the distribution's own standard deviation away from each point. The slightly
# larger factor allows for rounding when the distance is measured.
AWAY = 0.1 * (1 + 1e-9)
# Values inside a domain keep this part of a standard deviation (or of the domain's width within the range, if
# that is less) away from its ends, so that a step fits in between.
MARGIN = 0.01
# Below this probability per value, redrawing takes too long: 100 draws for a value.
LEAST_CHANCE = 0.01


def allowed_intervals(
    distribution: ElementDistribution, away_from: Sequence[float], domain: tuple[float | None, float | None]
) -> tuple[Interval, ...]:
    """Return the open intervals in which drawn values may lie, in ascending order; none if nothing is left.

    Args:
        distribution: the distribution of the values.
        away_from: points to keep away from.
        domain: bounds to stay inside of, `None` where there is none.

    Returns:
        Disjoint intervals `(low, high)`, not limited to the distribution's own range.
    """
    low, high = (
        (-math.inf if domain[0] is None else domain[0]),
        (math.inf if domain[1] is None else domain[1]),
    )
    inner_low, inner_high = max(low, distribution.range[0]), min(high, distribution.range[1])
    margin = MARGIN * min(distribution.stddev, inner_high - inner_low)
    if margin > 0:
        low, high = low + margin, high - margin
    intervals = [(low, high)] if low < high else []
    distance = AWAY * distribution.stddev
    for point in sorted(away_from):
        intervals = [
            piece
            for a, b in intervals
            for piece in ((a, min(b, point - distance)), (max(a, point + distance), b))
            if piece[0] < piece[1]
        ]
    return tuple(intervals)


def length(intervals: Sequence[Interval], within: Interval) -> float:
    """Return the total length of the intervals inside a range."""
    return math.fsum(max(min(high, within[1]) - max(low, within[0]), 0.0) for low, high in intervals)
