"""Decide which pairs are judged element by element, and take their Jacobians, without structural zeros.

In an elementwise op, a softmax or a matmul, an axis of the output belongs to an axis of the input: element
(i, ...) of the output depends only on elements (i, ...) of the input. The Jacobian's rows and columns then
fall into independent classes, which are guessed from a few rows. Random upstreams confirm the guess for the
gradient, up to rounding, since their gradients are sums over whole rows. Moving all inputs at once, or class
by class, confirms it for the differences.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.ops.jacobian import (
    Jacobian,
    PairKey,
    analytic_rows,
    pull_back,
    rounding_slack,
    unit_vectors,
)
from gradcheck_cli.checking.ops.operation import Operation, Operations, packed_size
from gradcheck_cli.numerics.problem import draw_eight_bits
from gradcheck_cli.numerics.sampling import Index, Sparsity, rank_in_class
from gradcheck_cli.numerics.shared_limits import CHEAP, DIRECTIONS, FEW, FLOATS_AT_ONCE, PATTERN
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.words import METHODS

# Up to this many elements of a Jacobian, structural zeros aside, are judged one by one: about a second's
# work.
MOST_ELEMENTS = 2**19
# Up to this size `method: probe` is rejected: the whole Jacobian costs less.
FEWEST_ELEMENTS = 2**12
# Evaluations that a column takes, including those of undecided columns.
_PER_COLUMN = 3
_TRIES = 3  # measurements of a cost: the least of them counts
# Points with which a batch is timed: more than are called one by one (`graph_runs.Batched`).
_BATCH = 300


def is_probed(case: Case, op: Operation, pair: tuple[int, int], sparsity: Sparsity | None) -> bool:
    """Say whether a pair is judged by random probes.

    Args:
        case: its method may decide.
        sparsity: of the pair, if it seems to have one.
    """
    rows, columns = packed_size(op.outputs[pair[0]]), packed_size(op.inputs[pair[1]])
    if case.judging.method == "probe":
        return rows * columns > FEWEST_ELEMENTS
    judged = rows * (columns if sparsity is None else sparsity.slots)
    return case.judging.method == "auto" and judged > MOST_ELEMENTS


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
        height = (
            packed_size(op.outputs[output])
            if sparsity is None
            else int(rank_in_class(sparsity.row_class).max()) + 1
        )
        columns[input_index], rows[output] = max(columns[input_index], width), max(rows[output], height)
    if seconds == math.inf or _PER_COLUMN * sum(columns.values()) + sum(rows.values()) <= CHEAP:
        return set()
    wide = max(columns, key=lambda input_index: columns[input_index])
    high = max(rows, key=lambda output: rows[output])
    base, first = np.asarray(op.point[wide]), np.eye(1, packed_size(op.outputs[high]))

    def evaluate(count: int) -> None:
        op.evaluate({wide: np.broadcast_to(base, (count, *base.shape))})

    def pull(count: int) -> None:
        pull_back(operations.formula, high, np.broadcast_to(first, (count, first.size)))

    point = _measure_cost(evaluate, _PER_COLUMN * sum(columns.values()), seconds)
    late = _find_late(columns, _PER_COLUMN * point, seconds)
    if len(late) == len(columns):
        return set(pairs)
    pulls = 2 * sum(rows.values())  # of the declared op and of its formula
    row = 0.0 if pulls <= FEW else _measure_cost(pull, pulls, seconds)  # to measure would take as many
    tall = _find_late(rows, 2 * row, seconds)
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
        began = clock.now()
        run(count)
        least = min(least, (clock.now() - began) / count)
        if least <= enough:
            break
    return least


# Below this many elements a whole Jacobian costs less than the search.
WORTH = 2**14


def guess_sparsities(case: Case, op: Operation, pairs: list[PairKey]) -> dict[PairKey, Sparsity]:
    """Guess which pairs' Jacobians have independent classes; each sample point must confirm the guess."""
    guessed: dict[PairKey, Sparsity] = {}
    if not METHODS[case.judging.method].guesses_sparsity:
        return guessed
    for output in sorted({output for output, _ in pairs}):
        if case.judging.method == "auto" and packed_size(op.outputs[output]) > MOST_ELEMENTS:
            continue  # one slot would be too many
        input_indices = [input_index for of_output, input_index in pairs if of_output == output]
        sparsities = find_sparsity(op, output, input_indices, case.seed)
        guessed |= {
            (output, input_index): sparsity
            for input_index, sparsity in sparsities.items()
            if not is_probed(case, op, (output, input_index), sparsity)
        }
    return guessed


@clock.spend("Jacobians")
def take_jacobians(
    case: Case, operations: Operations, pairs: list[PairKey], sparsities: Mapping[PairKey, Sparsity]
) -> tuple[dict[PairKey, Jacobian | None], dict[PairKey, Jacobian | None]]:
    """Take the analytic Jacobians of the declared op and of its formula.

    Args:
        case: for its method and seed.
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
    confirmed = {
        pair: sparsity
        for pair, sparsity in sparsities.items()
        if (matrix := declared.get(pair)) is not None and matrix.sparsity is not None
    }
    of_formula = analytic_jacobians(case, formula, declared, confirmed)
    for pair, matrix in of_formula.items():
        of_declared = declared[pair]
        if matrix is not None and of_declared is not None and matrix.sparsity is None:
            declared[pair] = of_declared.whole()
    return {pair: declared[pair] for pair in of_formula}, of_formula


@clock.spend("Jacobians")
def analytic_jacobians(
    case: Case, op: Operation, pairs: Iterable[PairKey], sparsities: Mapping[PairKey, Sparsity]
) -> dict[PairKey, Jacobian | None]:
    """Return the analytic Jacobian of each pair, `None` where it is disconnected.

    Args:
        case: for its method and seed.
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


