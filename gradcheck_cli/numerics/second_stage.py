"""The careful stage for doubtful elements: rounds of ever wider ladders, until each is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.numerics.confirm import confirm
from gradcheck_cli.numerics.noise import BOUND_PER_SIGMA
from gradcheck_cli.numerics.precision import Float
from gradcheck_cli.numerics.reasons import Reason, Verdict
from gradcheck_cli.numerics.resolve import Resolution, resolve
from gradcheck_cli.numerics.series import REACHES, Elements, sample
from gradcheck_cli.numerics.tolerance import allowed_error, row_scale
from gradcheck_cli.numerics.verdict import PASS_REACH, decide

if TYPE_CHECKING:
    from gradcheck_cli.numerics.first_pass import FirstPass
    from gradcheck_cli.numerics.problem import Problem

# A round: the scale of each column, the exponents of its rungs, and which elements it is for.
Round = tuple[Float, tuple[int, ...], Callable[[Resolution, np.ndarray], np.ndarray]]

# A noisy forward's own gradient is noisy too: the best step for noise s has a relative error near s^(2/3).
# At most 1e-3. (empirical)
NOISE_SHARE = 50.0
MOST_WIDENED = 1e-3


@dataclass(frozen=True)
class Climbed:
    """What the second stage found of its elements, (e,) each."""

    resolution: Resolution
    verdict: np.ndarray
    reason: np.ndarray
    allowed: Float
    noisy: int


def climb(problem: Problem, first: FirstPass, elements: Elements, analytic: Float | None) -> Climbed:
    """Resolve doubtful elements; columns of `elements` count within the problem's slots.

    Args:
        problem: the function.
        first: what the first pass found of all elements.
        elements: the doubtful ones, ordered by column.
        analytic: (e,) their analytic values; `None` to resolve each to within its tolerance.

    Returns:
        Resolutions and verdicts.
    """
    rows, where = elements.rows, elements.columns
    sampled = Elements(rows, np.broadcast_to(problem.table, problem.shape)[rows, where])
    resolution = Resolution.empty(rows.size)
    trusted = first.trusted
    open_now = np.ones(rows.size, dtype=bool)
    climbed: Climbed | None = None
    for scale, exponents, is_for in _rounds(problem):
        chosen = np.flatnonzero(open_now & is_for(resolution, sampled.columns))
        if chosen.size:
            _sample_into(problem, sampled, chosen, scale, exponents, resolution)
        climbed = _weigh(problem, trusted, elements, sampled, resolution, analytic)
        if analytic is not None:
            is_hidden = confirm(problem, sampled, resolution, climbed.verdict, climbed.allowed, analytic)
            if is_hidden.any():
                resolution.slope[is_hidden], resolution.uncertainty[is_hidden] = np.nan, np.inf
                resolution.reason[is_hidden] = Reason.STAIRCASE
                climbed = _weigh(problem, trusted, elements, sampled, resolution, analytic)
        if analytic is None:
            open_now = ~(resolution.uncertainty <= PASS_REACH * climbed.allowed)
        else:
            open_now = climbed.verdict == Verdict.INCONCLUSIVE
        open_now &= resolution.reason != Reason.JUMP
        if not open_now.any():
            break
    if climbed is None:  # pragma: no cover (there's always a first round)
        raise AssertionError
    return climbed


def _rounds(problem: Problem) -> Iterator[Round]:
    reach = REACHES[problem.working.name]
    fitted = problem.domain.fitted(problem.step_scale)
    magnitude = np.abs(problem.sampler.point)
    own = np.where(magnitude > 0, np.minimum(magnitude, problem.step_scale), problem.step_scale)

    def anything(_resolution: Resolution, columns: np.ndarray) -> np.ndarray:
        return np.ones(columns.size, dtype=bool)

    def looks_linear(resolution: Resolution, _columns: np.ndarray) -> np.ndarray:
        return np.asarray(np.isfinite(resolution.uncertainty) & ~resolution.is_kink)

    def is_small(_resolution: Resolution, columns: np.ndarray) -> np.ndarray:
        # An input far below the others': what happens there happens at its own scale.
        return np.asarray(own[columns] < problem.step_scale[columns] / 16)

    yield fitted, reach.inner, anything
    yield fitted, reach.inner + reach.outer, anything
    yield fitted, reach.inner + reach.outer + reach.far, looks_linear
    yield own, reach.inner + reach.outer, is_small


def _sample_into(  # noqa: PLR0913, PLR0917 (one round)
    problem: Problem,
    sampled: Elements,
    chosen: np.ndarray,
    scale: Float,
    exponents: tuple[int, ...],
    resolution: Resolution,
) -> None:
    """Sample some elements and keep what is known better than before."""
    for series in sample(
        problem.sampler,
        sampled.take(chosen),
        scale,
        problem.domain,
        problem.unit,
        problem.working,
        exponents,
        problem.generator,
    ):
        which = chosen[series.which]
        new, old = resolve(series), resolution.take(which)
        is_better = (new.uncertainty < old.uncertainty) | ~np.isfinite(old.uncertainty)
        resolution.put(which[is_better], new.take(is_better))


def _weigh(  # noqa: PLR0913, PLR0917 (elements, and what is known of them)
    problem: Problem,
    trusted: Float,
    elements: Elements,
    sampled: Elements,
    resolution: Resolution,
    analytic: Float | None,
) -> Climbed:
    """Apply tolerances, scaled by what is known by now."""
    rows, where = elements.rows, elements.columns
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(resolution.low), np.abs(resolution.high))
        is_sure = (resolution.uncertainty <= 0.1 * size) & (resolution.reason == Reason.NONE)
    numeric = trusted.copy()
    numeric[rows, where] = np.where(is_sure, size, 0.0)
    scale = row_scale(numeric, problem.weights)
    value = np.abs(np.where(np.isfinite(problem.value), problem.value, 0.0))
    # Noise seen in one column is in the row's values, whichever input moves.
    noise, bias = (_over_rows(each, elements, resolution) for each in (resolution.noise, resolution.bias))
    with np.errstate(all="ignore"):
        share = noise / BOUND_PER_SIGMA * value[rows] / np.maximum(value, scale)[rows]
        widened = np.minimum(MOST_WIDENED, NOISE_SHARE * share ** (2 / 3))
    rtol = np.maximum(problem.rule.rtol, np.where(np.isfinite(widened), widened, 0.0))
    if problem.rule.is_rtol_fixed:
        rtol = np.full(rtol.shape, problem.rule.rtol)
    known = np.where(is_sure, size, 0.0)
    given = np.zeros(rows.shape) if analytic is None else analytic
    allowed = allowed_error(
        problem.rule,
        given,
        known,
        scale[rows],
        np.maximum(value[rows], resolution.value),
        problem.step_scale[sampled.columns],
        rtol,
    )
    if analytic is None:
        verdict = np.full(rows.size, Verdict.PASS, dtype=np.int8)
        return Climbed(resolution, verdict, resolution.reason, allowed, 0)
    verdict, reason = decide(resolution, analytic, allowed, bias, problem.unit[rows], problem.working)
    return Climbed(resolution, verdict, reason, allowed, int((rtol > problem.rule.rtol).sum()))


def _over_rows(noise: Float, elements: Elements, resolution: Resolution) -> Float:
    """Return the largest noise of each element's row; a kink's is its own."""
    largest = np.zeros(int(elements.rows.max(initial=-1)) + 1)
    np.maximum.at(largest, elements.rows, np.where(resolution.is_kink, 0.0, noise))
    return np.asarray(np.maximum(noise, largest[elements.rows]))
