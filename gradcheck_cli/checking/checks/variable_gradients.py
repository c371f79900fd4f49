"""Check the gradients that a `tf.custom_gradient` returns for variables, and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.checking.checks.pulled import pull_outputs
from gradcheck_cli.checking.checks.repeatability import check_same
from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from gradcheck_cli.checking.checks.check import PointView
    from gradcheck_cli.spec.case import Case

_REORDERED = "with the variables in another order"
_BY_NAME = (
    "pair gradients with variables by name, not by position: TensorFlow promises no order of variables=."
)


def check_variables(view: PointView) -> list[CheckResult]:
    """Say that gradients for variables weren't checked, where variables are no inputs."""
    names, case = list(view.op.gradient_variables), view.case
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
    names = list(view.op.gradient_variables)
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
