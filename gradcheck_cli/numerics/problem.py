"""A function at a point, with all that limits how it is sampled and judged; how far to step, and along what.

Steps follow from typical scales, the room inside the domain, and what the input's dtype can represent.
Random vectors have random signs and no small values, which would hide errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.elements import PerElement
from gradcheck_cli.numerics.precision import (
    PRECISIONS,
    Float,
    Precision,
    ToleranceRule,
    allowed_error,
    coarsest,
    row_scale,
    rule_for,
)
from gradcheck_cli.numerics.sampling import Evaluate, Index, Sampler, Sparsity, chunks
from gradcheck_cli.numerics.shared_limits import DIGITS, OWN_ORDER

_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Scales:
    """Typical sizes per input element."""

    step: Float  # xs = max(|x|, s), for steps only
    # ws = |x|, s at 0, for tolerances only. With xs for both, a 1 % error passed on [1e-8, 1e8, 2].
    weight: Float


def scales(point: Float, scale: npt.ArrayLike | None = None) -> Scales:
    """Return the scales of a point. s is a tenth of the median non-zero |x|, or 1 where all are zero.

    Args:
        point: (n,).
        scale: the user's own typical magnitude, scalar or (n,), in place of s.

    Returns:
        Positive, finite scales.
    """
    magnitude = np.where(np.isfinite(point), np.abs(point), 0.0)
    if scale is None:
        typical = np.full(point.shape, typical_size(point, None))
    else:
        typical = np.broadcast_to(np.abs(np.asarray(scale, dtype=np.float64)), point.shape)
    return Scales(np.maximum(magnitude, typical), np.where(magnitude > 0, magnitude, typical))


def typical_size(point: Float, scale: float | None) -> float:
    """Return s for a point (n,), or the user's own scale."""
    if scale is not None:
        return abs(scale)
    magnitude = np.abs(point)
    nonzero = magnitude[(magnitude > 0) & (magnitude < np.inf)]
    return max(0.1 * float(np.median(nonzero, overwrite_input=True)), _TINY) if nonzero.size else 1.0


def own_scale(point: Float, step_scale: Float) -> Float:
    """Return |x| for inputs far below the scale of their steps, and that scale for all others."""
    magnitude = np.abs(point)
    return np.where((magnitude > 0) & (magnitude < OWN_ORDER * step_scale), magnitude, step_scale)


def power_of_two(x: npt.ArrayLike) -> Float:
    """Return the largest power of two not above each positive x: such a step loses nothing in x + h."""
    exponent = np.frexp(np.asarray(x, dtype=np.float64))[1]
    return np.asarray(np.ldexp(1.0, exponent - 1))


@dataclass(frozen=True)
class Room(PerElement):
    """The room around each coordinate, (n,) each, infinite where there is no bound."""

    below: Float
    above: Float

    @staticmethod
    def around(point: Float, low: npt.ArrayLike | None, high: npt.ArrayLike | None) -> Room:
        """Measure the room from a point to the bounds; outside of them there is none."""
        lowest = np.broadcast_to(np.asarray(-np.inf if low is None else low, dtype=np.float64), point.shape)
        highest = np.broadcast_to(np.asarray(np.inf if high is None else high, dtype=np.float64), point.shape)
        below, above = point - lowest, highest - point
        return Room(np.fmax(below, 0.0), np.fmax(above, 0.0))

    def fit(self, step_scale: Float) -> Float:
        """Return the scale of the steps: no larger than twice the room, so that half of it can be taken.

        Both sides' room counts, unless one side is too narrow to be used; then only the wider one counts.
        """
        narrower, wider = np.minimum(self.below, self.above), np.maximum(self.below, self.above)
        # In less room than this a central difference would be lost in rounding noise. The second stage tries
        # the narrow centre as well.
        room = np.where(narrower >= DIGITS * step_scale, narrower, wider)
        return np.asarray(np.minimum(step_scale, 2 * room))


@dataclass(frozen=True)
class Neighbours:
    """Coordinates on both sides of x and the steps actually taken; a side that doesn't exist has step 0."""

    up: Float
    down: Float
    step_up: Float
    step_down: Float


