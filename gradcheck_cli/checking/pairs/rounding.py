"""Measure what rounding does to a gradient: run it again, rounded otherwise.

An element may be off by what such runs move it by, and by nothing else. There are three kinds of runs. The
same upstream at other sizes is rounded differently throughout, which shows the remainder of terms that
cancel: a causal softmax's first row is zero by nature, and holds one. Constants of the declared dtype, moved
by one rounding each in gradient and forward, show what they were rounded to. Points that are a rounding away
(`movement`) show what rounding of the inputs explains: at most `BOUND_PER_SIGMA` times the largest movement.
(Over the weights of a MobileNetV2, float32's errors and these movements have the same root mean square to
within 12 %; the largest error of each is up to 17 times that.) Whoever asks says how large that rounding is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import PairKey, packed_point, pull_back
from gradcheck_cli.checking.ops.operation import (
    Array,
    Float,
    Operation,
    pack,
    packed_magnitude,
    packed_size,
    unpack,
)
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, Rule
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import FLOAT64, Reason, Verdict
from gradcheck_cli.numerics.precision import ROUNDINGS_OF_A_RUN, largest_finite
from gradcheck_cli.numerics.problem import scales
from gradcheck_cli.numerics.refine.series import OFFSETS, standard_deviation
from gradcheck_cli.numerics.shared_limits import (
    BOUND_BY_RUNS,
    BOUND_PER_SIGMA,
    CHEAP,
    DIGITS,
    FEW,
    FLOATS_AT_ONCE,
    OF_SOME_OPERATIONS,
    RUNS,
)

# Odd multiples k of a nudge: an upstream times 1 + k nudge is rounded differently throughout.
NUDGES = (1.0, 3.0, 5.0, 7.0)
_MOST_GROUPS = 32  # of rows, each with an upstream of its own

Point = Mapping[int, Array]  # by input index; the other inputs stay


def largest_change(base: Float, runs: Iterable[tuple[Float, float]]) -> Float:
    """Return how far each element of a gradient moves in runs that differ from the first by rounding alone.

    Args:
        base: the gradient.
        runs: other runs' gradients, and the factor of each one's upstream. It is itself rounded to the op's
            dtype: an error of the gradient's own size, which doesn't matter.
    """
    moved = np.zeros(base.shape)
    for gradient, factor in runs:
        with np.errstate(invalid="ignore", over="ignore"):
            change = np.abs(gradient / factor - base)
        moved = np.fmax(moved, np.where(np.isfinite(change), change, 0.0))
    return moved


def points_beside(op: Operation, size: Callable[[int], Array], seed: int) -> list[Point]:
    """Return points beside an op's, at which each element has moved up or down.

    Args:
        size: returns how far the elements of an input move.
        seed: decides on the directions.
    """
    points: list[Point] = []
    for draw in range(RUNS // 2):  # each with its mirror image, since a kink lies to one side
        generator = np.random.default_rng([seed, draw])
        steps = {
            index: np.multiply(size(index), generator.choice([-1.0, 1.0], size=value.shape))
            for index, (value, info) in enumerate(zip(op.point, op.inputs, strict=True))
            if info.is_differentiable
        }
        points.append({index: np.add(op.point[index], step) for index, step in steps.items()})
        points.append({index: np.subtract(op.point[index], step) for index, step in steps.items()})
    return points


def pull_beside(op: Operation, output: int, upstream: Float, point: Point) -> dict[int, Float]:
    """Pull upstreams, (B, m), back at another point, to (B, n) by input index; empty where that can't be."""
    stacks = {index: np.broadcast_to(value, (len(upstream), *value.shape)) for index, value in point.items()}
    pulled = op.vjp_beside(output, unpack(upstream, op.outputs[output]), stacks) or ()
    gradients = enumerate(zip(pulled, op.inputs, strict=False))
    return {index: pack(gradient, info) for index, (gradient, info) in gradients if gradient is not None}


def movement(op: Operation, output: int, upstream: Float, points: Iterable[Point]) -> dict[int, Float]:
    """Return how far each input's gradient, (B, n), moves from its point to some points beside it.

    A point at which a kernel fails (it may refuse a singular matrix) is left out.
    """
    moved: dict[int, Float] = {}
    with suppress(CaseFailedError):
        base = pull_beside(op, output, upstream, {})
        moved = {index: np.zeros(gradient.shape) for index, gradient in base.items()}
        for point in points:
            with suppress(CaseFailedError):
                for index, gradient in pull_beside(op, output, upstream, point).items():
                    moved[index] = np.fmax(moved[index], largest_change(base[index], [(gradient, 1.0)]))
    return moved


