"""Check one case: every pair at every sample point, its second order if asked for, then the expectations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gradcheck_cli import clock, hooks
from gradcheck_cli.checking.checks.all_checks import (
    keep_one_each,
    report_form,
    run_checks,
    run_upstream_checks,
)
from gradcheck_cli.checking.checks.check import CaseView, JudgedView, ModesView, OpenedView, PointView
from gradcheck_cli.checking.checks.deterministic import compare_traces
from gradcheck_cli.checking.judging.declared_dtype import judge_declared, judge_large_declared
from gradcheck_cli.checking.judging.judge_by_probes import probe_pairs, refuse
from gradcheck_cli.checking.judging.ledger import (
    Evidence,
    Stage,
    judge_pairs,
    settle_pairs,
    warn_of_precision,
)
from gradcheck_cli.checking.judging.op_alone import are_right_alone
from gradcheck_cli.checking.judging.stop_gradients import StopGradients
from gradcheck_cli.checking.ops.analytic import (
    FEWEST_ELEMENTS,
    find_costly_pairs,
    guess_sparsities,
    is_probed,
    take_jacobians,
)
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.jacobian import Jacobian, PairKey, working_precision
from gradcheck_cli.checking.ops.operation import (
    GradientFormError,
    Op,
    OpenedOperation,
    Opener,
    Opening,
    Operation,
    Operations,
    open_operations,
    packed_size,
)
from gradcheck_cli.checking.pairs.pair import (
    RIGHT_BESIDE,
    Pair,
    PairSample,
    PairVerdicts,
    PointData,
    is_expected_wrong,
    is_skipped,
    label_of,
    pair_keys,
    pairs_at,
)
from gradcheck_cli.checking.verdicts.chosen_points import (
    failed_checks,
    unit_roundoff,
    with_notes,
    wrong_pairs,
)
from gradcheck_cli.checking.verdicts.pair_results import report_malformed, report_raised, results_of, rules_of
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.gate import Fingerprint, Tolerance
from gradcheck_cli.numerics import FLOAT32, FLOAT64, precision_of, rule_for
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.results import CheckResult, Status, UndifferentiatedOutput
from gradcheck_cli.spec.case import Case, PairRule, first_order_alone
from gradcheck_cli.spec.values.moves import (
    MOVED,
    MOVED_ALIKE,
    MOVED_BACK,
    MOVED_BACK_ALIKE,
    describe_structure,
    describe_values,
    is_single_zero,
    moves,
)
from gradcheck_cli.spec.values.points import describe_point, point_lines
from gradcheck_cli.spec.words import CHECKS

_listener: ContextVar[Callable[[float], None] | None] = ContextVar("listener", default=None)


def report_progress(share: float) -> None:
    """Report that about this share of the case's work is done."""
    listener = _listener.get()
    if listener is not None:
        listener(share)


