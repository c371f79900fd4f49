"""The careful stage for doubtful elements: rounds of ever wider ladders, until each is decided or none is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.edges import Edge, absorbed_slope, find_edges, find_stairs
from gradcheck_cli.numerics.noise import BOUND_PER_SIGMA
from gradcheck_cli.numerics.precision import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, Float, Precision, coarsest
from gradcheck_cli.numerics.reasons import Reason, Verdict
from gradcheck_cli.numerics.resolve import Resolution, resolve
from gradcheck_cli.numerics.sampling import Evaluate, Sampler
from gradcheck_cli.numerics.series import REACHES, Elements, sample
from gradcheck_cli.numerics.steps import Domain, scales
from gradcheck_cli.numerics.tolerance import ToleranceRule, allowed_error, row_scale, rule_for
from gradcheck_cli.numerics.verdict import MISMATCH_MARGIN, PASS_REACH, decide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.numerics.first_pass import FirstPass

# A noisy forward's own gradient is noisy too: the best step for noise s has a relative error near s^(2/3).
# At most 1e-3. (empirical)
NOISE_SHARE = 50.0
MOST_WIDENED = 1e-3


@dataclass
class Problem:
    """A function at a point, with all that limits how it may be sampled. Columns are numbers into the point."""

    sampler: Sampler
    columns: np.ndarray
    unit: Float
    working: Precision
    step_scale: Float
    weight_scale: Float
    domain: Domain
    rule: ToleranceRule
    known_value: Float | None = None
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(20240229))

    @staticmethod
    def of(
        evaluate: Evaluate,
        point: npt.ArrayLike,
        input_precision: Precision,
        row_precision: Precision | Sequence[Precision] | npt.NDArray[np.float64],
        *,
        low: npt.ArrayLike | None,
        high: npt.ArrayLike | None,
        scale: npt.ArrayLike | None,
        columns: npt.ArrayLike | None,
        rows: int | None = None,
    ) -> Problem:
        """Set up scales and room; evaluates the base point only where the number of rows isn't given."""
        sampler = Sampler(evaluate, np.asarray(point, dtype=np.float64).ravel(), input_precision, rows)
        x = sampler.point
        if isinstance(row_precision, Precision):
            unit = np.full(sampler.rows, row_precision.unit_roundoff)
        elif isinstance(row_precision, np.ndarray):
            unit = np.broadcast_to(row_precision.astype(np.float64), (sampler.rows,))
        else:
            unit = np.array([precision.unit_roundoff for precision in row_precision], dtype=np.float64)
        if unit.shape != (sampler.rows,):
            raise ValueError(f"row_precision: expected one per row, {sampler.rows}, got {unit.shape[0]}")
        ranked = {p.unit_roundoff: p for p in (FLOAT64, FLOAT32, FLOAT16, BFLOAT16)}
        worst_row = ranked[float(unit.max())] if unit.size else input_precision
        working = coarsest(input_precision, worst_row)
        sizes = scales(x, scale)
        domain = Domain.around(x, low, high)
        return Problem(
            sampler=sampler,
            columns=np.arange(x.size) if columns is None else np.asarray(columns, dtype=np.int64).ravel(),
            unit=unit,
            working=working,
            step_scale=sizes.step,
            weight_scale=sizes.weight,
            domain=domain,
            rule=rule_for(working, working),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the Jacobian."""
        return self.sampler.rows, int(self.columns.size)

    @property
    def value(self) -> Float:
        """f(x), (m,), for tolerances."""
        return self.sampler.base if self.known_value is None else self.known_value

    @property
    def weights(self) -> Float:
        """The tolerance scale ws of each column."""
        return np.asarray(self.weight_scale[self.columns])

    def allowed(self, analytic: Float, numeric: Float, scale: Float) -> Float:
        """Return the tolerance of the whole Jacobian, given each row's A_j."""
        return allowed_error(
            self.rule, analytic, numeric, scale[:, None], self.value[:, None], self.step_scale[self.columns]
        )


@dataclass(frozen=True)
class Climbed:
    """What the second stage found of its elements, (e,) each."""

    resolution: Resolution
    verdict: np.ndarray
    reason: np.ndarray
    allowed: Float
    noisy: int


def climb(problem: Problem, first: FirstPass, elements: Elements, analytic: Float | None) -> Climbed:
    """Resolve doubtful elements; columns of `elements` count within `problem.columns`.

    Args:
        problem: the function.
        first: what the first pass found of all elements.
        elements: the doubtful ones, ordered by column.
        analytic: (e,) their analytic values; `None` to resolve each to within its tolerance.

    Returns:
        Resolutions and verdicts.
    """
    rows, where = elements.rows, elements.columns
    sampled = Elements(rows, problem.columns[where])
    resolution = Resolution.empty(rows.size)
    trusted = first.trusted
    open_now = np.ones(rows.size, dtype=bool)
    climbed: Climbed | None = None
    for scale, exponents, is_for in _rounds(problem):
        chosen = np.flatnonzero(open_now & is_for(resolution, sampled.columns))
        if chosen.size:
            _sample_into(problem, sampled, chosen, scale, exponents, resolution)
        climbed = _weigh(problem, trusted, elements, resolution, analytic)
        if analytic is not None:
            is_hidden = _confirm(problem, sampled, resolution, climbed, analytic)
            if is_hidden.any():
                resolution.slope[is_hidden], resolution.uncertainty[is_hidden] = np.nan, np.inf
                resolution.reason[is_hidden] = Reason.STAIRCASE
                climbed = _weigh(problem, trusted, elements, resolution, analytic)
        if analytic is None:
            open_now = ~(resolution.uncertainty <= PASS_REACH * climbed.allowed)
        else:
            open_now = climbed.verdict == Verdict.INCONCLUSIVE
        open_now &= resolution.reason != Reason.JUMP
        if not open_now.any():
            break
    assert climbed is not None
    return climbed


def _rounds(problem: Problem):
    reach = REACHES[problem.working.name]
    fitted = problem.domain.fitted(problem.step_scale)
    magnitude = np.abs(problem.sampler.point)
    own = np.where(magnitude > 0, np.minimum(magnitude, problem.step_scale), problem.step_scale)

    def anything(_resolution: Resolution, columns: np.ndarray) -> np.ndarray:
        return np.ones(columns.size, dtype=bool)

    def looks_linear(resolution: Resolution, _columns: np.ndarray) -> np.ndarray:
        return np.isfinite(resolution.uncertainty) & ~resolution.is_kink

    def is_small(_resolution: Resolution, columns: np.ndarray) -> np.ndarray:
        # An input far below the others': what happens there happens at its own scale.
        return np.asarray(own[columns] < problem.step_scale[columns] / 16)

    yield fitted, reach.inner, anything
    yield fitted, reach.inner + reach.outer, anything
    yield fitted, reach.inner + reach.outer + reach.far, looks_linear
    yield own, reach.inner + reach.outer, is_small


def _sample_into(
    problem: Problem,
    sampled: Elements,
    chosen: np.ndarray,
    scale: Float,
    exponents: tuple[int, ...],
    resolution: Resolution,
) -> None:
    """Sample some elements and keep what is better than what was known; contradictions leave nothing known."""
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


def _confirm(
    problem: Problem, sampled: Elements, resolution: Resolution, climbed: Climbed, analytic: Float
) -> np.ndarray:
    """Say which verdicts stairs could undo; notes the edges and the noise seen in `resolution`."""
    rows = sampled.rows
    fails = climbed.verdict == Verdict.MISMATCH
    absorbed = absorbed_slope(problem.value[rows], problem.unit[rows], problem.step_scale[sampled.columns])
    with np.errstate(invalid="ignore"):
        is_hidden = np.asarray(fails & resolution.is_flat & (np.abs(analytic) <= absorbed))
    unseen = np.flatnonzero(fails & (resolution.edge == Edge.NONE))
    if unseen.size:  # straight as far as was seen: look further
        _look_further(problem, sampled, unseen, resolution)
    is_abrupt = (resolution.edge == Edge.ABRUPT) & ~resolution.is_kink
    abrupt = np.flatnonzero(is_abrupt & (fails | (climbed.verdict == Verdict.PASS)))
    if abrupt.size:
        slope = resolution.slope[abrupt]
        size = np.maximum(np.abs(problem.value[rows]), resolution.value)[abrupt]
        noise = np.maximum(2 * problem.unit[rows[abrupt]], resolution.noise[abrupt]) * size
        stairs = find_stairs(
            problem.sampler,
            sampled.take(abrupt),
            problem.domain,
            noise,
            slope,
            resolution.edge_low[abrupt],
            resolution.edge_high[abrupt],
        )
        with np.errstate(all="ignore"):  # a value that isn't finite is wrong on any stairs
            explains = np.abs(analytic[abrupt] - slope) <= stairs.hidden
            # One riser as far off as x itself is a jump of another kind: sign's at 0.
            is_far = resolution.edge_high[abrupt] > 0.75 * problem.step_scale[sampled.columns[abrupt]]
            explains &= ~is_far | (stairs.risers > 1)
            relative = stairs.height / np.abs(problem.value[rows[abrupt]])
            # A right slope of a tread isn't the function's. One riser may be a jump some way off, and none of
            # this slope's business.
            belies = (stairs.risers > 1) & (stairs.hidden > MISMATCH_MARGIN * climbed.allowed[abrupt])
        is_undone = np.where(fails[abrupt], explains, belies)
        is_hidden[abrupt] |= is_undone
        # Stairs are noise to the whole row.
        relative = np.where(is_undone & np.isfinite(relative), relative, 0.0)
        resolution.bias[abrupt] = np.maximum(resolution.bias[abrupt], relative)
        resolution.edge[abrupt[~is_undone]] = Edge.GRADUAL  # seen to be no stairs that matter
    return is_hidden


def _look_further(problem: Problem, sampled: Elements, which: np.ndarray, resolution: Resolution) -> None:
    """Find the edges of functions that are straight as far as was seen; there may be none."""
    reach = REACHES[problem.working.name]
    for series in sample(
        problem.sampler,
        sampled.take(which),
        problem.domain.fitted(problem.step_scale),
        problem.domain,
        problem.unit,
        problem.working,
        reach.inner[-1:] + reach.outer + reach.far,
        problem.generator,
    ):
        here = which[series.which]
        noise = resolution.noise[here] * np.abs(series.base)
        found = find_edges(series, resolution.slope[here], resolution.uncertainty[here], noise)
        resolution.edge[here], resolution.edge_low[here], resolution.edge_high[here] = found
    resolution.edge[which[resolution.edge[which] == Edge.NONE]] = Edge.GRADUAL  # straight all the way


def _weigh(
    problem: Problem, trusted: Float, elements: Elements, resolution: Resolution, analytic: Float | None
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
        problem.step_scale[problem.columns[where]],
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
    return np.maximum(noise, largest[elements.rows])
