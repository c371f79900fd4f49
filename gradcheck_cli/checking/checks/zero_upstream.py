"""Check that a zero upstream gives exact zeros, and one without elements too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.upstreams import pull_empty
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.checks.check import UpstreamView
    from gradcheck_cli.checking.checks.pulled import Pulled
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair import PairKey


def check_zero_upstream(view: UpstreamView) -> list[CheckResult]:
    """Require exact zeros of a zero upstream, and of one without elements."""
    if view.is_formula:
        return []
    return [_check_empty(view.op, view.empty) if view.empty else _check_zero(view.pulled)]


def _check_zero(every: list[Pulled]) -> CheckResult:
    """Require exact zeros wherever the Jacobian is finite."""
    for pulled in every:
        gradients = next(pulled.pulled_for("zero_upstream"))
        for number in pulled.numbers:
            matrix = pulled.matrices.get(number)
            is_finite = np.isfinite(pulled.first[number]) if matrix is None else matrix.is_finite()
            wrong = (gradients[number] != 0) & is_finite
            if wrong.any():
                where = int(np.argmax(wrong))
                return _mismatch(
                    f"{pulled.label(number)} isn't zero for a zero upstream: element {where} is "
                    f"{gradients[number][where]:.6e}."
                )
    return CheckResult("zero_upstream", Status.PASSED)


def _check_empty(op: Operation, pairs: Sequence[PairKey]) -> CheckResult:
    """Require zeros of an output without elements: its gradient is a sum without terms.

    A kernel that has nothing to do there may leave its result as it found the memory, another time with
    other numbers: each of several tries is looked at.
    """
    for output in sorted({output for output, _ in pairs}):
        gradients: dict[int, Float] = pull_empty(op, output)
        for of, number in pairs:
            wrong = gradients[number] != 0 if of == output and number in gradients else np.zeros((1, 1), bool)
            if wrong.any():
                row, where = (int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
                return _mismatch(
                    f"d{op.outputs[output].name}/d{op.inputs[number].name} isn't zero, though "
                    f"{op.outputs[output].name} has no elements: element {where} is "
                    f"{gradients[number][row, where]:.6e}; is its memory left as it was?"
                )
    return CheckResult("zero_upstream", Status.PASSED)


def _mismatch(message: str) -> CheckResult:
    return CheckResult("zero_upstream", Status.MISMATCHED, message)
