"""The distributions of elements that are drawn one by one: their range, their spread, and the drawing itself.

A generator of such elements is a class here and an entry of `words.GENERATORS`. Numpy is imported when values
are drawn, so that validating a spec stays fast.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gradcheck_cli.spec.case import InputSpec
from gradcheck_cli.spec.words import kind_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Interval = tuple[float, float]


class ElementDistribution(ABC):
    """How one element is drawn (each part of one, for complex dtypes)."""

    kind: ClassVar[str]  # the generator

    @property
    @abstractmethod
    def range(self) -> Interval:
        """The ends between which values lie."""

    @property
    @abstractmethod
    def stddev(self) -> float:
        """Standard deviation."""

    @property
    def middle(self) -> float:
        """The point that separates the two sides: zero if it is inside the range, else the range's middle."""
        low, high = self.range
        return 0.0 if low < 0 < high else low / 2 + high / 2

    @abstractmethod
    def chance(self, intervals: Sequence[Interval]) -> float:
        """Return the probability that a value falls into one of the open intervals."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """Draw a vector of this many values."""


@dataclass(frozen=True)
class Uniform(ElementDistribution):
    """Any number between two ends."""

    kind = "uniform"
    low: float
    high: float

    @property
    def range(self) -> Interval:
        """The ends."""
        return self.low, self.high

    @property
    def stddev(self) -> float:
        """Width over sqrt(12); the ends are halved first, as the width of the float64 range overflows."""
        return (self.high / 2 - self.low / 2) / math.sqrt(3)

    def chance(self, intervals: Sequence[Interval]) -> float:
        """Return the intervals' share of the width."""
        width = self.high / 2 - self.low / 2
        return math.fsum(max(min(b, self.high) / 2 - max(a, self.low) / 2, 0.0) / width for a, b in intervals)

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """Draw floats."""
        import numpy as np

        low, high = np.float64(self.low), np.float64(self.high)
        share = rng.random(count)
        # Not low + share * (high - low): the width of the whole float64 range overflows.
        return np.asarray(np.clip(low * (1 - share) + high * share, low, high))


@dataclass(frozen=True)
class Normal(ElementDistribution):
    """A normal distribution."""

    kind = "normal"
    mean: float = 0.0
    stddev: float = 1.0

    @property
    def range(self) -> Interval:
        """All numbers."""
        return -math.inf, math.inf

    @property
    def middle(self) -> float:
        """Zero, unless it is more than a standard deviation from the mean."""
        return self.mean if abs(self.mean) > self.stddev else 0.0

    def chance(self, intervals: Sequence[Interval]) -> float:
        """Return the integral of the density over the intervals."""
        width = self.stddev * math.sqrt(2)
        return (
            math.fsum(
                math.erf((b - self.mean) / width) - math.erf((a - self.mean) / width) for a, b in intervals
            )
            / 2
        )

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """Draw floats."""
        import numpy as np

        return np.asarray(np.float64(self.mean) + np.float64(self.stddev) * rng.standard_normal(count))


@dataclass(frozen=True)
class Integers(ElementDistribution):
    """Whole numbers from `low` up to, but not including, `high`."""

    kind = "integers"
    low: int
    high: int

    @property
    def range(self) -> Interval:
        """The smallest and the largest."""
        return float(self.low), float(self.high) - 1

    @property
    def stddev(self) -> float:
        """That of a discrete uniform distribution."""
        low, high = self.range
        count = high - low + 1
        return math.sqrt(max(count * count - 1, 0) / 12)

    def chance(self, intervals: Sequence[Interval]) -> float:
        """Return the share of whole numbers in the intervals."""
        low, high = self.range
        inside = sum(
            max(math.ceil(min(b, high + 1)) - math.floor(max(a, low - 1)) - 1, 0) for a, b in intervals
        )
        return inside / (high - low + 1)

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """Draw 64-bit integers, unsigned where they must be."""
        import numpy as np

        return rng.integers(self.low, self.high, count, dtype=np.uint64 if self.high > 2**63 else np.int64)


@dataclass(frozen=True)
class Choice(ElementDistribution):
    """One of some numbers."""

    kind = "choice"
    values: tuple[float, ...]

    @property
    def _points(self) -> list[float]:
        """The finite numbers: the others lie in no interval."""
        return [float(value) for value in self.values if math.isfinite(float(value))]

    @property
    def range(self) -> Interval:
        """The smallest and the largest finite one."""
        return min(self._points, default=math.nan), max(self._points, default=math.nan)

    @property
    def stddev(self) -> float:
        """That of the finite ones, in units of the largest, so that no square overflows."""
        points = self._points
        unit = max(map(abs, points), default=0.0) or 1.0
        shares = [point / unit for point in points]
        mean = math.fsum(shares) / max(len(shares), 1)
        return unit * math.sqrt(math.fsum((share - mean) ** 2 for share in shares) / max(len(shares), 1))

    def chance(self, intervals: Sequence[Interval]) -> float:
        """Return the share of the values in the intervals."""
        return sum(contains(intervals, point) for point in self._points) / len(self.values)

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[Any]:
        """Draw from the values, in their own type."""
        return pick(rng, self.values, count)


_DISTRIBUTIONS: dict[str, Callable[..., ElementDistribution]] = {
    each.kind: each for each in (Uniform, Normal, Integers, Choice)
}


def distribution_of(tensor: InputSpec) -> ElementDistribution | None:
    """Return how each element of an input is drawn; `None` for fixed and structured values and booleans."""
    source, kind = tensor.source, kind_of(tensor.dtype)
    if source.kind == "default" and kind in ("float", "complex"):
        return Normal()
    if source.kind == "default" and kind == "integer":
        return Integers(0, 10)  # the integers 0 to 9, as docs/spec.md says
    if source.kind == "choice" and kind not in ("float", "integer"):
        return None  # complex and text have no order, hence no intervals
    distribution = _DISTRIBUTIONS.get(source.kind)
    return None if distribution is None else distribution(**source.arguments)


def pick(rng: np.random.Generator, values: Sequence[object] | NDArray[Any], count: int) -> NDArray[Any]:
    """Draw a vector of this many values, with replacement, from an array or something that makes one."""
    import numpy as np

    array = np.asarray(values)
    return np.asarray(array[rng.integers(0, len(array), count)])


def contains(intervals: Sequence[Interval], value: float) -> bool:
    """Tell whether a value lies in one of the open intervals."""
    return any(low < value < high for low, high in intervals)
