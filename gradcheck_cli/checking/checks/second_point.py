"""Check that a gradient that is right at one sample point is right at the others, by the same graphs."""

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


def check_second_point(op: Operation, samples: Mapping[PairKey, list[PairSample]]) -> CheckResult | None:
    """Find gradients that are right at first and wrong later; `None` where there is one point only."""
    if all(len(of_pair) < 2 for of_pair in samples.values()):  # noqa: PLR2004 (a second one)
        return None
    turned = []
    for pair, of_pair in samples.items():
        wrong = [bool((sample.verdict == Verdict.MISMATCH).any()) for sample in of_pair]
        if any(wrong) and not wrong[0]:
            turned.append(label_of(op, pair))
    if not turned:
        return CheckResult("second_point", Status.PASSED)
    return CheckResult(
        "second_point",
        Status.MISMATCHED,
        f"{', '.join(turned)}: right at the first sample point, wrong at another; does the gradient keep "
        "what it saw first, or hold on one side of a branch only?",
    )
