"""Find bounds so wide that a wrong gradient would pass: such a pass tests nothing.

A gradient of zero, of twice the slope or of its negative is wrong by at least the slope itself. An element
counts as tested if its bound is smaller than that. Not every element can be tested: in a row of a softmax,
some are far below rounding. But a pair needs at least one tested element, and so does each row and each
column whose slopes are of the pair's own order of magnitude. Otherwise the whole gradient of that output, or
for that input, could be anything.

A row that is zero by nature (the sum of a softmax) leaves only rounding of its value in its gradient and its
differences; a value far below the output's largest is rounded by itself. It counts as tested: its bound is as
narrow as rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.packing import Float
from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.shared_limits import OWN_ORDER

# A slope whose uncertainty is at most half of it isn't lost in rounding. (With a tenth, a gradient of 1.5
# times the slope passed, 1e-13 from 1.)
_SEEN = 0.5
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
    lost = _find_lost(samples)
    if all(rows.all() for rows in lost):
        return ""
    views = [_measure_coverage(sample, rows) for sample, rows in zip(samples, lost, strict=True)]
    bound = max(view.bound for view in views)
    if not any(view.any_tested for view in views):
        return TOO_WIDE.format(bound=bound, what="slopes as large as this pair's")
    for what, tested, large in (
        ("output", [view.rows for view in views], [view.large_rows for view in views]),
        ("input", [view.columns for view in views], [view.large_columns for view in views]),
    ):
        untested = _any_of(large) & ~_any_of(tested)
        if untested.any():
            index = int(np.flatnonzero(untested)[0])
            count = f"{np.count_nonzero(untested)} of {untested.size}"
            return TOO_WIDE.format(
                bound=bound, what=f"all slopes of {count} {what} elements (number {index})"
            )
    return ""


def _any_of(rows: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    """Return what holds at any sample point; an output's size may differ from one to the next."""
    longest = max(map(len, rows))
    return np.asarray(np.any([np.pad(row, (0, longest - len(row))) for row in rows], axis=0))


def is_zero_but_for_rounding(sample: PairSample) -> bool:
    """Whether there is no slope, or only rounding of each row's own value, on either side."""
    if sample.probes is not None:
        return sample.numeric_is_zero or sample.probes.is_faint
    return sample.numeric_is_zero or all(bool((size <= left).all()) for size, left in _measure_sizes(sample))


def _find_lost(samples: Sequence[PairSample]) -> list[npt.NDArray[np.bool_]]:
    """Find the rows, (m,) per sample, with only rounding of their own values on both sides.

    There are none where any slope is more than rounding of the output's largest value: beside such a slope, a
    wide bound matters.
    """
    is_zero = all(
        sample.numeric_is_zero or all(size.max() <= np.max(left) for size, left in _measure_sizes(sample))
        for sample in samples
    )
    return [
        np.logical_and.reduce(
            [is_zero & (sample.numeric_is_zero | (size <= left)) for size, left in _measure_sizes(sample)]
        )
        for sample in samples
    ]


def _measure_sizes(sample: PairSample) -> list[tuple[Float, Float | float]]:
    """Return each row's largest slope, (m,), and what rounding leaves, of the gradient and of differences."""
    sides = zip((sample.analytic, sample.numeric), sample.smallness.rounding, strict=True)
    return [(np.max(np.abs(side), axis=1), left) for side, left in sides]


def _measure_coverage(sample: PairSample, lost: npt.NDArray[np.bool_]) -> _Coverage:
    with np.errstate(invalid="ignore"):
        # Where the differences are lost in rounding, only the gradient says how large the slope is.
        numeric, analytic = np.abs(sample.numeric), np.abs(sample.analytic)
        slope = np.where(sample.uncertainty <= _SEEN * numeric, numeric, np.fmax(numeric, analytic))
        slope = np.where(lost[:, np.newaxis], 0.0, np.nan_to_num(slope, posinf=0.0))
        # The relative tolerance grows with a gradient of twice the slope; the uncertainty is allowed as well.
        bound = sample.allowed + np.minimum(sample.uncertainty, sample.allowed)
        bound += sample.smallness.rtol * slope
        # The slopes on both sides of a kink differ by more than what is allowed, or it isn't called a kink.
        tested = (slope > bound) | (sample.verdict == Verdict.KINK)
    columns, (_, where) = sample.size[1], sample.each_place()
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
