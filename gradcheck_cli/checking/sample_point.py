"""Judge a case at one sample point: open, plan, pull back, difference, probe, settle, check.

Each station takes what those before it gave, and returns a record of its own; none is changed afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gradcheck_cli import clock
from gradcheck_cli.checking.checks.all_checks import run_checks, run_upstream_checks
from gradcheck_cli.checking.checks.check import JudgedView, PointView
from gradcheck_cli.checking.checks.deterministic import compare_traces
from gradcheck_cli.checking.judging.declared_dtype import judge_declared, judge_large_declared
from gradcheck_cli.checking.judging.judge_by_probes import probe_pairs, refuse
from gradcheck_cli.checking.judging.ledger import (
    Evidence,
    Samples,
    Stage,
    judge_pairs,
    settle_pairs,
    warn_of_precision,
)
from gradcheck_cli.checking.judging.loops import judge_where_loops_run_on
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
    OpenedOperation,
    Opener,
    Operations,
    open_operations,
    packed_size,
)
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, PointData, is_skipped, pair_keys, pairs_at
from gradcheck_cli.numerics import FLOAT64, precision_of, rule_for
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.case import Case, PairRule

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


Jacobians = Mapping[PairKey, Jacobian | None]
# The part of a point's time budget for pairs that are judged element by element.
_FOR_WHOLE_JACOBIANS = 0.3


@dataclass(frozen=True)
class Plan:
    """How the pairs of a case are judged, as the points so far have shown."""

    sparsities: Mapping[PairKey, Sparsity]  # guessed at the first sample point
    costly: frozenset[PairKey]  # pairs whose elements aren't judged one by one


@dataclass(frozen=True)
class Examination:
    """A case, and what is asked of it at each point."""

    case: Case
    opener: Opener[Any]  # makes ops of it
    rules: Mapping[PairKey, PairRule | None]  # the spec's rule for each pair
    compared_at: int  # index of the sample point at which another trace is compared
    stops: StopGradients  # the `stop_gradient`s for which the spec doesn't say whether they are intended
    plan: Plan | None = None  # where it was examined at other points before

    @property
    def budget(self) -> Budget:
        """The case's, for all sample points."""
        return self.stops.budget


@dataclass(frozen=True)
class PointFindings:
    """What was found at one sample point."""

    operations: Operations  # the ops there
    jacobians: tuple[Jacobians, Jacobians]  # theirs, declared and formula, if modes are to be compared
    data: PointData  # for the diagnosis
    samples: Mapping[PairKey, PairSample]  # the verdicts
    checks: tuple[CheckResult, ...]  # results of the structural checks
    warnings: tuple[str, ...]  # the declared dtype's losses of precision
    plan: Plan  # for the points to come
    gradients_seen: Mapping[str, int]  # how often each registered gradient function was called
    # for pairs that are expected to be wrong, faults that their Jacobians don't show
    upstream_faults: Mapping[PairKey, str]


@dataclass(frozen=True)
class _Point:
    """A sample point at which a case is open."""

    asked: Examination
    number: int
    before: Sequence[PointFindings]  # of the points before this one
    share: tuple[float, float]  # the shares of all work that are done before this point and after it
    operations: Operations
    pairs: Mapping[PairKey, Pair]
    gradients_seen: Mapping[str, int]

    @property
    def case(self) -> Case:
        return self.asked.case

    def report(self, fraction: float) -> None:
        """Report that this fraction of the work at the point is done."""
        report_progress(self.share[0] + fraction * (self.share[1] - self.share[0]))


def examine_point(
    asked: Examination,
    number: int,
    op: OpenedOperation,
    share: tuple[float, float],
    before: Sequence[PointFindings] = (),
) -> PointFindings:
    """Judge every pair at one sample point, and run the structural checks of a point.

    Args:
        asked: the case.
        number: the point's index.
        op: the declared op at that point.
        share: the shares of all work that are done before this point and after it.
        before: what was found at the points before.
    """
    point = _open(asked, number, op, share, before)
    plan = before[-1].plan if before else asked.plan or _plan(point)
    point.report(0.1)
    few = [key for key in point.pairs if key not in plan.costly]
    jacobians = take_jacobians(point.case, point.operations, few, plan.sparsities)
    judged = _judge(point, jacobians, plan.sparsities)
    point.report(0.4)
    large = frozenset(point.pairs.keys() - judged.keys())
    judged |= _probe(point, large)
    point.report(0.8)
    settled = _settle(point, plan, jacobians[1], judged)
    samples, coarse = _note_lower_precision(point.pairs, settled)
    losses = [line for key, each in settled.items() for line in warn_of_precision(point.pairs[key], each)]
    warnings = [*losses, *coarse]
    of_dtype = run_checks(JudgedView(point.case, point.operations, warnings, bool(coarse)))
    with asked.budget.pause():
        checks, upstream_faults = _check(point, jacobians, samples)
    is_compared = not before and len(point.case.running.modes) > 1
    return PointFindings(
        point.operations,
        jacobians if is_compared else ({}, {}),
        PointData.of(op.inputs, op.point, op.outputs, op.base_values),
        samples,
        (*of_dtype, *checks),
        tuple(warnings) if of_dtype else (),  # none if the spec turns them off
        replace(plan, costly=plan.costly | large),
        point.gradients_seen,
        upstream_faults,
    )


