"""Compares an analytic value with a resolved slope: pass, kink, mismatch, or inconclusive with its reason."""

from __future__ import annotations

import numpy as np

from gradcheck_cli.numerics.precision import FLOAT16, Float, Precision
from gradcheck_cli.numerics.reasons import Reason, Verdict
from gradcheck_cli.numerics.refine.slopes import Resolution
from gradcheck_cli.numerics.shared_limits import KNOWN, MARGIN, OF_MANY_OPERATIONS

# A pass needs an uncertainty near the tolerance; a mismatch needs an error far beyond both (`MARGIN`), at a
# sufficient number of steps. (empirical)
PASS_REACH = 2.0
MISMATCH_RUNGS = 5
HALF_PRECISION_SHARE = 0.5  # a doubling is off by half of the larger value


def decide(  # noqa: PLR0913, PLR0917 (the slopes, the gradient, and what is allowed)
    resolution: Resolution, analytic: Float, allowed: Float, noise: Float, unit: Float, working: Precision
) -> tuple[np.ndarray, np.ndarray]:
    """Decide on some elements.

    Args:
        resolution: what is known about their slopes.
        analytic: (e,) the gradient under test.
        allowed: (e,) its tolerance.
        noise: (e,) the noise of the rows' values over their size.
        unit: (e,) the rows' unit roundoff.
        working: the coarsest precision in play.

    Returns:
        Verdicts and reasons, (e,) each. What is wrong at a kink says so by its reason.
    """
    uncertainty = resolution.uncertainty
    reach = working.ladder
    rungs_needed = min(MISMATCH_RUNGS, len(reach.sentinels) + len(reach.inner))
    with np.errstate(all="ignore"):
        error = np.maximum(np.maximum(resolution.low - analytic, analytic - resolution.high), 0.0)
        is_known = np.isfinite(uncertainty)
        # The uncertainty counts only up to the tolerance. With all of it, up to twice the tolerance, a 1 %
        # error passed in float32.
        granted = np.where(resolution.is_kink, uncertainty, np.minimum(uncertainty, allowed))
        within = is_known & (error <= allowed + granted)
        spread = resolution.high - resolution.low
        is_sharp = uncertainty <= np.maximum(
            PASS_REACH * allowed, np.where(resolution.is_kink, KNOWN * spread, 0)
        )
        # Rounding far above that of the last operation is a bias rather than noise: more steps don't average
        # it out.
        is_biased = (noise > OF_MANY_OPERATIONS * unit) & (uncertainty > KNOWN * np.abs(resolution.slope))
        # A bias of the value is also one of the slope, and no step shows it: log(1 + x^2) with 1e-11 for x^2
        # is off by 1e-5 throughout, and so is everything it is multiplied by.
        bias = np.where(noise > OF_MANY_OPERATIONS * unit, noise * np.abs(resolution.slope), 0.0)
        beyond = is_known & ~(error <= allowed + MARGIN * (uncertainty + bias))
        tells = is_conclusive(analytic, resolution.slope, allowed, working)
        # Close to the point, f may agree with the gradient and contradict a slope that settled further out (a
        # fine ripple that passed for noise).
        agrees_closer = np.abs(resolution.local - analytic) <= resolution.local_noise
        agrees_closer &= np.abs(resolution.local - resolution.slope) > resolution.local_noise + uncertainty
        beyond &= ~agrees_closer | resolution.is_kink
        # An infinite gradient against an uncertain slope proves nothing: the slope may be infinite, too.
        beyond &= np.isfinite(analytic) | (
            uncertainty <= np.maximum(KNOWN * np.abs(resolution.slope), allowed)
        )
    # Bitwise flat counts as zero, unless larger steps found a slope after all, or rounding on the way to the
    # value may hide one.
    is_zero = resolution.is_flat & (analytic == 0) & (resolution.reason == Reason.NONE) & within
    is_zero &= ~(noise > OF_MANY_OPERATIONS * unit)
    passes = (within & is_sharp & tells) | is_zero
    fails = beyond & ~is_biased & (resolution.rungs >= rungs_needed) & ~passes
    verdict = np.full(analytic.shape, Verdict.INCONCLUSIVE, dtype=np.int8)
    verdict[passes] = Verdict.PASS
    verdict[passes & resolution.is_kink] = Verdict.KINK
    verdict[fails] = Verdict.MISMATCH
    reason = np.where(noise > OF_MANY_OPERATIONS * unit, Reason.NOISE, Reason.UNRESOLVED)
    if working.unit_roundoff > 2.0**-53:
        reason = np.where(reason == Reason.UNRESOLVED, Reason.LOW_PRECISION, reason)
    reason = np.where(resolution.reason != Reason.NONE, resolution.reason, reason)
    reason = np.where(verdict == Verdict.INCONCLUSIVE, reason, Reason.NONE)
    reason = np.where(fails & resolution.is_kink, Reason.JOINED_KINKS, reason)
    return verdict, reason.astype(np.int8)


def is_conclusive(analytic: Float, numeric: Float, allowed: Float, working: Precision) -> np.ndarray:
    """Say where a pass means something: half precision's tolerance may let a doubling or a sign through.

    There, the element's own size must exceed twice its tolerance. In wider precisions such elements are far
    below the rest of their row, or below the value: they are noise to anyone who uses the gradient.
    """
    if working.unit_roundoff < FLOAT16.unit_roundoff:
        return np.ones(np.shape(allowed), dtype=bool)
    with np.errstate(invalid="ignore"):
        return np.asarray(allowed <= HALF_PRECISION_SHARE * np.fmax(np.abs(analytic), np.abs(numeric)))
