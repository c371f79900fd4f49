"""Check one case: every pair at every sample point, the structural checks, then what the spec expects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np

from gradcheck_cli.checking.diagnosis import diagnose
from gradcheck_cli.checking.expectations import expect_of_case, expect_of_pair, skipped
from gradcheck_cli.checking.forward import (
    check_frozen,
    check_inputs_unmodified,
    check_random,
    check_reference_forward,
)
from gradcheck_cli.checking.operation import GradientFormError, Operation
from gradcheck_cli.checking.packing import Float
from gradcheck_cli.checking.pair import summarise
from gradcheck_cli.checking.precision import judge_declared
from gradcheck_cli.checking.sample import (
    Operations,
    Pair,
    PairSample,
    analytic_jacobians,
    judge_pairs,
    label_of,
    pairs_of,
)
from gradcheck_cli.checking.upstream import (
    Pulled,
    check_joint_linearity,
    check_linearity,
    check_same,
    check_zero_upstream,
    pull_random,
)
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.results import CheckResult, PairResult, Status
from gradcheck_cli.spec.case import Case, PairRule
from gradcheck_cli.spec.pairs import rule_for, unmatched_rules


Op = TypeVar("Op", bound=Operation)


class Opener(Protocol[Op]):
    """Opens a case as an op at a sample point, traced afresh at each call."""

    def declared(self, sample: int) -> Op:
        """Open the op in the dtypes that the spec names."""

    def in_float64(self, own: Op) -> Op | None:
        """Open an opened op in float64 too; `None` where that isn't needed, or isn't the same function."""

    def in_complex(self, own: Op) -> Op:
        """Open an opened op in complex128, for the complex step; CaseFailedError where it can't be."""

    def surrogate(self, sample: int) -> Op:
        """Open the spec's reference function in the dtypes that the spec names."""


