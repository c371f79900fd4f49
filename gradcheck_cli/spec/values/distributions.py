"""The distributions of elements that are drawn one by one: their range, their spread, and the drawing itself.

A generator of such elements is a function here and an entry of `words.GENERATORS`. Numpy is imported when
values are drawn, so that validating a spec stays fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradcheck_cli.spec.case import InputSpec
from gradcheck_cli.spec.words import kind_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Interval = tuple[float, float]


@dataclass(frozen=True)
class ElementDistribution:
    """How one element is drawn (each part of one, for complex dtypes)."""

    kind: str  # the generator
    range: Interval  # the ends between which values lie
    middle: float  # the point that separates two sides: zero, if values lie on both sides of it
    mean: float
    stddev: float
    # the probability that a value falls into one of some open intervals
    chance: Callable[[Sequence[Interval]], float]
    draw: Callable[[np.random.Generator, int], NDArray[Any]]  # a vector of so many values


def _uniform(low: float, high: float) -> ElementDistribution:
    """Any number between two ends."""
    half = high / 2 - low / 2  # the width of the whole float64 range overflows

    def chance(intervals: Sequence[Interval]) -> float:
        return math.fsum(max(min(b, high) / 2 - max(a, low) / 2, 0.0) / half for a, b in intervals)

    def draw(rng: np.random.Generator, count: int) -> NDArray[Any]:
        import numpy as np

        share = rng.random(count)
        # Not low + share * (high - low): the width overflows.
        return np.asarray(np.clip(np.float64(low) * (1 - share) + np.float64(high) * share, low, high))

    mean = low / 2 + high / 2
    return ElementDistribution(
        "uniform", (low, high), _middle(low, high), mean, half / math.sqrt(3), chance, draw
    )


def _normal(mean: float = 0.0, stddev: float = 1.0) -> ElementDistribution:
    def chance(intervals: Sequence[Interval]) -> float:
        width = stddev * math.sqrt(2)
        shares = (math.erf((b - mean) / width) - math.erf((a - mean) / width) for a, b in intervals)
        return math.fsum(shares) / 2

    def draw(rng: np.random.Generator, count: int) -> NDArray[Any]:
        import numpy as np

        return np.asarray(np.float64(mean) + np.float64(stddev) * rng.standard_normal(count))

    middle = mean if abs(mean) > stddev else 0.0
    return ElementDistribution("normal", (-math.inf, math.inf), middle, mean, stddev, chance, draw)


def _integers(low: int, high: int) -> ElementDistribution:
    """Whole numbers from `low` up to, but not including, `high`."""
    first, last = float(low), float(high) - 1
    count = last - first + 1

    def chance(intervals: Sequence[Interval]) -> float:
        return (
            sum(max(math.ceil(min(b, last + 1)) - math.floor(max(a, first - 1)) - 1, 0) for a, b in intervals)
            / count
        )

    def draw(rng: np.random.Generator, number: int) -> NDArray[Any]:
        """Draw 64-bit integers, unsigned where they must be."""
        import numpy as np

        return rng.integers(low, high, number, dtype=np.uint64 if high > 2**63 else np.int64)

    stddev = math.sqrt(max(count * count - 1, 0) / 12)
    mean = first / 2 + last / 2
    return ElementDistribution("integers", (first, last), _middle(first, last), mean, stddev, chance, draw)


def _choice(values: tuple[float, ...]) -> ElementDistribution:
    """One of some numbers; those that aren't finite lie in no interval."""
    points = [float(value) for value in values if math.isfinite(float(value))]

    def chance(intervals: Sequence[Interval]) -> float:
        return sum(contains(intervals, point) for point in points) / len(values)

    def draw(rng: np.random.Generator, count: int) -> NDArray[Any]:
        return pick(rng, values, count)  # in their own type

    low, high = min(points, default=math.nan), max(points, default=math.nan)
    # In units of the largest, so that no square overflows.
    unit = max(map(abs, points), default=0.0) or 1.0
    shares = [point / unit for point in points]
    mean = math.fsum(shares) / max(len(shares), 1)
    variance = math.fsum((share - mean) ** 2 for share in shares) / max(len(shares), 1)
    return ElementDistribution(
        "choice", (low, high), _middle(low, high), unit * mean, unit * math.sqrt(variance), chance, draw
    )


def _middle(low: float, high: float) -> float:
    """Return zero if it is inside the range, else the range's middle."""
    return 0.0 if low < 0 < high else low / 2 + high / 2


_DISTRIBUTIONS: dict[str, Callable[..., ElementDistribution]] = {
    "uniform": _uniform,
    "normal": _normal,
    "integers": _integers,
    "choice": _choice,
}


def integer_ends(tensor: InputSpec) -> tuple[int, int]:
    """Return the ends between which an input's whole numbers are drawn, the second of them excluded."""
    low, high = (tensor.source.arguments.get(key, end) for key, end in (("low", 0), ("high", 10)))
    return int(str(low)), int(str(high))  # without numbers the integers 0 to 9, as docs/spec.md says


def distribution_of(tensor: InputSpec) -> ElementDistribution | None:
    """Return how each element of an input is drawn; `None` for fixed and structured values and booleans."""
    source, kind = tensor.source, kind_of(tensor.dtype)
    if source.kind == "default" and kind in ("float", "complex"):
        return _normal()
    if source.kind == "default" and kind == "integer":
        return _integers(*integer_ends(tensor))
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
