"""Look at the sides of a case's branches that its sample points don't take, where candidates do.

Such a point is checked beside the others. It can show a gradient to be wrong; what it leaves undecided
changes nothing, as nobody asked for that point. Its sides count as seen only where all pairs are right there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import Status
from gradcheck_cli.spec.values import candidates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.examine import Findings
    from gradcheck_cli.results import PairResult
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.branches.graph_branches import Sides
    from gradcheck_cli.tensorflow_backend.opening.case_opener import GraphOpener

_MOST = 2  # points: each costs about half of what a case with two samples took
_SLOW = 20.0  # seconds that a case took: beyond, it isn't made half as long again
# They are the op's, whatever the point, and were made where the samples were.
_CHECKS_OFF = frozenset(
    {
        "all_zero",
        "inputs_unmodified",
        "linearity",
        "modes",
        "override",
        "precision",
        "repeat",
        "retrace",
        "variables_order",
        "zero_upstream",
    }
)
_RIGHT = frozenset({Status.PASSED, Status.EXPECTED_MISMATCH, Status.SKIPPED})


def look_at_sides(opener: GraphOpener, samples: Sequence[int], findings: Findings, spent: float) -> None:
    """Add the branches of an opened case to its findings, and what chosen points show.

    Args:
        opener: of the case.
        samples: numbers of the points at which it was checked.
        findings: what was found there; added to.
        spent: seconds that this took.
    """
    from gradcheck_cli.tensorflow_backend.branches.graph_branches import Sides
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    if not isinstance(findings.first, GraphOperation) or findings.first.traced.trace_mode.compiled:
        return  # nothing was judged; or there is no graph to look at; or XLA would compile each part of it
    excuses = opener.case.unreached
    with suppress(CaseFailedError, CaseSkippedError, GradientFormError):  # the findings say what is wrong
        sides = Sides(findings.first)
        sides.see(samples)
        findings.branches = sides.branches(excuses)
        if spent < _SLOW and _may_choose(opener.case, findings):
            _check_chosen(opener, sides, findings)
            findings.branches = sides.branches(excuses)


def _may_choose(case: Case, findings: Findings) -> bool:
    """Whether other points can be drawn, and all is right so far: a wrong gradient needs no other point."""
    first = findings.first
    draws = first is not None and (first.frozen or first.random_types)
    return (
        case.is_generated
        and not draws
        and all(pair.status in _RIGHT for pair in findings.pairs)
        and any(pair.status is Status.PASSED for pair in findings.pairs)
        and any(branch.unseen for branch in findings.branches)
    )


def _check_chosen(opener: GraphOpener, sides: Sides, findings: Findings) -> None:
    numbers = candidates.numbers(as_stated=bool(findings.first and findings.first.low_precision))
    case = replace(opener.case, checks_off=_CHECKS_OFF, second_order=False, remembered=False)
    for sample in sides.choose(numbers, opener.case.unreached, _MOST):
        with suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            found = check_case(case, opener, [sample])
            findings.chosen_points += 1
            wrong = {pair.label: pair for pair in found.pairs if pair.status is Status.MISMATCHED}
            findings.pairs = tuple(_with(pair, wrong.get(pair.label)) for pair in findings.pairs)
            if not wrong and found.pairs and all(pair.status in _RIGHT for pair in found.pairs):
                sides.see([sample])
            if wrong:
                return


def _with(pair: PairResult, wrong: PairResult | None) -> PairResult:
    """Return a pair as it is at a chosen point, if it is wrong there, and was right at the samples."""
    if wrong is None or pair.order != 1 or pair.status is not Status.PASSED:
        return pair
    told = "at a point that was chosen since it takes another side of a branch; right at the sample points"
    return replace(wrong, fingerprint=pair.fingerprint, diagnosis=(*wrong.diagnosis, told))
