"""Check the gradients that a `tf.custom_gradient` has for variables: that they are, and by which variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gradcheck_cli.checking.checks.repeatability import check_same
from gradcheck_cli.checking.checks.upstreams import views
from gradcheck_cli.checking.ops.operation import GradientFormError, Operation
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck_cli.checking.pairs.pair import PairKey
    from gradcheck_cli.spec.case import Case

Op = TypeVar("Op", bound=Operation)
_REORDERED = "with the variables in another order"
_BY_NAME = (
    "pair gradients with variables by name, not by position: TensorFlow promises no order of variables=."
)


def check_variables(
    case: Case,
    op: Op,
    pairs: list[PairKey],
    reordered: Callable[[], Op],
) -> list[CheckResult]:
    """Check a custom gradient's gradients for variables.

    Args:
        case: says whether variables are inputs.
        op: the declared op.
        pairs: those that are to be right.
        reordered: opens the op with the variables in reverse order.

    Returns:
        That they weren't checked, if variables are no inputs; else whether their order is of no matter. None
        where no custom gradient has any.
    """
    names = list(op.gradient_variables)
    if not names:
        return []
    inputs = sum(tensor.is_variable for tensor in case.tensors)
    if not case.variables and inputs < len(names):
        # Left out by the spec, it is its own word; else what differs is another function, or can't move them.
        status = Status.SKIPPED if case.variables is False else Status.INCONCLUSIVE
        return [
            CheckResult(
                "variables",
                status,
                f"the gradients that a custom gradient has for variables ({', '.join(names)}) weren't "
                "checked; say 'variables: true' to check them"
                f"{'' if case.variables is False else ', or false to leave them'}.",
            )
        ]
    if len(names) == 1 or "variables_order" in case.checks_off:
        return []
    try:
        other = reordered()
        check = check_same("variables_order", _REORDERED, views(case, op, pairs, {}), other, _BY_NAME)
    except (CaseFailedError, GradientFormError) as error:
        message = f"{_REORDERED}, the gradient fails: {error.message} Do {_BY_NAME}"
        return [CheckResult("variables_order", Status.MISMATCHED, message)]
    return [check]
