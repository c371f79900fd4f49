"""Check that a gradient of `None` (no path) goes with a derivative of zero: None is not zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.checking.pairs.pair import label_of
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.pairs.pair import PairKey
    from gradcheck_cli.checking.pairs.pair_sample import PairSample


def check_connected(op: Operation, samples: Mapping[PairKey, list[PairSample]]) -> CheckResult:
    """Find pairs that say `None` though their output moves with their input."""
    cut = [
        label_of(op, pair)
        for pair, of_pair in samples.items()
        if any(not sample.is_connected and (sample.verdict == Verdict.MISMATCH).any() for sample in of_pair)
    ]
    if not cut:
        return CheckResult("connected", Status.PASSED)
    return CheckResult(
        "connected",
        Status.MISMATCHED,
        f"{', '.join(cut)}: the gradient is None, but the output moves with the input; return a tensor.",
    )
