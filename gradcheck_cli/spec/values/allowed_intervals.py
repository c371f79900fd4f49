"""Where drawn values may lie: a generator's range, less what `domain` and `away_from` take from it.

Pure arithmetic on intervals: validation asks whether there is room, drawing asks which values are in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Interval = tuple[float, float]

# DESIGN: elements keep 0.1 of the generator's own standard deviation away from each point. The hair more
# covers the rounding in measuring the distance.
AWAY = 0.1 * (1 + 1e-9)
# Values from within a domain keep this part of a standard deviation (or of the domain's width in the
# generator's range, if that is less) away from its ends, so that a step fits between.
MARGIN = 0.01
# Below this chance per value, redrawing takes too long: 100 draws a value.
LEAST_CHANCE = 0.01


@dataclass(frozen=True)
class Generator:
    """A generator that draws each element on its own, with its arguments."""

    kind: str
    arguments: Mapping[str, object]

    def number(self, key: str) -> float:
        """Return an argument that is a number."""
        return float(self.arguments[key])  # type: ignore[arg-type]

    @property
    def points(self) -> list[float]:
        """The finite values of `choice`: the others lie in no interval."""
        values = self.arguments.get("values")
        points = [float(value) for value in values] if isinstance(values, (list, tuple)) else []
        return [point for point in points if math.isfinite(point)]

    @property
    def _count(self) -> int:
        values = self.arguments.get("values")
        return len(values) if isinstance(values, (list, tuple)) else 1

    @property
    def range(self) -> Interval:
        """The ends between which values lie."""
        if self.kind == "uniform":
            return self.number("low"), self.number("high")
        if self.kind == "integers":
            return self.number("low"), self.number("high") - 1
        if self.kind == "choice":
            return min(self.points, default=math.nan), max(self.points, default=math.nan)
        return -math.inf, math.inf

    @property
    def middle(self) -> float:
        """What values lie on either side of: zero where it is among them, else the middle of their range."""
        low, high = self.range
        if low < 0 < high and not (
            self.kind == "normal" and abs(self.number("mean")) > self.number("stddev")
        ):
            return 0.0
        return self.number("mean") if self.kind == "normal" else low / 2 + high / 2

    @property
    def stddev(self) -> float:
        """Standard deviation of one element (of each part, for complex dtypes)."""
        if self.kind == "normal":
            return self.number("stddev")
        low, high = self.range
        if self.kind == "uniform":
            # Halved first: the width of the whole float64 range overflows.
            return (high / 2 - low / 2) / math.sqrt(3)
        if self.kind == "integers":
            count = high - low + 1
            return math.sqrt(max(count * count - 1, 0) / 12)
        # In units of the largest, so that no square overflows.
        unit = max(map(abs, self.points), default=0.0) or 1.0
        shares = [point / unit for point in self.points]
        mean = math.fsum(shares) / max(len(shares), 1)
        return unit * math.sqrt(math.fsum((share - mean) ** 2 for share in shares) / max(len(shares), 1))

    def chance(self, intervals: Sequence[Interval]) -> float:
        """Return the probability that one element falls into one of the open intervals."""
        low, high = self.range
        if self.kind == "uniform":
            width = high / 2 - low / 2
            return math.fsum(max(min(b, high) / 2 - max(a, low) / 2, 0.0) / width for a, b in intervals)
        if self.kind == "integers":
            held = sum(
                max(math.ceil(min(b, high + 1)) - math.floor(max(a, low - 1)) - 1, 0) for a, b in intervals
            )
            return held / (high - low + 1)
        if self.kind == "choice":
            return sum(contains(intervals, point) for point in self.points) / self._count
        mean, width = self.number("mean"), self.number("stddev") * math.sqrt(2)
        return (
            math.fsum(math.erf((b - mean) / width) - math.erf((a - mean) / width) for a, b in intervals) / 2
        )


def room(
    generator: Generator, away_from: Sequence[float], domain: tuple[float | None, float | None]
) -> tuple[Interval, ...]:
    """Return the open intervals in which drawn values may lie, in ascending order; none if there is no room.

    Args:
        generator: what draws the values.
        away_from: points to keep away from.
        domain: bounds to stay inside of, `None` where there is none.

    Returns:
        Disjoint intervals `(low, high)`, not limited to the generator's own range.
    """
    low, high = (
        (-math.inf if domain[0] is None else domain[0]),
        (math.inf if domain[1] is None else domain[1]),
    )
    inner_low, inner_high = max(low, generator.range[0]), min(high, generator.range[1])
    margin = MARGIN * min(generator.stddev, inner_high - inner_low)
    if margin > 0:
        low, high = low + margin, high - margin
    intervals = [(low, high)] if low < high else []
    distance = AWAY * generator.stddev
    for point in sorted(away_from):
        intervals = [
            part
            for a, b in intervals
            for part in ((a, min(b, point - distance)), (max(a, point + distance), b))
            if part[0] < part[1]
        ]
    return tuple(intervals)


def contains(intervals: Sequence[Interval], value: float) -> bool:
    """Tell whether a value lies in one of the open intervals."""
    return any(low < value < high for low, high in intervals)


def length(intervals: Sequence[Interval], within: Interval) -> float:
    """Return the total length of the intervals inside a range."""
    return math.fsum(max(min(high, within[1]) - max(low, within[0]), 0.0) for low, high in intervals)
