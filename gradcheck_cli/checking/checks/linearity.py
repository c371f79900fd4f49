"""Check that the vjp is linear in the upstream, for each output and for all outputs together.

A zero upstream, or one without elements, must give exact zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from gradcheck_cli.checking.checks.check import UpstreamView, report
from gradcheck_cli.checking.checks.expected_gradients import (
    Fault,
    Sum,
    compare,
    find_absorbed,
    find_fault,
    find_narrowed,
)
from gradcheck_cli.checking.checks.output_vjp import SIZES, Flow, OutputVjp, pull_empty
from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.checking.ops.packing import Float, pack, unpack
from gradcheck_cli.numerics.shared_limits import DIGITS
from gradcheck_cli.numerics.tolerance import largest_finite
from gradcheck_cli.results import CheckResult, Status

_QUESTION = "is the upstream clipped, squared, replaced or ignored?"
_LOSS = (
    "either the upstream isn't used linearly, or the gradient loses digits for upstreams this large (as an "
    "adjoint by scaling and squaring does); divide the upstream by its size, and multiply the gradient by it."
)
_STOP = (
    "either an upstream this small is dropped, or the gradient comes from an iteration that stops at an "
    "absolute error, whatever the upstream's size; make that error relative to the upstream."
)
# No loss sends a larger upstream, even with a loss scale.
_LOSS_SCALE = 2.0**20
# An upstream this many times the error that is excused, over the first one, shows whether upstreams are
# dropped that are larger than a solver's error may be.
_ABOVE_STOP = 2.0


def check_linearity(view: UpstreamView) -> list[CheckResult]:
    """Check that sums and multiples of upstreams give sums and multiples of gradients."""
    return [_check_linearity(view)] if view.pulled else []


def _check_linearity(view: UpstreamView) -> CheckResult:
    lossy = ""
    for pulled in view.pulled:
        wrong, excused = _find_wrong(pulled, " (in float64)" if view.is_formula else "")
        if wrong:
            return report("linearity", wrong)
        lossy = lossy or excused
    joint = _check_joint(view.op, [pulled for pulled in view.pulled if pulled.shift == 1.0], lossy)
    if joint.status is not Status.PASSED:
        return joint
    if lossy:
        return CheckResult("linearity", Status.INCONCLUSIVE, lossy)
    if not view.is_last:
        return joint
    undecided = [
        pulled.label(input_index)
        for pulled in view.pulled
        for input_index in pulled.input_indices
        if input_index not in pulled.resolved
        and (pulled.first[input_index][np.isfinite(pulled.first[input_index])] != 0).any()
    ]
    if not undecided:
        return joint
    return CheckResult(
        "linearity",
        Status.INCONCLUSIVE,
        f"{', '.join(undecided)}: so close to the smallest number of the dtype that underflow hides how "
        "the gradient depends on its upstream; scale the inputs, or check in float64.",
    )


def _find_wrong(pulled: OutputVjp, precision: str) -> tuple[str, str]:
    """Return what is wrong with one output's vjp, and what was excused until then; empty where nothing is."""
    excused = ""
    for flow, gradients in _pull_flows(pulled):
        for input_index in pulled.input_indices:
            match = find_fault(pulled, input_index, flow, gradients[input_index])
            if match is not None:
                fault, source = match
                label = pulled.label(input_index)
                detail = (
                    f"{precision}: for {flow.words} element {fault.element} is {fault.actual:.6e}, but "
                    f"{source} {fault.expected:.6e}"
                )
                remedy = _excuse(pulled, input_index, flow, fault, gradients[input_index])
                if not remedy:
                    return f"{label} isn't linear in the upstream{detail}; {_QUESTION}", excused
                excused = excused or f"{label}{detail}; {remedy}"
    return find_narrowed(pulled) or find_absorbed(pulled), excused


def _pull_flows(pulled: OutputVjp) -> Iterator[tuple[Flow, dict[int, Float]]]:
    """Yield the upstreams and their gradients, the last one just above what a solver's error may be."""
    yield from zip(pulled.upstreams.flows(), pulled.gradients_for("linearity"), strict=True)
    if pulled.stopped:
        factor = 2.0 ** math.floor(math.log2(_ABOVE_STOP * pulled.own_share))
        flow = Flow(
            f"a random upstream of size {factor * pulled.upstreams.size:.1e}", factor * pulled.base, factor
        )
        yield flow, pulled.pull(flow.upstream)


