"""The cheap first pass: one central difference per column, and its possible errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradcheck_cli.numerics.differences import Mask, Sides, differences
from gradcheck_cli.numerics.precision import Float
from gradcheck_cli.numerics.problem import Problem
from gradcheck_cli.numerics.shared_limits import KNOWN
from gradcheck_cli.numerics.steps import power_of_two, step_to_both_sides


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
        with np.errstate(invalid="ignore"):
            is_sure = self.uncertainty <= KNOWN * np.abs(self.slope)
        return np.where(is_sure, self.slope, 0.0)


def first_pass(problem: Problem) -> FirstPass:
    """Difference every column once.

    Args:
        problem: the function; its working precision sets the step.

    Returns:
        Slopes with their errors.
    """
    sampler, columns, shape = problem.sampler, problem.chosen, problem.shape
    slope, noise, truncation = np.empty(shape), np.empty(shape), np.empty(shape)
    is_flat, is_central = np.empty(shape, dtype=bool), np.empty(shape, dtype=bool)
    step_scale, domain = problem.step_scale[columns], problem.domain.take(columns)
    step = power_of_two(problem.working.first_step * domain.fit(step_scale))
    neighbours = step_to_both_sides(sampler.point[columns], step[:, None], domain, sampler.precision)
    for batch in sampler.move_columns(columns, np.concatenate([neighbours.up, neighbours.down], axis=1)):
        here, own = batch.slots, problem.position[:, batch.slots]
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
        with np.errstate(all="ignore"):
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
