"""Checks that other packages bring: each sees the op at its first sample point, and says what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.extensions import CHECKS, extensions
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.spec.case import Case


def own_checks(case: Case, op: Operation) -> tuple[CheckResult, ...]:
    """Run them.

    Args:
        case: what is checked.
        op: the op under test, at its first sample point: `evaluate` and `vjp`.

    Returns:
        A result for each; one that raises is an error, which is not green.
    """
    found = []
    for name, function in extensions(CHECKS).items():
        try:
            message = function(case, op)
        except Exception as error:  # noqa: BLE001 (a stranger's code; the other checks go on)
            told = f"the check itself raised {type(error).__name__}: {error}"
            found.append(CheckResult(name, Status.ERROR, told))
            continue
        status = Status.MISMATCHED if message else Status.PASSED
        found.append(CheckResult(name, status, str(message or "")))
    return tuple(found)
