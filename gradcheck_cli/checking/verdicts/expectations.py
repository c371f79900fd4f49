"""Apply the spec's expectations to pairs. An expectation must hold for every pair that it covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradcheck_cli.checking.checks.all_zero import UNMOVED, UNTESTED_NONE
from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.operation import GradientFormError, Operation, TensorInfo
from gradcheck_cli.checking.pairs.bound_width import is_zero_but_for_rounding
from gradcheck_cli.checking.pairs.pair import label_of, pair_keys
from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.checking.verdicts.summary import largest_gradient
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import Reason
from gradcheck_cli.results import NOT_JUDGED, PairResult, Status
from gradcheck_cli.spec.case import Case, PairRule, rule_for, unmatched_rules

_NUMPY = "every path goes through a NumPy function, which TensorFlow can't differentiate"


def apply_expectation(
    result: PairResult,
    rule: PairRule | None,
    samples: list[PairSample],
    output: TensorInfo,
    input_info: TensorInfo,
) -> PairResult:
    """Return a pair's result with its rule's expectation applied.

    Args:
        result: the result by the numbers alone.
        rule: the spec's rule for this pair, if any.
        samples: the pair at each sample point; for `expect: zero`.
        output: the output that is differentiated.
        input_info: the input that it is differentiated by.
    """
    if rule is None:
        return result
    expect = rule.expect
    if expect == "mismatch":
        return _expect_mismatch(result, rule)
    if expect == "disconnected":
        return _expect_disconnected(result)
    if expect == "zero":
        return _expect_zero(result, samples, output, input_info)
    return result


def rule_of(case: Case, label: str) -> PairRule | None:
    """Return the spec's rule for a pair: its own, else the one for the whole case."""
    rule = rule_for(case.pairs, label)
    if case.expect != "mismatch" or (rule is not None and rule.expect):
        return rule
    base_rule = rule or PairRule("*")
    return replace(base_rule, glob="*", expect="mismatch", kind=case.expect_kind)


def make_skipped_result(label: str, output: str, input_name: str, rule: PairRule) -> PairResult:
    """Return the result of a pair that the spec asks not to check."""
    note = rule.reason or "expect: skip"
    return PairResult(label, output, input_name, Status.SKIPPED, note=note, numeric=NOT_JUDGED)


def _expect_mismatch(result: PairResult, rule: PairRule) -> PairResult:
    if result.status is Status.MISMATCHED and rule.kind not in ("", result.mismatch):
        suffix = f" {result.message}" if result.message else ""
        return replace(
            result,
            message=f"the spec expects a mismatch of the kind {rule.kind}, but this one is of the kind "
            f"{result.mismatch}.{suffix}",
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
    result: PairResult, samples: list[PairSample], output: TensorInfo, input_info: TensorInfo
) -> PairResult:
    if not result.connected:
        return replace(
            result,
            status=Status.MISMATCHED,
            message="the spec expects a gradient of zeros, but it is None (disconnected); "
            "they aren't the same.",
        )
    if not all(sample.analytic_is_zero for sample in samples):
        is_right = result.status is Status.PASSED or result.message == UNMOVED
        if is_right and all(map(is_zero_but_for_rounding, samples)):
            return replace(result, status=Status.PASSED, message="", note="zero up to rounding, as expected")
        return replace(
            result,
            status=Status.MISMATCHED,
            message="the spec expects zeros, but the gradient isn't zero.",
            mismatch="value",
            numbers=replace(result.numbers, **largest_gradient(samples, output, input_info)),
        )
    # The numbers can't tell whether a staircase is meant (an element picked by a maximum) or is what rounding
    # leaves of a slope. The expectation says that it is meant: the gradient is zero between the steps.
    undecided = any(
        bool((~np.isin(sample.reason, (Reason.NONE, Reason.STAIRCASE))).any() or sample.doubt)
        for sample in samples
    )
    if result.status is Status.INCONCLUSIVE and not undecided:
        return replace(result, status=Status.PASSED, message="", note="zero, as expected")
    return result


def rules_of(case: Case, op: Operation, known_labels: Sequence[str]) -> dict[PairKey, PairRule | None]:
    """Return the spec's rule for each pair of an op; `None` for a pair without one.

    Args:
        op: the op that has the pairs.
        known_labels: labels of pairs that are checked elsewhere; rules may be meant for those.

    Raises:
        CaseFailedError: a rule matches no pair.
    """
    labels = {pair: label_of(op, pair) for pair in pair_keys(op)}
    all_labels = [*known_labels, *labels.values()]
    # Rules without a match may be meant for the second order, whose pairs aren't known here.
    unmatched = () if case.second_order else unmatched_rules(case.pairs, all_labels)
    if unmatched:
        globs = ", ".join(repr(rule.glob) for rule in unmatched)
        raise CaseFailedError(
            "pairs", f"pairs: {globs} matches none of the pairs: {', '.join(all_labels) or 'there are none'}."
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
    """Whether a gradient is `None` because TensorFlow can't go through NumPy; the slope may be non-zero."""
    try:
        return op.facts.passes_numpy(*pair) and not op.facts.is_connected(*pair)
    except GradientFormError:  # a finding, which is raised again where the form is checked
        return False
