"""What rounding may excuse of a pair: as far as random rounding moves its elements, and up to a cap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import PairKey, packed_point, pull_back, unit_vectors
from gradcheck_cli.checking.ops.operation import (
    Array,
    Float,
    Operation,
    pack,
    packed_magnitude,
    packed_size,
    unpack,
)
from gradcheck_cli.checking.ops.random_rounding import FACTOR, measure_rounding_of
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, Rule
from gradcheck_cli.numerics import EXPLANATIONS, FLOAT64, Reason, Verdict
from gradcheck_cli.numerics.precision import ROUNDINGS_OF_A_RUN, largest_finite, place_of_largest
from gradcheck_cli.numerics.problem import scales
from gradcheck_cli.numerics.shared_limits import (
    BOUND_BY_RUNS,
    CHEAP,
    DIGITS,
    FLOATS_AT_ONCE,
    MARGIN,
    OF_SOME_OPERATIONS,
    RUNS,
)

# Reasons for an undecided element that a larger bound may resolve.
_COARSE = (Reason.NOISE, Reason.UNRESOLVED, Reason.LOW_PRECISION)
_MORE_RUNS = (RUNS, 2 * RUNS, 4 * RUNS)
# The cap: what rounding may excuse, of the row or of the output's value over the input. A wrong gradient may
# hide behind rounding of its own making; beyond this, it is never passed.
_MOST = 1e-6
_REMEDY = EXPLANATIONS[Reason.ROUNDING].remedy


def allow_rounding(pair: Pair, sample: PairSample) -> PairSample:
    """Return the verdicts with what rounding was seen to do added to the bound, where that decides.

    It makes a mismatch a pass up to the cap, and "can't tell" beyond. Once an element is wrong all the same,
    no more rows are measured.
    """
    wrong = sample.verdict == Verdict.MISMATCH
    is_open = wrong | ((sample.verdict == Verdict.INCONCLUSIVE) & np.isin(sample.reason, _COARSE))
    is_open &= np.isfinite(sample.uncertainty) & np.isfinite(sample.analytic)
    is_open |= _left_at_zero(pair, sample) > 0
    if not is_open.any() or not sample.is_connected or pair.operations.formula.facts.draws_anew:
        return sample  # what other draws move isn't rounding
    rows = np.flatnonzero(is_open.any(axis=1))
    batch = _share_upstreams(sample, rows) // CHEAP
    for number in range(int(batch.max()) + 1):
        here = np.zeros(is_open.shape, dtype=bool)
        here[rows[batch == number]] = True
        sample = _allow_some(pair, sample, is_open & here)
        if (here & (sample.verdict == Verdict.MISMATCH)).any():
            break
    return sample


def _share_upstreams(sample: PairSample, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Number upstreams that each pull some rows back, (len(rows),): rows that have no column in common.

    In a sparse Jacobian, rows have either all of their columns in common or none.
    """
    first = sample.each_place()[1][rows, 0]
    order = np.argsort(first, kind="stable")
    shared = np.zeros(rows.size, dtype=np.intp)
    shared[order] = np.arange(rows.size) - np.searchsorted(first[order], first[order])
    return shared


def _allow_some(pair: Pair, sample: PairSample, is_open: npt.NDArray[np.bool_]) -> PairSample:
    wrong = sample.verdict == Verdict.MISMATCH
    error = np.abs(sample.analytic - sample.numeric)
    left = _left_at_zero(pair, sample)
    cap, uncertainty = np.fmax(cap_of(pair, sample), left), np.where(left > 0, 0.0, sample.uncertainty)
    bound, runs = np.zeros(error.shape), 0
    is_seen_into = pair.operations.formula.forms.rounded_otherwise(0) is not None
    for count in _MORE_RUNS if is_seen_into else _MORE_RUNS[:1]:
        draws = range(runs, count)
        moved = measure_rounding(pair, sample, is_open, draws) + _measure_slopes(pair, sample, is_open, draws)
        bound, runs = np.fmax(bound, FACTOR * moved), count
        # More runs only find what two equal sources hide: no large error. One that is wrong all the same
        # decides.
        beyond = is_open & (error > sample.allowed + bound)
        is_lost = beyond & wrong & (error > 2 * (sample.allowed + cap + bound) + MARGIN * uncertainty)
        if is_lost.any() or not (beyond & (error <= sample.allowed + cap)).any():
            break
    allowed = sample.allowed + np.minimum(bound, cap)
    passes = is_open & (bound > 0) & (error <= allowed + np.minimum(uncertainty, allowed))
    passes &= uncertainty <= 2 * allowed  # as everywhere: `second_stage.decide`
    doubted = is_open & ~passes & (bound > 0)
    doubted &= error <= sample.allowed + MARGIN * uncertainty + bound
    # The widest of what keeps it from a verdict names the reason.
    doubted &= wrong | (bound > MARGIN * uncertainty)
    passed = sample.settle(passes, Verdict.PASS, Rule.ROUNDING, allowed=allowed, uncertainty=uncertainty)
    settled = passed.settle(doubted, Verdict.INCONCLUSIVE, Rule.ROUNDING, Reason.ROUNDING)
    if not doubted.any() or settled.is_wrong:
        return settled
    return replace(settled, remark=_describe(pair, settled, np.where(doubted, error, -1.0), bound))


