"""The table of all structural checks, how those of one stage are run, and the checks of a few lines each.

Most of these look at the judged pairs of a case, over all sample points: the form of gradients, whether
anything was tested, variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.checks.check import (
    AnyView,
    CaseView,
    Check,
    Formula,
    JudgedView,
    ModesView,
    OpenedView,
    PointView,
    UpstreamView,
    group_at_hand,
    pull_outputs,
    report,
)
from gradcheck_cli.checking.checks.compare_modes import compare_modes
from gradcheck_cli.checking.checks.deterministic import (
    check_beside_gradient,
    check_frozen,
    check_random,
    check_repeat,
    check_rerun,
    check_retrace,
    check_same,
)
from gradcheck_cli.checking.checks.linearity import check_linearity, check_zero_upstream
from gradcheck_cli.checking.ops.operation import GradientFormError, Opening, Operation, index_of, pack
from gradcheck_cli.checking.pairs.pair import PairSample, label_of, place_in
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics.precision import agree, largest_finite, place_of_largest, precision_of
from gradcheck_cli.results import NOT_JUDGED, CheckResult, PairNumbers, PairResult, Status
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.values.moves import describe_values
from gradcheck_cli.spec.words import BINDINGS

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
        judged_by=NOT_JUDGED,
    )


# The spec claims that the reference is the forward. So it must agree more closely than two computations of
# one function do in general: to a fifth of that, and to 1e-10 in float64.
_CLOSELY, _ROUNDINGS = 0.2, 9e5


def check_inputs_unmodified(view: PointView) -> list[CheckResult]:
    """Find NumPy code that writes to its arrays: TensorFlow hands it memory that others read."""
    modified = view.op.facts.modified_inputs
    if not BINDINGS[view.case.code.binding].is_numpy and not modified:
        return []
    message = "".join(f"the NumPy {what}; " for what in modified)
    return [report("inputs_unmodified", message and f"{message}work on a copy (np.array).")]


def check_reference_forward(view: PointView) -> list[CheckResult]:
    """Compare the forward's outputs with the reference's, where the spec says that they are equal."""
    if view.case.reference is None or not view.case.reference.equals_forward:
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
        stated = case.judging.tolerance
        if stated.atol is not None or stated.rtol is not None:
            allowed = (stated.atol or 0.0) + (stated.rtol or 0.0) * np.abs(reference_values)
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


UNTESTED = (
    "analytic and numeric derivative are zero everywhere, at every sample: nothing was tested; choose inputs "
    "where the op has a slope, or say 'expect: zero' of the pair."
)
UNMOVED = (
    "the output doesn't move at all, at any sample, and the gradient is too small to be told from zero: "
    "nothing was tested; choose inputs where the op has a slope, or say 'expect: zero' of the pair."
)

NO_PATH = "no path, and no slope"
NOTHING_CONNECTED = (
    "no output depends on any input: nothing was tested; if that is meant, say 'expect: disconnected' of the "
    "pairs."
)
UNTESTED_NONE = (
    "the gradient is None and the derivative zero at every sample, though the forward leads from this input "
    "to this output: whether None is right elsewhere was not tested; choose inputs where the op has a slope, "
    "or say 'expect: disconnected' of the pair."
)


def explain_untested(samples: Sequence[PairSample]) -> str:
    """Say why a passing pair tested nothing: its output never moved, and not by symmetry. Else empty."""
    if not all(sample.numeric_is_zero for sample in samples):
        return ""
    if any(sample.smallness.is_remainder for sample in samples) and all(
        sample.smallness.is_remainder or sample.analytic_is_zero for sample in samples
    ):
        return ""
    return UNTESTED if all(sample.analytic_is_zero for sample in samples) else UNMOVED


def check_all_zero(view: CaseView) -> list[CheckResult]:
    """Report the pairs for which nothing was tested."""
    return [report("all_zero", _describe_untested(view.pairs), Status.INCONCLUSIVE)]


def _describe_untested(pairs: Sequence[PairResult]) -> str:
    labels = [
        pair.label
        for pair in pairs
        if pair.message in {UNTESTED, UNMOVED, UNTESTED_NONE} and pair.status is Status.INCONCLUSIVE
    ]
    if pairs and all(
        pair.status is Status.PASSED
        and (not pair.connected or pair.note == NO_PATH)
        and not pair.note.startswith("as")
        for pair in pairs
    ):
        return NOTHING_CONNECTED
    return f"{', '.join(labels)}: nothing was tested." if labels else ""


def check_precision(view: JudgedView) -> list[CheckResult]:
    """Report that the declared dtype was checked; its loss of precision is a warning."""
    if not (view.operations.has_reference_precision or view.is_coarse or view.warnings):
        return []
    return [CheckResult("precision", Status.PASSED, view.warnings[0] if view.warnings else "")]


def check_finite(view: CaseView) -> list[CheckResult]:
    """Find NaN and infinity in gradients where the differences are finite."""
    for key, samples in view.samples.items():
        for sample in samples:
            wrong = ~np.isfinite(sample.analytic) & np.isfinite(sample.numeric)
            if wrong.any():
                row, column = place_of_largest(wrong)
                place = place_in(view.op, key, *sample.place(row, column))
                message = (
                    f"{label_of(view.op, key)} is {sample.analytic[row, column]} at {place}, where the "
                    f"numeric derivative is {sample.numeric[row, column]:.6e}."
                )
                return [report("finite", message)]
    return [report("finite", "")]


def check_connected(view: CaseView) -> list[CheckResult]:
    """Find pairs whose gradient is `None` (no path) although their output moves with their input."""
    labels = [
        label_of(view.op, key)
        for key, samples in view.samples.items()
        if key[1] not in view.op.facts.dtype_faults  # there is a gradient, of a wrong form
        and any(not sample.is_connected and sample.is_wrong for sample in samples)
    ]
    message = "the gradient is None, but the output moves with the input; return a tensor."
    return [report("connected", f"{', '.join(labels)}: {message}" if labels else "")]


def check_custom_gradient(view: CaseView) -> list[CheckResult]:
    """Report hand-written gradients that no backward pass ran: TensorFlow's own were checked instead."""
    if not view.unrun:
        return []
    message = (
        f"no backward pass ran the gradient of {'; '.join(view.unrun)}. TensorFlow's own was checked "
        "instead, or none: check the function by itself. If that is meant: "
        "'checks: {custom_gradient: false}'."
    )
    return [CheckResult("custom_gradient", Status.INCONCLUSIVE, message)]


