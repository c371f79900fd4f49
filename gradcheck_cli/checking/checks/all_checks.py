"""The table of all structural checks, and how the checks of one stage are run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gradcheck_cli.checking.checks.case_checks import (
    check_all_zero,
    check_connected,
    check_custom_gradient,
    check_finite,
    check_form,
    check_inputs_unmodified,
    check_override,
    check_precision,
    check_reference_forward,
    check_second_point,
    check_variables,
    check_variables_order,
)
from gradcheck_cli.checking.checks.check import (
    AnyView,
    CaseView,
    Check,
    JudgedView,
    ModesView,
    OpenedView,
    OutputVjp,
    PointView,
    UpstreamView,
    group_at_hand,
    pull_outputs,
)
from gradcheck_cli.checking.checks.deterministic import (
    check_beside_gradient,
    check_frozen,
    check_random,
    check_repeat,
    check_rerun,
    check_retrace,
)
from gradcheck_cli.checking.checks.linearity import check_linearity, check_zero_upstream
from gradcheck_cli.checking.checks.mode_agreement import check_modes
from gradcheck_cli.checking.ops.jacobian import Jacobian
from gradcheck_cli.numerics.precision import coarsest, largest_finite, precision_of
from gradcheck_cli.results import CheckResult, Status

# The checks of a stage run in this order. To add a check, write its function in a file of this folder and add
# a line here. A check that a spec may turn off is also a key of the spec.
CHECKS: tuple[Check[Any], ...] = (
    Check("deterministic", OpenedView, check_random),
    Check("deterministic", OpenedView, check_rerun),
    Check("frozen", OpenedView, check_frozen),
    Check("precision", JudgedView, check_precision, can_be_off=True),
    Check("linearity", UpstreamView, check_linearity, can_be_off=True),
    Check("zero_upstream", UpstreamView, check_zero_upstream, can_be_off=True),
    Check("repeat", UpstreamView, check_repeat, can_be_off=True),
    Check("deterministic", PointView, check_beside_gradient),
    Check("retrace", PointView, check_retrace, can_be_off=True),
    Check("variables", PointView, check_variables),
    Check("variables_order", PointView, check_variables_order, can_be_off=True),
    Check("inputs_unmodified", PointView, check_inputs_unmodified, can_be_off=True),
    Check("reference_forward", PointView, check_reference_forward),
    Check("form", CaseView, check_form),
    Check("finite", CaseView, check_finite),
    Check("connected", CaseView, check_connected),
    Check("custom_gradient", CaseView, check_custom_gradient, can_be_off=True),
    Check("override", CaseView, check_override, can_be_off=True),
    Check("second_point", CaseView, check_second_point),
    Check("all_zero", CaseView, check_all_zero, can_be_off=True),
    Check("modes", ModesView, check_modes, can_be_off=True),
)


def run_checks(view: AnyView) -> Iterator[CheckResult]:
    """Run the checks of one stage that the spec leaves on, one after another.

    Args:
        view: what the checks look at; its type says the stage.
    """
    for check in CHECKS:
        if check.looks_at is type(view) and not (check.can_be_off and check.name in view.case.checks_off):
            yield from check.run(view)


def run_upstream_checks(view: PointView) -> list[CheckResult]:
    """Check the vjp as a function of its upstream, for the declared op and for its formula in float64."""
    return [result for upstream_view in _upstream_views(view) for result in run_checks(upstream_view)]


def _upstream_views(view: PointView) -> Iterator[UpstreamView]:
    """Yield the views of the upstream checks, one output at a time where gradients are large together."""
    op, formula, case = view.operations.declared, view.operations.formula, view.case
    empty = [key for key in view.expected_right if not op.outputs[key[0]].size]
    if empty:
        yield UpstreamView(case, op, [], empty)
    declared, of_formula = (
        {key: matrix for key, matrix in matrices.items() if matrix is not None} for matrices in view.jacobians
    )
    is_last = not view.operations.has_reference_precision
    ahead = [check.name for check in CHECKS if check.looks_at is UpstreamView]
    for group in group_at_hand(pull_outputs(case, op, view.expected_right, declared, ahead)):
        for pulled in group:
            if not is_last and pulled.precision.nudge is None:
                pulled.formula = formula
            pulled.lossy = frozenset(
                index
                for index in pulled.input_indices
                if _is_lossy(
                    pulled,
                    declared.get((pulled.output, index)),
                    None if is_last else of_formula.get((pulled.output, index)),
                )
            )
        yield UpstreamView(case, op, group, is_last=is_last)
    if not is_last and "linearity" not in case.checks_off:
        # The declared dtype shows little of it: float32 four digits, float16 and bfloat16 hardly one.
        for group in group_at_hand(
            pull_outputs(case, formula, view.expected_right, of_formula, ["linearity"])
        ):
            for pulled in group:
                infos = [op.outputs[pulled.output], *[op.inputs[index] for index in pulled.input_indices]]
                pulled.declared = coarsest(*[precision_of(info.dtype) for info in infos])
            yield UpstreamView(case, formula, group, is_formula=True)


def _is_lossy(pulled: OutputVjp, declared: Jacobian | None, formula: Jacobian | None) -> bool:
    """Whether the declared dtype's Jacobian differs from its formula in the first twelve bits.

    In half precision, by more than four roundings; there it is lossy, too, if the formula isn't known.
    """
    if declared is None or formula is None or declared.values.shape != formula.values.shape:
        return pulled.precision.nudge is None
    with np.errstate(invalid="ignore"):
        error = largest_finite(declared.values - formula.values)
    return error > max(2.0**-12, 4 * pulled.precision.unit_roundoff) * largest_finite(formula.values)


def keep_one_each(results: list[CheckResult]) -> list[CheckResult]:
    """Keep one result under each name: the first that didn't pass, else the first."""
    by_name: dict[str, CheckResult] = {}
    for result in results:
        if result.name not in by_name or by_name[result.name].status is Status.PASSED:
            by_name[result.name] = result
    return list(by_name.values())