@contextlib.contextmanager
def listen_to_progress(listener: Callable[[float], None]) -> Iterator[None]:
    """Call a function with the share of work done, now and then, while the block runs."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


Jacobians = dict[PairKey, Jacobian | None]
# The part of a point's time budget for pairs that are judged element by element.
_FOR_WHOLE_JACOBIANS = 0.3


class Beside(NamedTuple):
    """What was found at the additional points."""

    moved: Examination  # where stated values are moved
    alike: Examination | None  # where they keep their structure, if that can matter


class FirstPoint(NamedTuple):
    """The first sample point."""

    operations: Operations  # the ops there
    jacobians: tuple[Jacobians, Jacobians]  # theirs, declared and formula, if modes are to be compared


@dataclass
class Examination:
    """A case under examination, with the results of its sample points so far."""

    case: Case
    opener: Opener[Any]  # makes ops of it
    rules: Mapping[PairKey, PairRule | None]  # the spec's rule for each pair
    compared_at: int  # index of the sample point at which another trace is compared
    stops: StopGradients  # the `stop_gradient`s for which the spec doesn't say whether they are intended
    # the verdicts of each pair, by sample point
    samples: dict[PairKey, list[PairSample]] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)  # results of the structural checks
    warnings: list[str] = field(default_factory=list)  # the declared dtype's losses of precision
    first: FirstPoint | None = None
    # what a baseline has of each pair, besides its verdict: its tolerance and its fingerprint
    recorded: dict[PairKey, tuple[Tolerance, Fingerprint | None]] = field(default_factory=dict)
    sparsities: dict[PairKey, Sparsity] | None = None  # guessed at the first sample point
    costly: set[PairKey] = field(default_factory=set)  # pairs whose elements aren't judged one by one
    # how often each registered gradient function was called
    gradients_seen: Mapping[str, int] = field(default_factory=dict)
    points: list[PointData] = field(default_factory=list)  # the sample points, for the diagnosis
    # for pairs that are expected to be wrong, faults that their Jacobians don't show
    upstream_faults: dict[PairKey, str] = field(default_factory=dict)

    @property
    def budget(self) -> Budget:
        """The case's, for all sample points."""
        return self.stops.budget

    @property
    def is_wrong(self) -> bool:
        """Whether some pair is wrong at some sample point."""
        return any(sample.is_wrong for judged in self.samples.values() for sample in judged)

    def examine_point(self, sample: int, op: OpenedOperation, share: tuple[float, float]) -> None:
        """Judge every pair at one sample point, and run the structural checks of a point.

        Args:
            op: the declared op at that point.
            share: the shares of all work that are done before this point and after it.
        """
        case = self.case
        keys = [key for key in pair_keys(op) if not is_skipped(self.rules[key])]
        point_budget, whole_budget = self.budget.share(share[1]), Budget()
        if case.judging.method == "auto" and not case.judging.full_only:
            sizes = [packed_size(op.outputs[output]) * packed_size(op.inputs[at]) for output, at in keys]
            # Of so few elements, probes would show less.
            part = 1.0 if sum(sizes) <= FEWEST_ELEMENTS else _FOR_WHOLE_JACOBIANS
            whole_budget = self.budget.share(share[0] + part * (share[1] - share[0]))
        with self.budget.pause():
            # The gradients that the spec covers must be called at each point: another branch runs other ops.
            seen = self.opener.gradients_seen(op) if keys else {}
            operations = replace(open_operations(case, self.opener, sample, op), budget=whole_budget)
        self.gradients_seen = self.gradients_seen or seen
        pairs = pairs_at(case, operations, {key: self.rules[key] for key in keys})
        sparsities = self._plan(operations, keys)
        self._report_progress(share, 0.1)
        jacobians = take_jacobians(
            case, operations, [key for key in keys if key not in self.costly], sparsities
        )
        if self.first is None:
            self.first = FirstPoint(operations, jacobians if len(case.running.modes) > 1 else ({}, {}))
        judged = self._judge(pairs, jacobians, sparsities)
        self._report_progress(share, 0.4)
        large = [key for key in keys if key not in judged]
        self.costly |= set(large)
        # The search for a fault took time of its own; it doesn't count against the budget.
        large = [key for key in large if not any(earlier.is_wrong for earlier in self.samples.get(key, []))]
        judged |= _probe({key: pairs[key] for key in large}, sample, point_budget)
        self._report_progress(share, 0.8)
        if case.reference is not None and case.judging.second_order:
            self.stops.note_reference(pairs, judged)
        # A reference decides by its own stops, but its gradient's gradient doesn't.
        is_open = case.judging.freeze is None and (
            case.reference is None or any(output.of for output in op.outputs)
        )
        judge_stops = partial(self.stops.judge_with_stops_held, pairs, jacobians[1], sample)
        evidence = Evidence(
            pairs,
            judge_stops=judge_stops if is_open else None,
            are_right_alone=partial(self._are_right_alone, operations),
        )
        warnings = [line for key, each in judged.items() for line in warn_of_precision(pairs[key], each)]
        judged = settle_pairs(Stage.POINT, evidence, judged)
        judged, coarse = _note_lower_precision(pairs, judged)
        self._note_precision(operations, [*warnings, *coarse], is_coarse=bool(coarse))
        for key, result in judged.items():
            self.samples.setdefault(key, []).append(result)
        with self.budget.pause():
            self._run_point_checks(operations, pairs, jacobians, judged, sample)

    @clock.spend(clock.CHOSEN)
    def look_beside(self, below: FirstOrder) -> Beside | None:
        """Judge the case where no stated value is what it was at every sample point.

        A pair that is zero at every sample point, and right beside, was tested there.

        Returns:
            What was found where each stated value is moved by itself, and, if something is wrong there, where
            its structure is kept; `None` if nothing is stated, no pair and no single weight is zero, or there
            is no such point.
        """
        zero = {
            key
            for key, judged in self.samples.items()
            if all(sample.numeric_is_zero and sample.analytic_is_zero for sample in judged)
            and not ((rule := self.rules[key]) and rule.expect)
            and self.first is not None
            and self.first.operations.declared.facts.reaches(*key)
        }
        if "all_zero" in self.case.judging.checks_off:
            zero = set()
        is_stated = any(moves(tensor) for tensor in self.case.tensors)
        has_zero_weight = any(is_single_zero(tensor) for tensor in self.case.tensors)
        is_moving = is_stated or has_zero_weight
        if not (zero or is_moving):
            return None
        others = {} if is_moving else dict.fromkeys(self.rules.keys() - zero, PairRule("*", expect="skip"))
        rules = {**self.rules, **others}
        moved = None
        for point in (MOVED, MOVED_BACK):
            if moved is None or (has_zero_weight and not moved.is_wrong):
                moved = self._look_at(point, below, rules) or moved
        if moved is None:
            return None
        for key in zero & moved.samples.keys():
            (sample,) = moved.samples[key]
            is_as_precise = sample.differencing.dtype == self.samples[key][0].differencing.dtype
            if sample.is_right and is_as_precise and not sample.numeric_is_zero:
                self.samples[key].append(replace(sample, remark=RIGHT_BESIDE))
        structure = describe_structure(self.case)
        alike = MOVED_ALIKE if moved.compared_at == MOVED else MOVED_BACK_ALIKE
        has_alike = structure and moved.is_wrong
        return Beside(moved, self._look_at(alike, below, self.rules) if has_alike else None)

    def _look_at(
        self, sample: int, below: FirstOrder, rules: Mapping[PairKey, PairRule | None]
    ) -> Examination | None:
        """Judge the case at one of the additional points; `None` if it can't be evaluated there.

        Only linearity is checked beside the numbers: the other checks concern the op, whatever the point.
        """
        case = first_order_alone(self.case, frozenset(CHECKS) - {"linearity"})
        budget = Budget(case.judging.budget)
        stops = StopGradients(case, below.stops, budget=budget)
        beside = Examination(case, self.opener, rules, sample, stops, sparsities=self.sparsities)
        beside.costly |= self.costly
        with suppress(CaseFailedError, CaseSkippedError, GradientFormError), self.budget.pause():
            with self.opener.at(sample):
                op = self.opener.open(Opening(sample))
                _require_finite(op)
                if self.first is not None and self.first.operations.declared.is_finite and not op.is_finite:
                    return None
                beside.examine_point(sample, op, (0.0, 1.0))
            return beside
        return None

    def _are_right_alone(self, operations: Operations, key: PairKey) -> bool:
        """Whether the user's own gradients on a pair's path are right, each by itself, at the point."""
        return are_right_alone(self.opener.written_ops(operations.formula, *key))

    @clock.spend("checks")
    def _run_point_checks(
        self,
        operations: Operations,
        pairs: Mapping[PairKey, Pair],
        jacobians: tuple[Jacobians, Jacobians],
        judged: Mapping[PairKey, PairSample],
        sample: int,
    ) -> None:
        """Run the structural checks of a judged point, and record what else is known about it."""
        case, op, is_first = self.case, operations.declared, not self.points
        if not self.recorded:
            prints = (
                hooks.ask("fingerprints", case, operations.formula, [*pairs], default={})
                if case.wanted.records_fingerprint
                else {}
            )
            for key, pair in pairs.items():
                rule = pair.tolerance
                self.recorded[key] = Tolerance(rule.rtol, rule.ratol, rule.atol), prints.get(key)
        self.points.append(PointData.of(op.inputs, op.point, op.outputs, op.base_values))
        # If a pair is expected to be wrong, its behaviour under other upstreams is of no interest. Pairs
        # without a Jacobian cost more and are checked at one point only.
        expected_right = [
            key
            for key, pair in pairs.items()
            if not pair.is_expected_wrong and (is_first or key in jacobians[0])
        ]
        view = PointView(
            case, self.opener, operations, expected_right, jacobians, sample, self.compared_at, is_first
        )
        self.checks += run_upstream_checks(view)
        self.checks += run_checks(view)
        if is_first:
            self.upstream_faults = {
                key: _find_upstream_fault(view, key)
                for key, pair in pairs.items()
                if pair.is_expected_wrong and not judged[key].is_wrong
            }

    def _report_progress(self, share: tuple[float, float], fraction: float) -> None:
        """Report that this fraction of the work at a sample point is done."""
        report_progress(share[0] + fraction * (share[1] - share[0]))

    def _plan(self, operations: Operations, keys: list[PairKey]) -> dict[PairKey, Sparsity]:
        """Decide at the first point which Jacobians are sparse and which cost too much."""
        if self.sparsities is None:
            self.sparsities = sparsities = guess_sparsities(self.case, operations.formula, keys)
            few = [
                key for key in keys if not is_probed(self.case, operations.formula, key, sparsities.get(key))
            ]
            seconds = operations.budget.left
            with operations.budget.pause():
                self.costly = find_costly_pairs(operations, few, sparsities, seconds)
        return self.sparsities

    @clock.spend("differences")
    def _judge(
        self,
        pairs: Mapping[PairKey, Pair],
        jacobians: tuple[Jacobians, Jacobians],
        sparsities: Mapping[PairKey, Sparsity],
    ) -> dict[PairKey, PairSample]:
        """Judge pairs element by element: first their formula, then the declared dtype."""
        declared, formula = jacobians
        evidence = Evidence(pairs, sparsities, judge_declared=partial(judge_declared, pairs, declared))
        judged = settle_pairs(Stage.FORMULA, evidence, judge_pairs(pairs, formula))
        return settle_pairs(Stage.DECLARED, evidence, judged)

    def _note_precision(self, operations: Operations, warnings: Sequence[str], *, is_coarse: bool) -> None:
        """Keep the warnings of one point, unless the spec turns them off."""
        results = list(run_checks(JudgedView(self.case, operations, warnings, is_coarse)))
        if results:
            self.warnings += warnings
            self.checks += results


