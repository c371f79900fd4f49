"""Take the analytic Jacobians of pairs, whole or without structural zeros, unless they are too large."""

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
    """Guess which pairs' Jacobians have independent classes; each sample point must confirm the guess."""
    guessed: dict[PairKey, Sparsity] = {}
    if not METHODS[case.method].guesses_sparsity:
        return guessed
    for output in sorted({output for output, _ in pairs}):
        if case.method == "auto" and packed_size(op.outputs[output]) > MOST_ELEMENTS:
            continue  # one slot would be too many
        input_indices = [input_index for of_output, input_index in pairs if of_output == output]
        sparsities = find_sparsity(op, output, input_indices, case.seed)
        guessed |= {(output, input_index): sparsity for input_index, sparsity in sparsities.items()}
    return guessed


def take_jacobians(
    case: Case, operations: Operations, pairs: list[PairKey], sparsities: Mapping[PairKey, Sparsity]
) -> tuple[dict[PairKey, Jacobian | None], dict[PairKey, Jacobian | None]]:
    """Take the analytic Jacobians of the declared op and of its formula.

    Args:
        case: for its method and seed.
        operations: the ops.
        pairs: which pairs.
        sparsities: guessed.

    Returns:
        Both Jacobians of each pair, with the same sparsity; pairs that are too large are left out.
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
    of_formula = analytic_jacobians(case, formula, declared, kept)
    for pair, matrix in of_formula.items():
        of_declared = declared[pair]
        if matrix is not None and of_declared is not None and matrix.sparsity is None:
            declared[pair] = of_declared.whole()
    return {pair: declared[pair] for pair in of_formula}, of_formula


def analytic_jacobians(
    case: Case, op: Operation, pairs: Iterable[PairKey], sparsities: Mapping[PairKey, Sparsity]
) -> dict[PairKey, Jacobian | None]:
    """Return the analytic Jacobian of each pair, `None` where it is disconnected.

    Args:
        case: for its method and seed.
        op: the op.
        pairs: which pairs.
        sparsities: guessed. A Jacobian that doesn't have its guessed sparsity is taken whole, or left out
            where it would be too large.
    """
    jacobians: dict[PairKey, Jacobian | None] = {}
    by_output: dict[int, list[int]] = defaultdict(list)
    for output, input_index in pairs:
        sparsity = sparsities.get((output, input_index))
        compressed = None
        if sparsity is not None:
            compressed = compressed_jacobian(op, output, input_index, sparsity, case.seed)
        if compressed is not None:
            jacobians[output, input_index] = compressed
        elif not is_probed(case, op, (output, input_index), None):
            by_output[output].append(input_index)
    for output, input_indices in by_output.items():
        for input_index, matrix in analytic_rows(op, output, input_indices).items():
            jacobians[output, input_index] = None if matrix is None else Jacobian(matrix, matrix.shape[1])
    return jacobians
