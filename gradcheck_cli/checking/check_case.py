"""Check one case: every pair at every sample point, its second order if asked for, then the expectations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from gradcheck_cli import hooks
from gradcheck_cli.checking.checks.all_checks import keep_one_each, run_checks
from gradcheck_cli.checking.checks.check import CaseView, ModesView, OpenedView
from gradcheck_cli.checking.checks.gradient_form import report_form
from gradcheck_cli.checking.examine_point import Examination
from gradcheck_cli.checking.judging.stop_gradients import StopGradients
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.opener import Op, Opener, Opening, Operations
from gradcheck_cli.checking.ops.operation import GradientFormError, Operation
from gradcheck_cli.checking.pairs.pair import is_expected_wrong, label_of, pair_keys
from gradcheck_cli.checking.pairs.pair_view import Judged
from gradcheck_cli.checking.verdicts.expectations import rules_of
from gradcheck_cli.checking.verdicts.pair_results import report_malformed, report_raised, results_of
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import CheckResult, Status, UndifferentiatedOutput
from gradcheck_cli.spec.case import MOVED, Case

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
    if case.second_order and findings.first is not None:
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
    """What is known about a case whose vjp is examined.

    Attributes:
        stops: the `stop_gradient`s that change a first derivative, if the spec doesn't say whether they are
            intended; `None` if that isn't known.
    """

    labels: Sequence[str] = ()  # labels of the case's own pairs: rules may be meant for those
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
    budget = Budget(case.budget)
    stops = StopGradients(case, below.stops, budget=budget)
    examination = Examination(case, opener, rules, second, budget, stops, checks=passed)
    try:
        for done, sample in enumerate(samples):
            with budget.pause():
                op = first if sample == samples[0] else opener.open(Opening(sample))
            examination.examine_point(sample, op, (done / len(samples), (done + 1) / len(samples)))
        examination.look_beside()
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
    return _conclude(examination, first, samples[0], others)


def _conclude(
    examination: Examination, first: Operation, sample: int, others: Mapping[str, Callable[[], Opener[Any]]]
) -> Findings:
    """Turn the results of the sample points into findings."""
    case, rules, operations = examination.case, examination.rules, examination.first
    pairs = results_of(
        case, first, rules, examination.samples, examination.upstream_faults, examination.points
    )
    sound = {key: judged for key, judged in examination.samples.items() if not is_expected_wrong(rules[key])}
    checks = list(examination.checks)
    if operations is not None:
        own_rules = {key: rules[key] for key in sound}
        sparsities = examination.sparsities or {}
        checks += run_checks(ModesView(case, operations, own_rules, sparsities, sample, others))
    checks = hooks.order_checks(
        keep_one_each(
            [*run_checks(CaseView(case, first, sound, pairs, examination.opener.unrun_gradients())), *checks]
        )
    )
    pairs = hooks.add_causes(case, operations, pairs, checks)
    for recorder in examination.recorders:
        pairs = recorder.add_to(first, pairs)
    numeric = next((pair.numeric.reference_dtype for pair in pairs if pair.numeric.method != "none"), "")
    return Findings(
        pairs,
        tuple(checks),
        tuple(dict.fromkeys(examination.warnings)),
        numeric,
        _list_not_differentiated(first),
        first,
        examination.gradients_seen,
        held=_describe_held_stops(operations),
        stops=frozenset(examination.stops.changing),
        judged={
            label_of(first, key): Judged(first.outputs[key[0]], first.inputs[key[1]], tuple(judged))
            for key, judged in examination.samples.items()
        },
    )


def _describe_held_stops(operations: Operations | None) -> tuple[str, ...]:
    """Say which `stop_gradient`s were held when the forward was differenced."""
    if operations is None:
        return ()
    owner = "" if operations.differenced is operations.formula else " of the reference"
    return tuple(f"stop_gradient at {place}{owner}" for place in operations.differenced.facts.held_places)


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