def check_override(view: CaseView) -> list[CheckResult]:
    """Report the ops that an override didn't reach: there, TensorFlow's own gradient was checked."""
    missed = view.op.facts.missed_by_override
    if not missed:
        return []
    message = (
        f"the override of {view.case.code.op_type} didn't take effect on {', '.join(missed)}: "
        "there TensorFlow's own gradient is taken. Call the Python function without tf.function, or say "
        "'checks: {override: false}' where this is meant."
    )
    return [CheckResult("override", Status.INCONCLUSIVE, message)]


def check_second_point(view: CaseView) -> list[CheckResult]:
    """Find gradients that are right at the first sample point and wrong at a later one."""
    if all(len(samples) == 1 for samples in view.samples.values()):
        return []
    wrong = {
        label_of(view.op, key): next(index for index, sample in enumerate(samples) if sample.is_wrong)
        for key, samples in view.samples.items()
        if any(sample.is_wrong for sample in samples[1:]) and samples[0].is_right
    }
    weights = wrong and describe_values(view.case, view.op.point, view.points[min(wrong.values())])
    message = (
        f"right at the first sample point, wrong at another{weights and f', where {weights}'}; does the "
        "gradient forget a weight, which is moved there, keep what it saw first, or handle one side of a "
        "branch only?"
    )
    return [report("second_point", f"{', '.join(wrong)}: {message}" if wrong else "")]


def check_batched(view: PointView) -> list[CheckResult]:
    """Require the same gradient of an upstream that `tf.vectorized_map` pulls back among others."""
    if not view.is_first:
        return []
    if view.case.mode != "graph":
        message = (
            "mode graph alone asks whether tf.vectorized_map can vectorise the gradient: add it to 'modes'."
        )
        is_asked = "graph" in view.case.running.modes
        return [CheckResult("batched", Status.SKIPPED if is_asked else Status.INCONCLUSIVE, message)]
    try:
        vectorised = view.opener.open(Opening(view.sample, vectorised=True))
        pulled = pull_outputs(view.case, view.op, view.expected_right, {})
        return [check_same("batched", "under tf.vectorized_map", pulled, vectorised, _BY_OPS)]
    except (CaseFailedError, GradientFormError) as error:
        return [report("batched", error.message)]


_BY_OPS = "compute it with TensorFlow's ops alone, and keep no state."
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
    status = Status.SKIPPED if case.code.variables is False else Status.INCONCLUSIVE
    message = (
        f"the gradients that a custom gradient has for variables ({', '.join(names)}) weren't "
        "checked; say 'variables: true' to check them"
        f"{'' if case.code.variables is False else ', or false to leave them'}."
    )
    return [CheckResult("variables", status, message)]