def _open(
    asked: Examination,
    number: int,
    op: OpenedOperation,
    share: tuple[float, float],
    before: Sequence[PointFindings],
) -> _Point:
    """Open the case in all its forms."""
    case, budget = asked.case, Budget()
    keys = [key for key in pair_keys(op) if not is_skipped(asked.rules[key])]
    if case.judging.method == "auto" and not case.judging.full_only:
        sizes = [packed_size(op.outputs[output]) * packed_size(op.inputs[at]) for output, at in keys]
        # Of so few elements, probes would show less.
        part = 1.0 if sum(sizes) <= FEWEST_ELEMENTS else _FOR_WHOLE_JACOBIANS
        budget = asked.budget.share(share[0] + part * (share[1] - share[0]))
    with asked.budget.pause():
        # The gradients that the spec covers must be called at each point: another branch runs other ops.
        seen = asked.opener.gradients_seen(op) if keys else {}
        operations = replace(open_operations(case, asked.opener, number, op), budget=budget)
    pairs = pairs_at(case, operations, {key: asked.rules[key] for key in keys})
    return _Point(asked, number, before, share, operations, pairs, seen)


def _plan(point: _Point) -> Plan:
    """Decide at the first point which Jacobians are sparse and which cost too much."""
    case, operations, keys = point.case, point.operations, [*point.pairs]
    sparsities = guess_sparsities(case, operations.formula, keys)
    few = [key for key in keys if not is_probed(case, operations.formula, key, sparsities.get(key))]
    seconds = operations.budget.left
    with operations.budget.pause():
        costly = find_costly_pairs(operations, few, sparsities, seconds)
    return Plan(sparsities, frozenset(costly))


@clock.spend("differences")
def _judge(
    point: _Point, jacobians: tuple[Jacobians, Jacobians], sparsities: Mapping[PairKey, Sparsity]
) -> Samples:
    """Judge pairs element by element: first their formula, then the declared dtype."""
    declared, formula = jacobians
    evidence = Evidence(
        point.pairs, sparsities, judge_declared=partial(judge_declared, point.pairs, declared)
    )
    judged = settle_pairs(Stage.FORMULA, evidence, judge_pairs(point.pairs, formula))
    return settle_pairs(Stage.DECLARED, evidence, judged)


@clock.spend("probes")
def _probe(point: _Point, large: frozenset[PairKey]) -> Samples:
    """Judge pairs by probes: first their formula, then the declared dtype."""
    # The search for a fault took time of its own; it doesn't count against the budget.
    wrong = {key for findings in point.before for key, each in findings.samples.items() if each.is_wrong}
    pairs = {key: pair for key, pair in point.pairs.items() if key in large - wrong}
    if not pairs:
        return {}
    if point.case.judging.full_only:
        return {key: refuse(pair) for key, pair in pairs.items()}
    budget = point.asked.budget.share(point.share[1])
    # If one pair is expected to be wrong, its effect on the others is of no interest.
    probed = probe_pairs(
        {key: pair for key, pair in pairs.items() if not pair.is_expected_wrong}, point.number, budget
    )
    for key, pair in pairs.items():
        if pair.is_expected_wrong:
            probed |= probe_pairs({key: pair}, point.number, budget)
    evidence = Evidence(pairs, judge_declared=partial(judge_large_declared, pairs, budget=budget))
    return settle_pairs(Stage.DECLARED, evidence, probed)


def _settle(point: _Point, plan: Plan, formula: Jacobians, judged: Samples) -> Samples:
    """Let the entries of the ledger act that look at all pairs of the point."""
    case, stops, operations = point.case, point.asked.stops, point.operations
    if case.reference is not None and case.judging.second_order:
        judged = stops.note_reference(point.pairs, judged)
    # A reference decides by its own stops, but its gradient's gradient doesn't.
    is_open = case.judging.freeze is None and (
        case.reference is None or any(output.of for output in operations.declared.outputs)
    )
    judge_stops = partial(stops.judge_with_stops_held, point.pairs, formula, point.number)
    written_ops = partial(point.asked.opener.written_ops, operations.formula)
    evidence = Evidence(
        point.pairs,
        judge_loops=partial(
            judge_where_loops_run_on, point.pairs, plan.sparsities, point.number, stops.budget
        ),
        judge_stops=judge_stops if is_open else None,
        are_right_alone=lambda key: are_right_alone(written_ops(*key)),
    )
    return settle_pairs(Stage.POINT, evidence, judged)


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


def _check(
    point: _Point, jacobians: tuple[Jacobians, Jacobians], samples: Mapping[PairKey, PairSample]
) -> tuple[list[CheckResult], dict[PairKey, str]]:
    """Run the structural checks of a judged point.

    Returns:
        Their results; and, of the first point, the faults of pairs that are expected to be wrong.
    """
    asked, is_first = point.asked, not point.before
    # If a pair is expected to be wrong, its behaviour under other upstreams is of no interest. Pairs
    # without a Jacobian cost more and are checked at one point only; then nothing is pulled back to them.
    expected_right = [
        key
        for key, pair in point.pairs.items()
        if not pair.is_expected_wrong and (is_first or key in jacobians[0])
    ]
    operations = point.operations
    if not is_first and jacobians[0].keys() < point.pairs.keys():
        operations = operations.pulling_to({input_index for _, input_index in expected_right})
    view = PointView(
        asked.case,
        asked.opener,
        operations,
        expected_right,
        jacobians,
        point.number,
        asked.compared_at,
        is_first,
    )
    checks = run_upstream_checks(view) + run_checks(view)
    own = [
        key
        for key, pair in point.pairs.items()
        if is_first and pair.is_expected_wrong and not samples[key].is_wrong
    ]
    return checks, {key: _find_upstream_fault(view, key) for key in own}


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
