"""Finds Jacobians whose rows and columns fall into independent classes, and sees to it that they really do.

An elementwise op, a softmax, a matmul: an axis of the output goes with an axis of the input, and element
(i, ...) of the one depends on elements (i, ...) of the other only. What is found at a few rows is a guess.
Its analytic side is confirmed by random upstreams, whose gradients are sums over whole rows, up to rounding;
its numeric side by moving all inputs at once, or class by class.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.ops.jacobian import Jacobian, one_upstreams, pull_back, rounding_slack
from gradcheck_cli.checking.ops.packing import packed_size
from gradcheck_cli.numerics.random_vectors import draw_eight_bits
from gradcheck_cli.numerics.sparsity import Index, Sparsity, rank_in_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.ops.operation import Operation

# Below this many elements a whole Jacobian costs less than the search.
WORTH = 2**14
# Rows looked at: of a relu's, half are zero, and all but two of eight are so at every thirtieth point.
_ROWS = 8
# Rows with elements that are enough to see ties by.
_ENOUGH = 3
# Fewer classes than this save little.
_FEWEST_CLASSES = 2
# Random upstreams that must give what the compressed Jacobian gives.
_CONFIRMATIONS = 2
# Elements of gradients held at once.
_BLOCK = 2**23


def find_sparsity(op: Operation, output: int, numbers: Sequence[int], seed: int) -> dict[int, Sparsity]:
    """Guess, from a few rows, which inputs' Jacobians have independent classes.

    Args:
        op: the op at its base point.
        output: the output's number.
        numbers: of the inputs to look at.
        seed: chooses the rows.

    Returns:
        Input number -> sparsity, where there seems to be one that is worth its while.
    """
    info = op.outputs[output]
    wanted = [
        number
        for number in numbers
        if op.is_connected(output, number)
        and not op.inputs[number].is_complex
        and op.inputs[number].size * info.size >= WORTH
    ]
    if not wanted or info.is_complex or not info.shape:  # a scalar's Jacobian is one row
        return {}
    chosen = _spread_indices(info.shape, np.random.default_rng([seed, output]))
    seen: dict[int, list[tuple[Index, tuple[Index, ...]]]] = {number: [] for number in wanted}
    for index in chosen:  # one at a time: rows may be as large as memory allows
        if min(len(rows) for rows in seen.values()) >= _ENOUGH:
            break
        upstream = np.zeros((1, info.size))
        upstream[0, np.ravel_multi_index(tuple(index), info.shape)] = 1.0
        gradients = pull_back(op, output, upstream)
        for number in wanted:
            gradient = gradients[number]
            if gradient is not None and gradient.any():
                touched = np.flatnonzero(gradient[0])
                seen[number].append((index, np.unravel_index(touched, op.inputs[number].shape)))
    found = {}
    for number in wanted:
        ties = _ties(seen[number], op.inputs[number].shape, info.shape)
        classes = math.prod(info.shape[axis] for axis in ties.values())
        if classes >= _FEWEST_CLASSES:
            found[number] = _sparsity(ties, op.inputs[number].shape, info.shape)
    return found


def _spread_indices(shape: tuple[int, ...], generator: np.random.Generator) -> Index:
    """Choose outputs whose coordinates differ along every axis, and between axes, as far as they can."""
    return np.stack([generator.permutation(max(size, _ROWS))[:_ROWS] % size for size in shape], axis=1)


def _ties(
    rows: list[tuple[Index, tuple[Index, ...]]], taken: tuple[int, ...], produced: tuple[int, ...]
) -> dict[int, int]:
    """Return input axis -> output axis, where every row touches only the output's own coordinate."""
    if len(rows) < 2:  # noqa: PLR2004 (one row shows a coordinate, not that it moves along)
        return {}
    ties: dict[int, int] = {}
    for axis, size in enumerate(taken):
        for other, length in enumerate(produced):
            if other in ties.values() or length != size:
                continue
            if all((touched[axis] == index[other]).all() for index, touched in rows):
                ties[axis] = other
                break
    return ties


def _sparsity(ties: dict[int, int], taken: tuple[int, ...], produced: tuple[int, ...]) -> Sparsity:
    row_class = _classes(list(ties.values()), produced)
    column_class = _classes(list(ties), taken)
    classes = math.prod(taken[axis] for axis in ties)
    table = np.empty((classes, column_class.size // classes), dtype=np.int64)
    table[column_class, rank_in_class(column_class)] = np.arange(column_class.size)
    return Sparsity(row_class, column_class, table)


def _classes(axes: list[int], shape: tuple[int, ...]) -> Index:
    """Number a tensor's elements by their coordinates along some axes."""
    along = np.zeros(shape, dtype=np.int64)
    for axis in axes:
        coordinate = np.arange(shape[axis]).reshape(
            [-1 if other == axis else 1 for other in range(len(shape))]
        )
        along = along * shape[axis] + coordinate
    return along.ravel()


def compressed_jacobian(
    op: Operation, output: int, number: int, sparsity: Sparsity, seed: int
) -> Jacobian | None:
    """Take the analytic Jacobian with one upstream for the rows of all classes at once.

    Returns:
        The Jacobian, or `None` where random upstreams show that the sparsity isn't its own.
    """
    width = packed_size(op.inputs[number])
    rank = rank_in_class(sparsity.row_class).astype(np.int32)
    groups = int(rank.max()) + 1
    values = np.empty((rank.size, sparsity.slots))
    columns = sparsity.columns
    block = max(1, _BLOCK // max(width, rank.size))
    for start in range(0, groups, block):
        stop = min(start + block, groups)
        gradient = pull_back(op, output, one_upstreams(rank, np.arange(start, stop, dtype=np.int32)))[number]
        if gradient is None:
            return None
        here = np.flatnonzero((rank >= start) & (rank < stop))
        values[here] = gradient[(rank[here] - start)[:, None], columns[here]]
    found = Jacobian(values, width, sparsity)
    return found if _is_confirmed(op, output, number, found, seed) else None


def _is_confirmed(op: Operation, output: int, number: int, found: Jacobian, seed: int) -> bool:
    """Whether random upstreams give what the Jacobian says: an element that it lacks would show."""
    generator = np.random.default_rng([seed, output, number])
    upstream = draw_eight_bits(generator, (_CONFIRMATIONS, found.values.shape[0]))
    gradient = pull_back(op, output, upstream)[number]
    if gradient is None:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        slack = rounding_slack(op, (output, number), upstream, found)
        return bool(np.all((np.abs(gradient - found.pulled(upstream)) <= slack) | ~found.is_finite()))
