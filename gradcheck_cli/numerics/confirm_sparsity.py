"""Confirms that the elements that a sparsity leaves out of a Jacobian are zero, without differencing each.

All classes whose number has a given bit set move at once, in a random direction; the rows of the other
classes may not move by more than rounding. After each bit has been tried, set and clear, every row has seen
every class but its own move. That takes twice as many evaluations as the number of classes has bits. Several
elements cancel with probability 0, since the direction's components are random reals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.sampling import MAX_FLOATS_PER_CALL
from gradcheck_cli.numerics.steps import power_of_two

if TYPE_CHECKING:
    from gradcheck_cli.numerics.precision import Float
    from gradcheck_cli.numerics.problem import Problem
    from gradcheck_cli.numerics.sparsity import Sparsity

# How far inputs move, over their scale: far enough to lift small slopes above rounding. The movement needn't
# be a good difference: a row that doesn't depend on an input stays the same however far the input goes.
STEP = 2.0**-6
# How far a row that stays the same may move, in units of u|f|: a difference of two values, each off by two.
_ROUNDINGS = 4.0


def confirm_sparsity(problem: Problem, sparsity: Sparsity) -> bool:
    """Say whether no row moves with the columns of another class.

    An element outside of its class isn't seen if it moves its row by less than 4u|f| over a 64th of the
    input's scale: in float64 3e-14 of the row's value, in float32 2e-5.

    Args:
        problem: the function.
        sparsity: the sparsity to confirm.

    Returns:
        Whether it is confirmed; if not, the whole Jacobian must be taken.
    """
    sampler, steps = problem.sampler, _steps(problem)
    bits = int(sparsity.table.shape[0] - 1).bit_length()
    halves = [(bit, value) for bit in range(bits) for value in (0, 1)]
    at_once = max(1, MAX_FLOATS_PER_CALL // max(sampler.point.size, sampler.rows) - 1)
    for start in range(0, len(halves), at_once):
        chosen = halves[start : start + at_once]
        moves = np.stack([(sparsity.column_class >> bit & 1) == value for bit, value in chosen])
        there = sampler.precision.round(sampler.point + np.where(moves, steps, 0.0))
        values = sampler.at(np.concatenate([sampler.point[None], there]))
        for (bit, value), far in zip(chosen, values[1:], strict=True):
            resting = (sparsity.row_class >> bit & 1) != value
            if not _same(values[0, resting], far[resting], problem.unit[resting]):
                return False
    return True


def _same(base: Float, far: Float, unit: Float) -> bool:
    with np.errstate(invalid="ignore"):
        stays = np.abs(far - base) <= _ROUNDINGS * unit * np.abs(base)
        return bool((stays | (far == base) | (np.isnan(far) & np.isnan(base))).all())


def _steps(problem: Problem) -> Float:
    """Draw a step for each input, (n,), up or down, to the side where the bounds leave more room."""
    x, domain = problem.sampler.point, problem.domain
    size = STEP * power_of_two(domain.fitted(problem.step_scale))
    size *= problem.generator.uniform(0.5, 1.0, x.size)
    up = problem.generator.choice([True, False], x.size)
    up = (up | (domain.below < size)) & (domain.above >= size)
    return np.where(up, np.minimum(size, domain.above), -np.minimum(size, domain.below))
