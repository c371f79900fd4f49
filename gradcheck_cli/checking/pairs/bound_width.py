"""Find bounds so wide that a wrong gradient would pass: such a pass tests nothing.

A gradient of zero, of twice the slope or of its negative is wrong by at least the slope itself. An element
counts as tested if its bound is smaller than that. Not every element can be tested: in a row of a softmax,
some are far below rounding. But a pair needs at least one tested element, and so does each row and each
column whose slopes are of the pair's own order of magnitude. Otherwise the whole gradient of that output, or
for that input, could be anything.

A pair that is zero by nature (the sum of a softmax) leaves only rounding in its gradient and its differences.
It counts as tested: its bound is as narrow as rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.pairs.pair_sample import PairSample

# Rows and columns whose largest slope is at least this part of the pair's largest are of its own order.
OWN_ORDER = 0.1
# A slope whose uncertainty is at most half of it isn't lost in rounding.
KNOWN = 0.5
TOO_WIDE = (
    "the bound {bound:.1e} lets through {what}: a gradient of zero, of twice the slope or of its negative "
    "would pass, so that this tests nothing; state a smaller tolerance, or choose inputs where the slope "
    "stands out from what rounding of the output allows."
)


@dataclass(frozen=True)
class _Coverage:
    """Which rows (m,) and columns (n,) of one sample were tested, and which are large enough to need it."""

    any_tested: bool
    rows: npt.NDArray[np.bool_]
    columns: npt.NDArray[np.bool_]
    large_rows: npt.NDArray[np.bool_]
    large_columns: npt.NDArray[np.bool_]
    bound: float


def explain_wide_bound(samples: Sequence[PairSample]) -> str:
    """Say which part of a passing pair no bound has tested; empty where all that matters was tested.

    Args:
        samples: the pair's verdicts at each sample point.
    """
    samples = [sample for sample in samples if sample.verdict.size and sample.rows is None]
    if not samples or all(is_zero_but_for_rounding(sample) for sample in samples):
        return ""
    views = [_look_at(sample) for sample in samples]
    bound = max(view.bound for view in views)
    if not any(view.any_tested for view in views):
        return TOO_WIDE.format(bound=bound, what="slopes as large as this pair's")
    for what, tested, large in (
        ("output", [view.rows for view in views], [view.large_rows for view in views]),
        ("input", [view.columns for view in views], [view.large_columns for view in views]),
    ):
        untested = np.logical_or.reduce(large) & ~np.logical_or.reduce(tested)
        if untested.any():
            index = int(np.flatnonzero(untested)[0])
            count = f"{np.count_nonzero(untested)} of {untested.size}"
            return TOO_WIDE.format(
                bound=bound, what=f"all slopes of {count} {what} elements (number {index})"
            )
    return ""


def is_zero_but_for_rounding(sample: PairSample) -> bool:
    """Whether there is no slope, or only rounding, on either side."""
    gradient, difference = sample.rounding
    if sample.is_zero is not None:  # probed
        return sample.numeric_is_zero or sample.is_faint
    return sample.numeric_is_zero or bool(
        np.max(np.abs(sample.analytic)) <= gradient and np.max(np.abs(sample.numeric)) <= difference
    )


def _look_at(sample: PairSample) -> _Coverage:
    with np.errstate(invalid="ignore"):
        # Where the differences are lost in rounding, only the gradient says how large the slope is.
        numeric, analytic = np.abs(sample.numeric), np.abs(sample.analytic)
        slope = np.where(sample.uncertainty <= KNOWN * numeric, numeric, np.fmax(numeric, analytic))
        slope = np.nan_to_num(slope, posinf=0.0)
        # The relative tolerance grows with a gradient of twice the slope; the uncertainty is allowed as well.
        bound = sample.allowed + np.minimum(sample.uncertainty, sample.allowed) + sample.rtol * slope
        tested = slope > bound
    columns = sample.size[1]
    where = np.broadcast_to(
        np.arange(columns)[None] if sample.columns is None else sample.columns, slope.shape
    )
    by_column, column_is_tested = np.zeros(columns), np.zeros(columns, dtype=bool)
    np.maximum.at(by_column, where, slope)
    column_is_tested[where[tested]] = True
    least = OWN_ORDER * float(slope.max())
    return _Coverage(
        any_tested=bool(tested.any()),
        rows=np.asarray(tested.any(axis=1)),
        columns=column_is_tested,
        large_rows=(slope.max(axis=1) >= least) & (least > 0),
        large_columns=(by_column >= least) & (least > 0),
        bound=float(np.max(np.where(tested, 0.0, sample.allowed))),
    )
