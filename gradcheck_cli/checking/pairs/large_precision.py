"""The declared dtype against the formula where there's no Jacobian at hand: by one upstream's gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.upstreams import random_upstream
from gradcheck_cli.checking.ops.jacobian import packed_point, pull_back, working_precision
from gradcheck_cli.checking.ops.packing import index_of, packed_magnitude, packed_size
from gradcheck_cli.checking.pairs.formula_precision import GROSS
from gradcheck_cli.checking.pairs.sample import label_of
from gradcheck_cli.numerics import FLOAT64, rule_for
from gradcheck_cli.numerics.probes.probe import follow
from gradcheck_cli.numerics.probes.probe_direction import chunks
from gradcheck_cli.numerics.steps import typical_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.sample import Operations, Pair
    from gradcheck_cli.spec.case import Case


def precision_of_declared(
    case: Case, operations: Operations, pairs: Sequence[Pair]
) -> dict[Pair, tuple[str, tuple[int, int] | None]]:
    """Hold the declared dtype's gradients of a random upstream against the formula's.

    Returns:
        Of each pair a warning, empty where the declared dtype keeps its tolerance; and the element that is
        off by more than a loss of digits, if there is one, for the ladder to judge.
    """
    told: dict[Pair, tuple[str, tuple[int, int] | None]] = {}
    for output in dict.fromkeys(output for output, _ in pairs):
        upstream = random_upstream(operations.declared, output, case.seed, 0)
        found, wanted = (
            pull_back(op, output, upstream[None]) for op in (operations.declared, operations.formula)
        )
        for pair in [one for one in pairs if one[0] == output]:
            both = [_row(operations.declared, pair[1], each) for each in (found, wanted)]
            told[pair] = _compare(operations, pair, upstream, *both)
    return told


def _compare(
    operations: Operations, pair: Pair, upstream: Float, found: Float, wanted: Float
) -> tuple[str, tuple[int, int] | None]:
    declared, number = operations.declared, pair[1]
    rule = rule_for(working_precision(declared, declared.inputs[number].dtype), FLOAT64)
    size = float(np.linalg.norm(np.where(np.isfinite(wanted), wanted, 0.0)))
    typical = size / max(1.0, np.sqrt(wanted.size))
    # What the value's own rounding leaves is no slope: that of a key's bias in attention is zero.
    value = packed_magnitude(operations.formula.base_values[pair[0]], operations.formula.outputs[pair[0]])
    scale_of_input = typical_size(packed_point(operations.formula, number), None)
    with np.errstate(invalid="ignore", over="ignore"):
        left = np.nan_to_num(rule.value_term * float(np.abs(upstream) @ value) / scale_of_input)
    lossy, worst, excess = 0, -1, 0.0
    for part in chunks(wanted.size):
        with np.errstate(invalid="ignore", over="ignore"):
            error, scale = np.abs(found[part] - wanted[part]), np.abs(wanted[part])
            wrong = ~(error <= rule.rtol * scale + rule.ratol * typical + left) & np.isfinite(wanted[part])
            share = np.where(wrong, np.nan_to_num(error / np.maximum(scale, typical), nan=np.inf), 0.0)
        lossy += int(np.count_nonzero(wrong))
        place = int(np.argmax(share))
        if share[place] > excess:
            worst, excess = part.start + place, float(share[place])
    if not lossy:
        return "", None
    label = label_of(declared, pair)
    where = list(index_of(worst, declared.inputs[number]))
    warning = (
        f"precision: {label}: for a random upstream, {lossy} of {wanted.size} elements lose more than "
        f"{declared.inputs[number].dtype}'s tolerance; input {where}: {found[worst]:.6e}, in float64 "
        f"{wanted[worst]:.6e}."
    )
    if excess <= GROSS:
        return warning, None
    return warning, (_row_of(operations, pair, upstream, worst), worst)


def _row(op: Operation, number: int, pulled: Mapping[int, Float | None]) -> Float:
    gradient = pulled[number]
    return np.zeros(packed_size(op.inputs[number])) if gradient is None else gradient[0]


def _row_of(operations: Operations, pair: Pair, upstream: Float, column: int) -> int:
    """Follow the error in one input's gradient to the output that it comes from."""

    def error_of(half: slice) -> float:
        part = np.zeros(upstream.size)
        part[half] = upstream[half]
        found, wanted = (
            _row(op, pair[1], pull_back(op, pair[0], part[None]))[column]
            for op in (operations.declared, operations.formula)
        )
        return abs(float(found) - float(wanted))

    return follow(upstream.size, error_of)
