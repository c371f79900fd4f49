"""Choose and check points that take sides of branches which a case's sample points don't take.

Such a point can show that a gradient is wrong. If it leaves a pair undecided, that changes nothing: nobody
asked for that point. Its sides count as seen only if all pairs are right there.
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
from gradcheck_cli.spec.words import CHECKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.examine import Findings
    from gradcheck_cli.results import PairResult
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.branches.graph_branches import Sides
    from gradcheck_cli.tensorflow_backend.opening.case_opener import GraphOpener

_MOST = 2  # points; each costs about half as much as a case with two samples
_SLOW = 20.0  # seconds; a case that took longer isn't made longer still
# These say something of the op, not of a point, and were made at the samples.
_RIGHT = frozenset({Status.PASSED, Status.EXPECTED_MISMATCH, Status.SKIPPED})


def check_unseen_sides(opener: GraphOpener, samples: Sequence[int], findings: Findings, spent: float) -> None:
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
    """Whether other points can be drawn, and all is right so far."""
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
    # Structural checks are the op's, whatever the point, and were made where the samples were.
    case = replace(opener.case, checks_off=frozenset(CHECKS), second_order=False, remembered=False)
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
    """Return the result at a chosen point if it is wrong there and was right at the samples."""
    if wrong is None or pair.order != 1 or pair.status is not Status.PASSED:
        return pair
    told = "at a point that was chosen since it takes another side of a branch; right at the sample points"
    return replace(wrong, fingerprint=pair.fingerprint, diagnosis=(*wrong.diagnosis, told))