def step_to_both_sides(point: Float, step: Float, domain: Room, precision: Precision) -> Neighbours:
    """Step to both sides of each coordinate.

    Args:
        point: (c,) coordinates.
        step: (c, k) requested steps.
        domain: the room of these coordinates.
        precision: the precision that the coordinates are rounded to.

    Returns:
        (c, k) each. A step that would leave the domain, or that rounds away, isn't taken.
    """
    x = point[:, None]

    def side(sign: float, room: Float) -> tuple[Float, Float]:
        there = precision.round(x + sign * step)
        distance = np.abs(there - x)
        is_possible = (distance > 0) & np.isfinite(there) & (distance <= room[:, None])
        return np.where(is_possible, there, x), np.where(is_possible, distance, 0.0)

    up, step_up = side(1.0, domain.above)
    down, step_down = side(-1.0, domain.below)
    return Neighbours(up, down, step_up, step_down)


def draw_signed(generator: np.random.Generator, size: int) -> Float:
    """Draw magnitudes between a half and one, with random signs; one array, however large."""
    drawn = np.empty(size)
    for chunk in chunks(size):
        # One draw gives both: the first half of the interval is negative.
        part = generator.random(out=drawn[chunk])
        part -= 0.5
        part += np.copysign(0.5, part)
    return drawn


def draw_signs(generator: np.random.Generator, shape: int | tuple[int, ...]) -> Float:
    """Draw signs, either with the same probability."""
    return np.copysign(1.0, generator.random(shape) - 0.5)


def draw_eight_bits(generator: np.random.Generator, shape: int | tuple[int, ...]) -> Float:
    """Draw numbers between -1 and 1 of eight bits, bfloat16's: as upstreams they are exact in every dtype.

    Only these vectors may have small or zero elements. They are drawn in one array, however large.
    """
    drawn = generator.random(shape)
    drawn -= 0.5
    drawn *= 256
    np.rint(drawn, out=drawn)
    drawn /= 128
    return drawn


# The function.

SEED = 20240229


