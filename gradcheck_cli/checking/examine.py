"""Examine one opened case: every pair at every sample point, and the structural checks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.checking.baseline.baseline_facts import Memory
from gradcheck_cli.checking.budget import Budget
from gradcheck_cli.checking.case_progress import tell
from gradcheck_cli.checking.checks.deterministic import check_frozen, check_random, check_repeats
from gradcheck_cli.checking.checks.finite import leave_undecided
from gradcheck_cli.checking.checks.gradient_form import check_form
from gradcheck_cli.checking.checks.inputs_unmodified import check_inputs_unmodified
from gradcheck_cli.checking.checks.mode_agreement import check_modes
from gradcheck_cli.checking.checks.reference_forward import check_reference_forward
from gradcheck_cli.checking.checks.structural import once, pair_checks, retrace_checks, upstream_checks
from gradcheck_cli.checking.checks.variable_gradients import check_variables
from gradcheck_cli.checking.diagnosis.causes import cause_first, with_causes
from gradcheck_cli.checking.diagnosis.hint_view import Scene
from gradcheck_cli.checking.ops.opening import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.pairs.analytic import guess_sparsities, take_jacobians
from gradcheck_cli.checking.pairs.expectations import rule_of
from gradcheck_cli.checking.pairs.formula import judged_below_float64, look_again
from gradcheck_cli.checking.pairs.formula_precision import judge_declared
from gradcheck_cli.checking.pairs.forward_mode import settled
from gradcheck_cli.checking.pairs.large_precision import precision_of_declared
from gradcheck_cli.checking.pairs.pair_results import (
    is_expected_wrong,
    is_skipped,
    malformed,
    raised,
    results_of,
)
from gradcheck_cli.checking.pairs.pair_view import Judged
from gradcheck_cli.checking.pairs.sample import (
    Operations,
    Pair,
    judge_pairs,
    label_of,
    pairs_of,
    tolerance_of,
)
from gradcheck_cli.checking.pairs.stop_gradients import StopGradients
from gradcheck_cli.checking.probing.judge_by_probes import probe_pairs, refused, with_element
from gradcheck_cli.checking.probing.method_choice import costly_pairs, is_probed
from gradcheck_cli.checking.probing.probe_group import Group
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.results import CheckResult, Mutant, PairResult, Status
from gradcheck_cli.spec.case import MOVED, PairRule
from gradcheck_cli.spec.cases.pair_rules import rule_for, unmatched_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.checking.ops.jacobian import Jacobian
    from gradcheck_cli.checking.ops.opener import Op, Opener
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.pairs.pair_sample import PairSample
    from gradcheck_cli.covered import Branch, GradientRun
    from gradcheck_cli.numerics.sparsity import Sparsity
    from gradcheck_cli.spec.case import Case

# The part of the time that there is at a point, for what is judged element by element.
_FOR_WHOLE = 0.3
_NUMPY = "every way there goes through a NumPy function, which TensorFlow can't differentiate"


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
    held: tuple[str, ...] = ()  # each stop_gradient that was held, and where
    stops: frozenset[str] = frozenset()  # keys of those that change a derivative, if nobody says they may
    judged: Mapping[str, Judged] = field(default_factory=dict)  # each pair's elements, by its label
    custom_gradients: tuple[GradientRun, ...] = ()  # that were made, and for which pairs they ran
    branches: tuple[Branch, ...] = ()  # of forward and gradient, with the sides that were taken
    chosen_points: int = 0  # that were checked besides, since they take sides that the others don't


@dataclass
class _Gathered:
    """What the sample points have given so far."""

    second: int  # number of the point at which another trace is compared
    budget: Budget  # until the end of a sample point
    for_whole: Budget  # likewise, for what is judged element by element
    stops: StopGradients
    done: float = 0.0  # share of the work before this sample point
    share: float = 1.0  # that of this one
    samples: dict[Pair, list[PairSample]] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    first: Operations | None = None  # at the first sample point
    seen_upstreams: bool = False
    memory: Memory = field(default_factory=Memory)
    sparsities: dict[Pair, Sparsity] | None = None
    costly: set[Pair] = field(default_factory=set)
    gradients_seen: Mapping[str, int] = field(default_factory=dict)
    scenes: list[Scene] = field(default_factory=list)
    upstream_faults: dict[Pair, str] = field(default_factory=dict)  # of pairs that are expected to be wrong

    def tell(self, part: float) -> None:
        """Say that such a part of the work at this sample point is done."""
        tell(self.done + part * self.share)

    def see_gradients(self, opener: Opener[Op], op: Op, pairs: Sequence[Pair]) -> None:
        """Require what the spec covers at each sample point: another branch of a forward is other ops."""
        seen = opener.gradients_seen(op) if pairs else {}
        self.gradients_seen = self.gradients_seen or seen


def examine(  # noqa: PLR0913, PLR0917 (a case, what opens it, and what is known of it)
    case: Case,
    opener: Opener[Op],
    samples: Sequence[int],
    others: Mapping[str, Callable[[], Opener[Any]]] = MappingProxyType({}),
    known: Sequence[str] = (),
    stops: frozenset[str] | None = None,
) -> Findings:
    """Check every pair of an opened case, and its structure.

    Args:
        case: the case.
        opener: makes ops of it.
        samples: numbers of the sample points.
        others: makes openers in other modes, by mode.
        known: labels of pairs that are checked elsewhere: rules may be meant for those.
        stops: of a vjp, the `stop_gradient`s that change a first derivative, if nobody says that they may.

    Returns:
        The findings, with the spec's expectations of its pairs applied.

    Raises:
        CaseFailedError: the case can't be checked.
    """
    first = opener.open(Opening(samples[0]))
    _require_finite(first)
    rules = _rules(case, first, known)
    random = check_random(first, case) or (None if first.random_types else check_repeats(first))
    if random is not None:
        return Findings(checks=(random,))
    frozen = check_frozen(first)
    if frozen is not None and frozen.status is not Status.PASSED:
        return Findings(checks=(frozen,))
    # One trace serves every point; another one is held against it at the second.
    second = samples[1] if len(samples) > 1 else MOVED
    budget = Budget(case.budget)
    no_end = Budget()
    held = StopGradients(case, rules, stops, budget=budget)
    gathered = _Gathered(second, budget, no_end, held, checks=[] if frozen is None else [frozen])
    try:
        for done, sample in enumerate(samples, 1):
            gathered.budget = budget.share(done / len(samples))
            gathered.done, gathered.share = (done - 1) / len(samples), 1 / len(samples)
            if case.method == "auto" and not case.full_only:
                gathered.for_whole = budget.share((done - 1 + _FOR_WHOLE) / len(samples))
            op = first if sample == samples[0] else opener.open(Opening(sample))
            _check_sample(case, opener, sample, op, rules, gathered)
    except GradientFormError as error:
        wrong = malformed(first, rules, error)
        form = check_form(first, wrong, error)
        return Findings(wrong, (form,), not_differentiated=_without_gradient(first))
    except CaseFailedError as error:
        meant = raised(first, rules, error) if error.kind == "gradient" else ()
        if not meant:
            raise
        return Findings(meant, not_differentiated=_without_gradient(first))
    unlike = [check for check in gathered.checks if check.name == "deterministic"]
    if unlike:
        return Findings(checks=tuple(unlike))
    pairs = results_of(case, first, rules, gathered.samples, gathered.upstream_faults, gathered.scenes)
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
    checks = cause_first(once([*pair_checks(case, first, sound, pairs), *gathered.checks]))
    pairs = with_causes(case, gathered.first, pairs, checks)
    numeric = next((pair.reference_dtype for pair in pairs if pair.method != "none"), "")
    pairs = gathered.memory.added_to(first, pairs)
    warnings = tuple(dict.fromkeys(gathered.warnings))
    return Findings(
        pairs,
        tuple(checks),
        warnings,
        numeric,
        _without_gradient(first),
        first,
        gathered.gradients_seen,
        held=_held(gathered.first),
        stops=frozenset(gathered.stops.changing),
        judged={
            label_of(first, pair): Judged(first.outputs[pair[0]], first.inputs[pair[1]], tuple(judged))
            for pair, judged in gathered.samples.items()
        },
    )


def _held(operations: Operations | None) -> tuple[str, ...]:
    """Say which `stop_gradient`s were held in what was differenced."""
    if operations is None:
        return ()
    of = "" if operations.differenced is operations.formula else " of the reference"
    return tuple(f"stop_gradient at {place}{of}" for place in operations.differenced.held_places)


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
    rules = {pair: rule_of(case, label) for pair, label in labels.items()}
    return {
        pair: PairRule(labels[pair], "skip", reason=_NUMPY)
        if rule_for(case.pairs, labels[pair]) is None
        and op.outputs[pair[0]].of
        and _is_closed_by_numpy(op, pair)
        else rule
        for pair, rule in rules.items()
    }


def _is_closed_by_numpy(op: Operation, pair: Pair) -> bool:
    """Whether a gradient is `None` since TensorFlow can't go through NumPy, which isn't a slope of zero."""
    try:
        return op.passes_numpy(*pair) and not op.is_connected(*pair)
    except GradientFormError:  # a finding, which comes up again where it is looked for
        return False


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
    operations = replace(_operations(case, opener, sample, op), budget=gathered.for_whole)
    gathered.first = gathered.first or operations
    if gathered.sparsities is None:
        gathered.sparsities = guess_sparsities(case, operations.formula, pairs)
        few = [
            pair
            for pair in pairs
            if not is_probed(case, operations.formula, pair, gathered.sparsities.get(pair))
        ]
        left = operations.budget.seconds - operations.budget.spent
        gathered.costly = costly_pairs(operations, few, gathered.sparsities, left)
    gathered.tell(0.1)
    few = [pair for pair in pairs if pair not in gathered.costly]
    declared, formula = take_jacobians(case, operations, few, gathered.sparsities)
    judged = {
        pair: settled(case, operations, pair, rules[pair], found)
        for pair, found in judge_pairs(case, operations, formula, rules).items()
    }
    gathered.tell(0.4)
    warnings: list[str] = []
    if operations.has_reference_precision:
        judged, warnings = look_again(case, operations, judged, declared, rules, gathered.sparsities)
        # A declared dtype that is wrong outright is wrong, also where its loss of digits is of no interest.
        wrong, lossy = judge_declared(case, operations, declared, judged, rules)
        judged |= wrong
        warnings += lossy
    large = [pair for pair in pairs if pair not in judged]
    gathered.costly |= set(large)
    # What was found wrong took its time to be found.
    large = [pair for pair in large if not any(map(_is_wrong, gathered.samples.get(pair, [])))]
    probed, unsure = _probe(case, operations, {pair: rules[pair] for pair in large}, sample, gathered.budget)
    judged |= probed
    warnings += unsure
    gathered.tell(0.8)
    judged = gathered.stops.weigh(operations, formula, judged, sample)
    judged, coarse = judged_below_float64(operations, judged)
    warnings += coarse
    if (operations.has_reference_precision or coarse) and "precision" not in case.checks_off:
        gathered.warnings += warnings
        gathered.checks.append(CheckResult("precision", Status.PASSED, "" if not warnings else warnings[0]))
    gathered.memory.keep(case, operations, rules)
    gathered.scenes.append(Scene.of(op.inputs, op.point, op.outputs, op.base_values))
    for pair, result in judged.items():
        told = leave_undecided(operations.differenced, pair, result)
        gathered.samples.setdefault(pair, []).append(told)
    # Where a pair is expected to be wrong, what its upstream does to it is of no interest. Those without a
    # Jacobian, which cost more, are looked at once.
    is_first = not gathered.seen_upstreams
    expected = [pair for pair in pairs if is_expected_wrong(rules[pair])]
    sound = [pair for pair in pairs if pair not in expected and (is_first or pair in declared)]
    gathered.checks += upstream_checks(case, operations, sound, (declared, formula))
    gathered.checks += _retraced(case, opener, op, sound, declared, (sample, gathered.second))
    if is_first:
        gathered.checks += check_variables(
            case, op, sound, lambda: opener.open(Opening(sample, reversed=True))
        )
        gathered.upstream_faults = {
            pair: _upstream_fault(case, opener, operations, pair, (declared, formula))
            for pair in expected
            if not _is_wrong(judged[pair])
        }
    gathered.seen_upstreams = True
    if (case.binding == "py_func" or op.modified_inputs) and "inputs_unmodified" not in case.checks_off:
        gathered.checks.append(check_inputs_unmodified(op))
    if case.reference_forward:
        gathered.checks.append(check_reference_forward(case, op, operations.differenced))


def _retraced(  # noqa: PLR0913, PLR0917 (what is traced, and which of it is compared)
    case: Case,
    opener: Opener[Op],
    op: Op,
    sound: list[Pair],
    declared: Mapping[Pair, Jacobian | None],
    samples: tuple[int, int],
) -> list[CheckResult]:
    """Hold the graphs that serve every point against another trace.

    Args:
        case: the case.
        opener: of the case.
        op: at a sample point.
        sound: the pairs that are to be right.
        declared: its Jacobians, as far as they are at hand.
        samples: numbers of that sample point, and of the one at which traces are compared.
    """
    if "retrace" in case.checks_off or (MOVED not in samples and len(set(samples)) > 1):
        return []
    if MOVED in samples:
        # Nobody asked for that point: what goes wrong there says nothing.
        with contextlib.suppress(CaseFailedError, CaseSkippedError, GradientFormError):
            moved = opener.open(Opening(MOVED))
            if _shapes(moved) == _shapes(op):
                return retrace_checks(case, moved, sound, declared, opener)
    return retrace_checks(case, op, sound, declared, opener)


def _is_wrong(sample: PairSample) -> bool:
    return bool((sample.verdict == Verdict.MISMATCH).any())


def _upstream_fault(
    case: Case,
    opener: Opener[Op],
    operations: Operations,
    pair: Pair,
    matrices: Sequence[Mapping[Pair, Jacobian | None]],
) -> str:
    """Say what is wrong with a pair that its Jacobian doesn't show, where it is expected to be wrong."""
    op: Any = operations.declared  # of this opener's
    found = upstream_checks(case, operations, [pair], matrices)
    found += retrace_checks(case, op, [pair], matrices[0], opener)
    if pair in matrices[0]:
        # Together with the other outputs: a gradient that mixes them is right for each alone.
        sound = [
            other
            for other in matrices[0]
            if other[1] == pair[1] and not _failing(upstream_checks(case, operations, [other], matrices))
        ]
        found += (
            upstream_checks(case, operations, sound, matrices) if pair in sound and len(sound) > 1 else []
        )
    return next((check.message for check in _failing(found)), "")


