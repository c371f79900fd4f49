"""Moves a wrong point to where less is special about it: one for all that is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_HALVINGS = 10  # of the distance that is left, to 1 per mille of it
_DIGITS = (0, 1, 2, 3, 6)  # decimals, the simplest first


def shrink(
    vector: Array, home: Array, is_wrong: Callable[[Array], bool], clip: Callable[[Array], Array]
) -> Array:
    """Return a point, (n,), that is wrong, too.

    Components are moved to where they should be, many at once and then one by one. What is left is halved,
    and then rounded.

    Args:
        vector: the point, (n,).
        home: where components should be, (n,).
        is_wrong: asks the judge; returns False once the time is up.
        clip: moves points, (B, n), into the allowed range.
    """
    best = vector

    def attempt(other: Array) -> bool:
        nonlocal best
        allowed = clip(other[None])[0]
        is_better = not np.array_equal(allowed, best) and is_wrong(allowed)
        best = allowed if is_better else best
        return is_better

    span, places = len(vector), np.arange(len(vector))
    while span:
        for start in range(0, len(vector), span):
            attempt(np.where((places >= start) & (places < start + span), home, best))
        span //= 2
    share = 0.5
    for _ in range(_HALVINGS):
        is_nearer = attempt(home + (best - home) * share)
        share = share if is_nearer else (1 + share) / 2
    any(attempt(np.where(best == home, best, np.round(best, digits))) for digits in _DIGITS)
    return best
