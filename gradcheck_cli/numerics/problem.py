"""A function at a point, with all that limits how it may be sampled and judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.precision import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, Float, Precision, coarsest
from gradcheck_cli.numerics.sampling import Evaluate, EvaluateMoves, Sampler
from gradcheck_cli.numerics.steps import Domain, scales
from gradcheck_cli.numerics.tolerance import ToleranceRule, allowed_error, rule_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.numerics.sparsity import Index, Sparsity

SEED = 20240229


@dataclass
class Problem:
    """A function at a point, with all that limits how it may be sampled; columns index the point.

    A Jacobian's element (row, slot) stands for the column `table[row, slot]`, `position[row, slot]` among
    `columns`. Without sparsity every column is a slot of its own, and both have a single row, for all.
    """

    sampler: Sampler
    columns: np.ndarray
    position: Index
    unit: Float
    working: Precision
    step_scale: Float
    weight_scale: Float
    domain: Domain
    rule: ToleranceRule
    known_value: Float | None = None
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))

    @staticmethod
    def of(  # noqa: PLR0913 (as `judge`)
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
        moves: EvaluateMoves | None = None,
        sparsity: Sparsity | None = None,
    ) -> Problem:
        """Set up scales and room; evaluates the base point only where the number of rows isn't given."""
        sampler = Sampler(
            evaluate,
            np.asarray(point, dtype=np.float64).ravel(),
            input_precision,
            rows,
            moves=moves,
            sparsity=sparsity,
        )
        x = sampler.point
        if columns is not None and sparsity is not None:
            raise ValueError("columns: all of them, where there is a sparsity")
        chosen = np.arange(x.size) if columns is None else np.asarray(columns, dtype=np.int64).ravel()
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
            columns=chosen,
            position=np.arange(chosen.size)[None] if sparsity is None else sparsity.columns,
            unit=unit,
            working=working,
            step_scale=sizes.step,
            weight_scale=sizes.weight,
            domain=domain,
            rule=rule_for(working, working),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and slots of the Jacobian."""
        return self.sampler.rows, int(self.position.shape[1])

    @property
    def table(self) -> Index:
        """The column of each element, (1 or m, slots)."""
        return self.columns[self.position]

    @property
    def value(self) -> Float:
        """f(x), (m,), for tolerances."""
        return self.sampler.base if self.known_value is None else self.known_value

    @property
    def size(self) -> Float:
        """What f(x) is rounded relative to, (m,): of a part of a complex number, the modulus."""
        return np.where(np.isfinite(self.value), np.abs(self.value), 0.0)

    @property
    def weights(self) -> Float:
        """The tolerance scale ws of each element, (1 or m, slots)."""
        return np.asarray(self.weight_scale[self.table])

    def allowed(self, analytic: Float, numeric: Float, scale: Float) -> Float:
        """Return the tolerance of the whole Jacobian, given each row's A_j."""
        return allowed_error(
            self.rule, analytic, numeric, scale[:, None], self.value[:, None], self.step_scale[self.table]
        )
