"""Check one case: every pair at every sample point, its second order if asked for, then the expectations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gradcheck_cli import clock, hooks
from gradcheck_cli.checking.checks.all_checks import keep_one_each, report_form, run_checks
from gradcheck_cli.checking.checks.check import CaseView, ModesView, OpenedView
from gradcheck_cli.checking.judging.stop_gradients import StopGradients
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.jacobian import PairKey, hint_on_triangle
from gradcheck_cli.checking.ops.operation import (
    GradientFormError,
    Op,
    Opener,
    Opening,
    Operation,
    Operations,
)
from gradcheck_cli.checking.pairs.pair import (
    RIGHT_BESIDE,
    PairSample,
    PairVerdicts,
    is_expected_wrong,
    label_of,
    pair_keys,
    pairs_at,
)
from gradcheck_cli.checking.sample_point import Examination, PointFindings, examine_point
from gradcheck_cli.checking.verdicts.chosen_points import (
    failed_checks,
    unit_roundoff,
    with_notes,
    wrong_pairs,
)
from gradcheck_cli.checking.verdicts.pair_results import report_malformed, report_raised, results_of, rules_of
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.gate import Tolerance
from gradcheck_cli.numerics import FLOAT32
from gradcheck_cli.numerics.precision import place_of_largest
from gradcheck_cli.results import CheckResult, PairResult, Status, UndifferentiatedOutput
from gradcheck_cli.spec.case import Case, PairRule, first_order_alone
from gradcheck_cli.spec.values.moves import (
    ASCENDS,
    MOVED,
    MOVED_BACK,
    POINTS,
    SYMMETRIC,
    are_symmetric,
    describe_structures,
    describe_values,
    is_single_zero,
    moves,
    point_like,
)
from gradcheck_cli.spec.values.points import describe_point, point_lines
from gradcheck_cli.spec.words import CHECKS

Others = Mapping[str, Callable[[], Opener[Any]]]  # mode -> a function that makes its opener


@dataclass(frozen=True)
class Examined:
    """A case, as it was found at some points."""

    asked: Examination
    points: tuple[PointFindings, ...]  # one for each, the first first
    samples: Mapping[PairKey, tuple[PairSample, ...]]  # the verdicts on each pair

    @staticmethod
    def of(asked: Examination, points: Sequence[PointFindings]) -> Examined:
        """Gather the verdicts on each pair, point by point."""
        samples: dict[PairKey, tuple[PairSample, ...]] = {}
        for findings in points:
            for key, sample in findings.samples.items():
                samples[key] = (*samples.get(key, ()), sample)
        return Examined(asked, tuple(points), samples)

    @property
    def operations(self) -> Operations:
        """The ops at the first point."""
        return self.points[0].operations

    @property
    def is_wrong(self) -> bool:
        """Whether some pair is wrong at some point."""
        return any(sample.is_wrong for judged in self.samples.values() for sample in judged)


class Beside(NamedTuple):
    """What was found at the additional points."""

    moved: Examined  # where stated values are moved
    alike: Sequence[tuple[str, Examined]]  # where they keep a structure, if that can matter, and which
    # of each pair that these points have tested: its verdicts at the sample points, and one at these
    right: Mapping[PairKey, tuple[PairSample, ...]]


@clock.spend(clock.CHOSEN)
def _look_beside(examined: Examined, below: FirstOrder) -> Beside | None:
    """Judge a case where no stated value is what it was at every sample point.

    A pair that is zero at every sample point, or less than the error that is allowed beside, and right there,
    was tested there.

    Returns:
        What was found where each stated value is moved by itself, and, if something is wrong there, where its
        structure is kept; `None` if nothing is stated, no pair and no single value is zero, or there is no
        such point.
    """
    case, rules = examined.asked.case, examined.asked.rules
    judged = {
        key: samples
        for key, samples in examined.samples.items()
        if not ((rule := rules[key]) and rule.expect) and examined.operations.declared.facts.reaches(*key)
    }
    zero = {key for key, samples in judged.items() if all(sample.is_zero for sample in samples)}
    if "all_zero" in case.judging.checks_off:
        zero = set()
    has_single_zero = any(map(is_single_zero, case.tensors))
    is_moving = has_single_zero or any(map(moves, case.tensors))
    if not (zero or is_moving):
        return None
    others = {} if is_moving else dict.fromkeys(rules.keys() - zero, PairRule("*", expect="skip"))
    looks: list[Examined] = []
    structures = describe_structures(case)
    kept = range(POINTS[-1] - 1, POINTS[-1] - 1 - len(POINTS) * len(structures), -1)
    for point in (*POINTS, *kept):  # a forward may refuse whatever hasn't the structure
        if not looks or (point == MOVED_BACK and has_single_zero and not looks[-1].is_wrong):
            at_point = _look_at(point, examined, below, {**rules, **others})
            looks += [] if at_point is None else [at_point]
    if not looks:
        return None
    moved = looks[-1]
    right = {
        key: tested
        for look in looks
        for key in judged.keys() & look.samples.keys()
        if (tested := _tested_beside(judged[key], *look.samples[key]))
    }
    alike, point = [], point_like(moved.asked.compared_at)
    for words in structures if moved.is_wrong else ():
        point -= len(POINTS)
        at_point = _look_at(point, examined, below, rules)
        alike += [] if at_point is None else [(words, at_point)]
    return Beside(moved, alike, right)


def _tested_beside(samples: Sequence[PairSample], beside: PairSample) -> tuple[PairSample, ...]:
    """Return a pair's verdicts with one beside, if that is what has tested it; otherwise nothing."""
    is_as_precise = beside.differencing.dtype == samples[0].differencing.dtype
    if not is_as_precise or not beside.is_right or beside.numeric_is_zero:
        return ()
    here = [small for sample in samples if (small := sample.passed_below(beside.allowed))]
    return (*here, replace(beside, remark=RIGHT_BESIDE)) if len(here) == len(samples) else ()


