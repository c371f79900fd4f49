"""From verdicts to results: pairs with their diagnosis and expectation, or malformed gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.gradient_form import FORM, with_dtype_fault
from gradcheck_cli.checking.diagnosis.diagnose import diagnose
from gradcheck_cli.checking.pairs.pair import PairKey, is_skipped, label_of, pair_keys
from gradcheck_cli.checking.verdicts.expectations import expect_of_pair, skipped
from gradcheck_cli.checking.verdicts.summary import summarise
from gradcheck_cli.results import PairResult, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.checking.diagnosis.hint_view import Scene
    from gradcheck_cli.checking.ops.operation import GradientFormError, Operation
    from gradcheck_cli.checking.pairs.pair_sample import PairSample
    from gradcheck_cli.errors import CaseFailedError
    from gradcheck_cli.spec.case import Case, PairRule

RAISES = "raises"


def results_of(  # noqa: PLR0913, PLR0917 (what was found, and where)
    case: Case,
    op: Operation,
    rules: Mapping[PairKey, PairRule | None],
    samples: Mapping[PairKey, list[PairSample]],
    upstream_faults: Mapping[PairKey, str],
    scenes: Sequence[Scene],
) -> tuple[PairResult, ...]:
    """Return the result of every pair, diagnosed, with its own expectation applied.

    Args:
        case: the case.
        op: the declared op.
        rules: what the spec says of each pair.
        samples: the verdicts of each pair, at each sample point.
        scenes: the sample points.
        upstream_faults: what is wrong with the use of the upstream, of pairs that are expected to be wrong.
    """
    results = tuple(
        _result(case, op, pair, rules[pair], samples, upstream_faults.get(pair, "")) for pair in pair_keys(op)
    )
    return _diagnosed(op, results, samples, scenes)


def _result(  # noqa: PLR0913, PLR0917 (a pair, and all that was found of it)
    case: Case,
    op: Operation,
    pair: PairKey,
    rule: PairRule | None,
    samples_of: Mapping[PairKey, list[PairSample]],
    upstream_fault: str,
) -> PairResult:
    output, number = pair
    label = label_of(op, pair)
    if rule is not None and is_skipped(rule):
        return skipped(label, op.outputs[output].name, op.inputs[number].name, rule)
    samples = samples_of.get(pair, [])
    result = summarise(
        label,
        op.outputs[output],
        op.inputs[number],
        samples,
        may_be_zero="all_zero" in case.checks_off or _is_straight(op, pair, samples_of),
        leads=op.leads_to(output, number),
    )
    if upstream_fault and result.status is Status.PASSED:
        result = replace(result, status=Status.MISMATCHED, message=upstream_fault, mismatch="value")
    return expect_of_pair(
        with_dtype_fault(op, number, result), rule, samples, op.outputs[output], op.inputs[number]
    )


def _is_straight(op: Operation, pair: PairKey, samples_of: Mapping[PairKey, list[PairSample]]) -> bool:
    """Whether a pair of second order may well be zero: its gradient was seen to move, by other inputs.

    The gradient of what is linear, or made of straight parts, has no slope in its input. That something was
    tested shows in the upstream: the gradient moves with that, unless it is zero itself.
    """
    return bool(op.outputs[pair[0]].of) and any(
        not sample.numeric_is_zero
        for other, samples in samples_of.items()
        if other[0] == pair[0] and other != pair
        for sample in samples
    )


def _diagnosed(
    op: Operation,
    results: tuple[PairResult, ...],
    samples: Mapping[PairKey, list[PairSample]],
    scenes: Sequence[Scene],
) -> tuple[PairResult, ...]:
    """Add to each mismatch what it looks like."""
    told = []
    for pair, result in zip(pair_keys(op), results, strict=True):
        found = samples.get(pair, [])
        output, number = pair
        others = [
            {
                op.inputs[other[1]].name: theirs[place]
                for other, theirs in samples.items()
                if other[0] == output and other[1] != number and place < len(theirs)
            }
            for place in range(len(found))
        ]
        is_form = result.mismatch == FORM  # the message says it all; zeros stood in for the gradient
        with np.errstate(all="ignore"):  # what overflows in a hypothesis explains nothing
            lines = () if is_form else diagnose(found, op.outputs[output], op.inputs[number], others, scenes)
        told.append(replace(result, diagnosis=lines) if lines else result)
    return tuple(told)


def malformed(
    op: Operation, rules: Mapping[PairKey, PairRule | None], error: GradientFormError
) -> tuple[PairResult, ...]:
    """Report a gradient of wrong form: its pairs mismatch; of the others nothing could be said."""
    results: list[PairResult] = []
    for pair in pair_keys(op):
        output, number = pair
        rule = rules[pair]
        label, produced, taken = label_of(op, pair), op.outputs[output].name, op.inputs[number].name
        if rule is not None and is_skipped(rule):
            results.append(skipped(label, produced, taken, rule))
            continue
        guilty = not error.inputs or number in error.inputs
        result = PairResult(
            label,
            produced,
            taken,
            Status.MISMATCHED if guilty else Status.INCONCLUSIVE,
            method="none",
            elements=op.outputs[output].size * op.inputs[number].size,
            message=error.message if guilty else "not checked, since another gradient has the wrong form.",
            mismatch=FORM if guilty else "",
        )
        results.append(expect_of_pair(result, rule, [], op.outputs[pair[0]], op.inputs[pair[1]]))
    return tuple(results)


def raised(
    op: Operation, rules: Mapping[PairKey, PairRule | None], error: CaseFailedError
) -> tuple[PairResult, ...]:
    """Report a gradient that raises as the spec expects it to; of other pairs nothing could be said.

    Returns:
        None where no rule expects it: then it is an error like any other.
    """
    if not any(rule is not None and rule.kind == RAISES for rule in rules.values()):
        return ()
    results: list[PairResult] = []
    for pair in pair_keys(op):
        rule = rules[pair]
        label, produced, taken = label_of(op, pair), op.outputs[pair[0]].name, op.inputs[pair[1]].name
        if rule is not None and is_skipped(rule):
            results.append(skipped(label, produced, taken, rule))
            continue
        is_meant = rule is not None and rule.kind == RAISES
        result = PairResult(
            label,
            produced,
            taken,
            Status.MISMATCHED if is_meant else Status.ERROR,
            method="none",
            elements=op.outputs[pair[0]].size * op.inputs[pair[1]].size,
            message=f"{'' if is_meant else 'not checked: '}{error.message}",
            mismatch=RAISES if is_meant else "",
        )
        results.append(expect_of_pair(result, rule, [], op.outputs[pair[0]], op.inputs[pair[1]]))
    return tuple(results)
