"""Check that a NumPy forward leaves its inputs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.operation import Operation


def check_inputs_unmodified(op: Operation) -> CheckResult:
    """Find a NumPy forward that writes to its inputs: TensorFlow hands it memory that others read."""
    if not op.modified_inputs:
        return CheckResult("inputs_unmodified", Status.PASSED)
    names = ", ".join(op.modified_inputs)
    return CheckResult(
        "inputs_unmodified",
        Status.MISMATCHED,
        f"the NumPy forward writes to its input {names}; work on a copy (np.array({op.modified_inputs[0]})).",
    )
