"""Check that each gradient has its input's shape and dtype; TensorFlow accepts other dtypes silently."""

from __future__ import annotations

from collections.abc import Sequence

from gradcheck_cli.checking.checks.check import CaseView
from gradcheck_cli.checking.ops.operation import GradientFormError, Operation
from gradcheck_cli.results import NOT_JUDGED, CheckResult, PairNumbers, PairResult, Status

FORM = "form"


def check_form(view: CaseView) -> list[CheckResult]:
    """Report gradients of the wrong shape or dtype."""
    return [report_form(view.op, view.pairs)]


def report_form(
    op: Operation, pairs: Sequence[PairResult], error: GradientFormError | None = None
) -> CheckResult:
    """Report gradients of wrong form, but not of an input that the spec skips altogether.

    Args:
        op: the op, with its `dtype_faults`.
        pairs: the results of its pairs; a mismatch that the spec expects doesn't fail the check.
        error: the error that ended the case, if the form made evaluation impossible.
    """
    statuses = {pair.status for pair in pairs if pair.mismatch == FORM}
    status = Status.EXPECTED_MISMATCH if statuses == {Status.EXPECTED_MISMATCH} else Status.MISMATCHED
    if error is not None:
        return CheckResult("form", status, error.message)
    looked_at = {pair.input for pair in pairs if pair.status is not Status.SKIPPED}
    skipped = {pair.input for pair in pairs} - looked_at
    for input_index, message in sorted(op.facts.dtype_faults.items()):
        name = op.inputs[input_index].name
        if name not in skipped:
            return CheckResult("form", status, f"{name}: {message}")
    return CheckResult("form", Status.PASSED)


def with_dtype_fault(op: Operation, input_index: int, pair: PairResult) -> PairResult:
    """Turn a pair whose gradient has a wrong form into a mismatch without numbers: it was judged as zeros."""
    fault = op.facts.dtype_faults.get(input_index)
    if fault is None:
        return pair
    return PairResult(
        pair.label,
        pair.output,
        pair.input,
        Status.MISMATCHED,
        message=fault,
        mismatch=FORM,
        order=pair.order,
        numbers=PairNumbers(elements=pair.numbers.elements),
        numeric=NOT_JUDGED,
    )