def _look_at(
    number: int, examined: Examined, below: FirstOrder, rules: Mapping[PairKey, PairRule | None]
) -> Examined | None:
    """Judge a case at one of the additional points; `None` if it can't be evaluated there.

    Only linearity is checked beside the numbers: the other checks concern the op, whatever the point.
    """
    opener, first = examined.asked.opener, examined.operations.declared
    case = first_order_alone(examined.asked.case, frozenset(CHECKS) - {"linearity"})
    stops = StopGradients(case, below.stops, budget=Budget(case.judging.budget))
    asked = Examination(case, opener, rules, number, stops, examined.points[-1].plan)
    failures = suppress(CaseFailedError, CaseSkippedError, GradientFormError)
    with failures, asked.budget.pause(), opener.at(number):
        op = opener.open(Opening(number))
        _require_finite(op)
        if op.is_finite or not first.is_finite:
            return Examined.of(asked, [examine_point(asked, number, op, (0.0, 1.0))])
    return None


SECOND = "second_order"


def check_case(
    case: Case,
    opener: Opener[Op],
    samples: Sequence[int],
    others: Others = MappingProxyType({}),
) -> Findings:
    """Check a case.

    Args:
        opener: makes ops of it.
        samples: indices of the sample points.
        others: mode -> a function that makes its opener. The first mode in which the case can be opened must
            give the same gradients.

    Returns:
        The findings, with the spec's expectations applied.

    Raises:
        CaseFailedError: the case can't be checked.
    """
    findings = examine(case, opener, samples, others)
    if case.judging.second_order and findings.first is not None:
        findings = _add_second_order(opener, samples, findings)
    return findings


