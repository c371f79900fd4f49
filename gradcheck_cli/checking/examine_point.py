"""Examine an opened case at its sample points: judge every pair, and run the structural checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gradcheck_cli import hooks
from gradcheck_cli.checking.case_progress import report_progress
from gradcheck_cli.checking.checks.all_checks import run_checks, run_upstream_checks
from gradcheck_cli.checking.checks.check import JudgedView, PointView
from gradcheck_cli.checking.checks.deterministic import compare_traces
from gradcheck_cli.checking.judging.declared_dtype import judge_declared, judge_large_declared
from gradcheck_cli.checking.judging.formula import note_lower_precision, warn_of_approximations
from gradcheck_cli.checking.judging.judge_by_differences import judge_pairs
from gradcheck_cli.checking.judging.judge_by_probes import probe_pairs, refuse
from gradcheck_cli.checking.judging.ledger import Evidence, Stage, settle_pairs
from gradcheck_cli.checking.judging.stop_gradients import StopGradients
from gradcheck_cli.checking.ops.analytic import guess_sparsities, take_jacobians
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.jacobian import Jacobian, PairKey
from gradcheck_cli.checking.ops.method_choice import FEWEST_ELEMENTS, find_costly_pairs, is_probed
from gradcheck_cli.checking.ops.opener import OpenedOperation, Opener, Opening, Operations, open_operations
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.ops.packing import packed_size
from gradcheck_cli.checking.pairs.pair import Pair, is_skipped, pair_keys, pairs_at
from gradcheck_cli.checking.pairs.pair_sample import RIGHT_BESIDE, PairSample
from gradcheck_cli.checking.pairs.pair_view import PointData
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics.sparsity import Sparsity
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.case import MOVED, Case, PairRule

Jacobians = dict["PairKey", "Jacobian | None"]
# The part of a point's time budget for pairs that are judged element by element.
_FOR_WHOLE = 0.3


@dataclass
class Examination:
    """A case under examination, with the results of its sample points so far.

    Attributes:
        samples: the verdicts of each pair, by sample point.
        recorders: record facts of the pairs for features.
        gradients_seen: how often each registered gradient function was called.
        upstream_faults: for pairs that are expected to be wrong, faults that their Jacobians don't show.
    """

    case: Case
    opener: Opener[Any]  # makes ops of it
    rules: Mapping[PairKey, PairRule | None]  # the spec's rule for each pair
    compared_at: int  # index of the sample point at which another trace is compared
    budget: Budget  # for all sample points
    stops: StopGradients  # the `stop_gradient`s for which the spec doesn't say whether they are intended
    samples: dict[PairKey, list[PairSample]] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)  # results of the structural checks
    warnings: list[str] = field(default_factory=list)  # the declared dtype's losses of precision
    first: Operations | None = None  # the ops at the first sample point
    recorders: list[hooks.PointRecorder] = field(default_factory=hooks.point_recorders)
    sparsities: dict[PairKey, Sparsity] | None = None  # guessed at the first sample point
    costly: set[PairKey] = field(default_factory=set)  # pairs whose elements aren't judged one by one
    gradients_seen: Mapping[str, int] = field(default_factory=dict)
    points: list[PointData] = field(default_factory=list)  # the sample points, for the diagnosis
    upstream_faults: dict[PairKey, str] = field(default_factory=dict)

    def examine_point(self, sample: int, op: OpenedOperation, share: tuple[float, float]) -> None:
        """Judge every pair at one sample point, and run the structural checks of a point.

        Args:
            op: the declared op at that point.
            share: the shares of all work that are done before this point and after it.
        """
        case = self.case
        keys = [key for key in pair_keys(op) if not is_skipped(self.rules[key])]
        point_budget, whole_budget = self.budget.share(share[1]), Budget()
        if case.method == "auto" and not case.full_only:
            sizes = [packed_size(op.outputs[output]) * packed_size(op.inputs[at]) for output, at in keys]
            part = 1.0 if sum(sizes) <= FEWEST_ELEMENTS else _FOR_WHOLE  # of so few, probes would show less
            whole_budget = self.budget.share(share[0] + part * (share[1] - share[0]))
        with self.budget.pause():
            # The gradients that the spec covers must be called at each point: another branch runs other ops.
            seen = self.opener.gradients_seen(op) if keys else {}
            operations = replace(open_operations(case, self.opener, sample, op), budget=whole_budget)
        self.gradients_seen = self.gradients_seen or seen
        pairs = pairs_at(case, operations, {key: self.rules[key] for key in keys})
        self.first = self.first or operations
        sparsities = self._plan(operations, keys)
        self._report_progress(share, 0.1)
        jacobians = take_jacobians(
            case, operations, [key for key in keys if key not in self.costly], sparsities
        )
        judged, warnings = self._judge(pairs, jacobians, sparsities)
        self._report_progress(share, 0.4)
        large = [key for key in keys if key not in judged]
        self.costly |= set(large)
        # The search for a fault took time of its own; it doesn't count against the budget.
        large = [key for key in large if not any(earlier.is_wrong for earlier in self.samples.get(key, []))]
        probed, unsure = _probe({key: pairs[key] for key in large}, sample, point_budget)
        judged |= probed
        self._report_progress(share, 0.8)
        judged = settle_pairs(
            Stage.POINT,
            Evidence(
                pairs,
                analytic=jacobians[1],
                weigh_stops=self.stops.weigh,
                are_right_alone=partial(self._are_right_alone, operations),
                sample=sample,
            ),
            judged,
        )
        judged, coarse = note_lower_precision(pairs, judged)
        self._note_precision(operations, [*warnings, *unsure, *coarse], is_coarse=bool(coarse))
        for key, result in judged.items():
            self.samples.setdefault(key, []).append(result)
        with self.budget.pause():
            self._run_point_checks(operations, pairs, jacobians, judged, sample)

    def look_beside(self) -> None:
        """Judge the pairs that are zero at every point at one beside, where each input is moved a little.

        Only what is right there counts: the spec doesn't say that the op accepts such a point.
        """
        zero = [
            key
            for key, judged in self.samples.items()
            if all(sample.numeric_is_zero and sample.analytic_is_zero for sample in judged)
            and not ((rule := self.rules[key]) and rule.expect)
            and key not in self.costly
        ]
        if not zero or "all_zero" in self.case.checks_off:
            return
        with suppress(CaseFailedError, GradientFormError), self.budget.pause():
            op = self.opener.open(Opening(MOVED))
            operations = open_operations(self.case, self.opener, MOVED, op)
            pairs = pairs_at(self.case, operations, {key: self.rules[key] for key in zero})
            jacobians = take_jacobians(self.case, operations, zero, self.sparsities or {})
            judged, _ = self._judge(pairs, jacobians, self.sparsities or {})
            for key, sample in judged.items():
                is_as_precise = sample.differencing.dtype == self.samples[key][0].differencing.dtype
                if sample.is_right and is_as_precise and not sample.numeric_is_zero:
                    self.samples[key].append(replace(sample, remark=RIGHT_BESIDE))

    def _are_right_alone(self, operations: Operations, key: PairKey) -> bool:
        """Whether the user's own gradients on a pair's path are right, each by itself, at the point."""
        return hooks.are_right_alone(self.opener.written_ops(operations.formula, *key))

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
        for recorder in self.recorders:
            recorder.keep(case, operations.formula, pairs)
        self.points.append(PointData.of(op.inputs, op.point, op.outputs, op.base_values))
        # If a pair is expected to be wrong, its behaviour under other upstreams is of no interest. Pairs
        # without a Jacobian cost more and are checked at one point only.
        sound = [
            key
            for key, pair in pairs.items()
            if not pair.is_expected_wrong and (is_first or key in jacobians[0])
        ]
        view = PointView(case, self.opener, operations, sound, jacobians, sample, self.compared_at, is_first)
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
            self.costly = find_costly_pairs(operations, few, sparsities, operations.budget.left)
        return self.sparsities

    def _judge(
        self,
        pairs: Mapping[PairKey, Pair],
        jacobians: tuple[Jacobians, Jacobians],
        sparsities: Mapping[PairKey, Sparsity],
    ) -> tuple[dict[PairKey, PairSample], list[str]]:
        """Judge pairs element by element: first their formula, then the declared dtype."""
        declared, formula = jacobians
        evidence = Evidence(pairs, judge_pairs, sparsities=sparsities)
        judged = settle_pairs(Stage.FORMULA, evidence, judge_pairs(pairs, formula))
        if not judged or not next(iter(pairs.values())).operations.has_reference_precision:
            return judged, []
        warnings = [
            line for key, result in judged.items() for line in warn_of_approximations(pairs[key], result)
        ]
        # A declared dtype that is outright wrong is a fault, even where its loss of digits is of no interest.
        wrong, lossy = judge_declared(pairs, declared, judged)
        return judged | wrong, [*warnings, *lossy]

    def _note_precision(self, operations: Operations, warnings: Sequence[str], *, is_coarse: bool) -> None:
        """Keep the warnings of one point, unless the spec turns them off."""
        results = list(run_checks(JudgedView(self.case, operations, warnings, is_coarse)))
        if results:
            self.warnings += warnings
            self.checks += results


def _find_upstream_fault(view: PointView, key: PairKey) -> str:
    """For a pair that is expected to be wrong, return a fault that its Jacobian doesn't show."""
    own = view.with_sound([key])
    results = run_upstream_checks(own)
    results += compare_traces(own, view.op)
    if key in view.jacobians[0]:
        # Together with the other outputs: a gradient that mixes them is right for each output alone.
        sound = [
            other_key
            for other_key in view.jacobians[0]
            if other_key[1] == key[1]
            and not _select_mismatches(run_upstream_checks(view.with_sound([other_key])))
        ]
        results += run_upstream_checks(view.with_sound(sound)) if key in sound and len(sound) > 1 else []
    return next((check.message for check in _select_mismatches(results)), "")


def _select_mismatches(checks: Sequence[CheckResult]) -> list[CheckResult]:
    return [check for check in checks if check.status is Status.MISMATCHED]


def _probe(
    pairs: Mapping[PairKey, Pair], sample: int, budget: Budget
) -> tuple[dict[PairKey, PairSample], list[str]]:
    """Judge pairs by probes: first their formula, then the declared dtype. Return warnings as well."""
    if not pairs:
        return {}, []
    first = next(iter(pairs.values()))
    if first.case.full_only:
        return {key: refuse(pair) for key, pair in pairs.items()}, []
    # If one pair is expected to be wrong, its effect on the others is of no interest.
    probed = probe_pairs(
        {key: pair for key, pair in pairs.items() if not pair.is_expected_wrong}, sample, budget
    )
    for key, pair in pairs.items():
        if pair.is_expected_wrong:
            probed |= probe_pairs({key: pair}, sample, budget)
    if not first.operations.has_reference_precision:
        return probed, []
    warnings = [line for key, result in probed.items() for line in warn_of_approximations(pairs[key], result)]
    wrong, lossy = judge_large_declared(pairs, probed, budget)
    return probed | wrong, warnings + lossy