@dataclass
class Findings:
    """What was found about one case."""

    pairs: tuple[PairResult, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    warnings: tuple[str, ...] = ()
    numeric_dtype: str = ""


@dataclass
class _Gathered:
    """What the sample points have given so far."""

    samples: dict[Pair, list[PairSample]] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_case(case: Case, opener: Opener[Op], samples: range) -> Findings:
    """Check a case.

    Args:
        case: the case.
        opener: makes ops of it.
        samples: numbers of the sample points.

    Returns:
        The findings, with the spec's expectations applied.

    Raises:
        CaseFailedError: the case can't be checked.
    """
    first = opener.declared(samples[0])
    _require_finite(first)
    rules = _rules(case, first)
    random = check_random(first)
    if random is not None:
        return Findings(checks=(random,))
    frozen = check_frozen(first)
    if frozen is not None and frozen.status is not Status.PASSED:
        return Findings(checks=(frozen,))
    gathered = _Gathered(checks=[] if frozen is None else [frozen])
    try:
        for sample in samples:
            op = first if sample == samples[0] else opener.declared(sample)
            _check_sample(case, opener, sample, op, rules, gathered)
    except GradientFormError as error:
        return _malformed(case, first, rules, error)
    pairs = tuple(
        _result(case, first, pair, rules[pair], gathered.samples.get(pair, [])) for pair in pairs_of(first)
    )
    pairs = _with_dtype_faults(first, _diagnosed(first, pairs, gathered.samples))
    pairs, checks = expect_of_case(case, pairs, tuple(_once(gathered.checks)))
    numeric = next((pair.reference_dtype for pair in pairs if pair.method != "none"), "")
    return Findings(pairs, checks, tuple(dict.fromkeys(gathered.warnings)), numeric)


def _require_finite(op: Operation) -> None:
    """Refuse inputs where there can be no difference: NaN and infinities have no neighbours.

    Raises:
        CaseFailedError: of kind "values".
    """
    for info, value in zip(op.inputs, op.point, strict=True):
        if info.is_differentiable and not np.isfinite(value).all():
            where = tuple(int(index) for index in np.argwhere(~np.isfinite(value))[0])
            raise CaseFailedError(
                "values",
                f"input {info.name} is {value[where]} at {list(where)}: there is no difference to take there; "
                "give a finite value, or say 'differentiate: false'.",
            )


def _rules(case: Case, op: Operation) -> dict[Pair, PairRule | None]:
    labels = {pair: label_of(op, pair) for pair in pairs_of(op)}
    unmatched = unmatched_rules(case.pairs, labels.values())
    if unmatched:
        globs = ", ".join(repr(rule.glob) for rule in unmatched)
        raise CaseFailedError(
            "pairs",
            f"pairs: {globs} matches none of the pairs: {', '.join(labels.values()) or 'there are none'}.",
        )
    return {pair: rule_for(case.pairs, label) for pair, label in labels.items()}


def _is_expected_wrong(rule: PairRule | None) -> bool:
    return rule is not None and rule.expect == "mismatch"


def _is_skipped(rule: PairRule | None) -> bool:
    return rule is not None and rule.expect == "skip"


def _check_sample(
    case: Case,
    opener: Opener[Op],
    sample: int,
    op: Op,
    rules: dict[Pair, PairRule | None],
    gathered: _Gathered,
) -> None:
    pairs = [pair for pair in pairs_of(op) if not _is_skipped(rules[pair])]
    operations = _operations(case, opener, sample, op)
    declared = analytic_jacobians(op, pairs)
    formula = (
        analytic_jacobians(operations.formula, pairs) if operations.has_reference_precision else declared
    )
    judged = judge_pairs(case, operations, formula, rules)
    if operations.has_reference_precision and "precision" not in case.checks_off:
        wrong, warnings = judge_declared(case, operations, declared, judged, rules)
        judged |= wrong
        gathered.warnings += warnings
    for pair, result in judged.items():
        gathered.samples.setdefault(pair, []).append(result)
    # Where a pair is expected to be wrong, what its upstream does to it is of no interest.
    sound = {pair: matrix for pair, matrix in declared.items() if not _is_expected_wrong(rules[pair])}
    gathered.checks += _upstream_checks(case, opener, sample, op, sound)
    if "inputs_unmodified" not in case.checks_off:
        gathered.checks += check_inputs_unmodified(op)
    if case.reference_forward:
        gathered.checks.append(check_reference_forward(case, op, opener.surrogate(sample)))


def _operations(case: Case, opener: Opener[Op], sample: int, op: Op) -> Operations:
    formula = opener.in_float64(op) or op
    if case.reference is None:
        return Operations(op, formula, formula, _in_complex(case, opener, formula))
    surrogate = opener.surrogate(sample)
    surrogate = opener.in_float64(surrogate) or surrogate
    if _shapes(surrogate) != _shapes(op):
        raise CaseFailedError(
            "outputs",
            f"the reference's outputs must have the forward's shapes {_shapes(op)}, "
            f"but have {_shapes(surrogate)}.",
        )
    return Operations(op, formula, surrogate, _in_complex(case, opener, surrogate))


def _in_complex(case: Case, opener: Opener[Op], differenced: Op) -> Op | None:
    return opener.in_complex(differenced) if case.method == "complex_step" else None


def _shapes(op: Operation) -> list[list[int]]:
    return [list(output.shape) for output in op.outputs]


def _upstream_checks(
    case: Case, opener: Opener[Op], sample: int, op: Op, analytic: dict[Pair, Float | None]
) -> list[CheckResult]:
    """Check the declared op's vjp as a function of its upstream; traced again at the first sample point."""
    outputs = sorted({output for output, _ in analytic if op.outputs[output].size})
    if not outputs:
        return []

    def pull(from_op: Op) -> list[Pulled]:
        return [pull_random(from_op, output, case.seed) for output in outputs]

    pulled = pull(op)
    checks = []
    if "linearity" not in case.checks_off:
        checks.append(check_linearity(op, pulled, analytic))
        checks[-1] = check_joint_linearity(op, pulled) if checks[-1].status is Status.PASSED else checks[-1]
    if "zero_upstream" not in case.checks_off:
        checks.append(check_zero_upstream(op, pulled, analytic))
    if "repeat" not in case.checks_off:
        again = check_same(
            "repeat", "when it is run again", op, pulled, pull(op), analytic, case.nondeterminism
        )
        checks.append(again)
    if "retrace" not in case.checks_off and sample == 0:
        afresh = pull(opener.declared(sample))
        what = "when it is traced again"
        checks.append(check_same("retrace", what, op, pulled, afresh, analytic, case.nondeterminism))
    return checks


def _result(
    case: Case, op: Operation, pair: Pair, rule: PairRule | None, samples: list[PairSample]
) -> PairResult:
    output, number = pair
    label = label_of(op, pair)
    if rule is not None and _is_skipped(rule):
        return skipped(label, op.outputs[output].name, op.inputs[number].name, rule)
    result = summarise(
        label, op.outputs[output], op.inputs[number], samples, may_be_zero="all_zero" in case.checks_off
    )
    return expect_of_pair(result, rule, samples)


def _diagnosed(
    op: Operation, results: tuple[PairResult, ...], samples: dict[Pair, list[PairSample]]
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


def _once(checks: list[CheckResult]) -> list[CheckResult]:
    """Keep one result of each check: the first that didn't pass, else the first."""
    kept: dict[str, CheckResult] = {}
    for check in checks:
        if check.name not in kept or kept[check.name].status is Status.PASSED:
            kept[check.name] = check
    return list(kept.values())


def _with_dtype_faults(op: Operation, pairs: tuple[PairResult, ...]) -> tuple[PairResult, ...]:
    """Turn pairs whose gradient has another dtype than its input into mismatches: TensorFlow takes those."""
    faults = {op.inputs[number].name: message for number, message in op.dtype_faults.items()}
    return tuple(
        replace(pair, status=Status.MISMATCHED, message=faults[pair.input])
        if pair.input in faults and pair.status is not Status.SKIPPED
        else pair
        for pair in pairs
    )


def _malformed(
    case: Case, op: Operation, rules: dict[Pair, PairRule | None], error: GradientFormError
) -> Findings:
    """Report a gradient of wrong form: its pairs mismatch; of the others nothing could be said."""
    results: list[PairResult] = []
    for pair in pairs_of(op):
        output, number = pair
        rule = rules[pair]
        label, produced, taken = label_of(op, pair), op.outputs[output].name, op.inputs[number].name
        if rule is not None and _is_skipped(rule):
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
    pairs, checks = expect_of_case(case, tuple(results), ())
    return Findings(pairs, checks)