def _describe(pair: Pair, sample: PairSample, error: Float, bound: Float) -> str:
    """Say how far rounding moves the element with the largest error, and where most of that arises."""
    row, column = place_of_largest(error)
    op, (at_row, at_column) = pair.operations.formula, sample.place(row, column)
    upstream = unit_vectors(np.array([at_row]), packed_size(pair.output))

    def measure(rounded: Callable[[int], Operation | None]) -> float:
        form = replace(op, forms=replace(op.forms, rounded_otherwise=rounded))
        *_, moved = measure_rounding_of(form, pair.output_index, upstream, pair.case.seed)
        return float(moved[pair.input_index][0, at_column])

    place = op.forms.place_of_rounding(measure)
    arises = f", most of it at {place}," if place else ""
    own, of_differences = bound[row, column], sample.uncertainty[row, column]
    return (
        f"rounding inside the gradient{arises} may move {pair.place(at_row, at_column)} by {own:.1e}, "
        f"{1 / (1 + of_differences / own):.0%} of all that is uncertain, and it is off by "
        f"{error[row, column]:.1e}; {_REMEDY}"
    )


def cap_of(pair: Pair, sample: PairSample) -> Float:
    """Return the most that rounding may excuse of each element, as `sample.analytic`.

    In the half precisions it is 16 roundings, since constants were rounded to them. A gradient that divides
    by a small input rounds by more, up to a thousandth of the element; none divides by zero.
    """
    op, (output, input_index) = pair.operations.formula, pair.key
    share = max(_MOST, OF_SOME_OPERATIONS * pair.formula_precision.unit_roundoff)
    _, columns = sample.each_place()
    value = largest_finite(packed_magnitude(op.base_values[output], op.outputs[output]))
    point = packed_point(op, input_index)
    divisors = np.where(point == 0, np.inf, np.abs(point))[columns]
    slopes = np.nan_to_num(np.fmax(np.abs(sample.analytic), np.abs(sample.numeric)), posinf=0.0)
    largest = np.max(slopes, axis=1, keepdims=True, initial=0.0)
    typical = np.fmax(largest, value / scales(point, pair.scale).step[columns])
    divided = np.fmin(share * value / divisors, DIGITS * np.abs(sample.numeric))
    return np.asarray(np.fmax(share * typical, divided))


def _left_at_zero(pair: Pair, sample: PairSample) -> Float:
    """Return what rounding may leave of a zero where the output stays level, as `sample.analytic`; else 0.

    It is rounding of the pair's other slopes, as below the diagonal of a QR decomposition's R.
    """
    is_level = (sample.reason == Reason.STAIRCASE) & (sample.numeric == 0)
    is_level &= not pair.operations.formula.facts.quantisers
    small = ROUNDINGS_OF_A_RUN * _unit_roundoff(pair) * largest_finite(sample.numeric)
    return np.where(is_level & (np.abs(sample.analytic) <= small), small, 0.0)


def measure_rounding(
    pair: Pair, sample: PairSample, where: npt.NDArray[np.bool_], draws: Iterable[int]
) -> Float:
    """Measure how far rounding moves some elements, as `sample.analytic`; 0 for the others.

    Args:
        where: which elements, one at least.
        draws: numbers of the runs.
    """
    chosen = np.flatnonzero(where.any(axis=1))
    shared = _share_upstreams(sample, chosen)
    at_rows, at_columns = (place[chosen] for place in sample.each_place())
    upstream = np.zeros((int(shared.max()) + 1, packed_size(pair.output)))
    upstream[shared, at_rows[:, 0]] = 1.0
    moved = np.zeros(sample.analytic.shape)
    measured, key = pair.operations.rounding, (pair.output_index, upstream.tobytes(), tuple(draws))
    by_input = measured.get(key)
    if by_input is None:
        *_, by_input = measure_rounding_of(
            pair.operations.formula, pair.output_index, upstream, pair.case.seed, draws
        )
        if sum(moved.size for moved in by_input.values()) <= FLOATS_AT_ONCE:
            measured[key] = by_input
    if pair.input_index in by_input:
        moved[chosen] = by_input[pair.input_index][shared[:, None], at_columns]
    return moved


