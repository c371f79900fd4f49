"""The samples of the second stage: noise points, sentinels and a ladder, one call for each column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.differences import Differences, Sides, differences
from gradcheck_cli.numerics.refine.noise import (
    BOUND_PER_SIGMA,
    ODD_MULTIPLES,
    OFFSETS,
    POINTS,
    standard_deviation,
)
from gradcheck_cli.numerics.steps import Domain, power_of_two, step_to_both_sides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck_cli.numerics.precision import Float, Precision
    from gradcheck_cli.numerics.problem import Problem

# A chunk's arrays hold (steps, elements); this many elements at a time keep each near 10 MB.
MAX_ELEMENTS = 50_000
# A step of fewer ulp than these is rounding: the step itself may be off by half an ulp.
LEAST = 4.0


@dataclass(frozen=True)
class Reach:
    """Steps as exponents of two of the scale.

    `sentinels` are tiny steps. Every estimate must agree with them within noise, which avoids most traps of
    extrapolation and decides kinks. `inner` rungs lie around and below the first pass's step; `outer` and
    `far` ones are used only where these don't decide. `middle` is the spacing of the second set of noise
    points. `depths` says how many powers of two closer to the point all of this is tried again.
    """

    sentinels: tuple[int, ...]
    inner: tuple[int, ...]
    outer: tuple[int, ...]
    far: tuple[int, ...]
    middle: int
    depths: tuple[int, ...] = ()

    def sentinels_at(self, depth: int, working: Precision) -> tuple[int, ...]:
        """Return the sentinels that x can still step by if all points are nearer: at least `LEAST` ulp."""
        least = np.log2(LEAST * 2 * working.unit_roundoff) + depth
        return tuple(exponent for exponent in self.sentinels if exponent >= least)


# Sentinels: 2^-24 and 2^-36 in float64, 2^-12 and 2^-17 in float32 (NUMERICS), moved by an octave or two to
# clear the ladder below them; the smallest step is 32 ulp in float32 and 4 ulp in half precision. Depths: a
# ladder spans 18 powers of two in float64 and 10 in float32. Each next one overlaps it by a half, so that
# some ladder has several rungs below any scale at which a function turns. The deepest ladder ends where x can
# step no further: 2^-45, with 2^-50 for its sentinel.
REACHES = {
    "float64": Reach(
        (-36, -26), (-21, -19, -17, -15, -13, -11, -9, -7, -5, -3), (-1,), (1, 3), -27, (8, 16, 24)
    ),
    "float32": Reach((-18, -16), (-13, -11, -9, -7, -5, -3), (-1,), (1, 3), -18, (4, 8)),
    "float16": Reach((-8,), (-7, -5, -3), (-1,), (1, 3), -8),
    "bfloat16": Reach((-6,), (-5, -3), (-1,), (1, 3), -5),
}


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
        which: (e,) indices of the elements.
        at: differences, (r, e), at growing steps, sentinels first.
        step: (r, e) the steps.
        sentinels: how many of them are sentinels.
        base: (e,) f(x).
        size: (e,) a lower bound on the size that rounding of f(x) is relative to.
        unit: (e,) the rows' unit roundoff.
        noise: (e,) the standard deviation of f's noise, at ulp steps.
        middle_noise: (e,) likewise at larger steps, where an intermediate's rounding shows.
        sure_noise: (e,) the same, 0 where it may be shape.
        grain: (e,) the smallest difference of a sample from f(x): the multiple that f was rounded to inside.
        sides: (r, e) the values that were differenced, and their steps.
    """

    which: np.ndarray
    at: Differences
    step: Float
    sentinels: int
    base: Float
    size: Float
    unit: Float
    noise: Float
    middle_noise: Float
    sure_noise: Float
    grain: Float
    sides: Sides

    def with_noise(self, measured: Float) -> Series:
        """Return the same samples with another bound on the noise of each value, (e,)."""
        return replace(self, at=differences(self.sides, self.unit, measured, self.size))


def sample(
    problem: Problem, elements: Elements, scale: Float, exponents: tuple[int, ...], depth: int = 0
) -> Iterator[Series]:
    """Sample the columns of some elements.

    Args:
        problem: the function.
        elements: which elements.
        scale: (n,) the scale that each column steps by.
        exponents: the rungs.
        depth: sentinels, rungs and noise points are this many powers of two nearer.

    Yields:
        Series that cover the elements.
    """
    sampler, domain, unit, working = problem.sampler, problem.domain, problem.unit, problem.working
    reach = REACHES[working.name]
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
    spacing = np.stack(
        [odd[0] * ulp, np.maximum(odd[1] * scale * 2.0 ** REACHES[working.name].middle, ulp)], axis=1
    )
    reach = spacing * (POINTS // 2)
    is_centred = (reach <= room.below[:, None]) & (reach <= room.above[:, None])
    outward = np.where(room.above >= room.below, 1, -1)[:, None] * np.arange(1, POINTS)
    offsets = np.where(is_centred[:, :, None], OFFSETS[OFFSETS != 0], outward[:, None, :])
    there = x[:, None, None] + spacing[:, :, None] * offsets
    with np.errstate(invalid="ignore"):
        there = np.clip(there, (x - room.below)[:, None, None], (x + room.above)[:, None, None])
    return precision.round(there.reshape(x.size, -1)), is_centred