def _add_second_order(opener: Opener[Op], samples: Sequence[int], findings: Findings) -> Findings:
    """Add the findings about the vjp as a function. That it can't be differentiated is itself a finding.

    Raises:
        CaseFailedError: of kind "pairs": a rule matches no pair of either order.
    """
    first: Any = findings.first  # an op of this opener's
    labels = [label_of(first, pair) for pair in pair_keys(first)]
    if not any(first.facts.is_connected(*pair) for pair in pair_keys(first)):
        result = CheckResult(
            SECOND, Status.SKIPPED, "every gradient is None: there is nothing to differentiate."
        )
        return replace(findings, checks=(*findings.checks, result))
    try:
        vjp = opener.vjp(first)
        # If the reference has no gradient to differentiate, nothing is known about the forward's
        # stop_gradients.
        is_known = opener.case.reference is None or vjp.case.reference is not None
        stops = findings.stops if is_known else None
        second = examine(vjp.case, vjp, samples, below=FirstOrder(labels, stops))
    except CaseSkippedError as skipped:
        result = CheckResult(SECOND, Status.SKIPPED, skipped.message)
        return replace(findings, checks=(*findings.checks, result))
    except CaseFailedError as failure:
        if failure.kind == "pairs":
            raise
        result = CheckResult(SECOND, Status.ERROR, f"differentiating the gradient failed: {failure.message}")
        return replace(findings, checks=(*findings.checks, result))
    checks = tuple(replace(check, name=f"{SECOND}.{check.name}") for check in second.checks)
    return replace(
        findings,
        pairs=(*findings.pairs, *(replace(pair, order=2) for pair in second.pairs)),
        checks=(*findings.checks, *checks),
        warnings=tuple(dict.fromkeys((*findings.warnings, *second.warnings))),
        held=tuple(dict.fromkeys((*findings.held, *second.held))),
        judged={**findings.judged, **second.judged},
    )


@dataclass(frozen=True)
class FirstOrder:
    """What is known about a case whose vjp is examined."""

    labels: Sequence[str] = ()  # labels of the case's own pairs: rules may be meant for those
    # the `stop_gradient`s that change a first derivative, if the spec doesn't say whether they are intended;
    # `None` if that isn't known
    stops: frozenset[str] | None = None


def examine(
    case: Case,
    opener: Opener[Op],
    samples: Sequence[int],
    others: Others = MappingProxyType({}),
    below: FirstOrder = FirstOrder(),
) -> Findings:
    """Check every pair of an opened case, and its structure.

    Args:
        opener: makes ops of it.
        samples: indices of the sample points.
        others: mode -> a function that makes its opener.
        below: for a vjp, what is known about the case that it belongs to.

    Returns:
        The findings, with the spec's expectations of its pairs applied.

    Raises:
        CaseFailedError: the case can't be checked.
    """
    first = opener.open(Opening(samples[0]))
    _require_finite(first)
    rules = rules_of(case, first, below.labels)
    opened = run_checks(OpenedView(case, first))
    failed = next((check for check in opened if check.status is not Status.PASSED), None)
    if failed is not None:
        return Findings(checks=(failed,))
    # One trace serves every point. At the second point it is compared with a new trace.
    second = samples[1] if len(samples) > 1 else MOVED
    stops = StopGradients(case, below.stops, budget=Budget(case.judging.budget))
    asked = Examination(case, opener, rules, second, stops)
    points: list[PointFindings] = []
    try:
        for done, sample in enumerate(samples):
            share = done / len(samples), (done + 1) / len(samples)
            with ExitStack() as stack:
                op = first
                if sample != samples[0]:
                    with asked.budget.pause():
                        stack.enter_context(opener.at(sample))
                        op = opener.open(Opening(sample))
                points.append(examine_point(asked, sample, op, share, points))
        examined = Examined.of(asked, points)
        # A chosen point has the same points beside it, which were looked at.
        beside = _look_beside(examined, below) if 0 in samples else None
    except GradientFormError as error:
        pairs = report_malformed(first, rules, error)
        form = report_form(first, pairs, error)
        return Findings(pairs, (form,), not_differentiated=_list_not_differentiated(first))
    except CaseFailedError as error:
        pairs = report_raised(first, rules, error) if error.kind == "gradient" else ()
        if not pairs:
            raise
        return Findings(pairs, not_differentiated=_list_not_differentiated(first))
    nondeterministic = [
        check for findings in points for check in findings.checks if check.name == "deterministic"
    ]
    if nondeterministic:
        return Findings(checks=tuple(nondeterministic[:1]))
    if beside is not None:
        examined = replace(examined, samples={**examined.samples, **beside.right})
    still = [
        *opener.still_weights,
        *(tensor.name for tensor in case.tensors if beside is None and moves(tensor)),
    ]
    findings = _conclude(examined, first, samples, others, opened)
    held = (*findings.held, *(f"{name} (the forward refuses other values)" for name in still))
    findings = replace(findings, samples=len(samples), held=held)
    return findings if beside is None else _add_beside(findings, beside, first)


