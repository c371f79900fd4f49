"""Says which pairs are judged element by element, and which are too large for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.checking.packing import packed_size

if TYPE_CHECKING:
    from gradcheck_cli.checking.operation import Operation
    from gradcheck_cli.numerics.sparsity import Sparsity
    from gradcheck_cli.spec.case import Case

# Elements of a Jacobian that are judged one by one, structural zeros aside: about a second's worth.
MOST_ELEMENTS = 2**19

# Up to here `method: probe` is told that there is nothing to sample from: the whole costs less.
FEWEST_ELEMENTS = 2**12


def is_probed(case: Case, op: Operation, pair: tuple[int, int], sparsity: Sparsity | None) -> bool:
    """Say whether a pair is judged by random probes.

    Args:
        case: its method may settle it.
        op: the op.
        pair: output number, input number.
        sparsity: of the pair, if there seems to be one.
    """
    rows, columns = packed_size(op.outputs[pair[0]]), packed_size(op.inputs[pair[1]])
    if case.method == "probe":
        return rows * columns > FEWEST_ELEMENTS
    judged = rows * (columns if sparsity is None else sparsity.slots)
    return case.method == "auto" and judged > MOST_ELEMENTS
