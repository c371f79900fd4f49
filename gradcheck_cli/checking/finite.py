"""Check that the gradient is finite wherever the numeric derivative is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.packing import index_of
from gradcheck_cli.checking.sample import label_of
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.operation import Operation
    from gradcheck_cli.checking.pair_sample import PairSample
    from gradcheck_cli.checking.sample import Pair


def check_finite(op: Operation, samples: Mapping[Pair, list[PairSample]]) -> CheckResult:
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
