"""Check that a zero upstream, or one without elements, gives exact zeros."""

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
    """Require exact zeros for a zero upstream, and for one without elements."""
    if view.is_formula:
        return []
    return [_check_empty(view.op, view.empty) if view.empty else _check_zero(view.pulled)]


def _check_zero(all_pulled: list[Pulled]) -> CheckResult:
    """Require exact zeros wherever the Jacobian is finite."""
    for pulled in all_pulled:
        gradients = next(pulled.pulled_for("zero_upstream"))
        for input_index in pulled.input_indices:
            matrix = pulled.matrices.get(input_index)
            is_finite = np.isfinite(pulled.first[input_index]) if matrix is None else matrix.is_finite()
            wrong = (gradients[input_index] != 0) & is_finite
            if wrong.any():
                where = int(np.argmax(wrong))
                return _mismatch(
                    f"{pulled.label(input_index)} isn't zero for a zero upstream: element {where} is "
                    f"{gradients[input_index][where]:.6e}."
                )
    return CheckResult("zero_upstream", Status.PASSED)


def _check_empty(op: Operation, pairs: Sequence[PairKey]) -> CheckResult:
    """Require zeros for an output without elements: its gradient is a sum without terms.

    A kernel with nothing to do may never write its result, which then holds whatever was in memory. So each
    of several tries is looked at.
    """
    for output in sorted({output for output, _ in pairs}):
        gradients: dict[int, Float] = pull_empty(op, output)
        for of_output, input_index in pairs:
            wrong = (
                gradients[input_index] != 0
                if of_output == output and input_index in gradients
                else np.zeros((1, 1), bool)
            )
            if wrong.any():
                row, where = (int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
                return _mismatch(
                    f"d{op.outputs[output].name}/d{op.inputs[input_index].name} isn't zero, though "
                    f"{op.outputs[output].name} has no elements: element {where} is "
                    f"{gradients[input_index][row, where]:.6e}; is its memory left unwritten?"
                )
    return CheckResult("zero_upstream", Status.PASSED)


def _mismatch(message: str) -> CheckResult:
    return CheckResult("zero_upstream", Status.MISMATCHED, message)
