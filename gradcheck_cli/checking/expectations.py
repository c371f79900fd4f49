"""Apply what a spec expects: of a pair (`pairs`), of the whole op (`expect`). Both are strict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.all_zero import UNTESTED_NONE
from gradcheck_cli.numerics import Reason
from gradcheck_cli.results import CheckResult, PairResult, Status

if TYPE_CHECKING:
    from gradcheck_cli.checking.pair_sample import PairSample
    from gradcheck_cli.spec.case import Case, PairRule


def expect_of_pair(result: PairResult, rule: PairRule | None, samples: list[PairSample]) -> PairResult:
    """Return the pair's result as its rule sees it.

    Args:
        result: as the numbers say.
        rule: the spec's rule for this pair, if any.
        samples: the pair at each sample point; for `expect: zero`.
    """
    expect = "pass" if rule is None else rule.expect
    reason = f": {rule.reason}" if rule is not None and rule.reason else ""
    if expect == "mismatch":
        return _expect_mismatch(result, reason)
    if expect == "disconnected":
        return _expect_disconnected(result)
    if expect == "zero":
        return _expect_zero(result, samples)
    return result


def skipped(label: str, output: str, taken: str, rule: PairRule) -> PairResult:
    """Return the result of a pair that the spec asks not to check."""
    note = rule.reason or "expect: skip"
    return PairResult(label, output, taken, Status.SKIPPED, method="none", note=note)


def _expect_mismatch(result: PairResult, reason: str) -> PairResult:
    if result.status is Status.MISMATCHED:
        return replace(result, status=Status.EXPECTED_MISMATCH, note=f"as expected{reason}")
    if result.status is Status.PASSED:
        return replace(
            result,
            status=Status.UNEXPECTED_PASS,
            message="the spec expects a mismatch, but the gradient is right; remove 'expect: mismatch'.",
        )
    return result


def _expect_disconnected(result: PairResult) -> PairResult:
    if result.connected:
        return replace(
            result,
            status=Status.MISMATCHED,
            message="the spec expects a disconnected pair (None), but the gradient is a tensor.",
        )
    if result.status is Status.PASSED or result.message == UNTESTED_NONE:
        return replace(result, status=Status.PASSED, message="", note="as expected")
    return result


def _expect_zero(result: PairResult, samples: list[PairSample]) -> PairResult:
    if not result.connected:
        return replace(
            result,
            status=Status.MISMATCHED,
            message="the spec expects a gradient of zeros, but it is None (disconnected); "
            "they aren't the same.",
        )
    if not all(sample.analytic_is_zero for sample in samples):
        return replace(
            result, status=Status.MISMATCHED, message="the spec expects zeros, but the gradient isn't zero."
        )
    # Of a staircase the numbers can't tell whether its steps are meant (an element picked by a maximum), or
    # what rounding leaves of a slope. The spec says that they are: the gradient is zero between them.
    undecided = any(
        bool((~np.isin(sample.reason, (Reason.NONE, Reason.STAIRCASE))).any() or sample.doubt)
        for sample in samples
    )
    if result.status is Status.INCONCLUSIVE and not undecided:
        return replace(result, status=Status.PASSED, message="", note="zero, as expected")
    return result


def expect_of_case(
    case: Case, pairs: tuple[PairResult, ...], checks: tuple[CheckResult, ...]
) -> tuple[tuple[PairResult, ...], tuple[CheckResult, ...]]:
    """Apply the op's own `expect: mismatch`: at least one pair or check must mismatch.

    Those that do are expected; a case in which nothing does, though all could be decided, is a failure.
    """
    if case.expect != "mismatch":
        return pairs, checks
    findings = [*(pair.status for pair in pairs), *(check.status for check in checks)]
    if Status.MISMATCHED in findings:
        return (
            tuple(
                replace(pair, status=Status.EXPECTED_MISMATCH) if pair.status is Status.MISMATCHED else pair
                for pair in pairs
            ),
            tuple(
                replace(check, status=Status.EXPECTED_MISMATCH)
                if check.status is Status.MISMATCHED
                else check
                for check in checks
            ),
        )
    if Status.INCONCLUSIVE in findings or Status.ERROR in findings:
        return pairs, checks
    message = "the spec expects a mismatch, but every pair passed; remove 'expect: mismatch'."
    return pairs, (*checks, CheckResult("expect", Status.UNEXPECTED_PASS, message))
