"""Moves a wrong point to where less is special about it: one for all that is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_DIGITS = (0, 1, 2, 3, 6)  # decimals, the simplest first
_HALVINGS = 10  # of the distance that is left, to 1 per mille of it


def shrink(
    vector: Array,
    is_wrong: Callable[[Array], bool],
    clip: Callable[[Array], Array],
    home: Array | None = None,
) -> Array:
    """Return a point, (n,), that is wrong, too.

    Components are moved to where they should be, many at once and then one by one. What is left is halved.

    Args:
        vector: the point, (n,).
        is_wrong: asks the judge; returns False once the time is up.
        clip: moves points, (B, n), into the allowed range.
        home: where components should be; by default at zero, and what is left is rounded.
    """
    shrinking = _Shrinking(vector, is_wrong, clip)
    if home is None:
        any(shrinking.attempt(np.round(vector, digits)) for digits in _DIGITS)
    goal = np.zeros(len(vector)) if home is None else home
    span = len(vector)
    while span:
        for start in range(0, len(vector), span):
            shrinking.put(goal[start : start + span], slice(start, start + span))
        span //= 2
    if home is None:
        for column in np.flatnonzero(shrinking.best):
            any(shrinking.put(simpler, column) for simpler in _simpler(float(shrinking.best[column])))
        return shrinking.best
    share = 0.5
    for _ in range(_HALVINGS):
        is_nearer = shrinking.attempt(home + (shrinking.best - home) * share)
        share = share if is_nearer else (1 + share) / 2
    return shrinking.best


@dataclass
class _Shrinking:
    """The best point so far, and how to find a better one."""

    best: Array  # (n,)
    is_wrong: Callable[[Array], bool]
    clip: Callable[[Array], Array]

    def attempt(self, other: Array) -> bool:
        """Take another point if it is wrong."""
        allowed = self.clip(other[None])[0]
        is_better = not np.array_equal(allowed, self.best) and self.is_wrong(allowed)
        self.best = allowed if is_better else self.best
        return is_better

    def put(self, values: Any, components: Any) -> bool:
        """Take other values of some components if these are wrong."""
        other = self.best.copy()
        other[components] = values
        return self.attempt(other)


def _simpler(value: float) -> Iterator[float]:
    """Yield simpler numbers near a number, the simplest first."""
    yield float(np.sign(value))
    for digits in _DIGITS:
        yield float(np.round(value, digits))
        step = 10.0**-digits
        yield float(np.sign(value) * step * np.ceil(abs(value) / step))
