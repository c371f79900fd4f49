"""Apply what a spec expects of a pair, strictly: what it expects must be so, of every pair that it covers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.all_zero import UNTESTED_NONE
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.pairs.pair import label_of, pair_keys
from gradcheck_cli.checking.verdicts.summary import largest_gradient
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import Reason
from gradcheck_cli.results import PairResult, Status
from gradcheck_cli.spec.case import PairRule
from gradcheck_cli.spec.cases.pair_rules import rule_for, unmatched_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.ops.operation import Operation, TensorInfo
    from gradcheck_cli.checking.pairs.pair import PairKey
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


_NUMPY = "every way there goes through a NumPy function, which TensorFlow can't differentiate"


def rules_of(case: Case, op: Operation, known: Sequence[str]) -> dict[PairKey, PairRule | None]:
    """Return what a spec says of each pair of an op; `None` where it says nothing.

    Args:
        case: the case.
        op: the op, whose pairs they are.
        known: labels of pairs that are checked elsewhere: rules may be meant for those.

    Raises:
        CaseFailedError: a rule matches no pair.
    """
    labels = {pair: label_of(op, pair) for pair in pair_keys(op)}
    every = [*known, *labels.values()]
    # Those that match nothing yet may be meant for the second order, whose pairs aren't known here.
    unmatched = () if case.second_order else unmatched_rules(case.pairs, every)
    if unmatched:
        globs = ", ".join(repr(rule.glob) for rule in unmatched)
        raise CaseFailedError(
            "pairs", f"pairs: {globs} matches none of the pairs: {', '.join(every) or 'there are none'}."
        )
    rules = {pair: rule_of(case, label) for pair, label in labels.items()}
    return {
        pair: PairRule(labels[pair], "skip", reason=_NUMPY)
        if rule_for(case.pairs, labels[pair]) is None
        and op.outputs[pair[0]].of
        and _is_closed_by_numpy(op, pair)
        else rule
        for pair, rule in rules.items()
    }


def _is_closed_by_numpy(op: Operation, pair: PairKey) -> bool:
    """Whether a gradient is `None` since TensorFlow can't go through NumPy, which isn't a slope of zero."""
    try:
        return op.passes_numpy(*pair) and not op.is_connected(*pair)
    except GradientFormError:  # a finding, which comes up again where it is looked for
        return False