def check_variables_order(view: PointView) -> list[CheckResult]:
    """Require the same gradients with a custom gradient's variables in reverse order."""
    names = list(view.op.facts.gradient_variables)
    if not view.is_first or len(names) <= 1 or not _are_inputs(view.case, names):
        return []
    try:
        reordered = view.opener.open(Opening(view.sample, reversed=True))
        pulled = pull_outputs(view.case, view.op, view.expected_right, {})
        return [check_same("variables_order", _REORDERED, pulled, reordered, _BY_NAME)]
    except (CaseFailedError, GradientFormError) as error:
        message = f"{_REORDERED}, the gradient fails: {error.message} Do {_BY_NAME}"
        return [CheckResult("variables_order", Status.MISMATCHED, message)]


def _are_inputs(case: Case, names: list[str]) -> bool:
    return bool(case.code.variables) or sum(tensor.is_variable for tensor in case.tensors) >= len(names)


# The checks of a stage run in this order. To add a check, write its function in a file of this folder and add
# a line here. `CHECKS` in `spec/words.py` has those that a spec may turn off.
CHECKS: tuple[Check[Any], ...] = (
    Check("deterministic", OpenedView, check_random),
    Check("deterministic", OpenedView, check_rerun),
    Check("frozen", OpenedView, check_frozen),
    Check("precision", JudgedView, check_precision),
    Check("linearity", UpstreamView, check_linearity),
    Check("zero_upstream", UpstreamView, check_zero_upstream),
    Check("repeat", UpstreamView, check_repeat),
    Check("deterministic", PointView, check_beside_gradient),
    Check("retrace", PointView, check_retrace),
    Check("batched", PointView, check_batched),
    Check("variables", PointView, check_variables),
    Check("variables_order", PointView, check_variables_order),
    Check("inputs_unmodified", PointView, check_inputs_unmodified),
    Check("reference_forward", PointView, check_reference_forward),
    Check("form", CaseView, check_form),
    Check("finite", CaseView, check_finite),
    Check("connected", CaseView, check_connected),
    Check("custom_gradient", CaseView, check_custom_gradient),
    Check("override", CaseView, check_override),
    Check("second_point", CaseView, check_second_point),
    Check("all_zero", CaseView, check_all_zero),
    Check("modes", ModesView, compare_modes),
)


@clock.spend("checks")
def run_checks(view: AnyView) -> list[CheckResult]:
    """Run the checks of one stage that the spec leaves on, one after another.

    Args:
        view: what the checks look at; its type says the stage.
    """
    off = view.case.judging.checks_off
    wanted = (check for check in CHECKS if check.looks_at is type(view) and check.name not in off)
    return [result for check in wanted for result in check.run(view)]


@clock.spend("checks")
def run_upstream_checks(view: PointView) -> list[CheckResult]:
    """Check the vjp as a function of its upstream, for the declared op and for its formula in float64."""
    return [result for upstream_view in _upstream_views(view) for result in run_checks(upstream_view)]


def _upstream_views(view: PointView) -> Iterator[UpstreamView]:
    """Yield the views of the upstream checks, one output at a time where gradients are large together."""
    op, formula, case = view.operations.declared, view.operations.formula, view.case
    empty = [key for key in view.expected_right if not op.outputs[key[0]].size]
    if empty:
        yield UpstreamView(case, op, [], empty)
    declared, of_formula = (
        {key: matrix for key, matrix in matrices.items() if matrix is not None} for matrices in view.jacobians
    )
    is_last = not view.operations.has_reference_precision
    ahead = [check.name for check in CHECKS if check.looks_at is UpstreamView]
    own = {} if is_last else {"formula": Formula(formula, of_formula, declared)}
    for group in group_at_hand(pull_outputs(case, op, view.expected_right, declared, ahead, **own)):
        yield UpstreamView(case, op, group, is_last=is_last)
    if not is_last and "linearity" not in case.judging.checks_off:
        # The declared dtype shows little of it: float32 four digits, float16 and bfloat16 hardly one.
        pulled = pull_outputs(case, formula, view.expected_right, of_formula, ["linearity"], declared=op)
        for group in group_at_hand(pulled):
            yield UpstreamView(case, formula, group, is_formula=True)


def keep_one_each(results: list[CheckResult]) -> list[CheckResult]:
    """Keep one result under each name: the first that didn't pass, else the first."""
    by_name: dict[str, CheckResult] = {}
    for result in results:
        if result.name not in by_name or by_name[result.name].status is Status.PASSED:
            by_name[result.name] = result
    return list(by_name.values())
