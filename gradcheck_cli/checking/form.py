"""Check that each gradient has its input's shape and dtype; TensorFlow takes other dtypes without a word."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gradcheck_cli.results import CheckResult, PairResult, Status

if TYPE_CHECKING:
    from gradcheck_cli.checking.operation import GradientFormError, Operation


def check_form(op: Operation, error: GradientFormError | None = None) -> CheckResult:
    """Report gradients of wrong form.

    Args:
        op: the op; its `dtype_faults` are looked at.
        error: what ended the case, where the form was such that nothing could be evaluated.
    """
    if error is not None:
        return CheckResult("form", Status.MISMATCHED, error.message)
    if op.dtype_faults:
        number, message = next(iter(sorted(op.dtype_faults.items())))
        return CheckResult("form", Status.MISMATCHED, f"{op.inputs[number].name}: {message}")
    return CheckResult("form", Status.PASSED)


def with_dtype_faults(op: Operation, pairs: tuple[PairResult, ...]) -> tuple[PairResult, ...]:
    """Turn pairs whose gradient has another dtype than its input into mismatches."""
    faults = {op.inputs[number].name: message for number, message in op.dtype_faults.items()}
    return tuple(
        replace(pair, status=Status.MISMATCHED, message=faults[pair.input])
        if pair.input in faults and pair.status is not Status.SKIPPED
        else pair
        for pair in pairs
    )
