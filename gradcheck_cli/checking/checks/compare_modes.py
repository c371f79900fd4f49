"""The comparison of modes: each must have the same gradient."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from gradcheck_cli.checking.checks.check import ModesView, report
from gradcheck_cli.checking.checks.linearity import find_difference
from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.operation import (
    GradientFormError,
    Opener,
    Opening,
    Operation,
    Operations,
    index_of,
)
from gradcheck_cli.checking.pairs.pair import Pair, pairs_at
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics.precision import largest_finite
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.case import Case

_DRAWS = (
    "the forward draws other random numbers in mode {} than in mode {}, so that the gradients of the two "
    "can't be compared; use tf.random.stateless_* with a fixed seed, or say 'checks: {{modes: false}}'."
)
_INPUTS = "the forward uses other variables in each mode: the inputs are {1} in mode {0}, {3} in mode {2}."


def _names(op: Operation) -> str:
    return ", ".join(info.name for info in op.inputs)


def compare_modes(view: ModesView) -> list[CheckResult]:
    """Compare this mode's analytic gradients with those of the first other mode that can be opened.

    Other checks compare each mode's gradient with that mode's own forward. This one finds a function that
    differs between modes and whose gradient differs with it.
    """
    for mode, make_opener in view.others.items():
        # A failure in another mode is reported by that mode's own case.
        with contextlib.suppress(CaseSkippedError, CaseFailedError, GradientFormError):
            own_op, other_op = _open_comparable(view.operations, make_opener(), view.sample)
            return [_compare(view, mode, own_op, other_op)]
    return []


def _compare(view: ModesView, mode: str, own_op: Operation, other_op: Operation) -> CheckResult:
    case = view.case
    if [info.shape for info in other_op.outputs] != [info.shape for info in own_op.outputs]:
        return report("modes", f"the outputs differ in shape between mode {mode} and mode {case.mode}.")
    if [info.name for info in other_op.inputs] != [info.name for info in own_op.inputs]:
        return report("modes", _INPUTS.format(mode, _names(other_op), case.mode, _names(own_op)))
    if _have_other_draws(own_op, other_op):
        return CheckResult("modes", Status.SKIPPED, _DRAWS.format(mode, case.mode))
    for key, pair in pairs_at(case, Operations.of_one(own_op), view.rules).items():
        message = _compare_pulls(pair, (case.mode, own_op), (mode, other_op))
        if message:
            return report("modes", message + _describe_forward_difference(own_op, other_op, key))
    return report("modes", "")


def _open_comparable(operations: Operations, opener: Opener[Any], sample: int) -> tuple[Operation, Operation]:
    """Return the two ops in one precision: float64 where both have it, else the declared dtypes."""
    declared = opener.open(Opening(sample))
    if operations.has_reference_precision:
        wide = opener.in_float64(declared)
        if wide is not None:
            return operations.formula, wide
    return operations.declared, declared


def _compare_pulls(pair: Pair, mine: tuple[str, Operation], theirs: tuple[str, Operation]) -> str:
    """Compare both modes' gradients for one random upstream; say what differs."""
    (mode, op), (other_mode, other_op) = mine, theirs
    connected = [mode for mode, op in (mine, theirs) if op.facts.is_connected(*pair.key)]
    if len(connected) == 1:  # None or zeros: in eager mode a branch that isn't taken gives None
        (having,) = connected
        if _is_zero(pair.case, op if having == mode else other_op, pair.key):
            return ""
        lacking = other_mode if having == mode else mode
        return f"{pair.label} is None in mode {lacking} and a tensor in mode {having}."
    difference = connected and find_difference(pair.case, op, other_op, pair.key, 2 * pair.tolerance.rtol)
    if not difference:
        return ""
    where, value, other_value = difference
    return (
        f"{pair.label} differs: for a random upstream, {other_value:.6e} in mode {other_mode}, {value:.6e} "
        f"in mode {mode}, at {pair.input.name}{list(index_of(where, pair.input))}."
    )


def _is_zero(case: Case, op: Operation, pair: PairKey) -> bool:
    """Whether a gradient is zero for a random upstream."""
    output, input_index = pair
    upstream = np.random.default_rng(case.seed).standard_normal((1, *op.outputs[output].shape))
    gradient = op.vjp(output, upstream)[input_index]
    return gradient is None or not np.any(gradient)


def _have_other_draws(op: Operation, other_op: Operation) -> bool:
    """Whether both ops hold random draws and these differ: each mode has its own generator."""
    draws = (set(op.facts.frozen) | set(other_op.facts.frozen)) - {"StopGradient"}
    return bool(draws) and not all(_agree(op, other_op, output) for output in range(len(op.outputs)))


def _agree(op: Operation, other_op: Operation, output: int) -> bool:
    mine, theirs = op.base_values[output], other_op.base_values[output]
    if not op.outputs[output].is_differentiable:
        return np.array_equal(mine, theirs)
    return np.allclose(mine, theirs, rtol=1e-3, atol=1e-3 * largest_finite(mine), equal_nan=True)


def _describe_forward_difference(op: Operation, other_op: Operation, pair: PairKey) -> str:
    """Say that the forward itself differs between modes, which should be looked at first; else nothing."""
    if _agree(op, other_op, pair[0]):
        return ""
    return f" So does {op.outputs[pair[0]].name} itself: the forward is another function there."