def movement_of_value(op: Operation, output: int, points: Iterable[Point]) -> Float:
    """Return how far each element of an output, (m,), moves from its point to some points beside it."""
    info = op.outputs[output]
    base = pack(op.base_values[output][np.newaxis], info)
    moved = np.zeros(base.shape)
    for point in points:
        with suppress(CaseFailedError):
            value = op.evaluate({index: at[np.newaxis] for index, at in point.items()})[output]
            moved = np.fmax(moved, largest_change(base, [(pack(value, info), 1.0)]))
    return np.asarray(moved[0])


def group_rows(
    where: npt.NDArray[np.bool_], rows: npt.NDArray[np.integer], size: int
) -> tuple[list[npt.NDArray[np.intp]], Float]:
    """Group rows with a chosen element; return the groups, and for each an upstream, 1 in its rows.

    Args:
        where: the chosen elements.
        rows: the Jacobian's row of each element.
        size: of an upstream.
    """
    groups = np.array_split(np.flatnonzero(where.any(axis=1)), _MOST_GROUPS)
    groups = [group for group in groups if group.size]
    upstream = np.zeros((len(groups), size))
    for own, group in zip(upstream, groups, strict=True):
        own[rows[group, 0]] = 1.0
    return groups, upstream


# The most that may be attributed to rounding, in units of the dtype's rounding. It is relative to the pair's
# largest element, or to the output's value over the input's scale: 1e-9 in float64, where 1e-6 is a mistake;
# in narrower dtypes, no more than a thousandth.
MOST_MEASURED = 2.0**23
# An output that moves by this many of its roundings where inputs move by a few is ill-conditioned: slopes
# that last for so few roundings are seen by no difference, as the nearest sentinel is at 2**-36.
_UNSEEN = 2.0**17
# Seven points this far apart, relative to the inputs: sums round otherwise at each, and what a smooth
# gradient adds to differences of order 4 to 6 is below 2**-48 of it. A power of two would round nothing.
_SPACING = 1.1 * 2.0**-12
# Reasons for an undecided element that a larger bound may resolve.
_COARSE = (Reason.NOISE, Reason.UNRESOLVED, Reason.LOW_PRECISION)
# A move is the largest rounding error that a number of its size can have; typical ones are 0.4 of that. One
# and a half times the largest of eight moves is exceeded once in some thousand patterns.
_OF_CONSTANTS = 1.5


def allow_rounding(pair: Pair, sample: PairSample) -> PairSample:
    """Return the verdicts with what rounding was seen to do added to the tolerance, where that decides.

    The gradient is run again, rounded otherwise in three ways, one after the other: with the same upstream at
    other sizes, at points beside, and, if the declared dtype may have rounded its constants, with other
    constants. An element is measured only while its error is unexplained, and within the way's own limit.

    Args:
        pair: the pair, whose formula has the judged gradient.
    """
    wrong = sample.verdict == Verdict.MISMATCH
    is_open = wrong | ((sample.verdict == Verdict.INCONCLUSIVE) & np.isin(sample.reason, _COARSE))
    is_open &= np.isfinite(sample.uncertainty)
    if not is_open.any() or not sample.is_connected:
        return sample
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(sample.analytic - sample.numeric)
    own, constants = _most_of_own(pair, sample), np.where(wrong, _most_of_constants(pair, sample), 0.0)
    loss, unexplained = np.zeros(error.shape), is_open
    for limit, measure in (
        (own, _measure_own),
        (own, _measure_beside),
        (constants, partial(_measure_constants, error=error)),
    ):
        with np.errstate(invalid="ignore"):
            chosen = unexplained & (error <= limit)
            if chosen.any():
                loss = np.fmax(loss, np.where(chosen, np.minimum(measure(pair, sample, chosen), limit), 0.0))
            unexplained = is_open & (error > sample.allowed + loss)
    uncertainty, allowed = sample.uncertainty, sample.allowed + loss
    with np.errstate(invalid="ignore"):
        passes = is_open & (loss > 0) & (error <= allowed + np.minimum(uncertainty, allowed))
        passes &= uncertainty <= 2 * allowed  # as everywhere: `second_stage.decide`
        doubted = is_open & (loss > 0) & ~passes & (error <= allowed + uncertainty)
    reason = np.where(sample.reason == Reason.NONE, Reason.LOW_PRECISION, sample.reason).astype(np.int8)
    passed = sample.settle(passes, Verdict.PASS, Rule.ROUNDING, allowed=allowed)
    return passed.settle(doubted, Verdict.INCONCLUSIVE, Rule.ROUNDING, reason)


