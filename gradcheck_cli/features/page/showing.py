"""What `show` does with a case: it checks it as `run` does, and returns one pair with all its elements."""

from __future__ import annotations

from dataclasses import replace

from gradcheck_cli.checking.checks.gradient_form import FORM
from gradcheck_cli.checking.pairs.pair_view import PairView
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, UsageError
from gradcheck_cli.results import FAILING, UNDECIDED, CaseResult, Status
from gradcheck_cli.running.session import check, run_case, start_tensorflow, user_code
from gradcheck_cli.spec.case import Case, PairRule, rule_for

_SKIP = "skip"


def pair_view(case: Case, label: str) -> PairView:
    """Check a case, and return one of its pairs at the sample point that shows most.

    Raises:
        UsageError: there is no such pair.
        CaseFailedError: the case can't be checked, or its gradient has no Jacobian to show.
    """
    start_tensorflow()
    with user_code(case):
        findings = check(case, explains=False)
        if label in {pair.label for pair in findings.pairs} and not _is_whole(findings, label):
            # It may be skipped by its spec, or too large to be judged whole unless someone asks for it.
            rules = (*case.pairs, PairRule("*", _SKIP), _rule_without_skip(case, label))
            findings = check(replace(case, method="full", pairs=rules), explains=False)
    result = next((pair for pair in findings.pairs if pair.label == label), None)
    failing = tuple(own for own in findings.checks if own.status in FAILING | UNDECIDED)
    if result is None and findings.pairs:
        labels = ", ".join(pair.label for pair in findings.pairs)
        raise UsageError(f"--pair: no pair {label!r}; there are {labels}.")
    if result is None or label not in findings.judged:
        message = failing[0].message if failing else ""
        message = message if result is None else result.message
        raise CaseFailedError("pairs", message or "there is nothing to differentiate.")
    if result.mismatch == FORM:  # zeros replace it, and nobody's gradient would be shown
        raise CaseFailedError("gradient", result.message)
    judged = findings.judged[label]
    point = judged.index_to_show
    return PairView(
        label,
        judged.output,
        judged.input_info,
        point,
        judged.samples[point].whole(),
        result,
        failing,
        tuple(warning for warning in findings.warnings if f" {label}:" in warning),
    )


def _rule_without_skip(case: Case, label: str) -> PairRule:
    """Return the spec's rule for a pair, without its `skip`."""
    rule = rule_for(case.pairs, label) or PairRule(label, "")
    return replace(rule, glob=label, expect="" if rule.expect == _SKIP else rule.expect)


def _is_whole(findings: Findings, label: str) -> bool:
    """Whether a pair was judged element by element; one of wrong form has no elements at all."""
    if label in findings.judged:
        judged = findings.judged[label]
        return judged.samples[judged.index_to_show].rows is None
    return all(pair.status is not Status.SKIPPED for pair in findings.pairs if pair.label == label)


def draw_pair(case: Case, label: str) -> CaseResult:
    """Check a case, and return its result with only one pair, drawn.

    Raises:
        UsageError: there is no such pair.
        CaseFailedError: the case can't be checked.
    """
    start_tensorflow()
    result = run_case(replace(case, figures_of=label, records_fingerprint=False))
    if result.error is not None:
        raise CaseFailedError(result.error.kind, result.error.message, result.error.traceback)
    pairs = [pair for pair in result.pairs if pair.label == label]
    if not pairs:
        labels = ", ".join(pair.label for pair in result.pairs) or "none"
        raise UsageError(f"--pair: no pair {label!r}; there are {labels}.")
    return replace(result, pairs=tuple(pairs))
