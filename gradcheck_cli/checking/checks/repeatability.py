"""Check that the same upstream gives the same gradient when it is run again or traced again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gradcheck_cli.checking.checks.deterministic import find_other_function
from gradcheck_cli.checking.checks.expected_gradients import find_change
from gradcheck_cli.checking.checks.pulled import group_at_hand, pull_outputs
from gradcheck_cli.checking.ops.jacobian import pull_back
from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.pairs.pair import label_of
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.case import MOVED

if TYPE_CHECKING:
    from gradcheck_cli.checking.checks.check import PointView, UpstreamView
    from gradcheck_cli.checking.checks.pulled import Pulled
    from gradcheck_cli.checking.ops.opener import OpenedOperation
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float


def check_repeat(view: UpstreamView) -> list[CheckResult]:
    """Require that the same upstream gives the same gradient when it is run again."""
    if view.is_formula or not view.pulled:
        return []
    if view.op.own_draws and not view.case.nondeterminism:
        message = (
            f"the gradient draws random numbers of its own ({', '.join(view.op.own_draws)}): they aren't the "
            "forward's. Keep what the forward drew, or draw by a stateless op with the same seed."
        )
        return [CheckResult("repeat", Status.MISMATCHED, message)]
    return [check_same("repeat", "when it is run again", view.pulled, view.op)]


def check_retrace(view: PointView) -> list[CheckResult]:
    """Compare the graphs that serve every point with a new trace, at the second sample point.

    A spec with a single sample point gets an additional point for this.
    """
    samples = (view.sample, view.compared_at)
    if MOVED not in samples and len(set(samples)) > 1:
        return []
    if MOVED in samples:
        # The spec doesn't ask for this point, so a failure there is no finding.
        with contextlib.suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            moved = view.opener.open(Opening(MOVED))
            if [info.shape for info in moved.outputs] == [info.shape for info in view.op.outputs]:
                return compare_traces(view, moved)
    return compare_traces(view, view.op)


def compare_traces(view: PointView, op: OpenedOperation) -> list[CheckResult]:
    """Compare an op with a fresh trace of it: its gradient and its forward.

    Args:
        view: the pairs that are to be right, and the available Jacobians at the point or near it, which
            say how large a gradient is.
        op: the declared op, at a point other than the one where its graphs first ran.
    """
    if not any(op.outputs[output].size for output, _ in view.sound):
        return []
    retraced = view.opener.retrace(op)
    jacobians = {key: matrix for key, matrix in view.jacobians[0].items() if matrix is not None}
    what = "when it is traced again"
    for key in jacobians:
        if key in view.sound and not (op.is_connected(*key) and retraced.is_connected(*key)):
            message = f"{label_of(op, key)} is None at times: it differs {what}."
            return [CheckResult("retrace", Status.MISMATCHED, message)]
    groups = group_at_hand(pull_outputs(view.case, op, view.sound, jacobians))
    checks = [check_same("retrace", what, group, retraced) for group in groups]
    difference = find_other_function(op, [op, retraced])
    return checks if difference is None else [*checks, difference]


def check_same(
    name: str,
    what: str,
    all_pulled: list[Pulled],
    other_op: Operation,
    question: str = "does the gradient draw random numbers, or keep state?",
) -> CheckResult:
    """Check that the same upstream at the same point gives the same gradient, up to the order of its sums.

    Args:
        name: the check's name.
        what: what is done again, such as "when it is run again".
        all_pulled: the vjp of each output.
        other_op: the op that pulls the upstream back again: the same op or another form of it.
        question: what to look at where they differ.
    """
    for pulled in all_pulled:
        repeated = _pull_again(pulled, other_op)
        for input_index in pulled.input_indices:
            label, second = pulled.label(input_index), repeated.get(input_index)
            if second is None:
                return CheckResult(name, Status.MISMATCHED, f"{label} is None at times: it differs {what}.")
            largest, atol = pulled.largest(input_index), pulled.case.nondeterminism
            if atol and atol >= largest > 0:
                return CheckResult(name, Status.INCONCLUSIVE, _explain_wide_atol(label, what, atol, largest))
            fault = find_change(pulled, input_index, second)
            if fault is not None:
                return CheckResult(
                    name,
                    Status.MISMATCHED,
                    f"{label} differs {what}: element {fault.element} was {fault.expected:.6e}, then "
                    f"{fault.actual:.6e}; {question}",
                )
    return CheckResult(name, Status.PASSED)


def _pull_again(pulled: Pulled, other_op: Operation) -> dict[int, Float]:
    """Pull the first upstream back once more; for the op itself, the common batch may have it already."""
    if other_op is pulled.op:
        _ = pulled.first  # the first pull comes before the repeated one
        return next(pulled.gradients_for("repeat"))
    gradients = pull_back(other_op, pulled.output, pulled.base[None])
    return {input_index: gradient[0] for input_index, gradient in gradients.items() if gradient is not None}


def _explain_wide_atol(label: str, what: str, atol: float, largest: float) -> str:
    """Say that a spec's `nondeterminism` allows a difference as large as the gradient itself."""
    return (
        f"nondeterminism.atol {atol:.1e} lets {label} differ {what} by all of its {largest:.1e}: that tests "
        "nothing; state how far its elements really differ."
    )
