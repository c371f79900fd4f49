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
from gradcheck_cli.numerics import Reason, Verdict
from gradcheck_cli.numerics.precision import ROUNDINGS_OF_A_RUN, largest_finite
from gradcheck_cli.numerics.problem import scales
from gradcheck_cli.numerics.shared_limits import (
    CHEAP,
    DIGITS,
    DIRECTIONS,
    FLOATS_AT_ONCE,
    MARGIN,
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


# Reasons for an undecided element that a larger bound may resolve.
_COARSE = (Reason.NOISE, Reason.UNRESOLVED, Reason.LOW_PRECISION)
# Of 2,112 elements with an error, none was more than twice beyond the largest of eight runs; with four runs,
# one in 600 was. What is beyond has two equal sources that cancelled in each run: one in 2^8, one in 2^32.
_FACTOR = 2.0
_MORE_RUNS = (RUNS, 2 * RUNS, 4 * RUNS)
# The cap: what rounding may excuse, of the row or of the output's value over the input. A wrong gradient may
# hide behind rounding of its own making; beyond this, it is never passed.
_MOST = 1e-6


def allow_rounding(pair: Pair, sample: PairSample) -> PairSample:
    """Return the verdicts with what rounding was seen to do added to the bound, where that decides.

    It makes a mismatch a pass up to the cap, and "can't tell" beyond.
    """
    wrong = sample.verdict == Verdict.MISMATCH
    is_open = wrong | ((sample.verdict == Verdict.INCONCLUSIVE) & np.isin(sample.reason, _COARSE))
    is_open &= np.isfinite(sample.uncertainty) & np.isfinite(sample.analytic)
    if not is_open.any() or not sample.is_connected:
        return sample
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(sample.analytic - sample.numeric)
    cap, uncertainty = _cap(pair, sample), sample.uncertainty
    bound, runs = np.zeros(error.shape), 0
    for count in _MORE_RUNS:
        moved = measure_rounding(pair, sample.analytic, sample.each_place(), is_open, range(runs, count))
        bound, runs = np.fmax(bound, _FACTOR * moved), count
        with np.errstate(invalid="ignore"):
            # More runs only find what two equal sources hide: no large error.
            if not (is_open & (error > sample.allowed + bound) & (error <= sample.allowed + cap)).any():
                break
    allowed = sample.allowed + np.minimum(bound, cap)
    with np.errstate(invalid="ignore"):
        passes = is_open & (bound > 0) & (error <= allowed + np.minimum(uncertainty, allowed))
        passes &= uncertainty <= 2 * allowed  # as everywhere: `second_stage.decide`
        doubted = is_open & ~passes & (bound > 0)
        doubted &= error <= sample.allowed + MARGIN * uncertainty + bound
    reason = np.where(sample.reason == Reason.NONE, Reason.LOW_PRECISION, sample.reason).astype(np.int8)
    passed = sample.settle(passes, Verdict.PASS, Rule.ROUNDING, allowed=allowed)
    return passed.settle(doubted, Verdict.INCONCLUSIVE, Rule.ROUNDING, reason)


def _cap(pair: Pair, sample: PairSample) -> Float:
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
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = np.nan_to_num(np.fmax(np.abs(sample.analytic), np.abs(sample.numeric)), posinf=0.0)
        largest = np.max(slopes, axis=1, keepdims=True, initial=0.0)
        typical = np.fmax(largest, value / scales(point, pair.scale).step[columns])
        divided = np.fmin(share * value / divisors, DIGITS * np.abs(sample.numeric))
        return np.asarray(np.fmax(share * typical, divided))


def measure_rounding(
    pair: Pair,
    analytic: Float,
    places: Iterable[npt.NDArray[np.int64]],
    where: npt.NDArray[np.bool_],
    draws: Iterable[int] = range(RUNS),
) -> Float:
    """Measure how far rounding moves some elements of a gradient; the others are given as 0, or as found.

    The gradient is run again, and each inexact operation in it rounds the other way at random
    (`OpForms.rounded_otherwise`). What can't be seen into is run with its arguments moved by a rounding, and
    its upstream by a factor.

    Args:
        analytic: elements of the Jacobian, (r, c).
        places: their rows and columns in it, (r, c) each.
        where: which elements; no more than a number of rows are measured.
        draws: numbers of the runs.
    """
    op, (output, input_index) = pair.operations.formula, pair.key
    chosen = np.flatnonzero(where.any(axis=1))[:CHEAP]
    at_rows, at_columns = (place[chosen] for place in places)
    upstream = np.zeros((chosen.size, packed_size(pair.output)))
    upstream[np.arange(chosen.size), at_rows[:, 0]] = 1.0
    exact = op.forms.rounded_otherwise(0)
    base = None if exact is None else pull_back(exact, output, upstream)[input_index]

    def run(draw: int) -> Float | None:
        rounded = op.forms.rounded_otherwise(draw + 1)
        if rounded is not None:
            return pull_back(rounded, output, upstream)[input_index]
        return _pull_black_box(pair, upstream, draw)

    runs = (
        np.take_along_axis(gradient, at_columns, axis=1)
        for draw in draws
        if (gradient := run(draw)) is not None
    )
    moved = np.zeros(analytic.shape)
    first = analytic[chosen] if base is None else np.take_along_axis(base, at_columns, axis=1)
    moved[chosen] = largest_change(first, ((gradient, 1.0) for gradient in runs))
    return moved


def _pull_black_box(pair: Pair, upstream: Float, draw: int) -> Float | None:
    """Pull upstreams back with other roundings of what goes in: of the upstream, and of the inputs."""
    op, (output, input_index) = pair.operations.formula, pair.key
    # Another upstream's products round otherwise. It is near enough for what isn't linear in it to stay wrong.
    factor = 1 + (-1) ** draw * 2.0**-12 * NUDGES[draw // 2 % len(NUDGES)]
    unit = _unit_roundoff(pair)
    point = points_beside(op, lambda index: 2 * unit * np.abs(op.point[index]), pair.case.seed + draw)[0]
    with suppress(CaseFailedError):
        beside = pull_beside(op, output, factor * upstream, point).get(input_index)
        if beside is not None:
            return np.asarray(beside / factor)
    gradient = pull_back(op, output, factor * upstream)[input_index]
    return None if gradient is None else np.asarray(gradient / factor)


def mark_remainder(pairs: Mapping[PairKey, Pair], samples: dict[PairKey, PairSample], key: PairKey) -> None:
    """Mark a pair, in place, if it is zero by symmetry, such as a key's bias in attention.

    Its output doesn't move, not even where the input moves by its own size, and its gradient is what terms
    that cancel leave: it is below the rounding of the slopes that the same output has in another input. A
    saturated sigmoid's gradient is as small, but its output moves further away.

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
    small = ROUNDINGS_OF_A_RUN * _unit_roundoff(pair)
    if not largest_finite(analytic) <= small * max(beside, default=0.0):
        return
    op, (output, input_index) = pair.operations.differenced, key
    info, point = op.inputs[input_index], packed_point(op, input_index)
    signs = np.random.default_rng(pair.case.seed).choice([-1.0, 1.0], (DIRECTIONS, point.size))
    far = unpack(point + signs * scales(point, pair.scale).step, info)
    with suppress(CaseFailedError):
        values = pack(op.evaluate({input_index: far})[output], op.outputs[output])
        base = pack(op.base_values[output][np.newaxis], op.outputs[output])
        if np.max(np.abs(values - base)) <= small * largest_finite(base):
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