def find_sparsity(op: Operation, output: int, input_indices: Sequence[int], seed: int) -> dict[int, Sparsity]:
    """Guess, from a few rows, which inputs' Jacobians have independent classes.

    Args:
        op: the op at its base point.
        input_indices: indices of the inputs to examine.
        seed: chooses the rows.

    Returns:
        Input index -> sparsity, for inputs with one that saves enough work.
    """
    info = op.outputs[output]
    candidates = [
        input_index
        for input_index in input_indices
        if op.facts.is_connected(output, input_index)
        and not op.inputs[input_index].is_complex
        and op.inputs[input_index].size * info.size >= WORTH
    ]
    if not candidates or info.is_complex or not info.shape:  # a scalar's Jacobian is one row
        return {}
    # Their coordinates differ along every axis, and between axes, if they can. Half of a relu's rows are
    # zero: at every thirtieth point, all but two of eight are.
    generator = np.random.default_rng([seed, output])
    indices = np.stack([generator.permutation(max(size, FEW))[:FEW] % size for size in info.shape], axis=1)
    rows_of: dict[int, list[tuple[Index, tuple[Index, ...]]]] = {
        input_index: [] for input_index in candidates
    }
    for index in indices:  # one at a time: rows may be as large as memory allows
        if min(len(rows) for rows in rows_of.values()) >= PATTERN:
            break
        place = np.ravel_multi_index(tuple(index), info.shape)
        gradients = pull_back(op, output, unit_vectors(np.array([place]), info.size))
        for input_index in candidates:
            gradient = gradients[input_index]
            if gradient is not None and gradient.any():
                touched = np.flatnonzero(gradient[0])
                rows_of[input_index].append((index, np.unravel_index(touched, op.inputs[input_index].shape)))
    sparsities = {}
    for input_index in candidates:
        ties = _ties(rows_of[input_index], op.inputs[input_index].shape, info.shape)
        classes = math.prod(info.shape[axis] for axis in ties.values())
        if classes > 1:
            sparsities[input_index] = _sparsity(ties, op.inputs[input_index].shape, info.shape)
    return sparsities


def _ties(
    rows: list[tuple[Index, tuple[Index, ...]]], input_shape: tuple[int, ...], output_shape: tuple[int, ...]
) -> dict[int, int]:
    """Return input axis -> output axis, where every row touches only the output's own coordinate."""
    if len(rows) <= 1:  # one row shows a coordinate, but not that the other tensor's coordinate follows it
        return {}
    ties: dict[int, int] = {}
    for input_axis, size in enumerate(input_shape):
        for output_axis, length in enumerate(output_shape):
            if output_axis in ties.values() or length != size:
                continue
            if all((touched[input_axis] == index[output_axis]).all() for index, touched in rows):
                ties[input_axis] = output_axis
                break
    return ties


def _sparsity(ties: dict[int, int], input_shape: tuple[int, ...], output_shape: tuple[int, ...]) -> Sparsity:
    row_class = _classes(list(ties.values()), output_shape)
    column_class = _classes(list(ties), input_shape)
    classes = math.prod(input_shape[axis] for axis in ties)
    table = np.empty((classes, column_class.size // classes), dtype=np.int64)
    table[column_class, rank_in_class(column_class)] = np.arange(column_class.size)
    return Sparsity(row_class, column_class, table)


def _classes(axes: list[int], shape: tuple[int, ...]) -> Index:
    """Number a tensor's elements by their coordinates along some axes."""
    along = np.zeros(shape, dtype=np.int64)
    for axis in axes:
        coordinate = np.arange(shape[axis]).reshape(
            [-1 if index == axis else 1 for index in range(len(shape))]
        )
        along = along * shape[axis] + coordinate
    return along.ravel()


def compressed_jacobian(
    op: Operation, output: int, input_index: int, sparsity: Sparsity, seed: int
) -> Jacobian | None:
    """Take the analytic Jacobian with one upstream for the rows of all classes at once.

    Returns:
        The Jacobian, or `None` where random upstreams show that it has another sparsity.
    """
    width = packed_size(op.inputs[input_index])
    rank = rank_in_class(sparsity.row_class)
    groups = int(rank.max()) + 1
    values = np.empty((rank.size, sparsity.slots))
    columns = sparsity.columns
    block = max(1, FLOATS_AT_ONCE // max(width, rank.size))
    for start in range(0, groups, block):
        stop = min(start + block, groups)
        upstream = (rank == np.arange(start, stop)[:, np.newaxis]).astype(np.float64)
        gradient = pull_back(op, output, upstream)[input_index]
        if gradient is None:
            return None
        here = np.flatnonzero((rank >= start) & (rank < stop))
        values[here] = gradient[(rank[here] - start)[:, None], columns[here]]
    jacobian = Jacobian(values, width, sparsity)
    return jacobian if _is_confirmed(op, output, input_index, jacobian, seed) else None


def _is_confirmed(op: Operation, output: int, input_index: int, jacobian: Jacobian, seed: int) -> bool:
    """Whether random upstreams give what the Jacobian says: an element that it lacks would show."""
    generator = np.random.default_rng([seed, output, input_index])
    upstream = draw_eight_bits(generator, (DIRECTIONS, jacobian.values.shape[0]))
    gradient = pull_back(op, output, upstream)[input_index]
    if gradient is None:
        return False
    slack = rounding_slack(op, (output, input_index), upstream, jacobian)
    return bool(np.all((np.abs(gradient - jacobian.pull(upstream)) <= slack) | ~jacobian.finite_columns()))
