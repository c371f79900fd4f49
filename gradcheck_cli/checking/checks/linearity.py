"""Check that the vjp is linear in the upstream, for each output and for all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.expected_gradients import Sum, compare, find_fault
from gradcheck_cli.checking.checks.upstreams import Flow
from gradcheck_cli.checking.ops.packing import pack, unpack
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from gradcheck_cli.checking.checks.check import UpstreamView
    from gradcheck_cli.checking.checks.pulled import Pulled
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float

_QUESTION = "is the upstream clipped, squared, replaced or ignored?"
# Multiples of the first random upstreams that outputs are pulled back with at once.
_JOINT_SIZES = (1.0, 2.0**10, 2.0**-10)


def check_linearity(view: UpstreamView) -> list[CheckResult]:
    """Check that upstreams of all kinds give what their parts, or multiples, give."""
    return [_check_linearity(view)] if view.pulled else []


def _check_linearity(view: UpstreamView) -> CheckResult:
    where = " (in float64)" if view.is_formula else ""
    for pulled in view.pulled:
        for flow, gradients in zip(pulled.upstreams.flows(), pulled.pulled_for("linearity"), strict=True):
            for number in pulled.numbers:
                fault = find_fault(pulled, number, flow, gradients[number])
                if fault is not None:
                    element, source = fault
                    return _mismatch(
                        f"{pulled.label(number)} isn't linear in the upstream{where}: for {flow.words} "
                        f"element {element.where} is {element.is_now:.6e}, but {source} "
                        f"{element.must_be:.6e}; {_QUESTION}"
                    )
    joint = _check_joint(view.op, [pulled for pulled in view.pulled if pulled.shift == 1.0])
    if joint.status is not Status.PASSED or not view.is_last:
        return joint
    untold = [
        pulled.label(number)
        for pulled in view.pulled
        for number in pulled.numbers
        if number not in pulled.told and (pulled.first[number][np.isfinite(pulled.first[number])] != 0).any()
    ]
    if not untold:
        return joint
    return CheckResult(
        "linearity",
        Status.INCONCLUSIVE,
        f"{', '.join(untold)}: so close to the smallest number of the dtype that what a gradient makes of "
        "its upstream can't be told from underflow; scale the inputs, or check in float64.",
    )


def _mismatch(message: str) -> CheckResult:
    return CheckResult("linearity", Status.MISMATCHED, message)


def _check_joint(op: Operation, every: list[Pulled]) -> CheckResult:
    """Check that upstreams of several outputs at once give the sum of what each gives alone.

    A gradient that mixes them (u1 * u2) is right for each alone, and wrong as soon as a loss uses both.
    """
    if len(every) > 1:
        sizes = np.array(_JOINT_SIZES)[:, None]
        upstreams = {one.output: unpack(sizes * one.base[None], op.outputs[one.output]) for one in every}
        for number, joint in enumerate(op.joint_vjp(upstreams)):
            # An input of which every pair is expected to be wrong isn't looked at.
            if joint is None or not any(number in one.numbers for one in every):
                continue
            for size, found in zip(_JOINT_SIZES, pack(joint, op.inputs[number]), strict=True):
                message = _joint_fault(op, every, number, found, size)
                if message:
                    return _mismatch(message)
    return CheckResult("linearity", Status.PASSED)


def _joint_fault(op: Operation, every: list[Pulled], number: int, found: Float, size: float) -> str:
    parts = [(size, one.first[number]) for one in every if number in one.first]
    if not parts:
        return ""
    # The coarsest of them says what may be lost.
    judge = max((one for one in every if number in one.first), key=lambda one: one.precision.unit_roundoff)
    flow = Flow("", size * np.concatenate([one.base for one in every]))
    others = [one for one in every if number in one.first and one is not judge]
    fault = compare(judge, number, found, Sum(parts, others=others), flow)
    if fault is None:
        return ""
    return (
        f"the gradient for {op.inputs[number].name} isn't the sum of what each output's upstream gives "
        f"alone: element {fault.where} is {fault.is_now:.6e} with all of them, their sum is "
        f"{fault.must_be:.6e}; does the gradient mix the outputs' upstreams?"
    )
