"""Checks on judged pairs, at one sample point and over all sample points, and on gradients for variables."""

from __future__ import annotations

import numpy as np

from gradcheck_cli.checking.checks.check import CaseView, JudgedView, PointView
from gradcheck_cli.checking.checks.deterministic import check_same
from gradcheck_cli.checking.checks.pulled import pull_outputs
from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.pairs.pair import label_of, place_in
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.case import Case


def check_precision(view: JudgedView) -> list[CheckResult]:
    """Report that the declared dtype was checked; its loss of precision is a warning."""
    if not view.operations.has_reference_precision and not view.is_coarse:
        return []
    return [CheckResult("precision", Status.PASSED, view.warnings[0] if view.warnings else "")]


def check_finite(view: CaseView) -> list[CheckResult]:
    """Find NaN and infinity in gradients where the differences are finite."""
    for key, samples in view.samples.items():
        for sample in samples:
            wrong = ~np.isfinite(sample.analytic) & np.isfinite(sample.numeric)
            if wrong.any():
                row, column = (int(index) for index in np.argwhere(wrong)[0])
                place = place_in(view.op, key, *sample.place(row, column))
                message = (
                    f"{label_of(view.op, key)} is {sample.analytic[row, column]} at {place}, where the "
                    f"numeric derivative is {sample.numeric[row, column]:.6e}."
                )
                return [CheckResult("finite", Status.MISMATCHED, message)]
    return [CheckResult("finite", Status.PASSED)]


def check_connected(view: CaseView) -> list[CheckResult]:
    """Find pairs whose gradient is `None` (no path) although their output moves with their input."""
    labels = [
        label_of(view.op, key)
        for key, samples in view.samples.items()
        if any(not sample.is_connected and sample.is_wrong for sample in samples)
    ]
    if not labels:
        return [CheckResult("connected", Status.PASSED)]
    message = (
        f"{', '.join(labels)}: the gradient is None, but the output moves with the input; return a tensor."
    )
    return [CheckResult("connected", Status.MISMATCHED, message)]


def check_custom_gradient(view: CaseView) -> list[CheckResult]:
    """Report hand-written gradients that no backward pass ran: TensorFlow's own were checked instead."""
    if not view.unrun:
        return []
    message = (
        f"no backward pass ran the gradient of {'; '.join(view.unrun)}. TensorFlow's own was checked "
        "instead: check the function by itself. If this is meant: 'checks: {custom_gradient: false}'."
    )
    return [CheckResult("custom_gradient", Status.INCONCLUSIVE, message)]


def check_override(view: CaseView) -> list[CheckResult]:
    """Report the ops that an override didn't reach: there, TensorFlow's own gradient was checked."""
    missed = view.op.facts.missed_by_override
    if not missed:
        return []
    message = (
        f"the override of {view.case.op_type} didn't take effect on {', '.join(missed)}: "
        "there TensorFlow's own gradient is taken. Call the Python function without tf.function, or say "
        "'checks: {override: false}' where this is meant."
    )
    return [CheckResult("override", Status.INCONCLUSIVE, message)]


def check_second_point(view: CaseView) -> list[CheckResult]:
    """Find gradients that are right at the first sample point and wrong at a later one."""
    if all(len(samples) == 1 for samples in view.samples.values()):
        return []
    labels = []
    for key, samples in view.samples.items():
        if any(sample.is_wrong for sample in samples[1:]) and samples[0].is_right:
            labels.append(label_of(view.op, key))
    if not labels:
        return [CheckResult("second_point", Status.PASSED)]
    message = (
        f"{', '.join(labels)}: right at the first sample point, wrong at another; does the gradient keep "
        "what it saw first, or hold on one side of a branch only?"
    )
    return [CheckResult("second_point", Status.MISMATCHED, message)]


_REORDERED = "with the variables in another order"
_BY_NAME = (
    "pair gradients with variables by name, not by position: TensorFlow promises no order of variables=."
)


def check_variables(view: PointView) -> list[CheckResult]:
    """Say that gradients for variables weren't checked, where variables are no inputs."""
    names, case = list(view.op.facts.gradient_variables), view.case
    if not view.is_first or not names or _are_inputs(case, names):
        return []
    # With `variables: false` the spec leaves them out. Otherwise nothing could check them here.
    status = Status.SKIPPED if case.variables is False else Status.INCONCLUSIVE
    message = (
        f"the gradients that a custom gradient has for variables ({', '.join(names)}) weren't "
        "checked; say 'variables: true' to check them"
        f"{'' if case.variables is False else ', or false to leave them'}."
    )
    return [CheckResult("variables", status, message)]


def check_variables_order(view: PointView) -> list[CheckResult]:
    """Require the same gradients with a custom gradient's variables in reverse order."""
    names = list(view.op.facts.gradient_variables)
    if not view.is_first or len(names) <= 1 or not _are_inputs(view.case, names):
        return []
    try:
        reordered = view.opener.open(Opening(view.sample, reversed=True))
        pulled = pull_outputs(view.case, view.op, view.sound, {})
        return [check_same("variables_order", _REORDERED, pulled, reordered, _BY_NAME)]
    except (CaseFailedError, GradientFormError) as error:
        message = f"{_REORDERED}, the gradient fails: {error.message} Do {_BY_NAME}"
        return [CheckResult("variables_order", Status.MISMATCHED, message)]


def _are_inputs(case: Case, names: list[str]) -> bool:
    return bool(case.variables) or sum(tensor.is_variable for tensor in case.tensors) >= len(names)
