"""Jumps and kinks: what one-sided differences at shrinking steps show where a function isn't smooth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.refine.ladder import ONE_SIDED, settle

if TYPE_CHECKING:
    from gradcheck_cli.numerics.differences import Mask
    from gradcheck_cli.numerics.precision import Float
    from gradcheck_cli.numerics.refine.series import Series

STEPS = 3
# |f(x+h) - f(x)| of a smooth function falls with h, so equal within 5 % over three steps is a jump;
# the 5 % are empirical.
SAME_HEIGHT = 0.05
# A jump this many units of the value high may be rounding of its terms, where they cancel: an attention key's
# bias. It shifts no slope by more than the tolerance allows for the value (1024 u in float64).
LOST = 64.0
# up - down falls with h where f is smooth (to a quarter), and stays the same at a kink. 0.6 to 1.7
# (empirical) lies between.
SAME_BEND = (0.6, 1.7)


def find_jumps(series: Series) -> Mask:
    """Say where f is discontinuous at x: its change is the same at the three smallest steps.

    This is tested before noise: in the other order, any gradient passed at floor of an integer.
    """
    sides, jumps = series.sides, np.zeros(series.base.shape, dtype=bool)
    with np.errstate(all="ignore"):
        for side, step in ((sides.above, sides.step_up), (sides.below, sides.step_down)):
            height = np.abs(side - series.base)[:STEPS]
            is_there = (step[:STEPS] > 0).all(axis=0) & np.isfinite(height).all(axis=0)
            most, least = height.max(axis=0), height.min(axis=0)
            is_clear = least > LOST * series.unit * np.maximum(
                np.maximum(np.abs(series.base), series.size), most
            )
            jumps |= is_there & is_clear & (most - least <= SAME_HEIGHT * most)
    return jumps


@dataclass(frozen=True)
class Kinks:
    """(e,) each: where f has a kink at x, the slopes on both sides, and a bound on their errors.

    The slopes and their bounds mean nothing where there is no kink.
    """

    is_kink: Mask
    low: Float
    high: Float
    uncertainty: Float


def find_kinks(series: Series) -> Kinks:
    """Find constant differences between the slopes of both sides at the smallest steps that show them."""
    at, first = series.at, series.sentinels
    with np.errstate(all="ignore"):
        noise = 4 * at.noise  # each side's slope errs by twice what the central one does
        is_seen = at.is_central & (np.abs(at.jump) > 2 * noise)
        bend = np.abs(at.jump)
        is_kink = np.zeros(series.base.shape, dtype=bool)
        smallest = np.zeros(series.base.shape, dtype=np.int64)
        for k in range(first, bend.shape[0] - STEPS + 1):
            is_constant = is_seen[k]
            for j in range(k, k + STEPS - 1):
                ratio = bend[j + 1] / bend[j]
                is_constant = is_constant & is_seen[j + 1] & (ratio >= SAME_BEND[0]) & (ratio <= SAME_BEND[1])
                is_constant &= np.sign(at.jump[j]) == np.sign(at.jump[j + 1])
            # Smaller rungs must show the same, or be hidden by their noise. A sentinel may lie below the
            # distance to a tie 40 ulp away, so it doesn't count.
            for j in range(first, k):
                is_constant &= np.abs(at.jump[j] - at.jump[k]) <= SAME_BEND[1] * bend[k] * 0.5 + noise[j]
            smallest = np.where(is_constant & ~is_kink, k, smallest)
            is_kink |= is_constant
    if not is_kink.any():
        unknown = np.full(is_kink.shape, np.nan)
        return Kinks(is_kink, unknown, unknown, unknown)
    up, down = _settle_side(series, at.up, smallest), _settle_side(series, at.down, smallest)
    return Kinks(
        is_kink,
        np.minimum(up[0], down[0]),
        np.maximum(up[0], down[0]),
        np.maximum(up[1], down[1]),
    )


def _settle_side(series: Series, slope: Float, smallest: np.ndarray) -> tuple[Float, Float]:
    """Return one side's slope with its bound: the one it settles on, else that of the smallest clear step."""
    noise = 2 * series.at.noise
    settled = settle(slope, noise, np.isfinite(slope), series.sentinels, ONE_SIDED)
    column = np.arange(smallest.size)
    here, next_rung = slope[smallest, column], slope[smallest + 1, column]
    with np.errstate(all="ignore"):
        # A tie at distance d reduces a slope by d / h: a third more than the next rung shows is still to
        # come.
        rough = 1.5 * np.abs(here - next_rung) + noise[smallest, column]
    is_settled = settled.uncertainty < rough
    return np.where(is_settled, settled.slope, here), np.where(is_settled, settled.uncertainty, rough)