def _find_upstream_fault(view: PointView, key: PairKey) -> str:
    """For a pair that is expected to be wrong, return a fault that its Jacobian doesn't show."""
    own = view.expecting_right([key])
    results = run_upstream_checks(own)
    results += compare_traces(own, view.op)
    if key in view.jacobians[0]:
        # Together with the other outputs: a gradient that mixes them is right for each output alone.
        expected_right = [
            other_key
            for other_key in view.jacobians[0]
            if other_key[1] == key[1]
            and not _select_mismatches(run_upstream_checks(view.expecting_right([other_key])))
        ]
        results += (
            run_upstream_checks(view.expecting_right(expected_right))
            if key in expected_right and len(expected_right) > 1
            else []
        )
    return next((check.message for check in _select_mismatches(results)), "")


def _select_mismatches(checks: Sequence[CheckResult]) -> list[CheckResult]:
    return [check for check in checks if check.status is Status.MISMATCHED]


def _note_lower_precision(
    pairs: Mapping[PairKey, Pair], judged: Mapping[PairKey, PairSample]
) -> tuple[dict[PairKey, PairSample], list[str]]:
    """Note on each pair that wasn't judged in float64 why not.

    Returns:
        The verdicts, and a warning for each pair that is declared in float64 but was judged to less accuracy.
    """
    samples, warnings = dict(judged), []
    for key, sample in judged.items():
        pair = pairs[key]
        formula, differenced = pair.operations.formula, pair.operations.differenced
        reason = formula.facts.not_float64 or differenced.facts.not_float64
        precision = coarsest(
            *[working_precision(op, op.inputs[key[1]].dtype) for op in (formula, differenced)],
            *[precision_of(name) for name in formula.facts.vjp_low_precision],
        )
        if not reason or precision == FLOAT64 or not sample.is_connected:
            continue
        samples[key] = sample.with_differencing(not_float64=reason)
        if pair.declared_precision == FLOAT64:
            rtol = rule_for(precision, precision).rtol
            warnings.append(
                f"precision: {pair.label}: declared in float64, but judged in {precision.name}, "
                f"where errors up to {rtol:g} of an element pass: {reason}."
            )
    return samples, warnings


