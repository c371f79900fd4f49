"""Turn verdicts into results: pairs with diagnosis and expectation, or pairs with malformed gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gradcheck_cli import hooks
from gradcheck_cli.checking.checks.all_checks import FORM, NO_PATH, UNMOVED, UNTESTED_NONE, with_dtype_fault
from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.operation import GradientFormError, Operation
from gradcheck_cli.checking.pairs.pair import (
    RIGHT_BESIDE,
    PairSample,
    PairVerdicts,
    PointData,
    is_skipped,
    label_of,
    pair_keys,
)
from gradcheck_cli.checking.verdicts.summary import is_zero_but_for_rounding, largest_gradient, summarise
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import Reason
from gradcheck_cli.results import NOT_JUDGED, ZERO_SIZE, PairNumbers, PairResult, Status
from gradcheck_cli.spec.case import Case, PairRule, stated_rule, unmatched_rules

_NUMPY = "every path goes through a NumPy function, which TensorFlow can't differentiate"


def apply_expectation(result: PairResult, rule: PairRule | None, judged: PairVerdicts) -> PairResult:
    """Return a pair's result with its rule's expectation applied.

    Args:
        result: the result by the numbers alone.
        rule: the spec's rule for this pair, if any.
        judged: the verdicts; for `expect: zero`.
    """
    if rule is None:
        return result
    expect = rule.expect
    if expect == "mismatch":
        return _expect_mismatch(result, rule)
    if expect == "disconnected":
        return _expect_disconnected(result)
    if expect == "zero":
        return _expect_zero(result, judged)
    return result


def rule_of(case: Case, label: str) -> PairRule | None:
    """Return the spec's rule for a pair: its own, else the one for the whole case."""
    rule = stated_rule(case.expected.pairs, label)
    if case.expected.expect != "mismatch" or (rule is not None and rule.expect):
        return rule
    base_rule = rule or PairRule("*")
    return replace(base_rule, glob="*", expect="mismatch", kind=case.expected.kind)


def make_skipped_result(judged: PairVerdicts, rule: PairRule) -> PairResult:
    """Return the result of a pair that the spec asks not to check."""
    names = judged.label, judged.output.name, judged.input_info.name
    return PairResult(*names, Status.SKIPPED, note=rule.reason or "expect: skip", judged_by=NOT_JUDGED)


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