_REMEDY = "if a value must not go there, say so: a `domain`"
_IF_SYMMETRIC = "If the matrix always is, say `symmetric: true`"
_IF_ASCENDING = "If it always does, say so in a spec: `move: false`, with a `reason`"
_REMEDY_OF_SPEC = ", or `move: false` with a reason"


@clock.spend(clock.CHOSEN)
def _add_beside(findings: Findings, beside: Beside, first: Operation) -> Findings:
    """Let the findings say what is wrong where stated values are moved.

    What is right where they keep a structure, such as rows that sum to 1, is right, and says so.
    """
    shown_at, case, rules = beside.moved, beside.moved.asked.case, beside.moved.asked.rules
    moved = _conclude(shown_at, first, (shown_at.asked.compared_at,), {})
    wrong, failed = wrong_pairs(moved, findings), failed_checks(moved, findings)
    excused: dict[str, str] = {}  # by what the values are where a pair is right
    for structure, at_point in beside.alike:
        alike = _conclude(at_point, first, (at_point.asked.compared_at,), {})
        for pair in alike.pairs:
            if pair.status is Status.PASSED:
                excused.setdefault(pair.label, structure)
        failed = {name: failed[name] for name in failed.keys() & failed_checks(alike, findings).keys()}
        if wrong and wrong.keys() == (same := wrong_pairs(alike, findings)).keys():
            # Such values are what the code expects: an error there is nobody's doubt.
            shown_at, moved, wrong = at_point, alike, same
    # Steps of half precision are as long as a move: what they meet on their way says nothing of the point.
    remedy = _REMEDY + _REMEDY_OF_SPEC * (case.code.given is None)
    wrong = {label: pair for label, pair in wrong.items() if unit_roundoff(pair) <= FLOAT32.unit_roundoff}
    failed = {name: check for name, check in failed.items() if name == "linearity"}
    if not (wrong or failed):
        return findings
    keys = {label_of(first, key): key for key in pair_keys(first)}
    values = shown_at.operations.declared.point
    written = describe_point(
        case, first.point, {at: value for at, value in enumerate(values) if not case.tensors[at].upstream_of}
    )
    at_values = describe_values(case, first.point, values) or "other draws"
    where = f" at the values given; wrong at {at_values}"
    pairs = []
    for pair in findings.pairs:
        rule = rules[keys[pair.label]] if pair.label in keys else None
        is_open = pair.status is Status.PASSED or pair.is_open
        if not is_open or pair.label not in wrong or (rule is not None and rule.expect not in ("", "pass")):
            pairs.append(pair)
        elif pair.label in excused:
            pairs.append(_right_where(excused[pair.label], pair, is_meant=case.code.given is not None))
        else:
            said = f"{'undecided' if pair.is_open else 'right'}{where}"
            pairs.append(
                with_notes(wrong[pair.label], pair, said, remedy, *point_lines(case, written), point=written)
            )
    shown = {
        pair.label for pair, own in zip(pairs, findings.pairs, strict=True) if pair.status is not own.status
    }
    checks = [check for check in findings.checks if check.name not in failed]
    return replace(
        findings,
        pairs=tuple(pairs),
        checks=(
            *checks,
            *(replace(check, message=f"{check.message}; right{where}") for check in failed.values()),
        ),
        judged={**findings.judged, **{label: moved.judged[label] for label in shown}},
    )


