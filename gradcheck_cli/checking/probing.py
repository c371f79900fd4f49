"""Judges a pair that is too large for its Jacobian by random probes, and follows an alarm to its element."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.element import Element, judge_element
from gradcheck_cli.checking.jacobian import (
    packed_function,
    packed_point,
    pull_back,
    working_dtype,
    working_precision,
)
from gradcheck_cli.checking.packing import pack, packed_size
from gradcheck_cli.checking.pair_sample import PairSample
from gradcheck_cli.checking.probe_search import Search
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.probe import Target
from gradcheck_cli.numerics.steps import typical_size

if TYPE_CHECKING:
    from gradcheck_cli.checking.packing import Float
    from gradcheck_cli.checking.sample import Operations, Pair
    from gradcheck_cli.numerics import ToleranceRule
    from gradcheck_cli.spec.case import Case


def probe_pair(
    case: Case, operations: Operations, pair: Pair, rule: ToleranceRule, sample: int
) -> PairSample:
    """Judge one pair by random probes.

    Args:
        case: for its domains, scales and the power that is asked for.
        operations: `formula` has the vjp, `differenced` the forward.
        pair: output number, input number.
        rule: the pair's tolerance.
        sample: number of the sample point.

    Returns:
        The elements that were looked at one by one, if any, and what the probes say of the rest.
    """
    output, number = pair
    op = operations.differenced
    target = _target(case, operations, pair, rule)
    search = Search(
        case, operations, pair, rule, target, np.random.default_rng([case.seed, sample, output, number])
    )
    search.run()
    return _with_elements(
        search.elements,
        PairSample(
            **_NONE,
            is_connected=operations.formula.is_connected(output, number),
            evaluations=target.evaluations,
            method="probe",
            numeric_dtype=working_dtype(op, op.inputs[number].dtype),
            shape=(packed_size(op.outputs[output]), packed_size(op.inputs[number])),
            miss_probability=None if search.is_wrong else search.all_missed,
            miss_size=None if search.is_wrong else case.power.size,
            is_zero=(search.gradient_is_zero, search.change_is_zero),
            probe_error=search.error,
            probe_bound=search.bound,
            doubt=search.doubt,
        ),
    )


def with_element(  # noqa: PLR0913, PLR0917 (a pair, an element of it, and what is known of the rest)
    case: Case,
    operations: Operations,
    pair: Pair,
    rule: ToleranceRule,
    place: tuple[int, int],
    found: PairSample,
) -> PairSample:
    """Judge one more element of a probed pair, and return it in place of the others."""
    element = judge_element(case, operations, pair, rule, _target(case, operations, pair, rule), place)
    return replace(
        _with_elements([element], found),
        numeric_dtype=working_dtype(operations.differenced, operations.differenced.inputs[pair[1]].dtype),
        miss_probability=None,
        miss_size=None,
    )


# No element was judged one by one.
_NONE: dict[str, Any] = {
    **dict.fromkeys(("analytic", "numeric", "uncertainty", "allowed"), np.zeros((0, 1))),
    **dict.fromkeys(("verdict", "reason"), np.zeros((0, 1), np.int8)),
}


def _with_elements(found: list[Element], sample: PairSample) -> PairSample:
    def column(values: list[Any], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        return np.array(values, dtype=dtype).reshape(-1, 1)

    return replace(
        sample,
        analytic=column([element.analytic for element in found]),
        numeric=column([element.numeric for element in found]),
        uncertainty=column([element.uncertainty for element in found]),
        allowed=column([element.allowed for element in found]),
        verdict=column([element.verdict for element in found], np.int8),
        reason=column([element.reason for element in found], np.int8),
        rows=column([element.row for element in found], np.int64),
        columns=column([element.column for element in found], np.int64),
    )


def refused(operations: Operations, pair: Pair) -> PairSample:
    """Return what is known of a pair that only probes could judge, where they are refused: nothing."""
    op, (output, number) = operations.differenced, pair
    shape = (packed_size(op.outputs[output]), packed_size(op.inputs[number]))
    return PairSample(
        **_NONE,
        is_connected=operations.formula.is_connected(output, number),
        evaluations=0,
        method="none",
        numeric_dtype=working_dtype(op, op.inputs[number].dtype),
        shape=shape,
        is_zero=(False, False),
        doubt=(
            f"a Jacobian of {shape[0]} x {shape[1]} elements is left to random probes, which '--require "
            "full' refuses; use 'method: full', or a smaller input."
        ),
    )


def _target(case: Case, operations: Operations, pair: Pair, rule: ToleranceRule) -> Target:
    """Set up forward and vjp of a pair, one point and one upstream at a time."""
    output, number = pair
    op, formula = operations.differenced, operations.formula
    evaluate = packed_function(op, number, [output])
    point = packed_point(op, number)

    def pull(upstream: Float) -> Float:
        gradient = pull_back(formula, output, upstream[None])[number]
        return np.zeros(point.size) if gradient is None else gradient[0]

    low, high = case.tensors[number].domain
    precision = working_precision(op, op.inputs[number].dtype)
    values = working_precision(op, op.outputs[output].dtype)
    return Target(
        evaluate=lambda x: evaluate(x[None])[0],
        pull=pull,
        point=point,
        base=pack(op.base_values[output][np.newaxis], op.outputs[output])[0],
        typical=typical_size(point, case.tensors[number].scale),
        low=-np.inf if low is None else low,
        high=np.inf if high is None else high,
        unit=values.unit_roundoff,
        precision=precision,
        working=coarsest(precision, values),
        rtol=rule.rtol,
        atol=rule.atol or 0.0,
        is_lenient=rule.atol is not None or rule.is_rtol_fixed,
    )
