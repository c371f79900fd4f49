"""Check that a zero upstream gives exact zeros, and one without elements too."""

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
    """A zero upstream gives exact zeros, wherever the Jacobian is finite.

    The gradient of an output without elements is a sum without terms. A kernel that has nothing to do there
    may leave its result as it found the memory, another time with other numbers: each row is looked at.
    """
    for one, number, label in each_gradient(op, pulled):
        matrix, gradient = analytic.get((one.output, number)), one.gradients[number]
        if matrix is None or gradient is None:
            continue
        is_empty = not op.outputs[one.output].size
        wrong = (gradient if is_empty else gradient[:1]) != 0
        wrong &= matrix.is_finite()
        if wrong.any():
            row, where = (int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
            message = (
                f"isn't zero, though {op.outputs[one.output].name} has no elements"
                if is_empty
                else "isn't zero for a zero upstream"
            )
            return CheckResult(
                "zero_upstream",
                Status.MISMATCHED,
                f"{label} {message}: element {where} is {gradient[row, where]:.6e}"
                + ("; is its memory left as it was?" if is_empty else "."),
            )
    return CheckResult("zero_upstream", Status.PASSED)
