"""Takes the analytic Jacobians of a case's pairs: whole, without their structural zeros, or not at all."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gradcheck_cli.checking.ops.jacobian import Jacobian, analytic_rows
from gradcheck_cli.checking.ops.method_choice import MOST_ELEMENTS, is_probed
from gradcheck_cli.checking.ops.packing import packed_size
from gradcheck_cli.checking.ops.structural_zeros import compressed_jacobian, find_sparsity
from gradcheck_cli.spec.words import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.operations import Operations
    from gradcheck_cli.checking.pairs.pair import PairKey
    from gradcheck_cli.numerics.sparsity import Sparsity
    from gradcheck_cli.spec.case import Case


def guess_sparsities(case: Case, op: Operation, pairs: list[PairKey]) -> dict[PairKey, Sparsity]:
    """Guess which pairs' Jacobians have independent classes; at every sample point the guess is confirmed."""
    guessed: dict[PairKey, Sparsity] = {}
    if not METHODS[case.method].guesses_sparsity:
        return guessed
    for output in sorted({output for output, _ in pairs}):
        if case.method == "auto" and packed_size(op.outputs[output]) > MOST_ELEMENTS:
            continue  # one slot would be too many
        numbers = [number for of_output, number in pairs if of_output == output]
        found = find_sparsity(op, output, numbers, case.seed)
        guessed |= {(output, number): sparsity for number, sparsity in found.items()}
    return guessed


def take_jacobians(
    case: Case, operations: Operations, pairs: list[PairKey], sparsities: Mapping[PairKey, Sparsity]
) -> tuple[dict[PairKey, Jacobian | None], dict[PairKey, Jacobian | None]]:
    """Take the analytic Jacobians of the declared op and of its formula.

    Args:
        case: for its method and seed.
        operations: both.
        pairs: which.
        sparsities: guessed.

    Returns:
        Both, of one sparsity; without the pairs that are too large.
    """
    formula = operations.formula
    small = [pair for pair in pairs if not is_probed(case, formula, pair, sparsities.get(pair))]
    declared = analytic_jacobians(case, operations.declared, small, sparsities)
    if not operations.has_reference_precision:
        return declared, declared
    kept = {
        pair: sparsity
        for pair, sparsity in sparsities.items()
        if (matrix := declared.get(pair)) is not None and matrix.sparsity is not None
    }
    own = analytic_jacobians(case, formula, declared, kept)
    for pair, matrix in own.items():
        other = declared[pair]
        if matrix is not None and other is not None and matrix.sparsity is None:
            declared[pair] = other.whole()
    return {pair: declared[pair] for pair in own}, own


def analytic_jacobians(
    case: Case, op: Operation, pairs: Iterable[PairKey], sparsities: Mapping[PairKey, Sparsity]
) -> dict[PairKey, Jacobian | None]:
    """Return the analytic Jacobian of each pair, `None` where it is disconnected.

    Args:
        case: for its method and seed.
        op: the op.
        pairs: which.
        sparsities: guessed; a pair whose own gradient doesn't keep to it is taken whole, or left out where
            that would be too large.
    """
    found: dict[PairKey, Jacobian | None] = {}
    by_output: dict[int, list[int]] = defaultdict(list)
    for output, number in pairs:
        sparsity = sparsities.get((output, number))
        compressed = None
        if sparsity is not None:
            compressed = compressed_jacobian(op, output, number, sparsity, case.seed)
        if compressed is not None:
            found[output, number] = compressed
        elif not is_probed(case, op, (output, number), None):
            by_output[output].append(number)
    for output, numbers in by_output.items():
        for number, matrix in analytic_rows(op, output, numbers).items():
            found[output, number] = None if matrix is None else Jacobian(matrix, matrix.shape[1])
    return found
