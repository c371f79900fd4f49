"""Examine one opened case: every pair at every sample point, and the structural checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.checking.analytic import guess_sparsities, take_jacobians
from gradcheck_cli.checking.deterministic import check_frozen, check_random
from gradcheck_cli.checking.form import check_form, with_dtype_faults
from gradcheck_cli.checking.forward_mode import settled
from gradcheck_cli.checking.inputs_unmodified import check_inputs_unmodified
from gradcheck_cli.checking.large_precision import precision_of_declared
from gradcheck_cli.checking.large_upstream import large_upstream_checks
from gradcheck_cli.checking.memory import Memory
from gradcheck_cli.checking.modes import check_modes
from gradcheck_cli.checking.operation import GradientFormError
from gradcheck_cli.checking.outcome import is_expected_wrong, is_skipped, malformed, results_of
from gradcheck_cli.checking.precision import judge_declared
from gradcheck_cli.checking.probing import probe_pair, refused, with_element
from gradcheck_cli.checking.reference_forward import check_reference_forward
from gradcheck_cli.checking.sample import (
    Operations,
    Pair,
    judge_pairs,
    label_of,
    pairs_of,
    tolerance_of,
)
from gradcheck_cli.checking.structure import once, pair_checks, upstream_checks
from gradcheck_cli.checking.variables import check_variables
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.results import CheckResult, Mutant, PairResult, Status
from gradcheck_cli.spec.case import PairRule
from gradcheck_cli.spec.pairs import rule_for, unmatched_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.checking.opener import Op, Opener
    from gradcheck_cli.checking.operation import Operation
    from gradcheck_cli.checking.pair_sample import PairSample
    from gradcheck_cli.numerics.sparsity import Sparsity
    from gradcheck_cli.spec.case import Case

_NUMPY = "a NumPy function lies on the vjp's path, which TensorFlow can't differentiate"


@dataclass
class Findings:
    """What was found about one case."""

    pairs: tuple[PairResult, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    warnings: tuple[str, ...] = ()
    numeric_dtype: str = ""
    not_differentiated: tuple[tuple[str, str], ...] = ()  # outputs of integers and such, with their dtypes
    first: Operation | None = None  # at the first sample point; None where nothing could be judged
    gradients_seen: Mapping[str, int] = field(default_factory=dict)
    mutants: tuple[Mutant, ...] = ()


@dataclass
class _Gathered:
    """What the sample points have given so far."""

    samples: dict[Pair, list[PairSample]] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    first: Operations | None = None  # at the first sample point
    seen_upstreams: bool = False
    memory: Memory = field(default_factory=Memory)
    sparsities: dict[Pair, Sparsity] | None = None
    gradients_seen: Mapping[str, int] = field(default_factory=dict)

    def see_gradients(self, opener: Opener[Op], op: Op, pairs: Sequence[Pair]) -> None:
        """Require what the spec covers at each sample point: another branch of a forward is other ops."""
        seen = opener.gradients_seen(op) if pairs else {}
        self.gradients_seen = self.gradients_seen or seen


def examine(
    case: Case,
    opener: Opener[Op],
    samples: Sequence[int],
    others: Mapping[str, Callable[[], Opener[Any]]] = MappingProxyType({}),
    known: Sequence[str] = (),
) -> Findings:
    """Check every pair of an opened case, and its structure, as it is; the op's own `expect` isn't applied.

    Args:
        case: the case.
        opener: makes ops of it.
        samples: numbers of the sample points.
        others: makes openers in other modes, by mode.
        known: labels of pairs that are checked elsewhere: rules may be meant for those.

    Returns:
        The findings, with the spec's expectations of its pairs applied.

    Raises:
        CaseFailedError: the case can't be checked.
    """
    first = opener.declared(samples[0])
    _require_finite(first)
    rules = _rules(case, first, known)
    random = check_random(first, case)
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
        wrong = malformed(first, rules, error)
        return Findings(wrong, (check_form(first, error),), not_differentiated=_without_gradient(first))
    pairs = with_dtype_faults(first, results_of(case, first, rules, gathered.samples))
    sound = {pair: found for pair, found in gathered.samples.items() if not is_expected_wrong(rules[pair])}
    if gathered.first is not None and "modes" not in case.checks_off:
        gathered.checks += check_modes(
            case,
            gathered.first,
            {pair: rules[pair] for pair in sound},
            gathered.sparsities or {},
            samples[0],
            others,
        )
    checks = once([*pair_checks(case, first, sound, pairs), *gathered.checks])
    numeric = next((pair.reference_dtype for pair in pairs if pair.method != "none"), "")
    pairs = gathered.memory.added_to(first, pairs)
    warnings = tuple(dict.fromkeys(gathered.warnings))
    return Findings(
        pairs, tuple(checks), warnings, numeric, _without_gradient(first), first, gathered.gradients_seen
    )


def _without_gradient(op: Operation) -> tuple[tuple[str, str], ...]:
    return tuple((output.name, output.dtype) for output in op.outputs if not output.is_differentiable)


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
                f"input {info.name} is {value[where]} at {list(where)}: there is no difference to take "
                "there; give a finite value, or say 'differentiate: false'.",
            )


def _rules(case: Case, op: Operation, known: Sequence[str]) -> dict[Pair, PairRule | None]:
    labels = {pair: label_of(op, pair) for pair in pairs_of(op)}
    every = [*known, *labels.values()]
    # Those that match nothing yet may be meant for the second order, whose pairs aren't known here.
    unmatched = () if case.second_order else unmatched_rules(case.pairs, every)
    if unmatched:
        globs = ", ".join(repr(rule.glob) for rule in unmatched)
        raise CaseFailedError(
            "pairs", f"pairs: {globs} matches none of the pairs: {', '.join(every) or 'there are none'}."
        )
    rules = {pair: rule_for(case.pairs, label) for pair, label in labels.items()}
    return {
        pair: PairRule(labels[pair], "skip", reason=_NUMPY)
        if op.outputs[pair[0]].of and op.passes_numpy(*pair)
        else rule
        for pair, rule in rules.items()
    }


def _check_sample(  # noqa: PLR0913, PLR0917 (what one sample point takes part in)
    case: Case,
    opener: Opener[Op],
    sample: int,
    op: Op,
    rules: dict[Pair, PairRule | None],
    gathered: _Gathered,
) -> None:
    pairs = [pair for pair in pairs_of(op) if not is_skipped(rules[pair])]
    gathered.see_gradients(opener, op, pairs)
    operations = _operations(case, opener, sample, op)
    gathered.first = gathered.first or operations
    if gathered.sparsities is None:
        gathered.sparsities = guess_sparsities(case, operations.formula, pairs)
    declared, formula = take_jacobians(case, operations, pairs, gathered.sparsities)
    judged = {
        pair: settled(case, operations, pair, rules[pair], found)
        for pair, found in judge_pairs(case, operations, formula, rules).items()
    }
    large = [pair for pair in pairs if pair not in judged]
    warnings: list[str] = []
    if operations.has_reference_precision:
        # A declared dtype that is wrong outright is wrong, also where its loss of digits is of no interest.
        wrong, warnings = judge_declared(case, operations, declared, judged, rules)
        judged |= wrong
    for pair in large:
        if any((earlier.verdict == Verdict.MISMATCH).any() for earlier in gathered.samples.get(pair, [])):
            continue  # found wrong, and what found it takes its time
        judged[pair], warning = _probe(case, operations, pair, rules[pair], sample)
        warnings += [warning] if warning else []
    if operations.has_reference_precision and "precision" not in case.checks_off:
        gathered.warnings += warnings
        gathered.checks.append(CheckResult("precision", Status.PASSED, "" if not warnings else warnings[0]))
    gathered.memory.keep(case, operations, rules)
    for pair, result in judged.items():
        gathered.samples.setdefault(pair, []).append(result)
    # Where a pair is expected to be wrong, what its upstream does to it is of no interest.
    sound = {pair: matrix for pair, matrix in declared.items() if not is_expected_wrong(rules[pair])}
    # Traced again at the first point; the others are traced afresh anyway.
    again = None if gathered.seen_upstreams else lambda: opener.afresh(op)
    gathered.checks += upstream_checks(case, op, sound, again)
    if not gathered.seen_upstreams:
        known = [pair for pair in large if pair not in sound and not is_expected_wrong(rules[pair])]
        gathered.checks += large_upstream_checks(case, op, known, lambda: opener.afresh(op))
        gathered.checks += check_variables(case, op, sound, known, lambda: opener.reordered(sample))
    gathered.seen_upstreams = True
    if (case.binding == "py_func" or op.modified_inputs) and "inputs_unmodified" not in case.checks_off:
        gathered.checks.append(check_inputs_unmodified(op))
    if case.reference_forward:
        gathered.checks.append(check_reference_forward(case, op, operations.differenced))


def _probe(
    case: Case, operations: Operations, pair: Pair, rule: PairRule | None, sample: int
) -> tuple[PairSample, str]:
    """Judge a pair by probes: its formula, then what its declared dtype makes of that; with a warning."""
    if case.full_only:
        return refused(operations, pair), ""
    found = probe_pair(case, operations, pair, tolerance_of(case, operations, pair, rule), sample)
    if not operations.has_reference_precision:
        return found, ""
    warning, element = precision_of_declared(case, operations, pair)
    if element is not None and operations.differenced is operations.formula:
        own = Operations(operations.declared, operations.declared, operations.declared)
        again = with_element(case, own, pair, tolerance_of(case, own, pair, rule), element, found)
        if (again.verdict == Verdict.MISMATCH).any():
            return again, ""
    return found, warning


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
    if _names(surrogate) != _names(op):
        # By place alone, one's loss could be compared with the other's accuracy.
        raise CaseFailedError(
            "outputs",
            f"the reference must return what the forward does, {', '.join(_names(op))}, but returns "
            f"{', '.join(_names(surrogate))}: return the same structure, or name the outputs in the spec.",
        )
    return Operations(op, formula, surrogate, _in_complex(case, opener, surrogate))


def _in_complex(case: Case, opener: Opener[Op], differenced: Op) -> Op | None:
    return opener.in_complex(differenced) if case.method == "complex_step" else None


def _names(op: Operation) -> list[str]:
    return [output.name for output in op.outputs]


def _shapes(op: Operation) -> list[list[int]]:
    return [list(output.shape) for output in op.outputs]