def leave_ill_conditioned(pair: Pair, sample: PairSample) -> PairSample:
    """Return the verdicts, with mismatches undecided where a few roundings of the inputs change everything.

    At a singular matrix, or where twice normalised elements are equal, output and gradient have no digits,
    and every difference spans a turn. A gradient that is wrong at one value only is no such case, nor is a
    kink or a tie: there the output hardly moves.
    """
    wrong = (sample.verdict == Verdict.MISMATCH) & np.isfinite(sample.analytic)
    if not wrong.any() or not sample.is_connected:
        return sample
    op, (output, input_index), unit = pair.operations.formula, pair.key, _unit_roundoff(pair)
    points = points_beside(
        op, lambda index: OF_SOME_OPERATIONS * unit * np.abs(op.point[index]), pair.case.seed
    )
    moved = movement_of_value(op, output, points)
    # Beside what it moves by further out, too: a value may be 0 by chance, as that of a loss at its margin.
    further = points_beside(op, lambda index: DIGITS * np.abs(op.point[index]), pair.case.seed)
    value = packed_magnitude(op.base_values[output], pair.output)
    value = np.fmax(value, movement_of_value(op, output, further))
    # Not row by row: what has lost its digits may be a multiple of something, and stay the same by chance.
    if not np.max(moved, initial=0.0) > _UNSEEN * unit * float(np.max(value, initial=0.0)):
        return sample
    at_rows, _ = sample.each_place()
    groups, upstream = group_rows(wrong, at_rows, packed_size(pair.output))
    turns = movement(op, output, upstream, points).get(input_index)
    if turns is None:
        return sample
    step = np.min(scales(packed_point(op, input_index)).step, initial=np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(sample.analytic - sample.numeric)
        for group, turn in zip(groups, np.max(turns, axis=1, initial=0.0), strict=True):
            is_turn = turn > DIGITS * largest_finite(sample.analytic[group])
            wrong[group] &= is_turn | (
                error[group] <= np.fmax(BOUND_PER_SIGMA * turn, moved[at_rows[group]] / step)
            )
    return sample.settle(wrong, Verdict.INCONCLUSIVE, Rule.ILL_CONDITIONED, Reason.UNRESOLVED)


def mark_remainder(pairs: Mapping[PairKey, Pair], samples: dict[PairKey, PairSample], key: PairKey) -> None:
    """Mark a pair, in place, if it is zero by symmetry, such as a key's bias in attention.

    Its output doesn't move at all, and its gradient is what terms that cancel leave: it is below the rounding
    of the slopes that the same output has in another input, and changes by its own size if it is rounded
    differently. A saturated sigmoid's gradient is as small, but has digits.

    Args:
        pairs: the pairs at one sample point.
        samples: their verdicts.
        key: of the pair, whose output doesn't move.
    """
    pair, sample = pairs[key], samples[key]
    gradients = {} if sample.is_whole else _few_rows(pair)
    analytic = sample.analytic if sample.is_whole else gradients.get(key[1])
    if analytic is None:
        return
    beside = [
        largest_finite(other.numeric if other.probes is None else gradients.get(other_key[1], np.zeros(0)))
        for other_key, other in samples.items()
        if other_key[0] == key[0] and other_key != key and other.is_right
    ]
    largest = float(np.max(np.abs(analytic)))
    if not largest <= ROUNDINGS_OF_A_RUN * _unit_roundoff(pair) * max(beside, default=0.0):
        return
    moved = _measure(pair, analytic, np.indices(analytic.shape), analytic != 0, _scaled_upstreams(pair))
    if largest <= BOUND_BY_RUNS * float(np.max(moved)):
        samples[key] = replace(sample, smallness=replace(sample.smallness, is_remainder=True))


def _few_rows(pair: Pair) -> dict[int, Float]:
    """Return the Jacobian of a pair's output by each input that it depends on; nothing if it is large."""
    op, rows = pair.operations.formula, packed_size(pair.output)
    if rows * sum(packed_size(info) for info in op.inputs) > FLOATS_AT_ONCE:
        return {}
    pulled = pull_back(op, pair.output_index, np.eye(rows))
    return {index: gradient for index, gradient in pulled.items() if gradient is not None}


def _unit_roundoff(pair: Pair) -> float:
    return pair.precision_in(pair.operations.formula).unit_roundoff


def _most_of_own(pair: Pair, sample: PairSample) -> Float:
    """Return the most that may be attributed to the gradient's own rounding, as `sample.analytic`.

    It is relative to the pair's typical size: its largest element, or the output's value over the input's
    scale. A gradient that divides by a smaller input rounds by more, up to a thousandth of the element; none
    divides by zero.
    """
    op, (output, input_index) = pair.operations.formula, pair.key
    value = largest_finite(packed_magnitude(op.base_values[output], op.outputs[output]))
    point, (_, columns) = packed_point(op, input_index), sample.each_place()
    divisors = np.where(point == 0, np.inf, np.abs(point))[columns]
    share = min(MOST_MEASURED * _unit_roundoff(pair), DIGITS)
    with np.errstate(over="ignore", invalid="ignore"):
        largest = max(largest_finite(sample.analytic), largest_finite(sample.numeric))
        typical = np.fmax(largest, value / scales(point, pair.scale).step[columns])
        divided = np.fmin(share * value / divisors, DIGITS * np.abs(sample.numeric))
        return np.fmax(share * typical, divided)


def _most_of_constants(pair: Pair, sample: PairSample) -> Float:
    """Return the most that may be attributed to rounded constants, as `sample.analytic`.

    However far they move an element (the phase of sin(1000.3 x)), it is no more than some roundings of its
    row's largest element, or of the output's value over the input.
    """
    if not pair.may_be_rounded:
        return np.zeros(sample.analytic.shape)
    op, (output, input_index) = pair.operations.formula, pair.key
    value = packed_magnitude(op.base_values[output], op.outputs[output])
    step = scales(packed_point(op, input_index), pair.scale).step
    rows, columns = sample.each_place()
    with np.errstate(invalid="ignore", over="ignore"):
        slopes = np.nan_to_num(np.abs(sample.numeric), posinf=0.0)
        largest = np.max(slopes, axis=1, keepdims=True, initial=0.0)
        terms = np.nan_to_num(value, posinf=0.0)[rows] / step[columns]
    return np.asarray(OF_SOME_OPERATIONS * pair.formula_precision.unit_roundoff * np.maximum(largest, terms))


def _measure_own(pair: Pair, sample: PairSample, where: npt.NDArray[np.bool_]) -> Float:
    """Bound a gradient's own rounding by runs with the same upstream at other sizes, as `sample.analytic`.

    If a whole row is zero but for remainders of terms that cancel, nothing else gives its scale.
    """
    moved = _measure(pair, sample.analytic, sample.each_place(), where, _scaled_upstreams(pair))
    return np.asarray(BOUND_BY_RUNS * moved)


def _measure_beside(pair: Pair, sample: PairSample, where: npt.NDArray[np.bool_]) -> Float:
    """Measure a gradient's noise along the inputs, as `sample.analytic`; 0 where it may be shape instead.

    No upstream changes the rounding of what a gradient adds before it meets its upstream: (cos x - sin x / x)
    / x is off by 1e-10 at 1e-6. So the gradient is taken at evenly spaced points beside the sample point.
    """
    op, (output, input_index) = pair.operations.formula, pair.key
    noise = np.zeros(sample.analytic.shape)
    at_rows, at_columns = sample.each_place()
    for row in np.flatnonzero(where.any(axis=1))[:FEW]:
        upstream = np.zeros((1, packed_size(pair.output)))
        upstream[0, at_rows[row, 0]] = 1.0
        values = []
        for offset in OFFSETS:
            point = {
                index: np.multiply(value, 1.0 + _SPACING * offset)
                for index, (value, info) in enumerate(zip(op.point, op.inputs, strict=True))
                if info.is_differentiable
            }
            gradient = pull_beside(op, output, upstream, point).get(input_index)
            if gradient is None:
                return noise
            values.append(gradient[0])
        sigma = standard_deviation(np.array(values), only_noise=True)[at_columns[row]]
        noise[row] = np.where(np.isfinite(sigma), BOUND_PER_SIGMA * sigma, 0.0)
    return noise


def _measure_constants(pair: Pair, sample: PairSample, where: npt.NDArray[np.bool_], error: Float) -> Float:
    """Bound what rounding of the gradient's and the forward's constants does, as `sample.analytic`.

    An exact GELU has 1 / sqrt(2 pi) in its gradient, which bfloat16 rounds by 0.3 %. Where the terms of the
    gradient cancel, that is most of what remains. And the forward's sqrt(2) is rounded, which at -5 moves its
    slope by 25 times as much.
    """
    of_gradient, of_slopes, bound = (np.zeros(error.shape) for _ in range(3))
    # Each constant moves up or down at random. Errors of three constants are added in one run out of four, so
    # that eight runs show the worst nine times in ten.
    for draw in range(RUNS):
        if (error <= bound)[where].all():
            break  # each form is a twin of its own, and takes time
        rounded = pair.operations.formula.forms.rounded_otherwise(draw)
        if rounded is None:
            break
        again = _measure(pair, sample.analytic, sample.each_place(), where, [(rounded, 1.0)])
        of_gradient = np.fmax(of_gradient, again)
        of_slopes = np.fmax(of_slopes, _measure_slopes(pair, sample, where, rounded))
        bound = _OF_CONSTANTS * (of_gradient + of_slopes)
    return bound


def _measure_slopes(pair: Pair, sample: PairSample, where: npt.NDArray[np.bool_], other: Operation) -> Float:
    """Measure how far another form of a forward has other slopes, as `sample.analytic`; 0 elsewhere."""
    op, (output, input_index) = pair.operations.formula, pair.key
    rows, columns = sample.each_place()
    moved = np.zeros(sample.analytic.shape)
    own = np.unique(columns[where])[:CHEAP]
    info, point = op.inputs[input_index], packed_point(op, input_index)
    # Only the slopes' change counts, so that neither a step's rounding nor its curvature matters beside a
    # rounding of a narrow dtype.
    steps = FLOAT64.first_step * scales(point).step[own]
    moves = np.zeros((len(own), point.size))
    moves[np.arange(len(own)), own] = steps
    stack = unpack(np.concatenate([point + moves, point - moves]), info)

    def slopes(form: Operation) -> Float:
        values = pack(form.evaluate({input_index: stack})[output], op.outputs[output])
        return np.asarray((values[: len(own)] - values[len(own) :]) / (2 * steps[:, None]))

    with np.errstate(invalid="ignore"):
        change = np.nan_to_num(np.abs(slopes(other) - slopes(op)))
    moved[where] = change[np.searchsorted(own, columns[where]).clip(max=len(own) - 1), rows[where]]
    return np.where(np.isin(columns, own), moved, 0.0)


def _scaled_upstreams(pair: Pair) -> list[tuple[Operation, float]]:
    # Sizes from 0.3 to 1.7, since a dtype's own nudge changes too few bits: a causal softmax was left open.
    # What isn't linear in the upstream counts as rounding then, within the limit.
    return [(pair.operations.formula, 1 + sign * 0.1 * multiple) for multiple in NUDGES for sign in (1, -1)]


def _measure(
    pair: Pair,
    analytic: Float,
    places: Iterable[npt.NDArray[np.int64]],
    where: npt.NDArray[np.bool_],
    upstreams: Iterable[tuple[Operation, float]],
) -> Float:
    """Measure how far rounding moves some elements; the others are given as 0, or as their rows' own.

    Args:
        analytic: elements of the Jacobian, (r, c).
        places: their rows and columns in it, (r, c) each.
        where: which elements; no more than a number of rows are measured.
        upstreams: forms of the formula, and factors of the upstream.
    """
    output, input_index = pair.key
    chosen = np.flatnonzero(where.any(axis=1))[:CHEAP]
    at_rows, at_columns = (place[chosen] for place in places)
    upstream = np.zeros((chosen.size, packed_size(pair.output)))
    upstream[np.arange(chosen.size), at_rows[:, 0]] = 1.0
    moved = np.zeros(analytic.shape)
    pulled = ((pull_back(op, output, factor * upstream)[input_index], factor) for op, factor in upstreams)
    runs = (
        (np.take_along_axis(gradient, at_columns, axis=1), factor)
        for gradient, factor in pulled
        if gradient is not None
    )
    moved[chosen] = largest_change(analytic[chosen], runs)
    return moved
