"""Turns samples of an element into its slope with an uncertainty, or says why it has none, as at a kink."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradcheck_cli.numerics.differences import Differences, Mask
from gradcheck_cli.numerics.elements import PerElement
from gradcheck_cli.numerics.precision import FLOAT32, Float
from gradcheck_cli.numerics.reasons import Reason
from gradcheck_cli.numerics.refine.edges import Departure, find_departure
from gradcheck_cli.numerics.refine.series import SAME_OVER_ORDERS, STILL_TO_COME, Series, Settled, settle
from gradcheck_cli.numerics.shared_limits import (
    BOUND_PER_SIGMA,
    DIGITS,
    KNOWN,
    MARGIN,
    OF_MANY_OPERATIONS,
    PATTERN,
)

# Rounding to multiples of g errs by up to g / 2 per value. Twice that is a difference's movement from rung to
# rung; another factor of two is for its bound, and one for values that are rounded more than once.
GRAINS = 8.0
# A slope may settle on a low rung only because one more movement there exceeds the assumed noise. It is then
# taken from the rungs above, if these agree to a tenth of its uncertainty and lie within twice that: five
# rungs (4^5) gain at least a factor of a thousand. (An LSTM's recurrent weights: rounding of 2.2 ulp for an
# assumed 1.) This is tried only where fewer digits are known than are needed.
NEARBY = 2.0
SHARP = 1e-7
# Each side's slope errs by twice what the central one does, and both by a factor of two more than is assumed.
_APART = 8.0


@dataclass(frozen=True)
class Resolution(PerElement):
    """What is known about some elements without their analytic values, (e,) each."""

    slope: Float  # the derivative; at a kink the mean of both sides
    uncertainty: Float  # bound on its error; infinite where there is no slope
    low: Float  # the least slope that a right gradient may have: `slope`, at a kink the lower side's
    high: Float  # likewise the greatest
    is_kink: Mask  # whether there is a kink at the point
    is_flat: Mask  # f is bitwise unchanged at the smallest steps
    reason: np.ndarray  # why there is no slope, as `Reason`
    rungs: np.ndarray  # number of steps that had a difference
    # the slopes of the sentinel that is closest to the point without being hidden by noise, between its sides
    # and as far beyond as rounding is assumed, not measured, to move them
    local_low: Float
    local_high: Float
    local_differs: Mask  # whether its sides differ by more than that
    departure: Departure  # how f departs from the slope towards large steps
    # relative noise of the forward's values, a bound over |f|; where f is 0, over the largest of its terms
    # and of |f| near the point
    noise: Float
    bias: Float  # likewise, or the height of stairs: this may prevent a mismatch, but never justify a pass
    value: Float  # the largest |f| near the point: f itself may be 0 there
    is_lost: Mask  # whether most of the uncertainty is noise of f's values, not truncation
    depth: np.ndarray  # the steps were divided by 2**depth

    @staticmethod
    def empty(size: int) -> Resolution:
        """Return a resolution of which nothing is known."""
        unknown, zero, none = np.full(size, np.nan), np.zeros(size), np.zeros(size, dtype=np.int64)
        is_no = np.zeros(size, dtype=bool)
        return Resolution(
            slope=unknown,
            uncertainty=np.full(size, np.inf),
            low=unknown,
            high=unknown,
            is_kink=is_no,
            is_flat=is_no,
            reason=np.full(size, Reason.UNRESOLVED, dtype=np.int8),
            rungs=none,
            local_low=unknown,
            local_high=unknown,
            local_differs=is_no,
            departure=Departure.empty(size),
            noise=zero,
            bias=zero,
            value=zero,
            is_lost=is_no,
            depth=none,
        )

    def hide(self, which: np.ndarray) -> Resolution:
        """Return the same with no slope where stairs hide it, (e,)."""
        return replace(
            self,
            slope=np.where(which, np.nan, self.slope),
            uncertainty=np.where(which, np.inf, self.uncertainty),
            reason=np.where(which, Reason.STAIRCASE, self.reason).astype(np.int8),
        )


def resolve(series: Series, depth: np.ndarray) -> Resolution:
    """Resolve some elements: test for a jump, then a kink, then a slope; noise last.

    Args:
        series: the samples.
        depth: (e,) the powers of two by which their steps were divided.
    """
    is_jump = find_jumps(series)
    settled, noise = _settle_louder(series, _settle_slope(series))
    kinks = find_kinks(series)
    is_kink = kinks.is_kink & ~is_jump
    slope = np.where(is_kink, 0.5 * (kinks.low + kinks.high), settled.slope)
    uncertainty = np.where(is_kink, kinks.uncertainty, settled.uncertainty)
    is_singular = _diverges(series) & ~is_kink
    is_known = np.isfinite(uncertainty) & ~is_jump & ~is_singular
    # A kink or a jump isn't noise.
    noise = np.where(is_kink | is_jump, series.unit * np.abs(series.base), noise)
    reason = np.where(is_known, Reason.NONE, _explain_failure(series))
    reason = np.where(is_jump, Reason.JUMP, reason)
    value = _value_nearby(series)
    size = np.where(series.base == 0, np.maximum(value, series.size), np.abs(series.base))
    relative = np.nan_to_num(noise / size, nan=0.0, posinf=0.0)
    slope, uncertainty = np.where(is_known, slope, np.nan), np.where(is_known, uncertainty, np.inf)
    apart = 0.5 * settled.spread
    local_low, local_high, local_differs = _local(series, slope)
    return Resolution(
        slope=slope,
        uncertainty=uncertainty,
        low=np.where(is_kink, kinks.low, slope - apart),
        high=np.where(is_kink, kinks.high, slope + apart),
        is_kink=is_kink,
        is_flat=np.asarray(series.at.is_flat[: series.sentinels + 2].all(axis=0)),
        reason=reason.astype(np.int8),
        rungs=settled.rungs,
        local_low=local_low,
        local_high=local_high,
        local_differs=local_differs,
        departure=find_departure(series, slope, uncertainty + apart, noise),
        noise=relative,
        # Noise is no bias of the slope where f crosses zero: what it is relative to is about to change.
        bias=np.fmin(relative, noise / np.abs(slope * series.step[0])),
        value=value,
        is_lost=~is_kink & np.isfinite(uncertainty) & (settled.noise > 0.5 * uncertainty),
        depth=depth,
    )


def _settle_louder(series: Series, settled: Settled) -> tuple[Settled, Float]:
    """Assume more noise where nothing settled, or on a low rung alone; return the slopes and that noise.

    A handful of values may show too little noise (a sum of terms far larger than itself). Or one movement
    that exceeds it keeps the slope on a low rung: the rungs above are taken if they agree.
    """
    noise = series.at.error.min(axis=0)
    is_blunt = settled.uncertainty > SHARP * np.abs(settled.slope)
    is_open = ~np.isfinite(settled.uncertainty)
    if not (is_open | is_blunt).any():
        return settled, noise
    # A flat difference says no more than that f moves by less than where it begins to move.
    hidden = np.where(series.at.is_flat[0], series.grain, 0.0)
    louder = np.minimum(np.fmax(np.maximum(_noise_of_movement(series), noise), hidden), _most_noise(series))
    again = _settle_slope(series.with_noise(louder))
    agrees = np.abs(again.slope - settled.slope) <= NEARBY * settled.uncertainty
    gains = is_blunt & (again.uncertainty < KNOWN * settled.uncertainty) & agrees
    use = np.isfinite(again.uncertainty) & (is_open | gains)
    # Where a slope was known before, agreeing rungs say no more of the noise of f's values.
    return settled.where(use, again), np.where(use & is_open, louder, noise)


def _settle_slope(series: Series) -> Settled:
    """Settle central differences, or those of the sides where they know better."""
    at, noise = series.at, series.at.noise.copy()
    # A function that is rounded to multiples of its grain inside errs by half of that per value, at least.
    own = noise[series.sentinels :]
    np.fmax(own, 0.5 * series.grain / series.step[series.sentinels :], out=own)
    central = settle(at.slope, noise, at.is_central, series.sentinels)
    sides = _join_sides(series)
    return central.where(sides.uncertainty < central.uncertainty, sides)


def _join_sides(series: Series) -> Settled:
    """Join the slopes of both sides where only one is finite, or f bends beside the point like |x|x.

    Where f'' jumps at a distance, the steps across err by as much as it is away, however they are
    extrapolated: one side's slope is right then. Which, only a smaller step shows, so that both count.
    """
    up, down = series.settled_sides
    both = np.where(_are_apart(series, 1.0), np.inf, np.maximum(up.uncertainty, down.uncertainty))
    apart, noise = np.abs(up.slope - down.slope), np.maximum(up.noise, down.noise)
    joined = Settled(0.5 * (up.slope + down.slope), both, up.rungs, apart, noise)
    return joined.where(~np.isfinite(up.uncertainty), down).where(~np.isfinite(down.uncertainty), up)


def _are_apart(series: Series, margin: float) -> Mask:
    """Say where both sides settle, on slopes that differ by more than they may be off by: at a kink."""
    up, down = series.settled_sides
    spread = np.abs(up.slope - down.slope)
    # Where f'' jumps, slopes change with the step by more than that. They don't beside a kink.
    moved = np.fmax(np.abs(series.at.up - up.slope), np.abs(series.at.down - down.slope))
    falls = spread <= KNOWN * moved[series.sentinels :][:PATTERN].max(axis=0)
    return np.asarray(~falls & (spread > margin * (up.uncertainty + down.uncertainty)))


def _noise_of_movement(series: Series) -> Float:
    """Bound f's noise by how much the slope moves between the lowest rungs; 0 where that isn't noise."""
    first = series.sentinels
    slope, step = series.at.slope[first:], series.step[first:]
    if slope.shape[0] < 4:  # noqa: PLR2004 (three movements)
        return np.zeros(series.base.shape)
    moved = np.abs(np.diff(slope, axis=0)) * step[:-1]
    lowest = moved[:PATTERN]
    most, least = lowest.max(axis=0), lowest.min(axis=0)
    # If the lowest movements times their steps agree, they are noise, not shape. (empirical)
    is_noise = np.isfinite(most) & (most <= SAME_OVER_ORDERS * least)
    limit = _most_noise(series)
    middle = BOUND_PER_SIGMA * np.nan_to_num(series.middle_noise, nan=0.0, posinf=0.0)
    bound = np.where(is_noise & (2 * most <= limit), 2 * most, 0.0)
    return np.maximum(bound, np.where(middle <= limit, middle, 0.0))


def _most_noise(series: Series) -> Float:
    """Return the largest noise that is accepted without having been measured a few ulp around the point."""
    # Without a limit, aliasing would pass for noise. (empirical)
    assumed = series.at.error[series.sentinels]
    # Rounding of an intermediate is accepted, whatever the output's size, where it is seen.
    return np.asarray(np.maximum(OF_MANY_OPERATIONS * assumed, GRAINS * series.grain))


def _explain_failure(series: Series) -> np.ndarray:
    """Say what prevents a slope from being found."""
    at = series.at
    usable = at.is_usable.sum(axis=0)
    is_singular = _diverges(series)
    has_room = ((series.sides.step_up > 0) | (series.sides.step_down > 0)).any(axis=0)
    reason = np.where(is_singular | (usable < PATTERN), Reason.SINGULAR, Reason.UNRESOLVED)
    middle = BOUND_PER_SIGMA * np.nan_to_num(series.sure_noise, nan=0.0, posinf=0.0)
    noise = np.maximum(middle, at.error.min(axis=0))
    is_noisy = (noise > OF_MANY_OPERATIONS * series.unit * np.abs(series.base)) & (middle > 0)
    reason = np.where(is_noisy & (reason == Reason.UNRESOLVED), Reason.NOISE, reason)
    reason = np.where(has_room, reason, Reason.DOMAIN)
    return np.where(np.isfinite(series.base), reason, Reason.SINGULAR)


# From one step to the next, at least a factor of four shorter, a slope that grows without bound grows by this
# at least: as h^(-1/5) does, the derivative of x^(4/5). That is asked of the sentinels and four rungs, where
# noise takes less than a third of the slope, and of two rungs in any case.
STEEPER = 1.3
DIVERGING_RUNGS = 4


def _diverges(series: Series) -> Mask:
    """Say where slopes grow without bound as steps shrink, as at the end of a square root."""
    at, count = series.at, series.sentinels + DIVERGING_RUNGS
    size, noise = np.abs(at.slope[:count]), at.noise[:count]
    is_lost = (PATTERN * noise > size) & ~at.is_flat[: size.shape[0]]
    grows = (size[:-1] > STEEPER * size[1:]) | is_lost[:-1]
    return np.asarray(grows.all(axis=0) & (noise[-2:] < KNOWN * size[-2:]).all(axis=0))


def _value_nearby(series: Series) -> Float:
    """Return the largest finite |f| over the sentinels and all rungs but the longest."""
    values = np.concatenate([series.base[None], series.sides.above[:-1], series.sides.below[:-1]])
    size = np.abs(values)
    return np.asarray(np.max(np.where(np.isfinite(size), size, 0.0), axis=0))


def _have_two_slopes(at: Differences) -> Mask:
    """Say at which steps the slopes of both sides differ by more than noise."""
    return np.asarray(at.is_central & (np.abs(at.jump) > _APART * at.noise))


def shows_kink(series: Series, uncertainty: Float, bend: Float) -> Mask:
    """Say whether both sides' slopes differ by more than `bend` at the shortest step that may be so certain.

    Across a kink, the slopes of both sides have a mean, on which central differences settle. Noise hides
    the kink at shorter steps, and then the mean looks like the slope there.
    """
    at = series.at
    shows = at.is_central & (at.noise <= uncertainty)
    shortest = np.argmax(shows, axis=0), np.arange(bend.size)
    return np.asarray(shows.any(axis=0) & (np.abs(at.jump[shortest]) > bend))


def _local(series: Series, slope: Float) -> tuple[Float, Float, Mask]:
    """Return the least and the greatest slope at the shortest sentinel clear of noise, else at the longest.

    Beside these: whether its sides differ by more than noise. Three steps make that a kink; a half precision
    may have two, so that its shortest step at which the sides differ counts.
    """
    at, element = series.at, np.arange(slope.size)
    is_apart = _have_two_slopes(at)
    is_clear = np.abs(at.slope[0] - slope) > PATTERN * at.noise[0]
    clear = np.where(is_clear, 0, max(series.sentinels - 1, 0))
    shortest = np.where(is_apart.any(axis=0), np.argmax(is_apart, axis=0), clear)
    which = np.where(series.unit > FLOAT32.unit_roundoff, shortest, clear), element
    differs, noise = is_apart[which], at.noise[which]
    sides = np.where(differs, (at.up[which], at.down[which]), at.slope[which])
    return sides.min(axis=0) - noise, sides.max(axis=0) + noise, differs


# |f(x+h) - f(x)| of a smooth function falls with h, so equal within 5 % over three steps is a jump;
# the 5 % are empirical.
SAME_HEIGHT = 0.05
# A jump this many units of the value high may be rounding of its terms, where they cancel: an attention key's
# bias. It shifts no slope by more than the tolerance allows for the value (1024 u in float64).
LOST_IN_ROUNDING = 64.0
# So many steps of the same height are a jump, whatever rounds inside.
STEADY = 5
# up - down falls with h where f is smooth (to a quarter), and stays the same at a kink. 0.6 to 1.7
# (empirical) lies between.
SAME_BEND = (0.6, 1.7)


def find_jumps(series: Series) -> Mask:
    """Say where f is discontinuous at x: its change is the same at the three smallest steps.

    This is tested before noise: in the other order, any gradient passed at floor of an integer.
    """
    sides = series.sides
    up, down = sides.step_up > 0, sides.step_down > 0
    above, below = sides.above - sides.base, sides.below - sides.base
    # What rounding of large terms leaves isn't the same at so many steps, to both sides of the point.
    both = np.concatenate([above[:STEADY], -below[:STEADY]]), np.concatenate([up[:STEADY], down[:STEADY]])
    jumps = np.zeros(series.base.shape, dtype=bool)
    for change, is_there, size, same in (
        (above[:PATTERN], up[:PATTERN], series.size, SAME_HEIGHT),
        (below[:PATTERN], down[:PATTERN], series.size, SAME_HEIGHT),
        (*both, 0.0, DIGITS),
    ):
        most, least = np.abs(change).max(axis=0), np.abs(change).min(axis=0)
        rounding = LOST_IN_ROUNDING * series.unit * np.maximum(np.maximum(np.abs(series.base), size), most)
        is_jump = is_there.all(axis=0) & (least > rounding) & (most - least <= same * most)
        jumps |= is_jump & np.isfinite(most) & (np.abs(change.sum(axis=0)) > most)
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
    noise = 4 * at.noise  # each side's slope errs by twice what the central one does
    is_seen = _have_two_slopes(at)
    bend = np.abs(at.jump)
    is_kink = np.zeros(series.base.shape, dtype=bool)
    smallest = np.zeros(series.base.shape, dtype=np.int64)
    for k in range(first, bend.shape[0] - PATTERN + 1):
        is_constant = is_seen[k]
        for j in range(k, k + PATTERN - 1):
            ratio = bend[j + 1] / bend[j]
            is_constant = is_constant & is_seen[j + 1] & (ratio >= SAME_BEND[0]) & (ratio <= SAME_BEND[1])
            is_constant &= np.sign(at.jump[j]) == np.sign(at.jump[j + 1])
        # Smaller rungs must show the same, or be hidden by their noise. A sentinel may lie below the
        # distance to a tie 40 ulp away, so it doesn't count.
        for j in range(first, k):
            is_constant &= np.abs(at.jump[j] - at.jump[k]) <= SAME_BEND[1] * bend[k] * 0.5 + noise[j]
        smallest = np.where(is_constant & ~is_kink, k, smallest)
        is_kink |= is_constant
    is_kink |= _are_apart(series, MARGIN)
    if not is_kink.any():
        unknown = np.full(is_kink.shape, np.nan)
        return Kinks(is_kink, unknown, unknown, unknown)
    up, down = (
        _settle_side(series, settled, slope, smallest)
        for settled, slope in zip(series.settled_sides, (at.up, at.down), strict=True)
    )
    return Kinks(is_kink, np.minimum(up[0], down[0]), np.maximum(up[0], down[0]), np.maximum(up[1], down[1]))


def _settle_side(series: Series, settled: Settled, slope: Float, smallest: np.ndarray) -> tuple[Float, Float]:
    """Return one side's slope with its bound: the one it settled on, else that of the smallest clear step."""
    noise = 2 * series.at.noise
    column = np.arange(smallest.size)
    here, next_rung = slope[smallest, column], slope[smallest + 1, column]
    # A tie at distance d reduces a slope by d / h. The next rung is four times as far and shows three
    # quarters of it: a third more is still to come.
    rough = STILL_TO_COME * np.abs(here - next_rung) + noise[smallest, column]
    is_settled = settled.uncertainty < rough
    return np.where(is_settled, settled.slope, here), np.where(is_settled, settled.uncertainty, rough)
