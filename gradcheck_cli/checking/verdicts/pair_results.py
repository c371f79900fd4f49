"""Turn verdicts into results: pairs with diagnosis and expectation, or pairs with malformed gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gradcheck_cli import hooks
from gradcheck_cli.checking.checks.all_zero import NO_PATH
from gradcheck_cli.checking.checks.gradient_form import FORM, with_dtype_fault
from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.operation import GradientFormError, Operation
from gradcheck_cli.checking.pairs.pair import is_skipped, label_of, pair_keys
from gradcheck_cli.checking.pairs.pair_sample import RIGHT_BESIDE, PairSample
from gradcheck_cli.checking.pairs.pair_view import PointData
from gradcheck_cli.checking.verdicts.expectations import apply_expectation, make_skipped_result
from gradcheck_cli.checking.verdicts.summary import summarise
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import NOT_JUDGED, PairNumbers, PairResult, Status
from gradcheck_cli.spec.case import Case, PairRule

RAISES = "raises"
REFUSED = "Beside the point, {raised} If it accepts a range only, state it as the input's 'domain'."


def results_of(  # noqa: PLR0913, PLR0917 (the findings, and where they were made)
    case: Case,
    op: Operation,
    rules: Mapping[PairKey, PairRule | None],
    samples: Mapping[PairKey, list[PairSample]],
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
    samples_of: Mapping[PairKey, list[PairSample]],
    upstream_fault: str,
) -> PairResult:
    output, input_index = pair
    label = label_of(op, pair)
    if rule is not None and is_skipped(rule):
        return make_skipped_result(label, op.outputs[output].name, op.inputs[input_index].name, rule)
    samples = samples_of.get(pair, [])
    is_zero = all(sample.numeric_is_zero and sample.analytic_is_zero for sample in samples)
    has_no_path = is_zero and not op.facts.reaches(output, input_index)
    result = summarise(
        label,
        op.outputs[output],
        op.inputs[input_index],
        samples,
        may_be_zero="all_zero" in case.checks_off or has_no_path or _is_straight(op, pair, samples_of),
        leads=op.facts.leads_to(output, input_index),
    )
    if has_no_path and result.status is Status.PASSED and not result.note:
        result = replace(result, note=NO_PATH)
    elif samples and samples[-1].remark == RIGHT_BESIDE and result.status is Status.PASSED:
        result = replace(result, note=RIGHT_BESIDE)
    if result.status is Status.INCONCLUSIVE and op.facts.refusal:
        result = replace(
            result, message=f"{result.message} {REFUSED.format(raised=op.facts.refusal)}".lstrip()
        )
    if upstream_fault and result.status is Status.PASSED:
        result = replace(result, status=Status.MISMATCHED, message=upstream_fault, mismatch="value")
    return apply_expectation(
        with_dtype_fault(op, input_index, result), rule, samples, op.outputs[output], op.inputs[input_index]
    )


def _is_straight(op: Operation, pair: PairKey, samples_of: Mapping[PairKey, list[PairSample]]) -> bool:
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
    samples: Mapping[PairKey, list[PairSample]],
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
        # With a wrong form, the message is complete: zeros stood in for the gradient. With a shape of its own
        # at each point, no hypothesis fits the output.
        is_unexplained = result.mismatch == FORM or len({sample.size for sample in pair_samples}) > 1
        with np.errstate(all="ignore"):  # a hypothesis that overflows explains nothing
            lines = (
                ()
                if is_unexplained
                else hooks.diagnose(
                    pair_samples, op.outputs[output], op.inputs[input_index], other_pairs, points
                )
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
        output, input_info, rule = op.outputs[pair[0]], op.inputs[pair[1]], rules[pair]
        label = label_of(op, pair)
        if rule is not None and is_skipped(rule):
            results.append(make_skipped_result(label, output.name, input_info.name, rule))
            continue
        status, message, mismatch = decide(pair)
        result = PairResult(
            label,
            output.name,
            input_info.name,
            status,
            message=message,
            mismatch=mismatch,
            numbers=PairNumbers(elements=output.size * input_info.size),
            numeric=NOT_JUDGED,
        )
        results.append(apply_expectation(result, rule, [], output, input_info))
    return tuple(results)
