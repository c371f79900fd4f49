"""The samples of the second stage: noise points, sentinels and a ladder, all of a column from one call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.differences import Differences, differences
from gradcheck_cli.numerics.noise import BOUND_PER_SIGMA, ODD_MULTIPLES, OFFSETS, POINTS, standard_deviation
from gradcheck_cli.numerics.steps import Domain, pairs, power_of_two

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck_cli.numerics.precision import Float, Precision
    from gradcheck_cli.numerics.sampling import Sampler

# A chunk's arrays hold (steps, elements); this many elements at a time keep each near 10 MB.
MAX_ELEMENTS = 50_000


@dataclass(frozen=True)
class Reach:
    """Steps as exponents of two of the scale.

    `sentinels` are tiny: every estimate must agree with them within noise, which removes most extrapolation
    traps and settles kinks. `inner` rungs lie around and below the first pass's step; `outer` and `far` ones
    are climbed only where these don't decide. `middle` spaces the second set of noise points.
    """

    sentinels: tuple[int, ...]
    inner: tuple[int, ...]
    outer: tuple[int, ...]
    far: tuple[int, ...]
    middle: int


# Sentinels: 2^-24 and 2^-36 in float64, 2^-12 and 2^-17 in float32 (NUMERICS), moved by an octave or two to
# clear the ladder below them; the smallest step is 32 ulp in float32, 4 ulp in half precision.
REACHES = {
    "float64": Reach((-36, -26), (-21, -19, -17, -15, -13, -11, -9, -7, -5, -3), (-1,), (1, 3), -27),
    "float32": Reach((-18, -16), (-13, -11, -9, -7, -5, -3), (-1,), (1, 3), -18),
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
    """What was sampled around some elements.

    Attributes:
        which: (e,) numbers of the elements.
        at: differences, (r, e), at growing steps, sentinels first.
        step: (r, e) the steps.
        sentinels: how many of them are sentinels.
        base: (e,) f(x).
        unit: (e,) the rows' unit roundoff.
        noise: (e,) the standard deviation of f's noise, at ulp steps.
        middle_noise: (e,) likewise at larger steps, where an intermediate's rounding shows.
        sure_noise: (e,) the same, 0 where it may be shape.
    """

    which: np.ndarray
    at: Differences
    step: Float
    sentinels: int
    base: Float
    unit: Float
    noise: Float
    middle_noise: Float
    sure_noise: Float
    above: Float
    below: Float
    step_up: Float
    step_down: Float

    def with_noise(self, measured: Float) -> Series:
        """Return the same samples under another bound on the noise of each value, (e,)."""
        at = differences(self.base, self.above, self.below, self.step_up, self.step_down, self.unit, measured)
        return replace(self, at=at)


def sample(  # noqa: PLR0913, PLR0917 (a point and all that limits a step from it)
    sampler: Sampler,
    elements: Elements,
    scale: Float,
    domain: Domain,
    unit: Float,
    working: Precision,
    exponents: tuple[int, ...],
    generator: np.random.Generator,
) -> Iterator[Series]:
    """Sample the columns of some elements.

    Args:
        sampler: the function.
        elements: which elements.
        scale: (n,) the scale that each column steps by.
        domain: (n,) the room of each column.
        unit: (m,) unit roundoff of each row.
        working: the coarsest precision in play.
        exponents: the rungs.
        generator: draws the noise points' spacings.

    Yields:
        Series that cover the elements.
    """
    reach = REACHES[working.name]
    columns, owner = np.unique(elements.columns, return_inverse=True)
    x = sampler.point[columns]
    room = domain.take(columns)
    step_scale = power_of_two(scale[columns])
    taken = pairs(
        x, step_scale[:, None] * np.exp2(np.array(reach.sentinels + exponents)), room, sampler.precision
    )
    noise_points, is_centred = _noise_points(
        x, step_scale, room, working, reach.middle, sampler.precision, generator
    )
    rungs = taken.up.shape[1]
    coordinates = np.concatenate([taken.up, taken.down, noise_points], axis=1)
    per_column = max(1, int(np.bincount(owner).max()))
    for batch in sampler.along(columns, coordinates, MAX_ELEMENTS // per_column):
        which, place = batch.among(owner)
        column, row = owner[which], elements.rows[which]
        values = batch.values[place, :, row].T  # (points, e)
        base = batch.base[row]
        above, below, rest = values[:rungs], values[rungs : 2 * rungs], values[2 * rungs :]
        centred = is_centred[column].T
        middle = _around(base, rest[POINTS - 1 :], centred[1])
        noise = standard_deviation(_around(base, rest[: POINTS - 1], centred[0]))
        step_up, step_down = taken.step_up[column].T, taken.step_down[column].T
        measured = BOUND_PER_SIGMA * np.nan_to_num(noise, nan=0.0, posinf=0.0)
        yield Series(
            which=which,
            at=differences(base, above, below, step_up, step_down, unit[row], measured),
            step=np.maximum(step_up, step_down),
            sentinels=len(reach.sentinels),
            base=base,
            unit=unit[row],
            noise=noise,
            middle_noise=standard_deviation(middle),
            sure_noise=standard_deviation(middle, only_noise=True),
            above=above,
            below=below,
            step_up=step_up,
            step_down=step_down,
        )


def _around(base: Float, others: Float, is_centred: np.ndarray) -> Float:
    """Put f(x) where it belongs among the noise points' values: in their middle, or before them."""
    middle = POINTS // 2
    return np.where(
        is_centred,
        np.concatenate([others[:middle], base[None], others[middle:]]),
        np.concatenate([base[None], others]),
    )


def _noise_points(  # noqa: PLR0913, PLR0917 (as `sample`)
    x: Float,
    scale: Float,
    room: Domain,
    working: Precision,
    middle: int,
    precision: Precision,
    generator: np.random.Generator,
) -> tuple[Float, np.ndarray]:
    """Place evenly spaced points near each x, twice: a few ulp apart, and at the lowest rungs' distance.

    Returns:
        The points, (c, 2 * (POINTS - 1)), and whether x is in their middle, (c, 2): not where the domain
        ends.
    """
    ulp = working.spacing(np.maximum(np.abs(x), scale / 16))
    odd = generator.choice(ODD_MULTIPLES, size=(2, x.size))
    spacing = np.stack([odd[0] * ulp, np.maximum(odd[1] * scale * 2.0**middle, ulp)], axis=1)
    reach = spacing * (POINTS // 2)
    is_centred = (reach <= room.below[:, None]) & (reach <= room.above[:, None])
    outward = np.where(room.above >= room.below, 1, -1)[:, None] * np.arange(1, POINTS)
    offsets = np.where(is_centred[:, :, None], OFFSETS[OFFSETS != 0], outward[:, None, :])
    there = x[:, None, None] + spacing[:, :, None] * offsets
    with np.errstate(invalid="ignore"):
        there = np.clip(there, (x - room.below)[:, None, None], (x + room.above)[:, None, None])
    return precision.round(there.reshape(x.size, -1)), is_centred
