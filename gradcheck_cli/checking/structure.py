"""Run the structural checks that a spec leaves on; each of them has a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gradcheck_cli.checking.all_zero import check_all_zero
from gradcheck_cli.checking.connected import check_connected
from gradcheck_cli.checking.finite import check_finite
from gradcheck_cli.checking.form import check_form
from gradcheck_cli.checking.linearity import check_joint_linearity, check_linearity
from gradcheck_cli.checking.operation import Operation
from gradcheck_cli.checking.repeatability import check_same
from gradcheck_cli.checking.second_point import check_second_point
from gradcheck_cli.checking.upstream import Pulled, pull_empty, pull_random
from gradcheck_cli.checking.zero_upstream import check_zero_upstream
from gradcheck_cli.results import CheckResult, PairResult, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gradcheck_cli.checking.jacobian import Jacobian
    from gradcheck_cli.checking.pair_sample import PairSample
    from gradcheck_cli.checking.sample import Pair
    from gradcheck_cli.spec.case import Case

Op = TypeVar("Op", bound=Operation)


def upstream_checks(
    case: Case, op: Op, analytic: Mapping[Pair, Jacobian | None], traced_again: Callable[[], Op] | None
) -> list[CheckResult]:
    """Check the declared op's vjp as a function of its upstream.

    Args:
        case: says which checks are off, and how far a repeated gradient may differ.
        op: the declared op.
        analytic: its Jacobians, of the pairs that are to be right.
        traced_again: traces the op afresh at the same point; `None` to leave that check out.

    Returns:
        The results of the checks that are on.
    """
    every = sorted({output for output, _ in analytic})
    outputs = [output for output in every if op.outputs[output].size]
    pulls_zeros = "zero_upstream" not in case.checks_off
    empty = [pull_empty(op, output) for output in every if pulls_zeros and output not in outputs]
    if not outputs:
        return [check_zero_upstream(op, empty, analytic)] if empty else []

    def pull(from_op: Op) -> list[Pulled]:
        return [pull_random(from_op, output, case.seed) for output in outputs]

    pulled = pull(op)
    checks = []
    if "linearity" not in case.checks_off:
        checks.append(check_linearity(op, pulled, analytic))
        checks[-1] = (
            check_joint_linearity(op, pulled, analytic) if checks[-1].status is Status.PASSED else checks[-1]
        )
    if pulls_zeros:
        checks.append(check_zero_upstream(op, [*pulled, *empty], analytic))
    if "repeat" not in case.checks_off:
        again = check_same(
            "repeat", "when it is run again", op, pulled, pull(op), analytic, case.nondeterminism
        )
        checks.append(again)
    if "retrace" not in case.checks_off and traced_again is not None:
        afresh = pull(traced_again())
        what = "when it is traced again"
        checks.append(check_same("retrace", what, op, pulled, afresh, analytic, case.nondeterminism))
    return checks


def pair_checks(
    case: Case, op: Operation, samples: Mapping[Pair, list[PairSample]], pairs: tuple[PairResult, ...]
) -> list[CheckResult]:
    """Sum up what the pairs show of the gradient's structure.

    Args:
        case: says which checks are off.
        op: the declared op.
        samples: the verdicts of the pairs that are to be right, at each sample point.
        pairs: every pair's result.
    """
    checks = [check_form(op), check_finite(op, samples), check_connected(op, samples)]
    second = check_second_point(op, samples)
    if second is not None:
        checks.append(second)
    if "all_zero" not in case.checks_off:
        checks.append(check_all_zero(pairs))
    return checks


def once(checks: list[CheckResult]) -> list[CheckResult]:
    """Keep one result of each check: the first that didn't pass, else the first."""
    kept: dict[str, CheckResult] = {}
    for check in checks:
        if check.name not in kept or kept[check.name].status is Status.PASSED:
            kept[check.name] = check
    return list(kept.values())
