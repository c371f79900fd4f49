"""The samples of the second stage: noise points, sentinels and a ladder, one call for each column.

Noise is estimated from high-order differences at tiny, evenly spaced steps.

References:
    J. J. More and S. M. Wild, Estimating Computational Noise, SIAM J. Sci. Comput. 33 (2011), 1292-1314.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import factorial

import numpy as np

from gradcheck_cli.numerics.differences import Differences, Sides, differences
from gradcheck_cli.numerics.precision import Float
from gradcheck_cli.numerics.problem import Domain, Problem, power_of_two, step_to_both_sides
from gradcheck_cli.numerics.shared_limits import BOUND_PER_SIGMA

# A chunk's arrays hold (steps, elements); this many elements at a time keep each near 10 MB.
MAX_ELEMENTS = 50_000


@dataclass(frozen=True)
class Elements:
    """Some elements of the Jacobian: (e,) each."""

    rows: np.ndarray
    columns: np.ndarray

    def take(self, which: np.ndarray) -> Elements:
        """Return some of them."""
        return Elements(self.rows[which], self.columns[which])


@dataclass(frozen=True)
class Series:
    """The samples around some elements.

    Attributes:
        grain: (e,) the smallest difference of a sample from f(x): the multiple that f was rounded to inside.
    """

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
    grain: Float
    sides: Sides  # (r, e) the values that were differenced, and their steps

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
    room = domain.take(columns)
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
    with np.errstate(all="ignore"):
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


def _place_noise_points(problem: Problem, x: Float, scale: Float, room: Domain) -> tuple[Float, np.ndarray]:
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
    with np.errstate(invalid="ignore"):
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
    with np.errstate(all="ignore"):
        for order in range(4, POINTS):
            gamma = factorial(order) ** 2 / factorial(2 * order)
            table = np.diff(values, n=order, axis=0)
            estimates.append(np.sqrt(gamma * np.mean(table * table, axis=0)))
        middle = np.median(estimates, axis=0)
        if only_noise:
            is_noise = np.max(estimates, axis=0) <= SAME_OVER_ORDERS * np.min(estimates, axis=0)
            return np.where(is_noise, middle, 0.0)
        return np.asarray(middle)
