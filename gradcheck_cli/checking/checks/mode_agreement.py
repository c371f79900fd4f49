"""Check that every mode gives the same gradient: this one's Jacobians against those of another mode."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.expected_gradients import find_difference
from gradcheck_cli.checking.ops.analytic import analytic_jacobians
from gradcheck_cli.checking.ops.method_choice import is_probed
from gradcheck_cli.checking.ops.opening import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.ops.operations import Operations
from gradcheck_cli.checking.ops.packing import index_of
from gradcheck_cli.checking.pairs.pair import Pair, pairs_at
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics.agreement import agree
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from typing import Any

    from gradcheck_cli.checking.checks.check import ModesView
    from gradcheck_cli.checking.ops.jacobian import Jacobian
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.pairs.pair import PairKey
    from gradcheck_cli.spec.case import Case


_DRAWS = (
    "the forward draws other random numbers in mode {} than in mode {}, so that the gradients of the two "
    "can't be compared; use tf.random.stateless_* with a fixed seed, or say 'checks: {{modes: false}}'."
)


_INPUTS = "the forward uses other variables in each mode: the inputs are {1} in mode {0}, {3} in mode {2}."


def _names(op: Operation) -> str:
    return ", ".join(info.name for info in op.inputs)


def check_modes(view: ModesView) -> list[CheckResult]:
    """Compare this mode's analytic gradients with those of the first other mode that can be had.

    Each mode's are held against that mode's own forward elsewhere. Here it shows where a function is another
    one in each mode, with a gradient that goes with it.
    """
    for mode, make in view.others.items():
        # What goes wrong in another mode is reported as what that mode's own case came to.
        with contextlib.suppress(CaseSkippedError, CaseFailedError, GradientFormError):
            mine, theirs = _comparable(view.operations, make(), view.sample)
            return [_compare(view, mode, mine, theirs)]
    return []


def _compare(view: ModesView, mode: str, mine: Operation, theirs: Operation) -> CheckResult:
    case, sparsities = view.case, view.sparsities
    if [info.shape for info in theirs.outputs] != [info.shape for info in mine.outputs]:
        return _differs(f"the outputs differ in shape between mode {mode} and mode {case.mode}.")
    if [info.name for info in theirs.inputs] != [info.name for info in mine.inputs]:
        return _differs(_INPUTS.format(mode, _names(theirs), case.mode, _names(mine)))
    small = [key for key in view.rules if not is_probed(case, mine, key, sparsities.get(key))]
    own, others = (analytic_jacobians(case, op, small, sparsities) for op in (mine, theirs))
    if _draw_apart(mine, theirs):
        return CheckResult("modes", Status.SKIPPED, _DRAWS.format(mode, case.mode))
    for key, pair in pairs_at(case, Operations.of_one(mine), view.rules).items():
        if key in own and key in others:
            message = _compare_jacobians(pair, (case.mode, own[key]), (mode, others[key]))
        else:
            message = _compare_pulls(pair, (case.mode, mine), (mode, theirs))
        if message:
            return _differs(message + _where_forward_differs(mine, theirs, key))
    return CheckResult("modes", Status.PASSED)


def _differs(message: str) -> CheckResult:
    return CheckResult("modes", Status.MISMATCHED, message)


def _comparable(own: Operations, opener: Any, sample: int) -> tuple[Operation, Operation]:  # noqa: ANN401 (an Opener of any op)
    """Return the two ops in one precision: float64 where both have it, else the declared dtypes."""
    declared = opener.open(Opening(sample))
    if own.has_reference_precision:
        wide = opener.in_dtype(declared, "float64")
        if wide is not None:
            return own.formula, wide
    return own.declared, declared


def _compare_jacobians(
    pair: Pair, mine: tuple[str, Jacobian | None], theirs: tuple[str, Jacobian | None]
) -> str:
    (mode, left), (other_mode, right_one) = mine, theirs
    if left is None or right_one is None:
        if not any(one is not None and one.values.any() for one in (left, right_one)):
            return ""  # None or zeros: a branch that isn't taken leaves no trace where nothing is traced
        return _only_one(pair.label, (mode, left is not None), (other_mode, right_one is not None))
    if left.sparsity is None or right_one.sparsity is None:  # else they are of the same one
        left, right_one = left.whole(), right_one.whole()
    own, other, columns = left.values, right_one.values, left.columns
    if not own.size:
        return ""
    # What either may be off by; the input's own size is its scale here, whatever the spec states.
    allowed = 2 * replace(pair.problem(), scale=None).allowed_between(own, other, columns)
    right = agree(own, other, allowed)
    if right.all():
        return ""
    row, column = (int(index) for index in np.unravel_index(int(np.argmin(right)), right.shape))
    at_column = int(np.broadcast_to(columns, own.shape)[row, column])
    return (
        f"{pair.label} differs: {other[row, column]:.6e} in mode {other_mode}, {own[row, column]:.6e} in "
        f"mode {mode}, at {pair.place(row, at_column)}."
    )


def _only_one(label: str, mine: tuple[str, bool], theirs: tuple[str, bool]) -> str:
    """Say which of two modes has no gradient, if just one of them has it."""
    if mine[1] == theirs[1]:
        return ""
    lacking, having = (theirs[0], mine[0]) if mine[1] else (mine[0], theirs[0])
    return f"{label} is None in mode {lacking} and a tensor in mode {having}."


def _compare_pulls(pair: Pair, mine: tuple[str, Operation], theirs: tuple[str, Operation]) -> str:
    """Compare what both modes make of one random upstream, where a Jacobian is too large."""
    (mode, op), (other_mode, other) = mine, theirs
    connected = op.is_connected(*pair.key)
    message = _only_one(pair.label, (mode, connected), (other_mode, other.is_connected(*pair.key)))
    if message and _is_zero(pair.case, op if connected else other, pair.key):
        return ""
    if message or not connected:
        return message
    found = find_difference(pair.case, op, other, pair.key, 2 * pair.tolerance.rtol)
    if found is None:
        return ""
    where, own, others = found
    return (
        f"{pair.label} differs: for a random upstream, {others:.6e} in mode {other_mode}, {own:.6e} in mode "
        f"{mode}, at {pair.input.name}{list(index_of(where, pair.input))}."
    )


def _is_zero(case: Case, op: Operation, pair: PairKey) -> bool:
    """Whether a gradient is zero for a random upstream."""
    output, number = pair
    upstream = np.random.default_rng(case.seed).standard_normal((1, *op.outputs[output].shape))
    gradient = op.vjp(output, upstream)[number]
    return gradient is None or not np.any(gradient)


def _draw_apart(op: Operation, other: Operation) -> bool:
    """Whether the two hold draws, and other ones: each mode has a generator of its own."""
    draws = (set(op.frozen) | set(other.frozen)) - {"StopGradient"}
    return bool(draws) and not all(_agree(op, other, number) for number in range(len(op.outputs)))


def _agree(op: Operation, other: Operation, output: int) -> bool:
    mine, theirs = op.base_values[output], other.base_values[output]
    if not op.outputs[output].is_differentiable:
        return np.array_equal(mine, theirs)
    size = float(np.max(np.abs(mine), initial=0.0))
    return np.allclose(mine, theirs, rtol=1e-3, atol=1e-3 * size, equal_nan=True)


def _where_forward_differs(op: Operation, other: Operation, pair: PairKey) -> str:
    """Say so where the forward is another function: then that is what to look at first."""
    if _agree(op, other, pair[0]):
        return ""
    return f" So does {op.outputs[pair[0]].name} itself: the forward is another function there."
