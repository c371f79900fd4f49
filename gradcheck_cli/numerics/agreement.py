"""Equality up to rounding: how much a vjp may round, and which elements of two arrays agree."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gradcheck_cli.numerics.precision import Float

# A row's gradient and the same row within a sum differ only by rounding: by n terms of relative error u each,
# and by what the vjp itself loses in a few hundred operations. 2^10 u of the sum of magnitudes is 1e-13 in
# float64 and 6e-5 in float32.
VJP_ROUNDINGS = 2.0**10
# Two runs or two traces of one forward differ by the order of their sums: by a few roundings of the largest
# element for each of some hundred terms.
FORWARD_ROUNDINGS = 2.0**10


def agree(first: npt.ArrayLike, second: npt.ArrayLike, allowed: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Say which elements are equal, both NaN, or differ by no more than is allowed.

    Args:
        first: one array.
        second: another of its shape.
        allowed: the largest difference, broadcast to both.
    """
    left, right = np.asarray(first), np.asarray(second)
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(left - right) <= np.asarray(allowed)
    return np.asarray(close | (left == right) | (np.isnan(left) & np.isnan(right)))


def largest_finite(values: npt.NDArray[Any] | Float) -> float:
    """Return the largest finite magnitude; 0 where there is none."""
    if not np.iscomplexobj(values):
        largest = float(max(np.max(values, initial=0.0), -np.min(values, initial=0.0)))
        if math.isfinite(largest):  # usually: avoids a copy of what may be large
            return largest
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))
