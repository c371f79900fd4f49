"""A slope from differences at a ladder of steps, with a bound on its error: where they settle, and how fast.

Rungs are a factor of four apart. From rung to rung, the truncation error of a central difference then falls
by 16 (h^2), that of a one-sided one by 4 (h), while the noise grows by 4. Extrapolation (Richardson;
Romberg's tableau) removes the leading term where this fall was really seen.

References:
    L. F. Richardson, The Approximate Arithmetical Solution by Finite Differences, Phil. Trans. A 210 (1911).
    C. J. F. Ridders, Accurate computation of F'(x) and F'(x) F''(x), Adv. Eng. Software 4 (1982), 75-76.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradcheck_cli.numerics.differences import Mask
from gradcheck_cli.numerics.precision import Float

RATIO = 4.0
CENTRAL = RATIO**2  # how the truncation error of a central difference grows from rung to rung
ONE_SIDED = RATIO

# The contraction that counts as settling: half of the theory's 16; for order 1, two thirds of 4. (empirical)
CONTRACTION = {CENTRAL: 8.0, ONE_SIDED: 2.7}
# If the contraction is within a factor of 2.5 of the theory's, Richardson extrapolation may assume the
# theory: 6.4 to 40 for 16. (empirical)
WINDOW = 2.5
LEVELS = 3


@dataclass(frozen=True)
class Settled:
    """(e,) each: the slope, a bound on its error (infinite where nothing settled), and the rungs used."""

    slope: Float
    uncertainty: Float
    rungs: np.ndarray

    def where(self, use_other: Mask, other: Settled) -> Settled:
        """Return these with some elements taken from another."""
        return Settled(
            np.where(use_other, other.slope, self.slope),
            np.where(use_other, other.uncertainty, self.uncertainty),
            np.where(use_other, other.rungs, self.rungs),
        )


@np.errstate(all="ignore")
def settle(  # noqa: PLR0913, PLR0917 (the ladder, and three choices of how to use it)
    slope: Float, noise: Float, is_usable: Mask, sentinels: int, growth: float = CENTRAL, levels: int = LEVELS
) -> Settled:
    """Find, per element, the rung and the level of extrapolation with the least error.

    Args:
        slope: (r, e) differences at growing steps; the first `sentinels` of them are tiny steps that every
            estimate must agree with, but from which none is taken.
        noise: (r, e) bounds on their rounding errors.
        is_usable: (r, e) whether there is a difference; a rung above an unusable one isn't used.
        sentinels: how many of the first are sentinels.
        growth: how truncation grows from rung to rung, `CENTRAL` or `ONE_SIDED`.
        levels: 1 for plain differences, more for extrapolation.

    Returns:
        The best estimate of each element.
    """
    rungs = np.logical_and.accumulate(is_usable[sentinels:], axis=0)
    used = rungs.sum(axis=0) + is_usable[:sentinels].sum(axis=0)
    value = np.where(rungs, slope[sentinels:], np.nan)
    error = np.where(rungs, noise[sentinels:], np.inf)
    plain = value
    noise_if_usable = np.where(is_usable, noise, np.inf)
    best = Settled(np.full(slope.shape[1], np.nan), np.full(slope.shape[1], np.inf), used)
    fall = growth
    for _level in range(levels):
        if value.shape[0] <= 1:  # an estimate needs a rung below it
            break
        moved = np.abs(np.diff(value, axis=0))  # moved[k]: between rungs k and k + 1
        blur = error[1:] + error[:-1]
        uncertainty = _truncation(moved, blur, growth, fall) + error[1:]
        corrected = 1.5 * np.abs(plain[1:] - value[1:]) / growth  # what smaller rungs may still be off by
        reach = uncertainty + corrected
        agrees = _agree_with_smaller(value[1:], reach, slope, noise_if_usable, sentinels + 1)
        # Of equal bounds, the smallest step's: argmin returns the first.
        uncertainty = np.where(agrees & (uncertainty < np.inf), uncertainty, np.inf)
        least = np.argmin(uncertainty, axis=0)[np.newaxis]
        bound = np.take_along_axis(uncertainty, least, axis=0)[0]
        estimate = np.take_along_axis(value[1:], least, axis=0)[0]
        best = best.where(bound < best.uncertainty, Settled(estimate, bound, used))
        if value.shape[0] < 3:  # noqa: PLR2004 (a contraction needs three rungs)
            break
        value, error = _extrapolate(value, error, moved, blur, fall)
        plain = plain[:-1]
        fall *= growth
    return best


def _agree_with_smaller(estimates: Float, reach: Float, slope: Float, noise: Float, first: int) -> Mask:
    """Say which estimates are within their reach of every difference at a smaller step.

    Args:
        estimates: (k, e), of growing steps.
        reach: (k, e) by how much each may be off.
        slope: (r, e) the differences.
        noise: (r, e) bounds on their rounding errors; infinite where there is no difference.
        first: how many differences are at steps below that of the first estimate.
    """
    agrees = np.ones(estimates.shape, dtype=bool)
    for j in range(first + estimates.shape[0] - 1):
        larger = slice(max(j + 1 - first, 0), None)  # the estimates at steps above this difference's
        is_far = np.abs(slope[j] - estimates[larger]) > reach[larger] + noise[j]
        agrees[larger] &= ~is_far
    return agrees


def _truncation(moved: Float, blur: Float, growth: float, fall: float) -> Float:
    """Bound the truncation error of each rung but the first by how the estimates around it move.

    Args:
        moved: (k, e) by how much the estimates of adjacent rungs differ.
        blur: (k, e) how much of that noise can cause.
        growth: how truncation grows from rung to rung.
        fall: the same for the leading term that is left at this level of extrapolation.

    Returns:
        (k, e): the bound of rung k + 1 in row k.
    """
    is_quiet = moved <= blur
    bound = np.full(moved.shape, np.inf)
    # From above: the step down to a rung moved the estimate by `above`, about growth - 1 times the remaining
    # error.
    below, above = moved[:-1], moved[1:].copy()
    if above.shape[0] > 1:
        # An estimate that stays the same by chance, between two that move, isn't a contraction.
        before = moved[2:] / (WINDOW * fall)
        above[:-1] = np.where(np.isfinite(before), np.maximum(above[:-1], before), above[:-1])
    ratio = below / above
    rest = np.where(is_quiet[:-1], 0.0, above * ratio / (1 - ratio))  # the remaining geometric series
    share = 1.6 / (growth - 1) * (above + blur[1:])
    is_contracting = is_quiet[:-1] | (below * CONTRACTION[growth] <= above)
    from_above = np.where(is_contracting, np.maximum(share, rest), np.inf)
    bound[:-1] = np.where(np.isfinite(from_above), from_above, bound[:-1])
    # From below, with two rungs there: a truncation error would have moved the estimate, unless the noise
    # there hid it.
    from_below = np.where(is_quiet[1:] & is_quiet[:-1], moved[1:] + blur[1:], np.inf)
    bound[1:] = np.minimum(bound[1:], from_below)
    return bound


def _extrapolate(value: Float, error: Float, moved: Float, blur: Float, fall: float) -> tuple[Float, Float]:
    """Remove the leading term where it was seen to fall as it should, or where noise hides it."""
    is_quiet = moved <= blur
    ratio = moved[1:] / moved[:-1]
    falls = (ratio >= fall / WINDOW) & (ratio <= fall * WINDOW) | is_quiet[:-1]
    falls = np.concatenate([falls[:1], falls], axis=0)  # the lowest rung is judged with the next one
    weight = 1 / (fall - 1)
    better = value[:-1] + (value[:-1] - value[1:]) * weight
    noise = error[:-1] * (1 + weight) + error[1:] * weight
    return np.where(falls, better, np.nan), np.where(falls, noise, np.inf)
