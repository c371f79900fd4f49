"""Check the gradients that a `tf.custom_gradient` has for variables: that they are, and by which variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gradcheck_cli.checking.large_upstream import same_upstreams
from gradcheck_cli.checking.operation import GradientFormError, Operation
from gradcheck_cli.checking.repeatability import check_same
from gradcheck_cli.checking.upstream import pull_random
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gradcheck_cli.checking.jacobian import Jacobian
    from gradcheck_cli.checking.sample import Pair
    from gradcheck_cli.spec.case import Case

Op = TypeVar("Op", bound=Operation)
_REORDERED = "with the variables in another order"
_BY_NAME = (
    "pair gradients with variables by name, not by position: TensorFlow promises no order of variables=."
)


def check_variables(
    case: Case,
    op: Op,
    analytic: Mapping[Pair, Jacobian | None],
    large: list[Pair],
    reordered: Callable[[], Op],
) -> list[CheckResult]:
    """Check a custom gradient's gradients for variables.

    Args:
        case: says whether variables are inputs.
        op: the declared op.
        analytic: its Jacobians, of the pairs that are to be right.
        large: pairs that are to be right, and too large for a Jacobian.
        reordered: opens the op with the variables in reverse order.

    Returns:
        That they weren't checked, if variables are no inputs; else whether their order is of no matter. None
        where no custom gradient has any.
    """
    names = list(op.gradient_variables)
    if not names:
        return []
    if not case.variables:
        return [
            CheckResult(
                "variables",
                Status.SKIPPED,
                f"the gradients that a custom gradient has for variables ({', '.join(names)}) weren't "
                "checked; say 'variables: true' to check them.",
            )
        ]
    if len(names) == 1 or "variables_order" in case.checks_off:
        return []
    outputs = sorted({output for output, _ in analytic if op.outputs[output].size})
    pulled = [pull_random(op, output, case.seed) for output in outputs]
    try:
        other = reordered()
        afresh = [pull_random(other, output, case.seed) for output in outputs]
    except (CaseFailedError, GradientFormError) as error:
        message = f"{_REORDERED}, the gradient fails: {error.message} Do {_BY_NAME}"
        return [CheckResult("variables_order", Status.MISMATCHED, message)]
    check = check_same(
        "variables_order", _REORDERED, op, pulled, afresh, analytic, case.nondeterminism, question=_BY_NAME
    )
    if check.status is Status.PASSED and large:
        check = same_upstreams(case, op, other, large, "variables_order", _REORDERED, _BY_NAME)
    return [check]
