"""Shrink a point at which a gradient is wrong: more zeros, and simpler numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Array = np.ndarray[Any, Any]

_DIGITS = (0, 1, 2, 3, 6)  # decimals, the simplest first


def shrink(vector: Array, is_wrong: Callable[[Array], bool], clip: Callable[[Array], Array]) -> Array:
    """Return a simpler point that is wrong, too.

    Args:
        vector: the point, (n,).
        is_wrong: asks the judge; returns False once the time is up.
        clip: moves points, (B, n), into the allowed range.
    """
    search = _Shrinking(vector, is_wrong, clip)
    any(search.attempt(np.round(vector, digits)) for digits in _DIGITS)
    span = len(vector)
    while span:
        for start in range(0, len(vector), span):
            search.set(slice(start, start + span), 0.0)
        span //= 2
    for column in np.flatnonzero(search.vector).tolist():
        value = float(search.vector[column])
        any(search.set(slice(column, column + 1), simpler) for simpler in _simpler(value))
    return search.vector


@dataclass
class _Shrinking:
    """The simplest wrong point so far, and the points that were tried."""

    vector: Array
    is_wrong: Callable[[Array], bool]
    clip: Callable[[Array], Array]
    tried: set[bytes] = field(default_factory=set)

    def set(self, components: slice, value: float) -> bool:
        """Give some components a value, if the point is still wrong."""
        simpler = self.vector.copy()
        simpler[components] = value
        return self.attempt(simpler)

    def attempt(self, simpler: Array) -> bool:
        """Take a point, if it is simpler and also wrong."""
        allowed = self.clip(simpler[None])[0]
        key = allowed.tobytes()
        if key in self.tried or _size(allowed) >= _size(self.vector):
            return False
        self.tried.add(key)
        if not self.is_wrong(allowed):
            return False
        self.vector = allowed
        return True


def _simpler(value: float) -> Iterator[float]:
    """Yield simpler numbers near a number, the simplest first."""
    yield float(np.sign(value))
    for digits in _DIGITS:
        yield float(np.round(value, digits))
        step = 10.0**-digits
        yield float(np.sign(value) * step * np.ceil(abs(value) / step))


def _size(vector: Array) -> tuple[int, int, float]:
    """Return how complicated a point is: elements that aren't zero, digits, magnitude."""
    digits = sum(len(repr(float(value)).rstrip("0")) for value in vector)
    return int(np.count_nonzero(vector)), digits, float(np.sum(np.abs(vector)))