@clock.spend("probes")
def _probe(pairs: Mapping[PairKey, Pair], sample: int, budget: Budget) -> dict[PairKey, PairSample]:
    """Judge pairs by probes: first their formula, then the declared dtype."""
    if not pairs:
        return {}
    if next(iter(pairs.values())).case.judging.full_only:
        return {key: refuse(pair) for key, pair in pairs.items()}
    # If one pair is expected to be wrong, its effect on the others is of no interest.
    probed = probe_pairs(
        {key: pair for key, pair in pairs.items() if not pair.is_expected_wrong}, sample, budget
    )
    for key, pair in pairs.items():
        if pair.is_expected_wrong:
            probed |= probe_pairs({key: pair}, sample, budget)
    evidence = Evidence(pairs, judge_declared=partial(judge_large_declared, pairs, budget=budget))
    return settle_pairs(Stage.DECLARED, evidence, probed)


SECOND = "second_order"


def check_case(
    case: Case,
    opener: Opener[Op],
    samples: Sequence[int],
    others: Mapping[str, Callable[[], Opener[Any]]] = MappingProxyType({}),
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
    others: Mapping[str, Callable[[], Opener[Any]]] = MappingProxyType({}),
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
    passed: list[CheckResult] = []
    for check in run_checks(OpenedView(case, first)):
        if check.status is not Status.PASSED:
            return Findings(checks=(check,))
        passed.append(check)
    # One trace serves every point. At the second point it is compared with a new trace.
    second = samples[1] if len(samples) > 1 else MOVED
    budget = Budget(case.judging.budget)
    stops = StopGradients(case, below.stops, budget=budget)
    examination = Examination(case, opener, rules, second, stops, checks=passed)
    try:
        for done, sample in enumerate(samples):
            share = done / len(samples), (done + 1) / len(samples)
            with contextlib.ExitStack() as stack:
                with budget.pause():
                    op = first if sample == samples[0] else _open_at(opener, sample, first, stack)
                examination.examine_point(sample, op, share)
        beside = examination.look_beside(below)
    except GradientFormError as error:
        pairs = report_malformed(first, rules, error)
        form = report_form(first, pairs, error)
        return Findings(pairs, (form,), not_differentiated=_list_not_differentiated(first))
    except CaseFailedError as error:
        pairs = report_raised(first, rules, error) if error.kind == "gradient" else ()
        if not pairs:
            raise
        return Findings(pairs, not_differentiated=_list_not_differentiated(first))
    nondeterministic = [check for check in examination.checks if check.name == "deterministic"]
    if nondeterministic:
        return Findings(checks=tuple(nondeterministic))
    findings = replace(_conclude(examination, first, samples, others), samples=len(samples))
    return findings if beside is None else _add_beside(findings, beside, first)


def _open_at(opener: Opener[Op], sample: int, first: Op, stack: contextlib.ExitStack) -> Op:
    """Open a case at a sample point, with its weights moved while a stack of contexts is open.

    Where the forward can't be evaluated at moved weights, they stay: no one said that it could.
    """
    for _ in range(2):
        with contextlib.ExitStack() as moving:
            moving.enter_context(opener.at(sample))
            with suppress(CaseFailedError):
                op = opener.open(Opening(sample))
                if not first.is_finite or op.is_finite:
                    stack.push(moving.pop_all())
                    return op
        opener.turn_weights()
    return opener.open(Opening(sample))


_REMEDY = "if a value must not go there, say so: a `domain`"
_REMEDY_OF_SPEC = ", or `move: false` with a reason"


@clock.spend(clock.CHOSEN)
def _add_beside(findings: Findings, beside: Beside, first: Operation) -> Findings:
    """Let the findings say what is wrong where stated values are moved.

    What is right where they keep a structure, such as rows that sum to 1, is right, and says so.
    """
    case, rules = beside.moved.case, beside.moved.rules
    point = beside.moved.compared_at
    moved = _conclude(beside.moved, first, (point,), {})
    wrong, failed = wrong_pairs(moved, findings), failed_checks(moved, findings)
    excused: set[str] = set()
    if beside.alike is not None:
        alike = _conclude(beside.alike, first, (beside.alike.compared_at,), {})
        excused = {pair.label for pair in alike.pairs if pair.status is Status.PASSED}
        failed = failed_checks(alike, findings)
    # Steps of half precision are as long as a move: what they meet on their way says nothing of the point.
    remedy = _REMEDY + _REMEDY_OF_SPEC * (case.code.given is None)
    wrong = {label: pair for label, pair in wrong.items() if unit_roundoff(pair) <= FLOAT32.unit_roundoff}
    failed = {name: check for name, check in failed.items() if name == "linearity"}
    keys = {label_of(first, key): key for key in pair_keys(first)}
    own_point = beside.moved.first
    values = own_point.operations.declared.point if own_point is not None else first.point
    in_spec = {
        index: values[index]
        for index, tensor in enumerate(case.tensors)
        if not (tensor.is_variable or tensor.upstream_of)
    }
    written = describe_point(case, first.point, in_spec)
    where = f"right at the values given; wrong at {describe_values(case, point) or 'other draws'}"
    pairs = []
    for pair in findings.pairs:
        rule = rules[keys[pair.label]] if pair.label in keys else None
        is_open = pair.status is Status.PASSED or pair.undecided == "all_zero"
        if not is_open or pair.label not in wrong or (rule is not None and rule.expect not in ("", "pass")):
            pairs.append(pair)
        elif pair.label in excused:
            pairs.append(replace(pair, note=pair.note or f"where {describe_structure(case)}"))
        else:
            pairs.append(
                with_notes(wrong[pair.label], pair, where, remedy, *point_lines(case, written), point=written)
            )
    shown = {
        pair.label for pair, own in zip(pairs, findings.pairs, strict=True) if pair.status is not own.status
    }
    checks = [check for check in findings.checks if check.name not in failed]
    return replace(
        findings,
        pairs=tuple(pairs),
        checks=(*checks, *(replace(check, message=f"{check.message}; {where}") for check in failed.values())),
        judged={**findings.judged, **{label: moved.judged[label] for label in shown}},
    )


@clock.spend("checks")
def _conclude(
    examination: Examination,
    first: Operation,
    samples: Sequence[int],
    others: Mapping[str, Callable[[], Opener[Any]]],
) -> Findings:
    """Turn the results of the sample points into findings."""
    case, rules, first_point = examination.case, examination.rules, examination.first
    operations = None if first_point is None else first_point.operations
    pairs = results_of(
        case, first, rules, examination.samples, examination.upstream_faults, examination.points
    )
    expected_right = {
        key: judged for key, judged in examination.samples.items() if not is_expected_wrong(rules[key])
    }
    checks = list(examination.checks)
    if first_point is not None and others:
        own_rules = {key: rules[key] for key in expected_right}
        sparsities = examination.sparsities or {}
        ops, jacobians = first_point
        checks += run_checks(ModesView(case, ops, own_rules, jacobians, sparsities, samples[0], others))
    view = CaseView(case, first, expected_right, pairs, examination.opener.unrun_gradients(first))
    checks = keep_one_each([*run_checks(view), *checks])
    statuses = {*(pair.status for pair in pairs), *(check.status for check in checks)}
    if Status.MISMATCHED in statuses:
        asked = case, operations, pairs, checks
        pairs, checks = hooks.ask("find_common_cause", *asked, default=(pairs, checks))
    pairs = tuple(
        replace(result, fingerprint=fingerprint, numbers=replace(result.numbers, tolerance=tolerance))
        for key, result in zip(pair_keys(first), pairs, strict=True)
        for tolerance, fingerprint in [examination.recorded.get(key, (None, None))]
    )
    return Findings(
        pairs,
        tuple(checks),
        tuple(dict.fromkeys(examination.warnings)),
        _list_not_differentiated(first),
        operations,
        examination.gradients_seen,
        held=(*_describe_held_stops(operations), *_describe_kept_values(case)),
        stops=frozenset(examination.stops.changing),
        judged={
            label_of(first, key): PairVerdicts.of(first, key, tuple(judged), samples)
            for key, judged in examination.samples.items()
        },
    )


def _describe_held_stops(operations: Operations | None) -> tuple[str, ...]:
    """Say which `stop_gradient`s were held when the forward was differenced, and which weren't."""
    if operations is None:
        return ()
    is_own = operations.differenced is operations.formula
    owner = "" if is_own else " of the reference"
    held = [f"stop_gradient at {place}{owner}" for place in operations.differenced.facts.held_places]
    is_vjp = any(info.of for info in operations.declared.outputs)
    moving = operations.declared.facts.passed_over if is_own and not is_vjp else ()
    reason = "inside a custom gradient's forward, which is differenced as it is"
    return (*held, *(f"not stop_gradient at {place} ({reason})" for place in moving))


def _describe_kept_values(case: Case) -> tuple[str, ...]:
    """Say which stated values the spec keeps as they are."""
    return tuple(f"{tensor.name} ({tensor.keeps})" for tensor in case.tensors if tensor.keeps)


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
            where = tuple(int(index) for index in np.argwhere(~np.isfinite(value))[0])
            raise CaseFailedError(
                "values",
                f"input {info.name} is {value[where]} at {list(where)}: there is no difference to take "
                "there; give a finite value, or say 'differentiate: false'.",
            )
