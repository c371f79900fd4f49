"""Check that the same upstream gives the same gradient: when it is run again, and when it is traced again."""

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


def check_same(  # noqa: PLR0913, PLR0917 (what is compared, with what, how closely)
    name: str,
    what: str,
    op: Operation,
    pulled: list[Pulled],
    again: list[Pulled],
    analytic: Mapping[Pair, Jacobian | None],
    atol: float = 0.0,
    question: str = "does the gradient draw random numbers, or keep state?",
) -> CheckResult:
    """The same upstream at the same point gives the same gradient, up to the order of its sums."""
    repeats = {one.output: one for one in again}
    for one, number, label in each_gradient(op, pulled):
        matrix = analytic.get((one.output, number))
        first, second = one.gradients[number], repeats[one.output].gradients[number]
        if (first is None) != (second is None):
            return CheckResult(name, Status.MISMATCHED, f"{label} is None at times: it differs {what}.")
        if matrix is None or first is None or second is None:
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            slack = one.slack(op, number, matrix) + atol
            right = (np.abs(first - second) <= slack) | (first == second) | ~np.isfinite(slack)
        right |= np.isnan(first) & np.isnan(second)
        if not right.all():
            row, column = (int(index) for index in np.unravel_index(int(np.argmin(right)), right.shape))
            return CheckResult(
                name,
                Status.MISMATCHED,
                f"{label} differs {what}: element {column} was {first[row, column]:.6e}, then "
                f"{second[row, column]:.6e}; {question}",
            )
    return CheckResult(name, Status.PASSED)
