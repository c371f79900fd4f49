"""Check that a zero upstream gives exact zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.upstream import Pulled, each_gradient
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.jacobian import Jacobian
    from gradcheck_cli.checking.operation import Operation
    from gradcheck_cli.checking.sample import Pair


def check_zero_upstream(
    op: Operation, pulled: list[Pulled], analytic: Mapping[Pair, Jacobian | None]
) -> CheckResult:
    """A zero upstream gives exact zeros, wherever the Jacobian is finite."""
    for one, number, label in each_gradient(op, pulled):
        matrix, gradient = analytic.get((one.output, number)), one.gradients[number]
        if matrix is None or gradient is None:
            continue
        wrong = (gradient[0] != 0) & matrix.is_finite()
        if wrong.any():
            where = int(np.argmax(wrong))
            return CheckResult(
                "zero_upstream",
                Status.MISMATCHED,
                f"{label} isn't zero for a zero upstream: element {where} is {gradient[0][where]:.6e}.",
            )
    return CheckResult("zero_upstream", Status.PASSED)