def _measure_slopes(
    pair: Pair, sample: PairSample, where: npt.NDArray[np.bool_], draws: Iterable[int]
) -> Float:
    """Measure how far rounded constants of the forward move its slopes, as `sample.analytic`; 0 elsewhere.

    The forward's sqrt(2) is rounded, too: at -5, an exact GELU's slope moves by 25 times as much.
    """
    op, (output, input_index) = pair.operations.formula, pair.key
    rows, columns = sample.each_place()
    moved = np.zeros(sample.analytic.shape)
    if not pair.may_be_rounded:
        return moved
    info, point = op.inputs[input_index], packed_point(op, input_index)
    # Only the slopes' change counts, so that neither a step's rounding nor its curvature matters beside a
    # rounding of a narrow dtype.
    steps = FLOAT64.first_step * scales(point).step
    forms = [form for draw in draws if (form := op.forms.rounded_otherwise(draw + 1)) is not None]
    used = np.flatnonzero(where.any(axis=0))
    for own in np.split(used, range(CHEAP, used.size, CHEAP)):
        moves = np.zeros((own.size, point.size))
        moves[np.arange(own.size), columns[:, own]] = steps[columns[:, own]]
        stack = unpack(np.concatenate([point + moves, point - moves]), info)

        def slopes(form: Operation, own: npt.NDArray[np.intp], stack: Array) -> Float:
            values = pack(form.evaluate({input_index: stack})[output], op.outputs[output])[:, rows[:, 0]]
            return np.asarray((values[: own.size] - values[own.size :]).T / (2 * steps[columns[:, own]]))

        base = slopes(op, own, stack)
        for form in forms:
            change = np.nan_to_num(np.abs(slopes(form, own, stack) - base))
            moved[:, own] = np.fmax(moved[:, own], change)
    return np.where(where, moved, 0.0)


def mark_remainders(
    pairs: Mapping[PairKey, Pair], samples: dict[PairKey, PairSample]
) -> dict[PairKey, PairSample]:
    """Return verdicts, marked where they may be: the output moves nowhere, and the gradient isn't zero."""
    still = [key for key, sample in samples.items() if sample.numeric_is_zero and not sample.analytic_is_zero]
    return samples | {key: _mark_remainder(pairs, samples, key) for key in still}


def _mark_remainder(
    pairs: Mapping[PairKey, Pair], samples: Mapping[PairKey, PairSample], key: PairKey
) -> PairSample:
    """Return a pair's verdicts, marked if it is zero by symmetry, such as a key's bias in attention.

    Its output doesn't move, and its gradient is what terms that cancel leave: it is below the rounding of the
    slopes that the same output has in another input, and rounding moves it by its own size. A saturated
    sigmoid's gradient is as small, but has digits.

    Args:
        pairs: the pairs at one sample point.
        samples: their verdicts.
        key: of the pair, whose output doesn't move.
    """
    pair, sample = pairs[key], samples[key]
    gradients = {} if sample.is_whole else _few_rows(pair)
    analytic = sample.analytic if sample.is_whole else gradients.get(key[1])
    if analytic is None:
        return sample
    beside = [
        largest_finite(other.numeric if other.probes is None else gradients.get(other_key[1], np.zeros(0)))
        for other_key, other in samples.items()
        if other_key[0] == key[0] and other_key != key and other.is_right
    ]
    small = ROUNDINGS_OF_A_RUN * _unit_roundoff(pair)
    if not largest_finite(analytic) <= small * max(beside, default=0.0):
        return sample
    rows = np.flatnonzero(analytic.any(axis=1))[:CHEAP]
    upstream = unit_vectors(rows, packed_size(pair.output))
    runs = measure_rounding_of(pair.operations.formula, key[0], upstream, pair.case.seed)
    is_remainder = any(
        largest_finite(analytic) <= BOUND_BY_RUNS * np.max(moved.get(key[1], 0.0)) for moved in runs
    )
    return replace(sample, smallness=replace(sample.smallness, is_remainder=is_remainder))


def _few_rows(pair: Pair) -> dict[int, Float]:
    """Return the Jacobian of a pair's output by each input that it depends on; nothing if it is large."""
    op, rows = pair.operations.formula, packed_size(pair.output)
    if rows * sum(packed_size(info) for info in op.inputs) > FLOATS_AT_ONCE:
        return {}
    pulled = pull_back(op, pair.output_index, np.eye(rows))
    return {index: gradient for index, gradient in pulled.items() if gradient is not None}


def _unit_roundoff(pair: Pair) -> float:
    return pair.precision_in(pair.operations.formula).unit_roundoff
