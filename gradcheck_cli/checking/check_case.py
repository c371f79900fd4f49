"""Check one case: its gradient, its second order if the spec asks for it, then the expectations."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gradcheck_cli.checking.examine import Findings, FirstOrder, examine
from gradcheck_cli.checking.pairs.pair import label_of, pair_keys
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.checking.ops.opener import Op, Opener
    from gradcheck_cli.spec.case import Case

SECOND = "second_order"


def check_case(
    case: Case,
    opener: Opener[Op],
    samples: Sequence[int],
    others: Mapping[str, Callable[[], Opener[Any]]] = MappingProxyType({}),
) -> Findings:
    """Check a case.

    Args:
        case: the case.
        opener: makes ops of it.
        samples: indices of the sample points.
        others: mode -> a function that makes its opener. The first mode in which the case can be opened must
            give the same gradients.

    Returns:
        The findings, with the spec's expectations applied.

    Raises:
        CaseFailedError: the case can't be checked.
    """
    findings = examine(case, opener, samples, others)
    if case.second_order and findings.first is not None:
        findings = _add_second_order(opener, samples, findings)
    return findings


def _add_second_order(opener: Opener[Op], samples: Sequence[int], findings: Findings) -> Findings:
    """Add the findings about the vjp as a function. That it can't be differentiated is itself a finding.

    Raises:
        CaseFailedError: of kind "pairs": a rule matches no pair of either order.
    """
    first: Any = findings.first  # an op of this opener's
    labels = [label_of(first, pair) for pair in pair_keys(first)]
    if not any(first.is_connected(*pair) for pair in pair_keys(first)):
        result = CheckResult(
            SECOND, Status.SKIPPED, "every gradient is None: there is nothing to differentiate."
        )
        return replace(findings, checks=(*findings.checks, result))
    try:
        vjp = opener.vjp(first)
        # If the reference has no gradient to differentiate, nothing is known about the forward's
        # stop_gradients.
        is_known = opener.case.reference is None or vjp.case.reference is not None
        stops = findings.stops if is_known else None
        second = examine(vjp.case, vjp, samples, below=FirstOrder(labels, stops))
    except CaseSkippedError as skipped:
        result = CheckResult(SECOND, Status.SKIPPED, skipped.message)
        return replace(findings, checks=(*findings.checks, result))
    except CaseFailedError as failure:
        if failure.kind == "pairs":
            raise
        result = CheckResult(SECOND, Status.ERROR, f"of the vjp as a function: {failure.message}")
        return replace(findings, checks=(*findings.checks, result))
    checks = tuple(replace(check, name=f"{SECOND}.{check.name}") for check in second.checks)
    return replace(
        findings,
        pairs=(*findings.pairs, *(replace(pair, order=2) for pair in second.pairs)),
        checks=(*findings.checks, *checks),
        warnings=tuple(dict.fromkeys((*findings.warnings, *second.warnings))),
        held=tuple(dict.fromkeys((*findings.held, *second.held))),
        judged={**findings.judged, **second.judged},
    )
