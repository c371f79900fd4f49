"""The samples of the second stage, one call for each column, and where the differences of a ladder settle.

Samples are noise points, sentinels and a ladder. Noise is estimated from high-order differences at tiny,
evenly spaced steps. The ladder's rungs are a factor of four apart. From rung to rung, the truncation error of
a central difference then falls by 16 (h^2), that of a one-sided one by 4 (h), while the noise grows by 4.
Extrapolation (Richardson; Romberg's tableau) removes the leading term where this fall was really seen.

References:
    J. J. More and S. M. Wild, Estimating Computational Noise, SIAM J. Sci. Comput. 33 (2011), 1292-1314.
    L. F. Richardson, The Approximate Arithmetical Solution by Finite Differences, Phil. Trans. A 210 (1911).
    C. J. F. Ridders, Accurate computation of F'(x) and F'(x) F''(x), Adv. Eng. Software 4 (1982), 75-76.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import factorial

import numpy as np

from gradcheck_cli.numerics.differences import Differences, Mask, Sides, differences
from gradcheck_cli.numerics.elements import Elements, PerElement
from gradcheck_cli.numerics.precision import Float
from gradcheck_cli.numerics.problem import Problem, Room, power_of_two, step_to_both_sides
from gradcheck_cli.numerics.shared_limits import BOUND_PER_SIGMA

# A chunk's arrays hold (steps, elements); this many elements at a time keep each near 10 MB.
MAX_ELEMENTS = 50_000


@dataclass(frozen=True)
class Series:
    """The samples around some elements."""

    which: np.ndarray  # (e,) indices of the elements
    at: Differences  # differences, (r, e), at growing steps, sentinels first
    step: Float  # (r, e) the steps
    sentinels: int  # how many of them are sentinels
    base: Float  # (e,) f(x)
    size: Float  # (e,) a lower bound on the size that rounding of f(x) is relative to
    unit: Float  # (e,) the rows' unit roundoff
    noise: Float  # (e,) the standard deviation of f's noise, at ulp steps
    middle_noise: Float  # (e,) likewise at larger steps, where an intermediate's rounding shows
    sure_noise: Float  # (e,) the same, 0 where it may be shape
    # (e,) the smallest difference of a sample from f(x): the multiple that f was rounded to inside
    grain: Float
    sides: Sides  # (r, e) the values that were differenced, and their steps

    @cached_property
    def settled_sides(self) -> tuple[Settled, Settled]:
        """What the differences above and below settle on, each by themselves."""
        at = self.at
        noise = at.noise * np.where(at.is_central, 2.0, 1.0)
        up, down = (
            settle(side, noise, np.isfinite(side), self.sentinels, ONE_SIDED) for side in (at.up, at.down)
        )
        return up, down

    def with_noise(self, measured: Float) -> Series:
        """Return the same samples with another bound on the noise of each value, (e,)."""
        return replace(self, at=differences(self.sides, self.unit, measured, self.size))


def sample(
    problem: Problem, elements: Elements, scale: Float, exponents: tuple[int, ...], depth: int = 0
) -> Iterator[Series]:
    """Sample the columns of some elements.

    Args:
        elements: which elements.
        scale: (n,) the scale that each column steps by.
        exponents: the rungs.
        depth: sentinels, rungs and noise points are this many powers of two nearer.

    Yields:
        Series that cover the elements.
    """
    sampler, domain, unit, working = problem.sampler, problem.domain, problem.unit, problem.working
    reach = working.ladder
    columns, owner = np.unique(elements.columns, return_inverse=True)
    x = sampler.point[columns]
    room = domain[columns]
    step_scale = power_of_two(scale[columns]) * 2.0**-depth
    sentinels = reach.sentinels_at(depth, working)
    neighbours = step_to_both_sides(
        x, step_scale[:, None] * np.exp2(np.array(sentinels + exponents)), room, sampler.precision
    )
    noise_points, is_centred = _place_noise_points(problem, x, step_scale, room)
    rungs = neighbours.up.shape[1]
    coordinates = np.concatenate([neighbours.up, neighbours.down, noise_points], axis=1)
    per_column = max(1, int(np.bincount(owner).max()))
    for batch in sampler.move_columns(columns, coordinates, MAX_ELEMENTS // per_column):
        which, value_index = batch.among(owner)
        column, row = owner[which], elements.rows[which]
        values = batch.values[value_index, :, row].T  # (points, e)
        base = batch.base[row]
        rest = values[2 * rungs :]
        centred = is_centred[column].T
        middle = _insert_base(base, rest[POINTS - 1 :], centred[1])
        noise = standard_deviation(_insert_base(base, rest[: POINTS - 1], centred[0]))
        sides = Sides(
            base,
            values[:rungs],
            values[rungs : 2 * rungs],
            neighbours.step_up[column].T,
            neighbours.step_down[column].T,
        )
        measured = BOUND_PER_SIGMA * np.nan_to_num(noise, nan=0.0, posinf=0.0)
        yield Series(
            which=which,
            at=differences(sides, unit[row], measured, problem.size_of_terms[row]),
            size=problem.size_of_terms[row],
            step=np.maximum(sides.step_up, sides.step_down),
            sentinels=len(sentinels),
            base=base,
            unit=unit[row],
            noise=noise,
            middle_noise=standard_deviation(middle),
            sure_noise=standard_deviation(middle, only_noise=True),
            grain=_measure_grain(base, values),
            sides=sides,
        )


def _measure_grain(base: Float, values: Float) -> Float:
    """Return the smallest non-zero difference from f(x), (e,); zero where there is none.

    However small the steps, a function that is rounded to multiples of g inside moves by g or not at all.
    """
    away = np.abs(values - base)
    away[~(away > 0)] = np.inf
    least = away.min(axis=0)
    return np.where(np.isfinite(least), least, 0.0)


def _insert_base(base: Float, others: Float, is_centred: np.ndarray) -> Float:
    """Put f(x) into its place among the noise points' values: in their middle, or before them."""
    middle = POINTS // 2
    return np.where(
        is_centred,
        np.concatenate([others[:middle], base[None], others[middle:]]),
        np.concatenate([base[None], others]),
    )


