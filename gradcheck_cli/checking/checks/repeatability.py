"""Check that the same upstream gives the same gradient: when it is run again, and when it is traced again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gradcheck_cli.checking.checks.deterministic import find_other_function
from gradcheck_cli.checking.checks.expected_gradients import find_change
from gradcheck_cli.checking.checks.pulled import group_at_hand, pull_outputs
from gradcheck_cli.checking.ops.jacobian import pull_back
from gradcheck_cli.checking.ops.opening import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.pairs.pair import label_of
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.case import MOVED

if TYPE_CHECKING:
    from gradcheck_cli.checking.checks.check import PointView, UpstreamView
    from gradcheck_cli.checking.checks.pulled import Pulled
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float


def check_repeat(view: UpstreamView) -> list[CheckResult]:
    """Require the same gradient of the same upstream when it is run again."""
    if view.is_formula or not view.pulled:
        return []
    return [check_same("repeat", "when it is run again", view.pulled, view.op)]


def check_retrace(view: PointView) -> list[CheckResult]:
    """Hold the graphs that serve every point against another trace, at the second sample point.

    With one sample point, that is a point which nobody asked for.
    """
    samples = (view.sample, view.compared_at)
    if MOVED not in samples and len(set(samples)) > 1:
        return []
    if MOVED in samples:
        # Nobody asked for that point: what goes wrong there says nothing.
        with contextlib.suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            moved = view.opener.open(Opening(MOVED))
            if [info.shape for info in moved.outputs] == [info.shape for info in view.op.outputs]:
                return compare_traces(view, moved)
    return compare_traces(view, view.op)


def compare_traces(view: PointView, op: Any) -> list[CheckResult]:  # noqa: ANN401 (an op of the opener's)
    """Hold an op against another trace of it, made afresh: its gradient and its forward.

    Args:
        view: the pairs that are to be right, and Jacobians at the point or near it, as far as they are at
            hand: they say how large a gradient is.
        op: the declared op, at another point than that at which its graphs were run first.
    """
    if not any(op.outputs[output].size for output, _ in view.sound):
        return []
    again = view.opener.again(op)
    known = {key: matrix for key, matrix in view.jacobians[0].items() if matrix is not None}
    what = "when it is traced again"
    for key in known:
        if key in view.sound and not (op.is_connected(*key) and again.is_connected(*key)):
            message = f"{label_of(op, key)} is None at times: it differs {what}."
            return [CheckResult("retrace", Status.MISMATCHED, message)]
    groups = group_at_hand(pull_outputs(view.case, op, view.sound, known))
    checks = [check_same("retrace", what, group, again) for group in groups]
    other = find_other_function(op, [op, again])
    return checks if other is None else [*checks, other]


def check_same(
    name: str,
    what: str,
    every: list[Pulled],
    other: Operation,
    question: str = "does the gradient draw random numbers, or keep state?",
) -> CheckResult:
    """Check that the same upstream at the same point gives the same gradient, up to the order of its sums.

    Args:
        name: the check's.
        what: when it is pulled back again, such as "when it is run again".
        every: the vjp of each output.
        other: what the upstream is pulled back with again: the op itself, or another form of it.
        question: what to look at, where they differ.
    """
    for pulled in every:
        again = _again(pulled, other)
        for number in pulled.numbers:
            label, second = pulled.label(number), again.get(number)
            if second is None:
                return CheckResult(name, Status.MISMATCHED, f"{label} is None at times: it differs {what}.")
            largest, atol = pulled.largest(number), pulled.case.nondeterminism
            if atol and atol >= largest > 0:
                return CheckResult(name, Status.INCONCLUSIVE, _hides_all(label, what, atol, largest))
            fault = find_change(pulled, number, second)
            if fault is not None:
                return CheckResult(
                    name,
                    Status.MISMATCHED,
                    f"{label} differs {what}: element {fault.where} was {fault.must_be:.6e}, then "
                    f"{fault.is_now:.6e}; {question}",
                )
    return CheckResult(name, Status.PASSED)


def _again(pulled: Pulled, other: Operation) -> dict[int, Float]:
    """Pull the first upstream back once more; by the op itself that may have been done with the others."""
    if other is pulled.op:
        pulled.first  # noqa: B018 (before anything else)
        return next(pulled.pulled_for("repeat"))
    gradients = pull_back(other, pulled.output, pulled.base[None])
    return {number: gradient[0] for number, gradient in gradients.items() if gradient is not None}


def _hides_all(label: str, what: str, atol: float, largest: float) -> str:
    """Say that a spec's `nondeterminism` lets a gradient differ by as much as there is of it."""
    return (
        f"nondeterminism.atol {atol:.1e} lets {label} differ {what} by all of its {largest:.1e}: that tests "
        "nothing; state how far its elements really differ."
    )
