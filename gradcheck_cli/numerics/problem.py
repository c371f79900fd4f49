"""A function at a point, with everything that limits how it may be sampled and judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.precision import PRECISIONS, Float, Precision, coarsest
from gradcheck_cli.numerics.sampling import Evaluate, Index, Sampler, Sparsity
from gradcheck_cli.numerics.steps import Domain, Scales, scales
from gradcheck_cli.numerics.tolerance import ToleranceRule, allowed_error, row_scale, rule_for

SEED = 20240229


@dataclass
class Problem:
    """A function at a point. Callers build it once and pass it whole; it caches its samples.

    A Jacobian's element (row, slot) stands for the column `table[row, slot]`. Without sparsity every column
    is a slot of its own, and the table has a single row, for all.

    Attributes:
        evaluate: (B, n) points, representable in `input_precision`, to (B, m) values, NaN where undefined.
        row_precision: the precision that values are rounded to; or the unit roundoff of each row (m,).
        tolerance: the rule for each element; default: the table's for the coarsest precision.
        base_value: (m,) f(x), for tolerances, where the caller knows it more accurately.
        rounded_size: returns (m,) the size that rounding of f(x) is relative to, where the caller knows it;
            called only in doubt.
        largest_beside: (m,) the largest |f| in the output that a row belongs to; default: the row's own.
        may_round: whether the function is known to round inside; then it is searched for stairs finer than
            the first step.
    """

    evaluate: Evaluate
    point: npt.ArrayLike  # (n,) the base point
    input_precision: Precision  # the precision that points are rounded to
    row_precision: Precision | npt.NDArray[np.float64]
    tolerance: ToleranceRule | None = None
    low: npt.ArrayLike | None = None  # the lower bound of points; scalar or (n,)
    high: npt.ArrayLike | None = None  # the upper bound
    scale: npt.ArrayLike | None = None  # typical magnitude of the inputs, scalar or (n,), for the steps
    base_value: npt.ArrayLike | None = None
    rounded_size: Callable[[], Float] | None = None
    largest_beside: npt.ArrayLike | None = None
    takes_moves: bool = False  # whether `evaluate` takes points that are described instead of written out
    sparsity: Sparsity | None = None  # the elements that can differ from zero in the analytic Jacobian
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
    def domain(self) -> Domain:
        """How far each input may move."""
        return Domain.around(self.sampler.point, self.low, self.high)

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