def _excuse(pulled: OutputVjp, input_index: int, flow: Flow, fault: Fault, gradient: Float) -> str:
    """Return what else may explain a fault, and the remedy; empty if nothing does.

    It may be a loss of digits: small, and for an upstream far above any loss scale. Or the gradient has an
    absolute error, within the tolerance for an ordinary upstream, which is much for a small one, and which a
    multiple doesn't repeat: an iterative solver's.
    """
    error = abs(fault.actual - fault.expected)
    if (flow.factor or 0.0) > _LOSS_SCALE and error <= DIGITS * abs(fault.expected):
        return _LOSS
    is_small = flow.size <= pulled.upstreams.size / 2
    if is_small and flow.factor is not None:  # the largest error, not the first
        error = max(error, largest_finite(gradient - flow.factor * pulled.first[input_index]))
    size = pulled.largest(input_index) if is_small else abs(fault.expected)
    if (is_small or flow.factor is not None) and error <= pulled.own_share * size:
        pulled.stopped = True
        return _STOP
    return ""


def _check_joint(op: Operation, all_pulled: list[OutputVjp], lossy: str) -> CheckResult:
    """Check that upstreams of several outputs together give the sum of their separate gradients.

    A gradient that mixes them (u1 * u2) is right for each alone, and wrong as soon as a loss uses both.

    Args:
        lossy: what was excused of single outputs; then small upstreams show nothing more.
    """
    if len(all_pulled) > 1:
        joint_sizes = SIZES[1:-1]  # that every dtype holds
        sizes = np.array(joint_sizes)[:, None]
        upstreams = {
            pulled.output: unpack(sizes * pulled.base[None], op.outputs[pulled.output])
            for pulled in all_pulled
        }
        for input_index, joint in enumerate(op.joint_vjp(upstreams)):
            # An input is left out if all its pairs are expected to be wrong.
            if joint is None or not any(input_index in pulled.input_indices for pulled in all_pulled):
                continue
            for size, gradient in zip(joint_sizes, pack(joint, op.inputs[input_index]), strict=True):
                if lossy and size < 1:
                    continue
                message = _find_joint_fault(op, all_pulled, input_index, gradient, size)
                if message:
                    return report("linearity", message)
    return report("linearity", "")


def _find_joint_fault(
    op: Operation, all_pulled: list[OutputVjp], input_index: int, gradient: Float, size: float
) -> str:
    terms = [(size, pulled.first[input_index]) for pulled in all_pulled if input_index in pulled.first]
    if not terms:
        return ""
    # The coarsest of the outputs' precisions decides how much rounding is allowed.
    coarsest = max(
        (pulled for pulled in all_pulled if input_index in pulled.first),
        key=lambda pulled: pulled.precision.unit_roundoff,
    )
    flow = Flow("", size * np.concatenate([pulled.base for pulled in all_pulled]))
    other_vjps = [pulled for pulled in all_pulled if input_index in pulled.first and pulled is not coarsest]
    fault = compare(coarsest, input_index, gradient, Sum(terms, others=other_vjps), flow)
    if fault is None:
        return ""
    return (
        f"the gradient for {op.inputs[input_index].name} isn't the sum of what each output's upstream gives "
        f"alone: element {fault.element} is {fault.actual:.6e} with all of them, their sum is "
        f"{fault.expected:.6e}; does the gradient mix the outputs' upstreams?"
    )


def check_zero_upstream(view: UpstreamView) -> list[CheckResult]:
    """Require exact zeros for a zero upstream, and for one without elements."""
    if view.is_formula:
        return []
    return [_check_empty(view.op, view.empty) if view.empty else _check_zero(view.pulled)]


def _check_zero(all_pulled: list[OutputVjp]) -> CheckResult:
    """Require exact zeros wherever the Jacobian is finite."""
    for pulled in all_pulled:
        gradients = next(pulled.gradients_for("zero_upstream"))
        for input_index in pulled.input_indices:
            matrix = pulled.matrices.get(input_index)
            is_finite = np.isfinite(pulled.first[input_index]) if matrix is None else matrix.finite_columns()
            wrong = (gradients[input_index] != 0) & is_finite
            if wrong.any():
                where = int(np.argmax(wrong))
                return report(
                    "zero_upstream",
                    f"{pulled.label(input_index)} isn't zero for a zero upstream: element {where} is "
                    f"{gradients[input_index][where]:.6e}.",
                )
    return report("zero_upstream", "")


def _check_empty(op: Operation, pairs: Sequence[PairKey]) -> CheckResult:
    """Require zeros for an output without elements: its gradient is a sum without terms.

    A kernel with nothing to do may never write its result, which then holds whatever was in memory. So each
    of several tries is looked at.
    """
    for output in sorted({output for output, _ in pairs}):
        gradients: dict[int, Float] = pull_empty(op, output)
        for of_output, input_index in pairs:
            wrong = (
                gradients[input_index] != 0
                if of_output == output and input_index in gradients
                else np.zeros((1, 1), bool)
            )
            if wrong.any():
                row, where = (int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
                return report(
                    "zero_upstream",
                    f"d{op.outputs[output].name}/d{op.inputs[input_index].name} isn't zero, though "
                    f"{op.outputs[output].name} has no elements: element {where} is "
                    f"{gradients[input_index][row, where]:.6e}; is its memory left unwritten?",
                )
    return report("zero_upstream", "")
