"""Apply what a spec expects of a pair, strictly: what it expects must be so, of every pair that it covers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.all_zero import UNTESTED_NONE
from gradcheck_cli.checking.pairs.summary import largest_gradient
from gradcheck_cli.numerics import Reason
from gradcheck_cli.results import PairResult, Status
from gradcheck_cli.spec.case import PairRule
from gradcheck_cli.spec.cases.pair_rules import rule_for

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.checking.pairs.pair_sample import PairSample
    from gradcheck_cli.spec.case import Case


def expect_of_pair(
    result: PairResult,
    rule: PairRule | None,
    samples: list[PairSample],
    output: TensorInfo,
    taken: TensorInfo,
) -> PairResult:
    """Return the pair's result as its rule sees it.

    Args:
        result: as the numbers say.
        rule: the spec's rule for this pair, if any.
        samples: the pair at each sample point; for `expect: zero`.
        output: what is differentiated.
        taken: by what.
    """
    if rule is None:
        return result
    expect = rule.expect
    if expect == "mismatch":
        return _expect_mismatch(result, rule)
    if expect == "disconnected":
        return _expect_disconnected(result)
    if expect == "zero":
        return _expect_zero(result, samples, output, taken)
    return result


def rule_of(case: Case, label: str) -> PairRule | None:
    """Return what the spec says of a pair: its own rule's word, else the one for the whole case."""
    rule = rule_for(case.pairs, label)
    if case.expect != "mismatch" or (rule is not None and rule.expect):
        return rule
    own = rule or PairRule("*")
    return replace(own, glob="*", expect="mismatch", kind=case.expect_kind)


def skipped(label: str, output: str, taken: str, rule: PairRule) -> PairResult:
    """Return the result of a pair that the spec asks not to check."""
    note = rule.reason or "expect: skip"
    return PairResult(label, output, taken, Status.SKIPPED, method="none", note=note)


def _expect_mismatch(result: PairResult, rule: PairRule) -> PairResult:
    if result.status is Status.MISMATCHED and rule.kind not in ("", result.mismatch):
        told = f" {result.message}" if result.message else ""
        return replace(
            result,
            message=f"the spec expects a mismatch of the kind {rule.kind}, but this one is of the kind "
            f"{result.mismatch}.{told}",
        )
    if result.status is Status.MISMATCHED:
        reason = f": {rule.reason}" if rule.reason else ""
        return replace(result, status=Status.EXPECTED_MISMATCH, note=f"as expected{reason}")
    if result.status is Status.PASSED:
        remedy = (
            "remove 'expect: mismatch'."
            if rule.glob == result.label
            else "say 'expect: mismatch' of the pairs that are wrong alone, under 'pairs'."
        )
        return replace(
            result,
            status=Status.UNEXPECTED_PASS,
            message=f"the spec expects a mismatch, but the gradient is right; {remedy}",
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


def _expect_zero(
    result: PairResult, samples: list[PairSample], output: TensorInfo, taken: TensorInfo
) -> PairResult:
    if not result.connected:
        return replace(
            result,
            status=Status.MISMATCHED,
            message="the spec expects a gradient of zeros, but it is None (disconnected); "
            "they aren't the same.",
        )
    if not all(sample.analytic_is_zero for sample in samples):
        return replace(
            result,
            status=Status.MISMATCHED,
            message="the spec expects zeros, but the gradient isn't zero.",
            mismatch="value",
            **largest_gradient(samples, output, taken),
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
