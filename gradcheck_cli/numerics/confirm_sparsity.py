"""Confirms that what a sparsity leaves out of a Jacobian is zero, without differencing it element by element.

All inputs move at once, in a random direction: each row must move by what its own class accounts for. An
element of another class that isn't zero shows, unless its effect is below `UNSEEN` of the row's own or below
rounding; that several cancel has probability zero, since the direction's components are random reals. Rows
where that can't be said (a kink, a value that isn't finite) are looked at class by class: all classes whose
number has a given bit move, the rows of the others may not; after each bit, set and clear, every pair of
different classes has been seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.reasons import Verdict
from gradcheck_cli.numerics.steps import power_of_two

if TYPE_CHECKING:
    from gradcheck_cli.numerics.precision import Float
    from gradcheck_cli.numerics.problem import Problem
    from gradcheck_cli.numerics.sparsity import Sparsity
    from gradcheck_cli.numerics.stages import Judgement

# The largest share of its row's movement that an element of another class may have unseen: the table's rtol.
UNSEEN = {"float64": 1e-6, "float32": 2e-3, "float16": 5e-2, "bfloat16": 1e-1}
# Steps over the scale. At the first, truncation (its square) stays far below what may go unseen; the second
# crosses fewer kinks.
_STEPS = {
    "float64": (2.0**-18, 2.0**-25),
    "float32": (2.0**-8,),
    "float16": (2.0**-4,),
    "bfloat16": (2.0**-3,),
}
_DIRECTIONS = 2
# Rows that may not move at all are tried with a step far above rounding.
_WIDE_STEP = 2.0**-6
# In units of u|f|: a difference of two values, each off by two; and its double.
_ROUNDINGS = 8.0


def confirm_sparsity(problem: Problem, sparsity: Sparsity, judged: Judgement) -> bool:
    """Say whether no row moves by more than its own class accounts for.

    Args:
        problem: the function.
        sparsity: what is to be confirmed.
        judged: the verdicts on the compressed Jacobian, with its numeric side.

    Returns:
        Whether it is confirmed; where it isn't, the whole Jacobian must be taken.
    """
    known = ((judged.verdict == Verdict.PASS) & np.isfinite(judged.numeric)).all(axis=1)
    for _direction in range(_DIRECTIONS):
        seen = np.zeros(known.shape, dtype=bool)
        for share in _STEPS[problem.working.name]:
            seen |= _accounts_for(problem, sparsity, judged, share)
            if seen[known].all():
                break
        known &= seen
    return bool(known.all()) or _stay_put(problem, sparsity, np.flatnonzero(~known))


def _moved(problem: Problem, share: float, which: np.ndarray) -> tuple[Float, Float]:
    """Move some columns up and down by a random part of a step, inside the domain: both points, (n,)."""
    sampler = problem.sampler
    x = sampler.point
    size = share * power_of_two(problem.domain.fitted(problem.step_scale))
    size = np.where(which, size * problem.generator.uniform(0.5, 1.0, x.size), 0.0)
    size *= problem.generator.choice([-1.0, 1.0], x.size)

    def side(step: Float) -> Float:
        room = np.where(step > 0, problem.domain.above, problem.domain.below)
        return sampler.precision.round(x + np.sign(step) * np.minimum(np.abs(step), room))

    return side(size), side(-size)


def _accounts_for(problem: Problem, sparsity: Sparsity, judged: Judgement, share: float) -> np.ndarray:
    """Say which rows, (m,), move along a random direction as their own elements have it."""
    sampler = problem.sampler
    up, down = _moved(problem, share, np.ones(sampler.point.size, dtype=bool))
    base, above, below = sampler.at(np.stack([sampler.point, up, down]))
    with np.errstate(all="ignore"):
        movement = (up - down)[sparsity.columns]
        expected = (judged.numeric * movement).sum(axis=1)
        own = (np.abs(judged.numeric) * np.abs(movement)).sum(axis=1)
        unsure = (judged.uncertainty * np.abs(movement)).sum(axis=1)
        largest = np.maximum(np.maximum(np.abs(above), np.abs(below)), np.abs(base))
        bound = _ROUNDINGS * problem.unit * largest + unsure + UNSEEN[problem.working.name] * own
        return np.asarray(np.abs(above - below - expected) <= bound)


def _stay_put(problem: Problem, sparsity: Sparsity, rows: np.ndarray) -> bool:
    """Say whether some rows stay where they are while classes other than their own move."""
    sampler = problem.sampler
    own = sparsity.row_class[rows]
    for bit in range(int(sparsity.table.shape[0] - 1).bit_length()):
        for value in (0, 1):
            moves = (sparsity.column_class >> bit & 1) == value
            resting = (own >> bit & 1) != value
            for there in _moved(problem, _WIDE_STEP, moves):
                base, far = sampler.at(np.stack([sampler.point, there]))[:, rows[resting]]
                with np.errstate(invalid="ignore"):
                    change = np.abs(far - base)
                    allowed = _ROUNDINGS * problem.unit[rows[resting]] * np.abs(base)
                    is_same = (change <= allowed) | (far == base) | (np.isnan(far) & np.isnan(base))
                if not is_same.all():
                    return False
    return True