@dataclass
class Problem:
    """A function at a point. Callers build it once and pass it whole; it caches its samples.

    A Jacobian's element (row, slot) stands for the column `table[row, slot]`. Without sparsity every column
    is a slot of its own, and the table has a single row, for all.
    """

    # (B, n) points, representable in `input_precision`, to (B, m) values, NaN where undefined
    evaluate: Evaluate
    point: npt.ArrayLike  # (n,) the base point
    input_precision: Precision  # the precision that points are rounded to
    # the precision that values are rounded to; or the unit roundoff of each row (m,)
    row_precision: Precision | npt.NDArray[np.float64]
    # the rule for each element; default: the table's for the coarsest precision
    tolerance: ToleranceRule | None = None
    low: npt.ArrayLike | None = None  # the lower bound of points; scalar or (n,)
    high: npt.ArrayLike | None = None  # the upper bound
    scale: npt.ArrayLike | None = None  # typical magnitude of the inputs, scalar or (n,), for the steps
    # (m,) f(x), for tolerances, where the caller knows it more accurately
    base_value: npt.ArrayLike | None = None
    # returns (m,) the size that rounding of f(x) is relative to, where the caller knows it; called only in
    # doubt
    rounded_size: Callable[[], Float] | None = None
    # (m,) the largest |f| in the output that a row belongs to; default: the row's own
    largest_beside: npt.ArrayLike | None = None
    takes_moves: bool = False  # whether `evaluate` takes points that are described instead of written out
    sparsity: Sparsity | None = None  # the elements that can differ from zero in the analytic Jacobian
    # whether the function is known to round inside; then it is searched for stairs finer than the first step
    may_round: bool = False
    rows: int | None = None  # m, where it is known without evaluating

    def reset(self, rows: int | None = None) -> Problem:
        """Return the same problem with nothing sampled yet and its generator reset.

        Args:
            rows: m, if it is known by now.
        """
        return replace(self, rows=self.rows if rows is None else rows)

    @cached_property
    def sampler(self) -> Sampler:
        """Evaluates around the point, and the point itself only if the number of rows isn't known."""
        point = np.asarray(self.point, dtype=np.float64).ravel()
        return Sampler(
            self.evaluate,
            point,
            self.input_precision,
            self.rows,
            takes_moves=self.takes_moves,
            sparsity=self.sparsity,
        )

    @cached_property
    def generator(self) -> np.random.Generator:
        """Draws directions; the same for each problem."""
        return np.random.default_rng(SEED)

    @cached_property
    def unit(self) -> Float:
        """The unit roundoff of each row's values, (m,)."""
        of_rows = self.row_precision
        unit = of_rows.unit_roundoff if isinstance(of_rows, Precision) else of_rows.astype(np.float64)
        return np.broadcast_to(unit, (self.sampler.rows,))

    @cached_property
    def working(self) -> Precision:
        """The coarsest precision of the inputs and the values."""
        by_unit = {precision.unit_roundoff: precision for precision in PRECISIONS}
        worst_row = by_unit[float(self.unit.max())] if self.unit.size else self.input_precision
        return coarsest(self.input_precision, worst_row)

    @cached_property
    def rule(self) -> ToleranceRule:
        """The tolerance rule of every element."""
        return self.tolerance if self.tolerance is not None else rule_for(self.working, self.working)

    @cached_property
    def _scales(self) -> Scales:
        return scales(self.sampler.point, self.scale)

    @property
    def step_scale(self) -> Float:
        """The input's scale for steps, (n,)."""
        return self._scales.step

    @property
    def weight_scale(self) -> Float:
        """The input's scale for tolerances, (n,)."""
        return self._scales.weight

    @cached_property
    def domain(self) -> Room:
        """How far each input may move."""
        return Room.around(self.sampler.point, self.low, self.high)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and slots of the Jacobian."""
        return self.sampler.rows, int(self.table.shape[1])

    @cached_property
    def table(self) -> Index:
        """The column of each element, (1 or m, slots)."""
        return np.arange(self.sampler.point.size)[None] if self.sparsity is None else self.sparsity.columns

    @property
    def value(self) -> Float:
        """f(x), (m,), for tolerances."""
        if self.base_value is None:
            return self.sampler.base
        return np.asarray(self.base_value, dtype=np.float64).ravel()

    @property
    def size(self) -> Float:
        """The size of f(x), (m,): for a part of a complex number, the modulus."""
        return np.where(np.isfinite(self.value), np.abs(self.value), 0.0)

    @cached_property
    def size_of_terms(self) -> Float:
        """The size that rounding of f(x) is relative to, (m,), at least |f(x)|: terms may be larger."""
        if self.rounded_size is None:
            return self.size
        terms = np.asarray(self.rounded_size(), dtype=np.float64).ravel()
        return np.fmax(self.size, np.where(np.isfinite(terms), terms, 0.0))

    @cached_property
    def size_beside(self) -> Float:
        """The largest size of the output that each row belongs to, (m,), at least its own."""
        if self.largest_beside is None:
            return self.size
        beside = np.asarray(self.largest_beside, dtype=np.float64).ravel()
        return np.fmax(self.size, np.where(np.isfinite(beside), beside, 0.0))

    @property
    def weights(self) -> Float:
        """The tolerance scale ws of each element, (1 or m, slots)."""
        return np.asarray(self.weight_scale[self.table])

    def allowed_between(self, first: Float, second: Float, columns: Index | None = None) -> Float:
        """Return the error allowed between two Jacobians, (m, c); nothing is widened for noise.

        Args:
            first: one Jacobian; its rows set the scale.
            second: the other.
            columns: column of each element, where only some are stored; default: `table`.
        """
        table = self.table if columns is None else columns
        row = row_scale(first, self.weight_scale[table])
        return allowed_error(
            self.rule, (first, second), row[:, None], self.value[:, None], self.step_scale[table]
        )

    def allowed(self, analytic: Float, numeric: Float, scale: Float) -> Float:
        """Return the tolerance of the whole Jacobian, given each row's A_j."""
        return allowed_error(
            self.rule, (analytic, numeric), scale[:, None], self.value[:, None], self.step_scale[self.table]
        )
