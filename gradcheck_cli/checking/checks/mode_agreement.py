"""Check that every mode gives the same gradient: this one's Jacobians against those of another mode."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.upstreams import find_difference
from gradcheck_cli.checking.ops.opening import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.ops.packing import index_of
from gradcheck_cli.checking.pairs.allowance import allowed_at
from gradcheck_cli.checking.pairs.analytic import analytic_jacobians
from gradcheck_cli.checking.pairs.sample import Operations, label_of, tolerance_of
from gradcheck_cli.checking.probing.method_choice import is_probed
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gradcheck_cli.checking.ops.jacobian import Jacobian
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.sample import Pair
    from gradcheck_cli.numerics.sparsity import Index, Sparsity
    from gradcheck_cli.spec.case import Case, PairRule


_DRAWS = (
    "the forward draws other random numbers in mode {} than in mode {}, so that the gradients of the two "
    "can't be compared; use tf.random.stateless_* with a fixed seed, or say 'checks: {{modes: false}}'."
)


_INPUTS = "the forward uses other variables in each mode: the inputs are {1} in mode {0}, {3} in mode {2}."


def _names(op: Operation) -> str:
    return ", ".join(info.name for info in op.inputs)


def check_modes(  # noqa: PLR0913, PLR0917 (a case in one mode, and what opens it in others)
    case: Case,
    own: Operations,
    rules: Mapping[Pair, PairRule | None],
    sparsities: Mapping[Pair, Sparsity],
    sample: int,
    others: Mapping[str, Callable[[], Any]],
) -> list[CheckResult]:
    """Compare this mode's analytic gradients with those of the first other mode that can be had.

    Each mode's are held against that mode's own forward elsewhere. Here it shows where a function is another
    one in each mode, with a gradient that goes with it.

    Args:
        case: the case; its `mode` is that of `own`.
        own: the ops at the first sample point.
        rules: what the spec says of each pair that is to be right.
        sparsities: guessed; each mode's gradient is held against them.
        sample: number of the sample point.
        others: makes an opener, by mode.

    Returns:
        One result; none where no other mode can be had.
    """
    for mode, make in others.items():
        # What goes wrong in another mode is reported as what that mode's own case came to.
        with contextlib.suppress(CaseSkippedError, CaseFailedError, GradientFormError):
            mine, theirs = _comparable(own, make(), sample)
            return [_compared(case, mode, mine, theirs, rules, sparsities)]
    return []


def _compared(  # noqa: PLR0913, PLR0917 (a case in two modes)
    case: Case,
    mode: str,
    mine: Operation,
    theirs: Operation,
    rules: Mapping[Pair, PairRule | None],
    sparsities: Mapping[Pair, Sparsity],
) -> CheckResult:
    if [info.shape for info in theirs.outputs] != [info.shape for info in mine.outputs]:
        return _differs(f"the outputs differ in shape between mode {mode} and mode {case.mode}.")
    if [info.name for info in theirs.inputs] != [info.name for info in mine.inputs]:
        return _differs(_INPUTS.format(mode, _names(theirs), case.mode, _names(mine)))
    small = [pair for pair in rules if not is_probed(case, mine, pair, sparsities.get(pair))]
    own, others = (analytic_jacobians(case, op, small, sparsities) for op in (mine, theirs))
    if _draw_apart(mine, theirs):
        return CheckResult("modes", Status.SKIPPED, _DRAWS.format(mode, case.mode))
    for pair, rule in rules.items():
        if pair in own and pair in others:
            message = _difference(case, mine, pair, rule, (case.mode, own[pair]), (mode, others[pair]))
        else:
            message = _difference_of_large(case, pair, rule, (case.mode, mine), (mode, theirs))
        if message:
            return _differs(message + _where_forward_differs(mine, theirs, pair))
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


def _difference(  # noqa: PLR0913, PLR0917 (a pair in two modes)
    case: Case,
    op: Operation,
    pair: Pair,
    rule: PairRule | None,
    mine: tuple[str, Jacobian | None],
    theirs: tuple[str, Jacobian | None],
) -> str:
    (mode, left), (other_mode, right_one) = mine, theirs
    label = label_of(op, pair)
    if left is None or right_one is None:
        if not any(one is not None and one.values.any() for one in (left, right_one)):
            return ""  # None or zeros: a branch that isn't taken leaves no trace where nothing is traced
        return _only_one(label, (mode, left is not None), (other_mode, right_one is not None))
    if left.sparsity is None or right_one.sparsity is None:  # else they are of the same one
        left, right_one = left.whole(), right_one.whole()
    own, other, columns = left.values, right_one.values, left.columns
    if not own.size:
        return ""
    allowed = _allowed(case, op, pair, rule, own, other, columns)
    with np.errstate(invalid="ignore"):
        right = (np.abs(own - other) <= allowed) | (own == other) | (np.isnan(own) & np.isnan(other))
    if right.all():
        return ""
    row, column = (int(index) for index in np.unravel_index(int(np.argmin(right)), right.shape))
    output, taken = op.outputs[pair[0]], op.inputs[pair[1]]
    at_column = int(np.broadcast_to(columns, own.shape)[row, column])
    place = f"{output.name}{list(index_of(row, output))} / {taken.name}{list(index_of(at_column, taken))}"
    return (
        f"{label} differs: {other[row, column]:.6e} in mode {other_mode}, {own[row, column]:.6e} in mode "
        f"{mode}, at {place}."
    )


def _only_one(label: str, mine: tuple[str, bool], theirs: tuple[str, bool]) -> str:
    """Say which of two modes has no gradient, if just one of them has it."""
    if mine[1] == theirs[1]:
        return ""
    lacking, having = (theirs[0], mine[0]) if mine[1] else (mine[0], theirs[0])
    return f"{label} is None in mode {lacking} and a tensor in mode {having}."


def _difference_of_large(
    case: Case,
    pair: Pair,
    rule: PairRule | None,
    mine: tuple[str, Operation],
    theirs: tuple[str, Operation],
) -> str:
    """Compare what both modes make of one random upstream, where a Jacobian is too large."""
    (mode, op), (other_mode, other) = mine, theirs
    label = label_of(op, pair)
    connected = op.is_connected(*pair)
    message = _only_one(label, (mode, connected), (other_mode, other.is_connected(*pair)))
    if message and _is_zero(case, op if connected else other, pair):
        return ""
    if message or not connected:
        return message
    rtol = tolerance_of(case, Operations(op, op, op), pair, rule).rtol
    found = find_difference(case, op, other, pair, 2 * rtol)
    if found is None:
        return ""
    where, own, others = found
    taken = op.inputs[pair[1]]
    return (
        f"{label} differs: for a random upstream, {others:.6e} in mode {other_mode}, {own:.6e} in mode "
        f"{mode}, at {taken.name}{list(index_of(where, taken))}."
    )


def _is_zero(case: Case, op: Operation, pair: Pair) -> bool:
    """Whether a gradient is zero for a random upstream."""
    output, number = pair
    upstream = np.random.default_rng(case.seed).standard_normal((1, *op.outputs[output].shape))
    gradient = op.vjp(output, upstream)[number]
    return gradient is None or not np.any(gradient)


def _allowed(  # noqa: PLR0913, PLR0917 (a pair in two modes)
    case: Case, op: Operation, pair: Pair, rule: PairRule | None, own: Float, other: Float, columns: Index
) -> Float:
    """Return what the two may differ by: what either may be off by."""
    tolerance = tolerance_of(case, Operations(op, op, op), pair, rule)
    return 2 * allowed_at(op, pair, tolerance, own, other, columns=columns)


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


def _where_forward_differs(op: Operation, other: Operation, pair: Pair) -> str:
    """Say so where the forward is another function: then that is what to look at first."""
    if _agree(op, other, pair[0]):
        return ""
    return f" So does {op.outputs[pair[0]].name} itself: the forward is another function there."
