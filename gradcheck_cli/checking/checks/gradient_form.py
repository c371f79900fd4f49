"""Check that each gradient has its input's shape and dtype; TensorFlow takes other dtypes without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.results import CheckResult, PairResult, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.checks.check import CaseView
    from gradcheck_cli.checking.ops.operation import GradientFormError, Operation


FORM = "form"


def check_form(view: CaseView) -> list[CheckResult]:
    """Report gradients of wrong form."""
    return [report_form(view.op, view.pairs)]


def report_form(
    op: Operation, pairs: Sequence[PairResult], error: GradientFormError | None = None
) -> CheckResult:
    """Report gradients of wrong form.

    Args:
        op: the op; its `dtype_faults` are looked at.
        pairs: the results of its pairs: what is expected of each of them is no failure of the check.
        error: what ended the case, where the form was such that nothing could be evaluated.
    """
    found = {pair.status for pair in pairs if pair.mismatch == FORM}
    status = Status.EXPECTED_MISMATCH if found == {Status.EXPECTED_MISMATCH} else Status.MISMATCHED
    if error is not None:
        return CheckResult("form", status, error.message)
    if op.dtype_faults:
        number, message = next(iter(sorted(op.dtype_faults.items())))
        return CheckResult("form", status, f"{op.inputs[number].name}: {message}")
    return CheckResult("form", Status.PASSED)


def with_dtype_fault(op: Operation, number: int, pair: PairResult) -> PairResult:
    """Turn a pair whose gradient has a wrong form into a mismatch, without numbers: zeros stood in for it."""
    fault = op.dtype_faults.get(number)
    if fault is None:
        return pair
    return PairResult(
        pair.label,
        pair.output,
        pair.input,
        Status.MISMATCHED,
        method="none",
        elements=pair.elements,
        message=fault,
        mismatch=FORM,
        order=pair.order,
    )
