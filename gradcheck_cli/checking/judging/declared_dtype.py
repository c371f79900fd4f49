"""Compares the declared dtype with the formula: a right formula can lose its digits in float32 or below.

Two sources say what the declared dtype must give: the formula's Jacobian, element by element, or, where that
is too large, the formula's gradient for one random upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

import numpy as np

from gradcheck_cli.checking.checks.check import Upstreams
from gradcheck_cli.checking.judging.judge_by_probes import judge_one_element
from gradcheck_cli.checking.judging.ledger import judge_pairs
from gradcheck_cli.checking.judging.probe_group import Group
from gradcheck_cli.checking.ops.budget import Budget, OverBudgetError
from gradcheck_cli.checking.ops.jacobian import (
    Jacobian,
    PairKey,
    packed_point,
    pull_back,
    unit_vectors,
    working_precision,
)
from gradcheck_cli.checking.ops.operation import (
    Array,
    Float,
    Operations,
    index_of,
    packed_magnitude,
    packed_size,
)
from gradcheck_cli.checking.ops.random_rounding import largest_changes, run_beside
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, Rule
from gradcheck_cli.numerics import FLOAT64, Reason, Verdict, rule_for
from gradcheck_cli.numerics.precision import coarsest, place_of_largest
from gradcheck_cli.numerics.probes import follow
from gradcheck_cli.numerics.problem import typical_size
from gradcheck_cli.numerics.sampling import chunks
from gradcheck_cli.numerics.shared_limits import BOUND_PER_SIGMA, CHEAP, KNOWN

# A declared dtype that contradicts even its own differences has a fault, not just a loss of digits, once the
# error is two per cent of the value: float32 differences themselves are wrong by about one
# (docs/verdicts.md).
GROSS = 0.02


@dataclass(frozen=True)
class _Loss:
    """What a pair loses in the declared dtype, beyond its tolerance."""

    pair: Pair
    warning: str  # the message if it is a loss of digits
    # judges the pair within the declared dtype; `None` where the loss is small
    judge_again: Callable[[Pair], PairSample | None]


def judge_declared(
    pairs: Mapping[PairKey, Pair],
    declared: Mapping[PairKey, Jacobian | None],
    judged: Mapping[PairKey, PairSample],
) -> dict[PairKey, PairSample]:
    """Compare the declared dtype's Jacobians with the formula's, pair by pair.

    Args:
        pairs: pairs with a formula in float64 beside the declared op; others have nothing to compare.
        judged: the formula's verdicts.

    Returns:
        The verdicts, judged in the declared dtype where that is outright wrong. A pair whose gradient is
        right but loses more digits than its dtype's tolerance says so.
    """
    if not _have_formula(pairs):
        return dict(judged)
    losses = {
        key: loss
        for key, sample in judged.items()
        if sample.verdict.size and sample.differencing.method != "probe" and sample.is_connected
        if (loss := _compare_elements(pairs[key], declared[key], sample)) is not None
    }
    settled = _settle_losses(judged, losses.values())
    # A one-hot upstream has one bit. Only one with all bits shows that a gradient rounds its upstream.
    rest = [
        pair
        for key, pair in pairs.items()
        if key in judged and key not in losses and judged[key].is_right and judged[key].is_connected
        if not pair.declared_precision.is_half and judged[key].verdict.size
    ]
    lossy = {loss.pair.key: loss.warning for loss in _compare_all_gradients(rest, judged, Budget())}
    return settled | {key: replace(settled[key], loss=warning) for key, warning in lossy.items()}


def judge_large_declared(
    pairs: Mapping[PairKey, Pair], judged: Mapping[PairKey, PairSample], *, budget: Budget
) -> dict[PairKey, PairSample]:
    """Compare the declared dtype's gradients for a random upstream with the formula's, for probed pairs.

    Args:
        pairs: pairs with a formula in float64 beside the declared op; others have nothing to compare.
        judged: what probes say about each pair.
        budget: limits how long elements are judged in the declared dtype, one in each pair that is far off.

    Returns:
        As `judge_declared`. A pair for which there was no time is in doubt.
    """
    if not _have_formula(pairs):
        return dict(judged)
    return _settle_losses(judged, _compare_all_gradients(list(pairs.values()), judged, budget))


def _have_formula(pairs: Mapping[PairKey, Pair]) -> bool:
    return any(pair.operations.has_reference_precision for pair in pairs.values())


def _settle_losses(
    judged: Mapping[PairKey, PairSample], losses: Iterable[_Loss]
) -> dict[PairKey, PairSample]:
    """Tell errors of the declared dtype itself from losses of digits."""
    settled = dict(judged)
    for loss in losses:
        pair, operations, again = loss.pair, loss.pair.operations, None
        if operations.differenced is operations.formula:  # a surrogate's own differences show nothing
            again = loss.judge_again(pair.with_operations(Operations.of_one(operations.declared)))
        settled[pair.key] = again or replace(settled[pair.key], loss=loss.warning)
    return settled


def _compare_elements(pair: Pair, matrix: Jacobian | None, formula: PairSample) -> _Loss | None:
    if matrix is None:  # only the declared dtype has no path: the same as zero
        matrix = Jacobian(np.zeros(formula.analytic.shape), formula.size[1])
    if formula.is_whole:
        matrix = matrix.whole()
    beyond = _find_lossy(pair, matrix.values, formula)
    if not beyond.any():
        return None

    def judge_again(own: Pair) -> PairSample | None:
        if not _find_far(matrix.values, formula.analytic, beyond).any():  # only a loss of digits
            return None
        again = judge_pairs({own.key: own}, {own.key: matrix})[own.key]
        # Rounding of its own is no excuse where differences are sure: what the formula has in float64, the
        # declared dtype has lost.
        is_sure = again.uncertainty <= KNOWN * np.fmax(np.abs(again.analytic), np.abs(again.numeric))
        wrong = (again.verdict == Verdict.MISMATCH) | (again.reason == Reason.ROUNDING) & is_sure
        gross = _find_far(again.analytic, again.numeric, wrong & beyond)
        if not gross.any() or _is_of_neighbours(pair, matrix.values, formula, gross):
            return None
        return again.settle(gross, Verdict.MISMATCH, Rule.DECLARED)

    return _Loss(pair, _word_warning(pair, matrix.values, formula, beyond), judge_again)


def _find_lossy(pair: Pair, declared: Float, formula: PairSample) -> np.ndarray:
    """Return where the declared dtype exceeds its tolerance, among elements that were found right."""
    # The tolerance of the declared dtypes themselves: a float64 op that computes in float32 inside loses
    # digits, too.
    rule = rule_for(pair.declared_precision, FLOAT64)
    problem = pair.problem(pair.operations.declared, tolerance=rule)
    allowed = problem.allowed_between(formula.analytic, formula.analytic, formula.columns)
    right = np.abs(declared - formula.analytic) <= allowed
    decided = (formula.verdict == Verdict.PASS) & np.isfinite(formula.analytic)
    return np.asarray(decided & ~right)


def _find_far(first: Float, second: Float, where: np.ndarray) -> np.ndarray:
    """Return where, among some elements, two values are so far apart that it must be a fault."""
    near = np.abs(first - second) <= GROSS * np.maximum(np.abs(first), np.abs(second))
    return np.asarray(where & ~near)


def _is_of_neighbours(pair: Pair, declared: Float, formula: PairSample, gross: np.ndarray) -> bool:
    """Whether all gross errors of the declared dtype are within what the formula moves by beside the point.

    A kernel computes `exp(x) - 1` to a rounding of 1, not of x: closer to zero than that, SELU's output is
    zero in float16, and its gradient is that of the other side.
    """
    at_rows, at_columns = formula.each_place()
    rows = np.flatnonzero(gross.any(axis=1))[:CHEAP]
    upstream = unit_vectors(at_rows[rows, 0], packed_size(pair.output))
    base = pull_back(pair.operations.formula, pair.output_index, upstream)
    *_, largest = _movements(pair, upstream, base, has_least=True)
    moved = largest.get(pair.input_index)
    if moved is None:
        return False
    error = np.where(gross, np.abs(declared - formula.analytic), 0.0)[rows]
    return bool((error <= BOUND_PER_SIGMA * np.take_along_axis(moved, at_columns[rows], axis=1)).all())


def _movements(
    pair: Pair, upstream: Float, base: Mapping[int, Float | None], *, has_least: bool = False
) -> Iterator[dict[int, Float]]:
    """Yield how far roundings of the inputs, in the declared dtype, move the formula's gradients, run by run.

    Args:
        upstream: (B, m).
        base: the formula's gradients.
        has_least: whether elements move by a rounding of their input's typical size, of 1 at least.
    """
    declared, formula = pair.operations.declared, pair.operations.formula

    def move(index: int) -> Array:
        unit = working_precision(declared, declared.inputs[index].dtype).unit_roundoff
        least = max(typical_size(packed_point(formula, index), None), 1.0) if has_least else 0.0
        return np.asarray(unit * np.maximum(np.abs(formula.point[index]), least))

    moves = {index: move(index) for index, info in enumerate(formula.inputs) if info.is_differentiable}
    return largest_changes(base, run_beside(formula, pair.output_index, upstream, pair.case.seed, moves))


def _word_warning(pair: Pair, declared: Float, formula: PairSample, beyond: np.ndarray) -> str:
    error = np.where(beyond, np.abs(declared - formula.analytic), -1.0)
    error = np.where(np.isnan(error), np.inf, error)
    row, column = place_of_largest(error)
    return (
        f"precision: {pair.label}: the formula is right in float64, but "
        f"{int(np.count_nonzero(beyond))} of {beyond.size} elements lose more than "
        f"{pair.declared_precision.name}'s tolerance; {pair.indices(*formula.place(row, column))}: "
        f"{declared[row, column]:.6e}, in float64 {formula.analytic[row, column]:.6e}."
    )


def _compare_all_gradients(
    pairs: Sequence[Pair], judged: Mapping[PairKey, PairSample], budget: Budget
) -> Iterator[_Loss]:
    for output in dict.fromkeys(pair.output_index for pair in pairs):
        of_output = [pair for pair in pairs if pair.output_index == output]
        first = of_output[0]
        precision = coarsest(*[pair.declared_precision for pair in of_output])
        upstreams = Upstreams(first.operations.declared, output, first.case.seed, precision)
        upstream = upstreams.nudged if not precision.is_half else upstreams.base
        ops = first.operations.declared, first.operations.formula
        pull = _RandomPull(
            of_output, upstream, [pull_back(op, output, upstream[None]) for op in ops], judged, budget
        )
        for pair in of_output:
            if (loss := pull.compare(pair)) is not None:
                yield loss


@dataclass
class _RandomPull:
    """One output's gradients for one upstream, which are compared between the declared dtype and float64."""

    pairs: Sequence[Pair]  # the output with each input
    upstream: Float  # packed
    gradients: Sequence[Mapping[int, Float | None]]  # in the declared dtype, and in float64
    judged: Mapping[PairKey, PairSample]  # the formula's verdicts
    budget: Budget  # limits how long elements are judged in the declared dtype

    # how far the largest elements were seen to move so far, beside the point and in the declared dtype
    moved: list[tuple[Mapping[int, Float], ...]] = field(default_factory=list)

    def compare(self, pair: Pair) -> _Loss | None:
        """Compare a pair's gradients in the two dtypes; `None` where nothing is lost."""
        none = np.zeros((1, packed_size(pair.input)))
        both = [gradients[pair.input_index] for gradients in self.gradients]
        declared, expected = [(none if gradient is None else gradient)[0] for gradient in both]
        formula = pair.operations.formula
        dtype = pair.input.dtype
        rule = rule_for(working_precision(pair.operations.declared, dtype), FLOAT64)
        finite = np.where(np.isfinite(expected), expected, 0.0)
        typical = np.sqrt(np.einsum("i,i", finite, finite) / max(1, expected.size))
        # What rounding of the value leaves is no slope: a key's bias in attention has none.
        value = packed_magnitude(formula.base_values[pair.output_index], formula.outputs[pair.output_index])
        scale_of_input = typical_size(packed_point(formula, pair.input_index), None)
        left = np.nan_to_num(rule.value_term * float(np.abs(self.upstream) @ value) / scale_of_input)
        lossy, worst, excess, largest = 0, -1, 0.0, 0.0
        for chunk in chunks(expected.size):
            # Where all of a gradient is exactly zero, any error is infinitely many times it.
            exact = expected[chunk]
            error, scale = np.abs(declared[chunk] - exact), np.abs(exact)
            wrong = ~(error <= rule.rtol * scale + rule.ratol * typical + left) & np.isfinite(exact)
            share = np.where(wrong, np.nan_to_num(error / np.maximum(scale, typical), nan=np.inf), 0.0)
            largest = max(largest, float(np.max(np.where(wrong, np.nan_to_num(error, nan=np.inf), 0.0))))
            lossy += int(np.count_nonzero(wrong))
            worst_here = int(np.argmax(share))
            if share[worst_here] > excess:
                worst, excess = chunk.start + worst_here, float(share[worst_here])
        if not lossy:
            return None
        where = list(index_of(worst, pair.input))
        warning = (
            f"precision: {pair.label}: for a random upstream, {lossy} of {expected.size} elements lose more "
            f"than {dtype}'s tolerance; input {where}: {declared[worst]:.6e}, in float64 "
            f"{expected[worst]:.6e}."
        )
        is_gross = excess > GROSS and not self._explains(pair, largest)
        return _Loss(pair, warning, partial(self._judge_worst, pair, worst) if is_gross else lambda _: None)

    def _explains(self, pair: Pair, error: float) -> bool:
        """Whether rounding alone may explain this error in the largest element of a pair's gradient.

        In a deep network, one rounding of an input puts some elements on the other side of a kink, and batch
        statistics magnify it. A float32 gradient is then the exact gradient of a neighbouring point. And a
        gradient that is zero because its terms cancel doesn't move with any input, but its terms are rounded.
        The formula is judged in float64; what remains is a loss of digits, however large (decision 53).
        """
        for moved in chain(self.moved, self._runs):
            self.moved = [moved]
            sizes = [np.max(each.get(pair.input_index, 0.0), initial=0.0) for each in moved]
            if error <= BOUND_PER_SIGMA * sum(map(float, sizes)):
                return True
        return False

    @cached_property
    def _runs(self) -> Iterator[tuple[Mapping[int, Float], ...]]:
        """How far gradients move beside the point, and in the declared dtype for another upstream alone."""
        first, upstream, (declared, formula) = self.pairs[0], self.upstream[None], self.gradients
        op, output = first.operations.declared, first.output_index
        of_dtype = largest_changes(declared, run_beside(op, output, upstream, first.case.seed, {}))
        return zip(_movements(first, upstream, formula), of_dtype, strict=True)

    def _judge_worst(self, pair: Pair, column: int, own: Pair) -> PairSample | None:
        """Judge, in the declared dtype, the element that an error comes from; `None` where it isn't wrong."""
        judged, position = self.judged[pair.key], (_find_row(pair, self.upstream, column), column)
        try:
            again = judge_one_element(Group.of_pair(own), position, judged, self.budget)
        except OverBudgetError:
            where = list(index_of(column, pair.input))
            return replace(
                judged,
                doubt=f"in {pair.input.dtype} the gradient's element {where} is far from what it is in "
                "float64, and there was no time to judge it: give it more (--budget).",
            )
        return again if (again.verdict == Verdict.MISMATCH).any() else None


def _find_row(pair: Pair, upstream: Float, column: int) -> int:
    """Follow the error in one input's gradient to the output that it comes from."""

    def error_of(half: slice) -> float:
        masked = np.zeros(upstream.size)
        masked[half] = upstream[half]
        declared, formula = (
            pair.pull(masked[None], op)[0][column]
            for op in (pair.operations.declared, pair.operations.formula)
        )
        return abs(float(declared) - float(formula))

    return follow(upstream.size, error_of)
