"""From verdicts to results: pairs with their diagnosis and expectation, or malformed gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gradcheck_cli.checking.diagnosis import diagnose
from gradcheck_cli.checking.expectations import expect_of_pair, skipped
from gradcheck_cli.checking.pair import summarise
from gradcheck_cli.checking.sample import Pair, label_of, pairs_of
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.results import PairResult, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.operation import GradientFormError, Operation
    from gradcheck_cli.checking.pair_sample import PairSample
    from gradcheck_cli.spec.case import Case, PairRule


def is_expected_wrong(rule: PairRule | None) -> bool:
    """Whether a rule says that its pairs mismatch."""
    return rule is not None and rule.expect == "mismatch"


def is_skipped(rule: PairRule | None) -> bool:
    """Whether a rule says that its pairs aren't checked."""
    return rule is not None and rule.expect == "skip"


def results_of(
    case: Case,
    op: Operation,
    rules: Mapping[Pair, PairRule | None],
    samples: Mapping[Pair, list[PairSample]],
) -> tuple[PairResult, ...]:
    """Return the result of every pair, diagnosed, with its own expectation applied."""
    results = tuple(_result(case, op, pair, rules[pair], samples.get(pair, [])) for pair in pairs_of(op))
    return _diagnosed(op, results, samples)


def _result(
    case: Case, op: Operation, pair: Pair, rule: PairRule | None, samples: list[PairSample]
) -> PairResult:
    output, number = pair
    label = label_of(op, pair)
    if rule is not None and is_skipped(rule):
        return skipped(label, op.outputs[output].name, op.inputs[number].name, rule)
    result = summarise(
        label,
        op.outputs[output],
        op.inputs[number],
        samples,
        may_be_zero="all_zero" in case.checks_off,
        leads=op.leads_to(output, number),
    )
    return expect_of_pair(result, rule, samples)


def _diagnosed(
    op: Operation, results: tuple[PairResult, ...], samples: Mapping[Pair, list[PairSample]]
) -> tuple[PairResult, ...]:
    """Add to each mismatch what it looks like, at the first sample point that shows it."""
    told = []
    for pair, result in zip(pairs_of(op), results, strict=True):
        wrong = [
            number
            for number, sample in enumerate(samples.get(pair, []))
            if (sample.verdict == Verdict.MISMATCH).any()
        ]
        if not wrong:
            told.append(result)
            continue
        output, number = pair
        others = {
            op.inputs[other[1]].name: found[wrong[0]]
            for other, found in samples.items()
            if other[0] == output and other[1] != number
        }
        lines = diagnose(samples[pair][wrong[0]], op.outputs[output], op.inputs[number], others)
        told.append(replace(result, diagnosis=lines))
    return tuple(told)


def malformed(
    op: Operation, rules: Mapping[Pair, PairRule | None], error: GradientFormError
) -> tuple[PairResult, ...]:
    """Report a gradient of wrong form: its pairs mismatch; of the others nothing could be said."""
    results: list[PairResult] = []
    for pair in pairs_of(op):
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
        )
        results.append(expect_of_pair(result, rule, []))
    return tuple(results)