def _expect_zero(result: PairResult, judged: PairVerdicts) -> PairResult:
    samples = judged.samples
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
            numbers=replace(result.numbers, **largest_gradient(judged)),
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
    unmatched = () if case.judging.second_order else unmatched_rules(case.expected.pairs, all_labels)
    if unmatched:
        globs = ", ".join(repr(rule.glob) for rule in unmatched)
        raise CaseFailedError(
            "pairs", f"{globs} matches none of the pairs: {', '.join(all_labels) or 'there are none'}."
        )
    rules = {pair: rule_of(case, label) for pair, label in labels.items()}
    return {
        pair: PairRule(labels[pair], "skip", reason=_NUMPY)
        if stated_rule(case.expected.pairs, labels[pair]) is None
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


RAISES = "raises"
REFUSED = "Beside the point, {raised} If it accepts a range only, state it as the input's 'domain'."


def results_of(  # noqa: PLR0913, PLR0917 (the findings, and where they were made)
    case: Case,
    op: Operation,
    rules: Mapping[PairKey, PairRule | None],
    samples: Mapping[PairKey, Sequence[PairSample]],
    upstream_faults: Mapping[PairKey, str],
    points: Sequence[PointData],
) -> tuple[PairResult, ...]:
    """Return the result of every pair, diagnosed, with its own expectation applied.

    Args:
        op: the declared op.
        rules: the spec's rule for each pair.
        samples: the verdicts on each pair, at each sample point.
        points: the sample points.
        upstream_faults: how pairs that are expected to be wrong misuse the upstream.
    """
    results = tuple(
        _result(case, op, pair, rules[pair], samples, upstream_faults.get(pair, "")) for pair in pair_keys(op)
    )
    return _diagnose_mismatches(op, results, samples, points)


def _result(  # noqa: PLR0913, PLR0917 (a pair, and all findings about it)
    case: Case,
    op: Operation,
    pair: PairKey,
    rule: PairRule | None,
    samples_of: Mapping[PairKey, Sequence[PairSample]],
    upstream_fault: str,
) -> PairResult:
    samples = samples_of.get(pair, [])
    judged = PairVerdicts.of(op, pair, samples)
    if rule is not None and is_skipped(rule):
        return make_skipped_result(judged, rule)
    is_zero = all(sample.is_zero for sample in samples)
    has_no_path = is_zero and not op.facts.reaches(*pair)
    result = summarise(
        judged,
        may_be_zero="all_zero" in case.judging.checks_off
        or has_no_path
        or _is_straight(op, pair, samples_of),
        leads=op.facts.leads_to(*pair),
    )
    if has_no_path and result.status is Status.PASSED and result.note in {"", ZERO_SIZE}:
        result = replace(result, note=NO_PATH)
    elif samples and samples[-1].remark == RIGHT_BESIDE and result.status is Status.PASSED:
        result = replace(result, note=RIGHT_BESIDE)
    if result.status is Status.INCONCLUSIVE and op.facts.refusal:
        result = replace(
            result, message=f"{result.message} {REFUSED.format(raised=op.facts.refusal)}".lstrip()
        )
    if upstream_fault and result.status is Status.PASSED:
        result = replace(result, status=Status.MISMATCHED, message=upstream_fault, mismatch="value")
    return apply_expectation(with_dtype_fault(op, pair[1], result), rule, judged)


def _is_straight(op: Operation, pair: PairKey, samples_of: Mapping[PairKey, Sequence[PairSample]]) -> bool:
    """Whether a second-order pair may be zero, since its gradient was seen to move with another input.

    The gradient of a linear or piecewise linear function has no slope in its input. It moves with its
    upstream, unless it is zero itself: that shows that something was tested.
    """
    return bool(op.outputs[pair[0]].of) and any(
        not sample.numeric_is_zero
        for other_pair, samples in samples_of.items()
        if other_pair[0] == pair[0] and other_pair != pair
        for sample in samples
    )


def _diagnose_mismatches(
    op: Operation,
    results: tuple[PairResult, ...],
    samples: Mapping[PairKey, Sequence[PairSample]],
    points: Sequence[PointData],
) -> tuple[PairResult, ...]:
    """Add a diagnosis to each mismatch."""
    diagnosed = []
    for pair, result in zip(pair_keys(op), results, strict=True):
        pair_samples = samples.get(pair, [])
        output, input_index = pair
        other_pairs = [
            {
                op.inputs[other_pair[1]].name: other_samples[sample_index]
                for other_pair, other_samples in samples.items()
                if other_pair[0] == output
                and other_pair[1] != input_index
                and sample_index < len(other_samples)
            }
            for sample_index in range(len(pair_samples))
        ]
        # Where the form is wrong, the message says everything: zeros stood in for the gradient. Where the
        # output has another shape at each point, no hypothesis fits it.
        is_unexplained = (
            result.mismatch == FORM
            or len({sample.size for sample in pair_samples}) > 1
            or not any(sample.is_wrong for sample in pair_samples)
        )
        lines = (
            ()
            if is_unexplained
            else hooks.ask(
                "diagnose", pair_samples, op.outputs[output], op.inputs[input_index], other_pairs, points
            )
            or ()
        )
        diagnosed.append(result.explained(*lines) if lines else result)
    return tuple(diagnosed)


def report_malformed(
    op: Operation, rules: Mapping[PairKey, PairRule | None], error: GradientFormError
) -> tuple[PairResult, ...]:
    """Report a gradient of wrong form: its pairs mismatch, and the other pairs are undecided."""

    def decide(pair: PairKey) -> tuple[Status, str, str]:
        if not error.inputs or pair[1] in error.inputs:
            return Status.MISMATCHED, error.message, FORM
        return Status.INCONCLUSIVE, "not checked, since another gradient has the wrong form.", ""

    return _report_unjudged(op, rules, decide)


def report_raised(
    op: Operation, rules: Mapping[PairKey, PairRule | None], error: CaseFailedError
) -> tuple[PairResult, ...]:
    """Report a gradient that raises, as the spec expects it to; the other pairs couldn't be checked.

    Returns:
        Nothing if no rule expects it: then it is an ordinary error.
    """

    def is_meant(rule: PairRule | None) -> bool:
        return rule is not None and rule.kind == RAISES

    def decide(pair: PairKey) -> tuple[Status, str, str]:
        if is_meant(rules[pair]):
            return Status.MISMATCHED, error.message, RAISES
        return Status.ERROR, f"not checked: {error.message}", ""

    return _report_unjudged(op, rules, decide) if any(map(is_meant, rules.values())) else ()


def _report_unjudged(
    op: Operation,
    rules: Mapping[PairKey, PairRule | None],
    decide: Callable[[PairKey], tuple[Status, str, str]],
) -> tuple[PairResult, ...]:
    """Return results without numbers, with the spec's expectations applied.

    Args:
        op: the declared op.
        rules: the spec's rule for each pair.
        decide: returns a pair's status, message and kind of mismatch.
    """
    results: list[PairResult] = []
    for pair in pair_keys(op):
        judged, rule = PairVerdicts.of(op, pair, ()), rules[pair]
        if rule is not None and is_skipped(rule):
            results.append(make_skipped_result(judged, rule))
            continue
        status, message, mismatch = decide(pair)
        result = PairResult(
            judged.label,
            judged.output.name,
            judged.input_info.name,
            status,
            message=message,
            mismatch=mismatch,
            numbers=PairNumbers(elements=judged.output.size * judged.input_info.size),
            judged_by=NOT_JUDGED,
        )
        results.append(apply_expectation(result, rule, judged))
    return tuple(results)
