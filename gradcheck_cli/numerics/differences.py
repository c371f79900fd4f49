"""Central and one-sided differences from three values, and the cheap first pass: one for each column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradcheck_cli.numerics.precision import Float, smallest_subnormals
from gradcheck_cli.numerics.problem import Problem, power_of_two, step_to_both_sides
from gradcheck_cli.numerics.sampling import Index
from gradcheck_cli.numerics.shared_limits import KNOWN, OF_A_VALUE

Mask = np.ndarray  # of bool


@dataclass(frozen=True)
class Differences:
    """Differences at one or more steps; all arrays of one shape."""

    slope: Float  # the derivative's estimate: central where both sides are finite, else one-sided, else NaN
    up: Float  # (f(x+h) - f(x)) / h, NaN where there is none
    down: Float  # (f(x) - f(x-h)) / h, likewise
    jump: Float  # up - down: about h f'' where f is smooth, constant at a kink, growing as 1/h at a jump
    noise: Float  # bound on the rounding error in `slope`
    is_central: Mask  # both sides exist
    is_usable: Mask  # at least one side does
    is_flat: Mask  # the value is exactly the same on every side that exists
    error: Float  # bound on the error of one value


@dataclass(frozen=True)
class Sides:
    """Values at a point and to both sides of it; a step of 0 means that there is no such side."""

    base: Float  # f(x)
    above: Float  # f(x+h)
    below: Float  # f(x-h)
    step_up: Float  # the step actually taken upward
    step_down: Float  # and downward


def differences(
    sides: Sides, unit: Float, measured: Float | float = 0.0, size: Float | float = 0.0
) -> Differences:
    """Difference f(x+h), f(x), f(x-h).

    Args:
        sides: the values and their steps.
        unit: the rows' unit roundoff.
        measured: measured bound on the error of one value, where it exceeds the one assumed here.
        size: the size that rounding is relative to, where it is larger than the values.

    Returns:
        The differences, every argument broadcast.
    """
    base, above, below = sides.base, sides.above, sides.below
    step_up, step_down = sides.step_up, sides.step_down
    is_up = np.isfinite(above) & np.isfinite(base) & (step_up > 0)
    is_down = np.isfinite(below) & np.isfinite(base) & (step_down > 0)
    up = np.where(is_up, (above - base) / np.where(step_up > 0, step_up, 1.0), np.nan)
    down = np.where(is_down, (base - below) / np.where(step_down > 0, step_down, 1.0), np.nan)
    is_central = is_up & is_down
    span = np.where(is_central, step_up + step_down, np.where(is_up, step_up, step_down))
    span = np.where(span > 0, span, 1.0)
    # Exact for quadratics on unequal steps too: rounding x + h makes them unequal near powers of two.
    uneven = (step_down * up + step_up * down) / span
    central = np.where(step_up == step_down, (above - below) / span, uneven)
    slope = np.where(is_central, central, np.where(is_up, up, down))
    largest = np.maximum(np.where(is_up, np.abs(above), 0.0), np.where(is_down, np.abs(below), 0.0))
    largest = np.maximum(np.maximum(largest, np.abs(base)), size)
    # Underflow loses up to half a subnormal per operation: four operations are allowed for.
    error = np.maximum(OF_A_VALUE * unit * largest + 2 * smallest_subnormals(unit), measured)
    noise = 2 * error / span
    return Differences(
        slope=slope,
        up=up,
        down=down,
        jump=up - down,
        noise=np.where(is_up | is_down, noise, np.inf),
        is_central=is_central,
        is_usable=is_up | is_down,
        is_flat=(~is_up | (above == base)) & (~is_down | (below == base)) & (is_up | is_down),
        error=error,
    )


@dataclass(frozen=True)
class FirstPass:
    """What the first pass found, (m, slots) each."""

    slope: Float  # central difference; one-sided where one side is missing, NaN where both are
    noise: Float  # Z, a bound on its rounding error
    truncation: Float  # tau, an estimate of its truncation error
    is_flat: Mask  # f is bitwise unchanged
    is_central: Mask  # both sides exist

    @property
    def uncertainty(self) -> Float:
        """Noise and truncation; infinite where there is no estimate."""
        total = self.noise + self.truncation
        return np.where(np.isfinite(total) & np.isfinite(self.slope), total, np.inf)

    @property
    def trusted(self) -> Float:
        """The slopes that are certain to a tenth, 0 elsewhere: tolerances may be scaled by these."""
        is_sure = self.uncertainty <= KNOWN * np.abs(self.slope)
        return np.where(is_sure, self.slope, 0.0)


def first_pass(problem: Problem) -> FirstPass:
    """Difference every column once.

    Args:
        problem: the function; its working precision sets the step.

    Returns:
        Slopes with their errors.
    """
    return _difference(problem, np.arange(problem.shape[1]), problem.working.first_step)


def widen_steps(problem: Problem, first: FirstPass, allowed: Float) -> FirstPass:
    """Difference once more with a larger step where rounding alone hides a slope.

    That takes two points of a column; the second stage takes some thirty. A slope counts if both steps show
    it, each to within its error.

    Args:
        first: what the first pass found.
        allowed: (m, slots) the tolerance of each element.
    """
    # A quarter of the way from the first step to the scale, in powers: 2**3.75 times the first in float64, or
    # 8 or 16 times, since steps are powers of two. Noise falls by that, and truncation grows by its square.
    step = problem.working.first_step**0.75
    is_hidden = (first.noise > allowed) & (first.noise * problem.working.first_step <= allowed * step)
    is_hidden &= (first.truncation <= allowed) & ~first.is_flat
    slots = np.flatnonzero(is_hidden.any(axis=0))
    if not slots.size:
        return first
    wide = _difference(problem, slots, step)
    both = wide.uncertainty + first.uncertainty[:, slots]
    is_seen = is_hidden[:, slots] & (np.maximum(wide.noise, wide.truncation) <= allowed[:, slots])
    is_seen &= np.abs(wide.slope - first.slope[:, slots]) <= both
    rows, at = np.nonzero(is_seen)
    seen = replace(
        first, slope=first.slope.copy(), noise=first.noise.copy(), truncation=first.truncation.copy()
    )
    for old, new in ((seen.slope, wide.slope), (seen.noise, wide.noise), (seen.truncation, wide.truncation)):
        old[rows, slots[at]] = new[rows, at]
    return seen


def _difference(problem: Problem, slots: Index, relative_step: float) -> FirstPass:
    """Difference the columns of some slots once, by this part of their scales."""
    sampler, domain, shape = problem.sampler, problem.domain, (problem.shape[0], slots.size)
    slope, noise, truncation = np.empty(shape), np.empty(shape), np.empty(shape)
    is_flat, is_central = np.empty(shape, dtype=bool), np.empty(shape, dtype=bool)
    step_scale = problem.step_scale
    step = power_of_two(relative_step * domain.fit(step_scale))
    neighbours = step_to_both_sides(sampler.point, step[:, None], domain, sampler.precision)
    by_class = np.arange(step.size)[None] if problem.sparsity is None else problem.sparsity.table
    columns = np.sort(by_class[:, slots], axis=None)
    to_both = np.concatenate([neighbours.up[columns], neighbours.down[columns]], axis=1)
    for batch in sampler.move_columns(columns, to_both):
        here, own = batch.slots, problem.table[:, slots[batch.slots]]
        sides = Sides(
            batch.base[:, None],
            batch.values[:, 0, :].T,
            batch.values[:, 1, :].T,
            neighbours.step_up[own, 0],
            neighbours.step_down[own, 0],
        )
        difference = differences(sides, problem.unit[:, None], size=problem.size[:, None])
        slope[:, here], noise[:, here] = difference.slope, difference.noise
        is_flat[:, here], is_central[:, here] = difference.is_flat, difference.is_central
        # J is about h f''. Where f''' is about f''^2 / f' (a pole, an exponential), h^2 f''' / 6 is J^2 /
        # 6 f': a third of what is required here. Without it, an error could hide behind a truncation
        # error of its own size. A kink's J is far larger still.
        bend = np.maximum(np.abs(difference.jump) - 2 * difference.noise, 0.0)
        bound = np.where(bend > 0, bend * bend / (2 * np.abs(difference.slope)), 0.0)
        # Where f'' is near 0, f''' needn't be. If f''' is about f' over the scale squared, as is usual,
        # it adds a sixth of this.
        usual = (step / step_scale)[own] ** 2 * np.abs(difference.slope)
        bound = np.maximum(bound, usual)
        # One side alone shows no curvature.
        truncation[:, here] = np.where(difference.is_central, bound, np.inf)
    return FirstPass(slope, noise, truncation, is_flat, is_central)
