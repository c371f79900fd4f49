"""Name a common cause of several findings of a case before the findings themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gradcheck_cli.checking.checks.forward_values import compare_with_reference
from gradcheck_cli.results import CheckResult, PairResult, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.ops.operations import Operations
    from gradcheck_cli.spec.case import Case

_REPEAT = "repeat"
_NOISY = (
    "the gradient is another one each time that it runs (see check repeat): its differences from the "
    "derivative follow from that"
)


def cause_first(checks: Sequence[CheckResult]) -> list[CheckResult]:
    """Sort a failed `repeat` check first: the other findings follow from it."""
    return sorted(checks, key=lambda check: check.name != _REPEAT or check.status is not Status.MISMATCHED)


def with_causes(
    case: Case,
    operations: Operations | None,
    pairs: tuple[PairResult, ...],
    checks: Sequence[CheckResult],
) -> tuple[PairResult, ...]:
    """Give mismatched pairs their common cause as diagnosis.

    Args:
        case: the case.
        operations: the ops at the first sample point.
        pairs: their results.
        checks: the results of the structural checks.

    Returns:
        The results, with the common cause as the diagnosis where there is one.
    """
    if any(check.name == _REPEAT and check.status is Status.MISMATCHED for check in checks):
        return tuple(
            replace(pair, diagnosis=(_NOISY,)) if pair.status is Status.MISMATCHED else pair for pair in pairs
        )
    wrong = any(pair.status is Status.MISMATCHED for pair in pairs)
    if case.reference is None or case.reference_forward or operations is None or not wrong:
        return pairs
    comparison = compare_with_reference(case, operations.declared, operations.differenced)
    if comparison.status is not Status.MISMATCHED:
        return pairs
    difference = comparison.message.partition(": ")[2]
    message = f"the reference isn't the forward, in value either: {difference} Is it the right one?"
    return tuple(
        replace(pair, diagnosis=(message,))
        if pair.status is Status.MISMATCHED and not pair.diagnosis
        else pair
        for pair in pairs
    )