def _failing(checks: Sequence[CheckResult]) -> list[CheckResult]:
    return [check for check in checks if check.status is Status.MISMATCHED]


def _probe(
    case: Case,
    operations: Operations,
    rules: Mapping[Pair, PairRule | None],
    sample: int,
    budget: Budget,
) -> tuple[dict[Pair, PairSample], list[str]]:
    """Judge pairs by probes: their formula, then what the declared dtype makes of that; with warnings."""
    if case.full_only:
        return {pair: refused(operations, pair) for pair in rules}, []
    tolerances = {pair: tolerance_of(case, operations, pair, rule) for pair, rule in rules.items()}
    # Where one is expected to be wrong, what it does to the others is of no interest.
    expected = [pair for pair in rules if is_expected_wrong(rules[pair])]
    sound = {pair: tolerances[pair] for pair in rules if pair not in expected}
    found = probe_pairs(case, operations, sound, sample, budget)
    for pair in expected:
        found |= probe_pairs(case, operations, {pair: tolerances[pair]}, sample, budget)
    if not operations.has_reference_precision:
        return found, []
    warnings = [
        f"precision: {label_of(operations.declared, pair)}: elements that random probes led to are right "
        f"as an approximation for the declared dtype only, by up to {sample.approximate:.1e} off."
        for pair, sample in found.items()
        if sample.approximate
    ]
    for pair, (warning, element) in precision_of_declared(case, operations, list(rules)).items():
        if element is not None and operations.differenced is operations.formula:
            own = Operations(operations.declared, operations.declared, operations.declared)
            rule = tolerance_of(case, own, pair, rules[pair])
            again = with_element(Group(case, own, (pair[0],), (pair[1],), rule), element, found[pair])
            if _is_wrong(again):
                found[pair] = again
                continue
        warnings += [warning] if warning else []
    return found, warnings


def _operations(case: Case, opener: Opener[Op], sample: int, op: Op) -> Operations:
    formula = opener.in_dtype(op, "float64") or op
    if case.reference is None:
        return Operations(op, formula, formula, _in_complex(case, opener, formula))
    try:
        surrogate = opener.open(Opening(sample, of="reference"))
        surrogate = opener.in_dtype(surrogate, "float64") or surrogate
        shapes = _shapes(surrogate)
    except CaseFailedError as error:
        if error.kind != "forward":
            raise
        told = error.message.replace("the forward raised", "the reference raised", 1)
        raise CaseFailedError("reference", told, error.traceback) from error
    if shapes != _shapes(op):
        raise CaseFailedError(
            "outputs",
            f"the reference's outputs must have the forward's shapes {_shapes(op)}, but have {shapes}.",
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
    return opener.in_dtype(differenced, "complex128") if case.method == "complex_step" else None


def _names(op: Operation) -> list[str]:
    return [output.name for output in op.outputs]


def _shapes(op: Operation) -> list[list[int]]:
    return [list(output.shape) for output in op.outputs]