def _right_where(structure: str, pair: PairResult, *, is_meant: bool) -> PairResult:
    """Say of a right pair where it is right, or ask if that is meant.

    A matrix that a spec states may be symmetric by chance. Numbers mostly ascend by chance, in Python, too: a
    gradient that forgets a permutation is right for these.
    """
    ascends = structure.endswith(ASCENDS)
    if not ascends and (is_meant or SYMMETRIC not in structure):
        return replace(pair, note=pair.note or f"where {structure}")
    remedy = _IF_ASCENDING if ascends else _IF_SYMMETRIC
    question = f"right where {structure}, wrong beside. {remedy}. If not, the gradient is wrong."
    return replace(pair, status=Status.INCONCLUSIVE, undecided="range", message=question)


def keep_symmetric(case: Case, findings: Findings) -> Case | None:
    """Return a case whose symmetric matrices stay symmetric, if one triangle of them is read.

    What reads one triangle, as a Cholesky factor does, is a function of symmetric matrices, and a gradient
    that shares among both triangles what it gets is right for those. `None` if anything else is wrong, or a
    matrix isn't symmetric at the sample points.
    """
    names = set()
    tensors = {tensor.name: tensor for tensor in case.tensors if not tensor.symmetric}
    for pair in findings.pairs:
        if pair.status is Status.MISMATCHED:
            tensor, judged = tensors.get(pair.input), findings.judged.get(pair.label)
            if tensor is None or judged is None or not are_symmetric(case, tensor):
                return None
            wrong = [sample for sample in judged.samples if sample.is_wrong]
            if not all(
                sample.is_whole and hint_on_triangle(sample.analytic, sample.numeric, judged.input_info)
                for sample in wrong
            ):
                return None
            names.add(pair.input)
    arguments = tuple(
        replace(
            argument,
            tensors=tuple(
                replace(tensor, symmetric=True) if tensor.name in names else tensor
                for tensor in argument.tensors
            ),
        )
        for argument in case.arguments
    )
    return replace(case, arguments=arguments) if names else None


def say_where_symmetric(findings: Findings, case: Case, symmetric: Case) -> Findings:
    """Say of the right pairs of a case whose matrices were kept symmetric that they were."""
    are_meant = {
        tensor.name: tensor.source.kind == "spd" or case.code.given is not None
        for tensor, before in zip(symmetric.tensors, case.tensors, strict=True)
        if tensor.symmetric and not before.symmetric
    }
    pairs = tuple(
        _right_where(f"{pair.input} {SYMMETRIC}", pair, is_meant=are_meant[pair.input])
        if pair.input in are_meant and pair.status is Status.PASSED
        else pair
        for pair in findings.pairs
    )
    return replace(findings, pairs=pairs)


