"""Which elements of a Jacobian can differ from zero, if rows and columns fall into independent classes.

Columns of different classes never meet in a row, so one evaluation can move one column of each class at once:
as many evaluations as the largest class has columns, instead of one for each column. `confirm_sparsity` shows
that the function has its gradient's sparsity, without differencing each element that is left out.

References:
    A. R. Curtis, M. J. D. Powell and J. K. Reid, On the estimation of sparse Jacobian matrices, J. Inst.
    Maths Applics 13 (1974), 117-119.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.precision import Float
from gradcheck_cli.numerics.steps import power_of_two

if TYPE_CHECKING:
    from gradcheck_cli.numerics.problem import Problem

Index = npt.NDArray[np.int64]

# How far inputs move, over their scale: far enough to lift small slopes above rounding. The movement needn't
# be a good difference: a row that doesn't depend on an input stays the same however far the input goes.
STEP = 2.0**-6
# How far a row that stays the same may move, in units of u|f|: a difference of two values, each off by two.
_ROUNDINGS = 4.0


@dataclass(frozen=True)
class Sparsity:
    """A Jacobian with a block structure: a row depends only on the columns of its own class."""

    row_class: Index  # (m,) the class of each row
    column_class: Index  # (n,) the class of each column
    table: Index  # (classes, slots) the columns of each class; all classes have the same size

    @property
    def slots(self) -> int:
        """How many columns a class has."""
        return int(self.table.shape[1])

    @property
    def columns(self) -> Index:
        """The column that element (row, slot) stands for, (m, slots)."""
        return self.table[self.row_class]


def rank_in_class(classes: Index) -> Index:
    """Number the members of each class in their order: (c,) classes to (c,) ranks."""
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.maximum.accumulate(np.where(first, np.arange(classes.size), 0))
    rank = np.empty(classes.size, dtype=np.int64)
    rank[order] = np.arange(classes.size) - starts
    return rank


def confirm_sparsity(problem: Problem, sparsity: Sparsity) -> bool:
    """Say whether no row moves with the columns of another class.

    All classes whose number has a given bit set move at once, in a random direction; the rows of the other
    classes may not move by more than rounding. After each bit has been tried, set and clear, every row has
    seen every class but its own move. That takes twice as many evaluations as the number of classes has bits.
    Several elements cancel with probability 0, since the direction's components are random reals.

    An element outside of its class isn't seen if it moves its row by less than 4u|f| over a 64th of the
    input's scale: in float64 3e-14 of the row's value, in float32 2e-5.

    Returns:
        Whether it is confirmed; if not, the whole Jacobian must be taken.
    """
    sampler, steps = problem.sampler, _draw_steps(problem)
    bits = int(sparsity.table.shape[0] - 1).bit_length()
    halves = [(bit, value) for bit in range(bits) for value in (0, 1)]
    at_once = sampler.points_per_call
    for start in range(0, len(halves), at_once):
        chosen = halves[start : start + at_once]
        moves = np.stack([(sparsity.column_class >> bit & 1) == value for bit, value in chosen])
        there = sampler.precision.round(sampler.point + np.where(moves, steps, 0.0))
        values = sampler.at(np.concatenate([sampler.point[None], there]))
        for (bit, value), far in zip(chosen, values[1:], strict=True):
            resting = (sparsity.row_class >> bit & 1) != value
            if not _are_same(values[0, resting], far[resting], problem.unit[resting]):
                return False
    return True


def _are_same(base: Float, far: Float, unit: Float) -> bool:
    with np.errstate(invalid="ignore"):
        stays = np.abs(far - base) <= _ROUNDINGS * unit * np.abs(base)
        return bool((stays | (far == base) | (np.isnan(far) & np.isnan(base))).all())


def _draw_steps(problem: Problem) -> Float:
    """Draw a step for each input, (n,), up or down, to the side where the bounds leave more room."""
    x, domain = problem.sampler.point, problem.domain
    size = STEP * power_of_two(domain.fit(problem.step_scale))
    size *= problem.generator.uniform(0.5, 1.0, x.size)
    up = problem.generator.choice([True, False], x.size)
    up = (up | (domain.below < size)) & (domain.above >= size)
    return np.where(up, np.minimum(size, domain.above), -np.minimum(size, domain.below))
