"""Tells a flat function from a staircase, which is flat at small steps and moves at large ones.

A zero gradient is right for a flat function, but on a staircase differences can't tell: the steps may be
meant (floor), or be what is left of a slope (a forward that computes in float16 inside).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.steps import FIRST_STEP

if TYPE_CHECKING:
    from gradcheck_cli.numerics.first_pass import FirstPass
    from gradcheck_cli.numerics.precision import Float, Precision
    from gradcheck_cli.numerics.problem import Problem
    from gradcheck_cli.numerics.sampling import Sampler

# The probe moves every input at once by this part of its scale, up or down at random.
PROBE = 1 / 16
EVEN_ODDS = 0.5
# Each row is followed at distances of its own, and each distance is an evaluation.
MOST_ROWS = 64


class Flatness(IntEnum):
    """What lies beyond the flat neighbourhood of a row."""

    FLAT = 0  # nothing moves, or moves steadily from some distance on: a kink
    STAIRS = 1
    ROUNDED = 2  # a slope too small for the first pass to see


def find_flatness(problem: Problem, first: FirstPass, is_zero: np.ndarray) -> np.ndarray:
    """Probe the rows that are flat everywhere.

    Args:
        problem: the function.
        first: what the first pass found.
        is_zero: (m, c) where a zero gradient rests on f being flat.

    Returns:
        (m,) of `Flatness`.
    """
    found = np.zeros(problem.shape[0], dtype=np.int8)
    if problem.columns.size == 0:
        return found
    rows = np.flatnonzero(first.is_flat.all(axis=1) & is_zero.any(axis=1))
    if rows.size:
        here = problem.columns
        far = PROBE * problem.step_scale[here]
        sign = np.where(problem.generator.random(here.size) < EVEN_ODDS, -1.0, 1.0)
        room = np.where(sign > 0, problem.domain.above[here], problem.domain.below[here])
        direction = np.zeros(problem.sampler.point.size)
        direction[here] = sign * np.minimum(far, room)
        found[rows] = _of_many(problem, rows, direction)
    return found


def _of_many(problem: Problem, rows: np.ndarray, direction: Float) -> np.ndarray:
    """Probe rows, of many only some: where one of these isn't flat, none that moves is taken to be."""
    sampler = problem.sampler
    total = _change(sampler, rows, direction, np.ones(1))
    moves = np.flatnonzero(total != 0)
    found = np.full(rows.size, Flatness.FLAT, dtype=np.int8)
    chosen = moves
    if moves.size > MOST_ROWS:
        chosen = np.sort(problem.generator.choice(moves, MOST_ROWS, replace=False))
    told = probe_flat_rows(sampler, rows[chosen], direction, problem.unit, problem.working)
    found[moves] = told.max(initial=Flatness.FLAT) if chosen.size < moves.size else told
    return found


def probe_flat_rows(
    sampler: Sampler,
    rows: np.ndarray,
    direction: Float,
    unit: Float,
    working: Precision,
) -> np.ndarray:
    """Say what flat rows do along one direction.

    Args:
        sampler: the function.
        rows: (r,) numbers of the rows that no single step moves.
        direction: (n,) displacement of the far end, inside the domain.
        unit: (m,) unit roundoff of each row.
        working: the coarsest precision in play.

    Returns:
        (r,) of `Flatness`.
    """
    found = np.full(rows.size, Flatness.FLAT, dtype=np.int8)
    narrow = FIRST_STEP[working.name] / PROBE  # the first pass's step, over the probe's
    if narrow >= 1 or rows.size == 0:
        return found
    total = _change(sampler, rows, direction, np.ones(1))
    moves = total != 0  # NaN counts as movement: nothing is known there
    if not moves.any():
        return found
    rows, total = rows[moves], np.abs(total[moves])
    flat, moved = np.zeros(rows.size), np.ones(rows.size)
    height = total.copy()
    # Bisect to 1/64 of the width known to be flat: a stair is then seen whole, a kink's slope hardly.
    for _round in range(int(np.ceil(np.log2(1 / narrow))) + 6):
        middle = 0.5 * (flat + moved)
        change = np.abs(_change(sampler, rows, direction, middle))
        has_moved = change != 0
        flat, moved = np.where(has_moved, flat, middle), np.where(has_moved, middle, moved)
        height = np.where(has_moved, change, height)
    error = 2 * unit[rows] * np.maximum(np.abs(sampler.base[rows]), total) + np.finfo(np.float64).tiny
    with np.errstate(all="ignore"):
        # Stairs at least as wide as the first step divide the whole change into at most 1 / narrow parts.
        is_stair = ~(height < np.maximum(narrow * total / 8, 4 * error))
        # Where rounding alone explains the flat part, the slope goes on beneath it.
        is_rounded = ~is_stair & (total * flat <= 4 * error)
    result = np.where(is_stair, Flatness.STAIRS, np.where(is_rounded, Flatness.ROUNDED, Flatness.FLAT))
    found[moves] = result
    return found


def _change(sampler: Sampler, rows: np.ndarray, direction: Float, along: Float) -> Float:
    """Return f - f(x) of each row at its own distance along the direction; one call, with its own base."""
    distances, owner = np.unique(along, return_inverse=True)
    points = sampler.precision.round(sampler.point + distances[:, None] * direction)
    values = sampler.at(np.concatenate([sampler.point[None], points]))
    if distances.size == 1:
        return np.asarray(values[1, rows] - values[0, rows])
    with np.errstate(all="ignore"):
        return np.asarray(values[1 + owner, rows] - values[0, rows])