def _place_noise_points(problem: Problem, x: Float, scale: Float, room: Room) -> tuple[Float, np.ndarray]:
    """Place evenly spaced points near each x, twice: a few ulp apart, and at the lowest rungs' distance.

    Returns:
        The points, (c, 2 * (POINTS - 1)), and whether x is in their middle, (c, 2), which it isn't where the
        domain ends.
    """
    working, precision = problem.working, problem.sampler.precision
    ulp = working.spacing(np.maximum(np.abs(x), scale / 16))
    odd = problem.generator.choice(ODD_MULTIPLES, size=(2, x.size))
    spacing = np.stack([odd[0] * ulp, np.maximum(odd[1] * scale * 2.0**working.ladder.middle, ulp)], axis=1)
    reach = spacing * (POINTS // 2)
    is_centred = (reach <= room.below[:, None]) & (reach <= room.above[:, None])
    outward = np.where(room.above >= room.below, 1, -1)[:, None] * np.arange(1, POINTS)
    offsets = np.where(is_centred[:, :, None], OFFSETS[OFFSETS != 0], outward[:, None, :])
    there = x[:, None, None] + spacing[:, :, None] * offsets
    there = np.clip(there, (x - room.below)[:, None, None], (x + room.above)[:, None, None])
    return precision.round(there.reshape(x.size, -1)), is_centred


POINTS = 7  # ECnoise's own choice for "few evaluations": orders up to 6
OFFSETS = np.arange(POINTS) - POINTS // 2
# Steps are random odd multiples of the spacing: power-of-two multiples missed a hundredfold noise (rounding
# of x repeats itself), 25 to 63 ulp aliased with the rounding of intermediates (NUMERICS).
ODD_MULTIPLES = np.array([3, 5, 7, 9, 11, 13])


# Estimates of independent noise agree over the orders (More and Wild require a factor of 4); those of a
# smooth shape don't.
SAME_OVER_ORDERS = 4.0


def standard_deviation(values: Float, *, only_noise: bool = False) -> Float:
    """Estimate the noise from values at evenly spaced points.

    For independent noise of variance s^2 the k-th difference has variance s^2 (2k)! / (k!)^2, while a smooth
    function's k-th difference vanishes with the k-th power of the spacing. The estimate is the median over
    orders 4 to 6, because the last relies on a single difference, which may be small by chance.

    Args:
        values: (POINTS, ...).
        only_noise: whether to return 0 where the orders disagree, since it may then be shape instead.

    Returns:
        (...), NaN where a value isn't finite.
    """
    estimates = []
    for order in range(4, POINTS):
        gamma = factorial(order) ** 2 / factorial(2 * order)
        table = np.diff(values, n=order, axis=0)
        estimates.append(np.sqrt(gamma * np.mean(table * table, axis=0)))
    middle = np.median(estimates, axis=0)
    if only_noise:
        is_noise = np.max(estimates, axis=0) <= SAME_OVER_ORDERS * np.min(estimates, axis=0)
        return np.where(is_noise, middle, 0.0)
    return np.asarray(middle)


RATIO = 4.0
CENTRAL = RATIO**2  # how the truncation error of a central difference grows from rung to rung
ONE_SIDED = RATIO

# If the contraction is within a factor of 2.5 of the theory's, Richardson extrapolation may assume the
# theory: 6.4 to 40 for 16. (empirical)
WINDOW = 2.5
LEVELS = 3
# What is still to come of an error that falls from rung to rung, over what theory says. (empirical)
STILL_TO_COME = 1.6


@dataclass(frozen=True)
class Settled(PerElement):
    """(e,) each: the slope, a bound on its error (infinite where nothing settled), and the rungs used.

    `noise` is what noise of the values adds to that bound; the rest is truncation.
    """

    slope: Float
    uncertainty: Float
    rungs: np.ndarray
    spread: Float  # by how much the slopes of both sides differ, which are as far from `slope`; usually 0
    noise: Float

    def where(self, use_other: Mask, other: Settled) -> Settled:
        """Return these with some elements taken from another."""
        return self.put(use_other, other[use_other]) if use_other.any() else self


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
    none = np.zeros(slope.shape[1])
    best = Settled(none + np.nan, none + np.inf, used, none, none)
    fall = growth
    for _level in range(levels):
        if value.shape[0] <= 1:  # an estimate needs a rung below it
            break
        moved = np.abs(np.diff(value, axis=0))  # moved[k]: between rungs k and k + 1
        blur = error[1:] + error[:-1]
        uncertainty = _truncation(moved, blur, growth, fall) + error[1:]
        corrected = STILL_TO_COME * np.abs(plain[1:] - value[1:]) / growth  # what smaller rungs may be off by
        reach = uncertainty + corrected
        agrees = _agree_with_smaller(value[1:], reach, slope, noise_if_usable, sentinels + 1)
        # Of equal bounds, the smallest step's: argmin returns the first.
        uncertainty = np.where(agrees & (uncertainty < np.inf), uncertainty, np.inf)
        least = np.argmin(uncertainty, axis=0)[np.newaxis]
        bound = np.take_along_axis(uncertainty, least, axis=0)[0]
        estimate = np.take_along_axis(value[1:], least, axis=0)[0]
        rounding = np.take_along_axis(error[1:], least, axis=0)[0]
        best = best.where(bound < best.uncertainty, Settled(estimate, bound, used, none, rounding))
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
    share = STILL_TO_COME / (growth - 1) * (above + blur[1:])
    is_contracting = is_quiet[:-1] | (below * growth / 2 <= above)  # half of the theory's
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
