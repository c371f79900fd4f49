"""Check that the forward doesn't modify its inputs, and equals its reference where the spec says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradcheck_cli.checking.checks.check import PointView
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.checking.ops.packing import index_of, pack
from gradcheck_cli.numerics.precision import precision_of
from gradcheck_cli.numerics.tolerance import agree, largest_finite
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.words import BINDINGS

# The spec claims that the reference is the forward. So it must agree more closely than two computations of
# one function do in general: to a fifth of that, and to 1e-10 in float64.
_CLOSELY, _ROUNDINGS = 0.2, 9e5


def check_inputs_unmodified(view: PointView) -> list[CheckResult]:
    """Find a NumPy forward that writes to its inputs: TensorFlow hands it memory that others read."""
    modified = view.op.facts.modified_inputs
    if not BINDINGS[view.case.binding].is_numpy and not modified:
        return []
    return [report_modified(modified)]


def report_modified(inputs: Sequence[str]) -> CheckResult:
    """Report the inputs that a forward writes to."""
    if not inputs:
        return CheckResult("inputs_unmodified", Status.PASSED)
    message = (
        f"the NumPy forward writes to its input {', '.join(inputs)}; work on a copy (np.array({inputs[0]}))."
    )
    return CheckResult("inputs_unmodified", Status.MISMATCHED, message)


def check_reference_forward(view: PointView) -> list[CheckResult]:
    """Compare the forward's outputs with the reference's, where the spec says that they are equal."""
    if not view.case.reference_forward:
        return []
    return [compare_with_reference(view.case, view.op, view.operations.differenced)]


def compare_with_reference(case: Case, op: Operation, reference: Operation) -> CheckResult:
    """Compare the forward's outputs with the reference's, at the base point."""
    for output, reference_output, value, expected in zip(
        op.outputs, reference.outputs, op.base_values, reference.base_values, strict=True
    ):
        if not output.is_differentiable:
            if not np.array_equal(value, expected):
                return _report_difference(f"{output.name} differs from the reference's.")
            continue
        values, reference_values = (
            pack(value[np.newaxis], output)[0],
            pack(expected[np.newaxis], reference_output)[0],
        )
        precision = precision_of(output.dtype)
        share = min(_CLOSELY * precision.agreement, _ROUNDINGS * precision.unit_roundoff)
        allowed = np.full(reference_values.shape, share * largest_finite(reference_values))
        if case.tolerance.atol is not None or case.tolerance.rtol is not None:
            allowed = (case.tolerance.atol or 0.0) + (case.tolerance.rtol or 0.0) * np.abs(reference_values)
        right = agree(values, reference_values, allowed)
        if not right.all():
            where = int(np.argmin(right))
            return _report_difference(
                f"{output.name}{list(index_of(where, output))} is {values[where]:.9e}, but the reference's "
                f"is {reference_values[where]:.9e}; allowed {allowed[where]:.1e}."
            )
    return CheckResult("reference_forward", Status.PASSED)


def _report_difference(message: str) -> CheckResult:
    return CheckResult("reference_forward", Status.MISMATCHED, f"the forward isn't its reference: {message}")
