"""Decides which pairs are judged element by element, and which are too large or cost too much for that."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.ops.jacobian import PairKey, one_upstreams, pull_back
from gradcheck_cli.checking.ops.opener import Operations
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.checking.ops.packing import packed_size
from gradcheck_cli.numerics.moves import Moves
from gradcheck_cli.numerics.shared_limits import CHEAP
from gradcheck_cli.numerics.sparsity import Sparsity, rank_in_class
from gradcheck_cli.spec.case import Case

# Up to this many elements of a Jacobian, structural zeros aside, are judged one by one: about a second's
# work.
MOST_ELEMENTS = 2**19
# Up to this size `method: probe` is rejected: the whole Jacobian costs less.
FEWEST_ELEMENTS = 2**12
# Evaluations that a column takes, including those of undecided columns.
_PER_COLUMN = 3
_TRIES = 3
# Points with which a batch is timed: more than are called one by one (tensorflow_backend/graph/batching.py).
_BATCH = 300


def is_probed(case: Case, op: Operation, pair: tuple[int, int], sparsity: Sparsity | None) -> bool:
    """Say whether a pair is judged by random probes.

    Args:
        case: its method may decide.
        sparsity: of the pair, if it seems to have one.
    """
    rows, columns = packed_size(op.outputs[pair[0]]), packed_size(op.inputs[pair[1]])
    if case.method == "probe":
        return rows * columns > FEWEST_ELEMENTS
    judged = rows * (columns if sparsity is None else sparsity.slots)
    return case.method == "auto" and judged > MOST_ELEMENTS


def find_costly_pairs(
    operations: Operations,
    pairs: Sequence[PairKey],
    sparsities: Mapping[PairKey, Sparsity],
    seconds: float,
) -> set[PairKey]:
    """Say which pairs would take too long element by element, given the cost of a point and a row here.

    The inputs with the fewest columns come first, and the outputs with the fewest rows: as many as there is
    time for.

    Args:
        operations: `differenced` is timed at its base point, and the vjp of `formula`.
        pairs: those that aren't too large in any case.
        sparsities: of the pairs that seem to have one.
        seconds: for all of them together, at this point; if infinite, no pair is costly.
    """
    op = operations.differenced
    columns: dict[int, int] = defaultdict(int)
    rows: dict[int, int] = defaultdict(int)
    pairs = [pair for pair in pairs if op.outputs[pair[0]].size and op.inputs[pair[1]].size]
    for pair in pairs:
        output, input_index = pair
        sparsity = sparsities.get(pair)
        width = packed_size(op.inputs[input_index]) if sparsity is None else sparsity.slots
        height = packed_size(op.outputs[output]) if sparsity is None else _count_groups(sparsity)
        columns[input_index], rows[output] = max(columns[input_index], width), max(rows[output], height)
    if seconds == math.inf or _PER_COLUMN * sum(columns.values()) + sum(rows.values()) <= CHEAP:
        return set()
    wide = max(columns, key=lambda input_index: columns[input_index])
    high = max(rows, key=lambda output: rows[output])
    point = _measure_cost(
        lambda count: _evaluate(op, wide, count), _PER_COLUMN * sum(columns.values()), seconds
    )
    row = _measure_cost(lambda count: _pull(operations.formula, high, count), 2 * sum(rows.values()), seconds)
    late = _find_late(columns, _PER_COLUMN * point, seconds)
    tall = _find_late(rows, 2 * row, seconds)  # of the declared op and of its formula
    return {(output, input_index) for output, input_index in pairs if input_index in late or output in tall}


def _find_late(sizes: Mapping[int, int], cost: float, seconds: float) -> set[int]:
    """Return the items for which there is no time, if the smallest are taken first."""
    total, late = 0.0, set()
    for item in sorted(sizes, key=lambda item: sizes[item]):
        total += cost * sizes[item]
        if total > seconds:
            late.add(item)
    return late


def _measure_cost(run: Callable[[int], None], count: int, seconds: float) -> float:
    """Return the seconds that each of so many items takes; time a batch only where it might matter."""
    enough = seconds / count
    run(1)  # traces and allocates
    alone = _time_fastest(run, 1, enough)
    if alone <= enough or count <= _BATCH or alone * _BATCH > seconds:
        return alone
    run(_BATCH)
    return min(alone, _time_fastest(run, _BATCH, enough))


def _time_fastest(run: Callable[[int], None], count: int, enough: float) -> float:
    """Return the processor time of each item of a batch; measure again if slow: caches may be cold."""
    least = math.inf
    for _ in range(_TRIES):
        least = min(least, _time_run(run, count) / count)
        if least <= enough:
            break
    return least


def _time_run(run: Callable[[int], None], count: int) -> float:
    began = clock.now()
    run(count)
    return clock.now() - began


def _evaluate(op: Operation, input_index: int, count: int) -> None:
    """Evaluate at the base point, as if one input moved."""
    info = op.inputs[input_index]
    if info.is_complex:
        op.evaluate({input_index: np.repeat(op.point[input_index][np.newaxis], count, axis=0)})
        return
    base = np.asarray(op.point[input_index], dtype=np.float64).ravel()
    still = np.full(count, -1, np.int32)
    op.evaluate({input_index: Moves(base, still[:1].repeat(base.size), base[np.newaxis], still, 0 * still)})


def _pull(op: Operation, output: int, count: int) -> None:
    """Pull the first row back this many times."""
    info = op.outputs[output]
    if info.is_complex:
        pull_back(op, output, np.eye(1, packed_size(info)).repeat(count, axis=0))
    elif info.size:
        pull_back(op, output, one_upstreams(np.arange(info.size, dtype=np.int32), np.zeros(count, np.int32)))


def _count_groups(sparsity: Sparsity) -> int:
    """Return how many upstreams a compressed Jacobian takes."""
    return int(rank_in_class(sparsity.row_class).max()) + 1
