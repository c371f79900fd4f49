"""Check that the gradient is finite wherever the numeric derivative is, and the forward is itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.ops.packing import index_of, packed_magnitude
from gradcheck_cli.checking.pairs.pair import label_of
from gradcheck_cli.numerics import Reason, Verdict
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.pairs.pair import PairKey
    from gradcheck_cli.checking.pairs.pair_sample import PairSample


def check_finite(op: Operation, samples: Mapping[PairKey, list[PairSample]]) -> CheckResult:
    """Find NaN and infinities in gradients where differences are finite."""
    for pair, of_pair in samples.items():
        for sample in of_pair:
            wrong = ~np.isfinite(sample.analytic) & np.isfinite(sample.numeric)
            if wrong.any():
                here, there = (int(index) for index in np.argwhere(wrong)[0])
                row, column = sample.place(here, there)
                output, number = pair
                place = (
                    f"{op.outputs[output].name}{list(index_of(row, op.outputs[output]))} / "
                    f"{op.inputs[number].name}{list(index_of(column, op.inputs[number]))}"
                )
                return CheckResult(
                    "finite",
                    Status.MISMATCHED,
                    f"{label_of(op, pair)} is {sample.analytic[here, there]} at {place}, where the numeric "
                    f"derivative is {sample.numeric[here, there]:.6e}.",
                )
    return CheckResult("finite", Status.PASSED)


def leave_undecided(op: Operation, pair: PairKey, sample: PairSample) -> PairSample:
    """Return the verdicts of a pair, undecided where the forward isn't finite at the point.

    Nor is anything told of gradients that aren't finite elsewhere in one with NaN: a kernel that gives up
    (a Cholesky factor of what isn't positive definite) leaves the rest of its memory as it was, and what is
    differenced there is no derivative.

    Args:
        op: the op at the sample point.
        pair: output and input.
        sample: the verdicts.
    """
    is_finite = np.isfinite(packed_magnitude(op.base_values[pair[0]], op.outputs[pair[0]]))
    if is_finite.all() or not sample.verdict.size:
        return sample
    rows = np.arange(sample.verdict.shape[0])[:, np.newaxis] if sample.rows is None else sample.rows
    undecided = ~is_finite[np.broadcast_to(rows, sample.verdict.shape)]
    if np.isnan(op.base_values[pair[0]]).any():  # an infinity is a value like any other
        undecided |= ~np.isfinite(sample.analytic)
    return replace(
        sample,
        numeric=np.where(undecided, np.nan, sample.numeric),
        uncertainty=np.where(undecided, np.inf, sample.uncertainty),
        verdict=np.where(undecided, Verdict.INCONCLUSIVE, sample.verdict).astype(np.int8),
        reason=np.where(undecided, Reason.SINGULAR, sample.reason).astype(np.int8),
    )
