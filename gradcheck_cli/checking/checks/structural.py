"""Run the structural checks that a spec leaves on; each of them has a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gradcheck_cli.checking.checks.all_zero import check_all_zero
from gradcheck_cli.checking.checks.connected import check_connected
from gradcheck_cli.checking.checks.deterministic import check_same_function
from gradcheck_cli.checking.checks.finite import check_finite
from gradcheck_cli.checking.checks.gradient_form import check_form
from gradcheck_cli.checking.checks.linearity import check_linearity
from gradcheck_cli.checking.checks.repeatability import check_same
from gradcheck_cli.checking.checks.second_point import check_second_point
from gradcheck_cli.checking.checks.upstreams import Pulled, views
from gradcheck_cli.checking.checks.zero_upstream import check_empty, check_zero_upstream
from gradcheck_cli.checking.pairs.sample import label_of
from gradcheck_cli.results import CheckResult, PairResult, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gradcheck_cli.checking.ops.jacobian import Jacobian
    from gradcheck_cli.checking.ops.opener import OpenedOperation, Opener
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.pairs.pair_sample import PairSample
    from gradcheck_cli.checking.pairs.sample import Operations, Pair
    from gradcheck_cli.spec.case import Case

Op = TypeVar("Op", bound="OpenedOperation")


# Elements of gradients that may be at hand at once, of all outputs together; beyond it one after another, and
# then no joint upstream is tried.
_MOST_AT_HAND = 2**24
# The checks that try upstreams of their own.
_BY_UPSTREAMS = ("linearity", "zero_upstream", "repeat")


def upstream_checks(
    case: Case,
    operations: Operations,
    pairs: list[Pair],
    matrices: Sequence[Mapping[Pair, Jacobian | None]],
) -> list[CheckResult]:
    """Check the vjp as a function of its upstream: of the declared op, and of its formula in float64.

    Args:
        case: says which checks are off, and how far a repeated gradient may differ.
        operations: both ops.
        pairs: those that are to be right.
        matrices: Jacobians of the declared op and of its formula, as far as they are at hand.

    Returns:
        The results of the checks that are on.
    """
    op, formula = operations.declared, operations.formula
    checks: list[CheckResult] = []
    empty = [pair for pair in pairs if not op.outputs[pair[0]].size]
    if empty and "zero_upstream" not in case.checks_off:
        checks.append(check_empty(op, empty))
    declared, of_formula = ({pair: one for pair, one in each.items() if one is not None} for each in matrices)
    is_last = not operations.has_reference_precision
    for every in _at_hand(views(case, op, pairs, declared, _BY_UPSTREAMS)):
        if "linearity" not in case.checks_off:
            checks.append(check_linearity(op, every, is_last=is_last))
        if "zero_upstream" not in case.checks_off:
            checks.append(check_zero_upstream(every))
        if "repeat" not in case.checks_off:
            checks.append(check_same("repeat", "when it is run again", every, op))
    if not is_last and "linearity" not in case.checks_off:
        # float32 shows four digits of it, the halves hardly one.
        checks += [
            check_linearity(formula, every, where=" (in float64)")
            for every in _at_hand(views(case, formula, pairs, of_formula, ["linearity"]))
        ]
    return checks


def retrace_checks(
    case: Case,
    op: Op,
    pairs: list[Pair],
    matrices: Mapping[Pair, Jacobian | None],
    opener: Opener[Op],
) -> list[CheckResult]:
    """Hold the declared op against another trace of it, made afresh: its gradient and its forward.

    Args:
        case: says how far a repeated gradient may differ.
        op: the declared op, at another point than that at which its graphs were run first.
        pairs: those that are to be right.
        matrices: Jacobians there or near, as far as they are at hand: they say how large a gradient is.
        opener: traces an op afresh.
    """
    if not any(op.outputs[output].size for output, _ in pairs):
        return []
    again = opener.again(op)
    known = {pair: one for pair, one in matrices.items() if one is not None}
    what = "when it is traced again"
    for pair in known:
        if pair in pairs and not (op.is_connected(*pair) and again.is_connected(*pair)):
            message = f"{label_of(op, pair)} is None at times: it differs {what}."
            return [CheckResult("retrace", Status.MISMATCHED, message)]
    checks = [check_same("retrace", what, every, again) for every in _at_hand(views(case, op, pairs, known))]
    other = check_same_function(op, again)
    return checks if other is None else [*checks, other]


def _at_hand(every: list[Pulled]) -> Iterator[list[Pulled]]:
    """Give the vjps of all outputs at once, or one by one where their gradients are too large together."""
    sizes = [sum(info.size for info in one.op.inputs if info.is_differentiable) for one in every]
    if every and sum(sizes) <= _MOST_AT_HAND:
        yield every
        return
    while every:
        yield [every.pop(0)]


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
    checks = [check_form(op, pairs), check_finite(op, samples), check_connected(op, samples)]
    if op.missed_by_override and "override" not in case.checks_off:
        checks.append(_check_override(case, op))
    second = check_second_point(op, samples)
    if second is not None:
        checks.append(second)
    if "all_zero" not in case.checks_off:
        checks.append(check_all_zero(pairs, is_alone=case.is_alone))
    return checks


def _check_override(case: Case, op: Operation) -> CheckResult:
    """Say which ops an override was meant for, and didn't reach: their gradient is TensorFlow's own."""
    return CheckResult(
        "override",
        Status.INCONCLUSIVE,
        f"the override of {case.op_type} didn't take effect on {', '.join(op.missed_by_override)}: there "
        "TensorFlow's own gradient is taken. Call the Python function without tf.function, or say "
        "'checks: {override: false}' where this is meant.",
    )


def once(checks: list[CheckResult]) -> list[CheckResult]:
    """Keep one result of each check: the first that didn't pass, else the first."""
    kept: dict[str, CheckResult] = {}
    for check in checks:
        if check.name not in kept or kept[check.name].status is Status.PASSED:
            kept[check.name] = check
    return list(kept.values())