@clock.spend("checks")
def _conclude(
    examined: Examined,
    first: Operation,
    samples: Sequence[int],
    others: Others,
    opened: Sequence[CheckResult] = (),
) -> Findings:
    """Turn what was found at the points into findings.

    Args:
        examined: the case.
        first: the declared op at the first sample point.
        samples: indices of the points.
        others: mode -> a function that makes its opener.
        opened: results of the checks of the opened case.
    """
    case, rules, points = examined.asked.case, examined.asked.rules, examined.points
    operations = examined.operations
    kept = (f"{tensor.name} ({tensor.keeps})" for tensor in case.tensors if tensor.keeps)
    upstream_faults = points[0].upstream_faults
    pairs = results_of(
        case, first, rules, examined.samples, upstream_faults, [findings.data for findings in points]
    )
    expected_right = {
        key: judged for key, judged in examined.samples.items() if not is_expected_wrong(rules[key])
    }
    checks = [*opened, *(check for findings in points for check in findings.checks)]
    if others:
        own_rules = {key: rules[key] for key in expected_right}
        checks += run_checks(ModesView(case, operations, own_rules, samples[0], others))
    values = [findings.operations.declared.point for findings in points]
    view = CaseView(case, first, expected_right, pairs, values, examined.asked.opener.unrun_gradients(first))
    checks = keep_one_each([*run_checks(view), *checks])
    statuses = {*(pair.status for pair in pairs), *(check.status for check in checks)}
    if Status.MISMATCHED in statuses:
        asked = case, operations, pairs, checks
        pairs, checks = hooks.ask("find_common_cause", *asked, default=(pairs, checks))
    return Findings(
        tuple(_with_records(pairs, first, examined)),
        tuple(checks),
        tuple(dict.fromkeys(line for findings in points for line in findings.warnings)),
        _list_not_differentiated(first),
        operations,
        next((findings.gradients_seen for findings in points if findings.gradients_seen), {}),
        held=(*_describe_held_stops(operations), *kept),
        stops=frozenset().union(*(each.stop_keys for judged in examined.samples.values() for each in judged)),
        judged={
            label_of(first, key): PairVerdicts.of(first, key, judged, samples)
            for key, judged in examined.samples.items()
        },
    )


def _with_records(pairs: Sequence[PairResult], first: Operation, examined: Examined) -> Iterator[PairResult]:
    """Yield results with what a baseline has of each pair besides: its tolerance and its fingerprint."""
    case, operations = examined.asked.case, examined.operations
    by_key = pairs_at(case, operations, {key: examined.asked.rules[key] for key in examined.samples})
    prints = {}
    if case.wanted.records_fingerprint:
        prints = hooks.ask("fingerprints", case, operations.formula, [*by_key], default={})
    for key, result in zip(pair_keys(first), pairs, strict=True):
        rule = by_key[key].tolerance if key in by_key else None
        tolerance = None if rule is None else Tolerance(rule.rtol, rule.ratol, rule.atol)
        numbers = replace(result.numbers, tolerance=tolerance)
        yield replace(result, fingerprint=prints.get(key), numbers=numbers)


def _describe_held_stops(operations: Operations) -> tuple[str, ...]:
    """Say which `stop_gradient`s were held when the forward was differenced, and which weren't."""
    is_own = operations.differenced is operations.formula
    owner = "" if is_own else " of the reference"
    held = [f"stop_gradient at {place}{owner}" for place in operations.differenced.facts.held_places]
    is_vjp = any(info.of for info in operations.declared.outputs)
    moving = operations.declared.facts.passed_over if is_own and not is_vjp else ()
    reason = "inside a custom gradient's forward, which is differenced as it is"
    return (*held, *(f"not stop_gradient at {place} ({reason})" for place in moving))


def _list_not_differentiated(op: Operation) -> tuple[UndifferentiatedOutput, ...]:
    return tuple(
        UndifferentiatedOutput(output.name, output.dtype)
        for output in op.outputs
        if not output.is_differentiable
    )


def _require_finite(op: Operation) -> None:
    """Refuse NaN and infinite inputs: no difference can be taken there.

    Raises:
        CaseFailedError: of kind "values".
    """
    for info, value in zip(op.inputs, op.point, strict=True):
        if info.is_differentiable and not np.isfinite(value).all():
            where = place_of_largest(~np.isfinite(value))
            raise CaseFailedError(
                "values",
                f"input {info.name} is {value[where]} at {list(where)}: there is no difference to take "
                "there; give a finite value, or say 'differentiate: false'.",
            )
