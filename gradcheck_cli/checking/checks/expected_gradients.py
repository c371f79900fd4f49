"""What a vjp must return for an upstream, if it is linear.

Where the Jacobian is at hand, its rows say so. Elsewhere the gradients of two upstreams must add up to the
gradient of their sum. In both cases a multiple of an upstream must give that multiple of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.checks.output_vjp import ABSORBING, MANY, TELLING, Flow, OutputVjp
from gradcheck_cli.checking.ops.jacobian import (
    Jacobian,
    packed_function,
    packed_point,
    pull_back,
    rounding_slack,
)
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.checking.ops.packing import Float, packed_magnitude
from gradcheck_cli.numerics import FLOAT64, rule_for
from gradcheck_cli.numerics.probes import chunks
from gradcheck_cli.numerics.shared_limits import BOUND_BY_RUNS, KNOWN, OF_A_VALUE, OWN_ORDER, PATTERN, SLIGHT
from gradcheck_cli.numerics.steps import scales
from gradcheck_cli.numerics.tolerance import ROUNDINGS_OF_A_RUN, agree, largest_finite
from gradcheck_cli.spec.case import Case

# float16 and bfloat16 have too few bits to measure rounding. A vjp that cancels inside may lose this share of
# the gradient's largest element, although its rows don't show it.
_CANCELLED = 0.5
# The formats that upstreams are often cast to, and how far what they keep of an upstream with all bits is
# from it, at least, as a share of each element. See `Upstreams.narrowed`.
_FORMATS = (("8 bits, as bfloat16 has", 3 * 2.0**-13), ("11 bits, as float16 and TF32 have", 2.0**-13))
# In float16 there are three bits to lose, and a product of several factors may stay the same by chance. What
# casts its whole upstream keeps every element, each time.
_FORMATS_IN_HALF = (("8 bits, as bfloat16 has", 1.5 * 2.0**-10),)
_DRAWS_IN_HALF = 16
# In a sum of many terms that don't cancel, rounding takes no more than this share. What adds 60 terms in
# pairs, or in eight lanes, loses three per cent of the upstream that is tried; what adds one by one in
# bfloat16, a fifth.
_MOST_ROUNDED = 0.125
_STEP = 2.0**-20  # of an input's scale, to see which terms a sum has
_ABSORBED = 0.75  # of half a spacing: surely lost, though terms are rounded, too


@dataclass(frozen=True)
class Fault:
    """A wrong element: its packed index, its value, and the value that it must have."""

    element: int
    actual: float
    expected: float


@dataclass(frozen=True)
class Sum:
    """The sum that a gradient must equal.

    Attributes:
        bounds: for a sum over a Jacobian's rows, returns the sum of the rows' magnitudes and what rounding
            may have lost of it. It is called only where the sum itself leaves a doubt.
    """

    terms: Sequence[tuple[float, Float]]  # factors and the gradients that they multiply
    bounds: Callable[[], tuple[Float, Float]] | None = None
    others: Sequence[OutputVjp] = ()  # vjps of other outputs with terms in the sum


def find_fault(pulled: OutputVjp, input_index: int, flow: Flow, gradient: Float) -> tuple[Fault, str] | None:
    """Find an element of a gradient that contradicts linearity.

    Args:
        pulled: the output's vjp.
        input_index: which input.
        flow: the upstream.
        gradient: (n,) its gradient.

    Returns:
        The fault, and a description of the expected value; `None` where there is no fault.
    """
    matrix, first = pulled.matrices.get(input_index), pulled.first[input_index]
    if matrix is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            from_rows = matrix.pull(flow.upstream[None])[0]
        bounds = partial(_bounds, pulled, input_index, matrix, flow.upstream[None], from_rows)
        fault = compare(pulled, input_index, gradient, Sum([(1.0, from_rows)], bounds), flow)
        if fault is not None:
            return fault, "the rows of its own Jacobian add up to"
    if flow.factor is not None:
        fault = compare(pulled, input_index, gradient, Sum([(flow.factor, first)]), flow)
        return None if fault is None else (fault, f"{flow.factor:.3g} times the first random one's is")
    if matrix is not None:
        return None
    size = pulled.upstreams.size
    # Four times as much of the first upstream. If two elements cancelled, the sum shows other elements that
    # each gradient alone loses to rounding (softmax's u - sum(u s), where one s is 1).
    share = 4.0 * 2.0 ** np.round(np.log2(flow.size / size)) if size else 1.0
    combined = pulled.pull_with_base(flow, share)[input_index]
    fault = compare(pulled, input_index, gradient, Sum([(1.0, combined), (-share, first)]), flow)
    return None if fault is None else (fault, "what it adds to another upstream's is")


def find_narrowed(pulled: OutputVjp) -> str:
    """Say which element shows that the gradient rounds its upstream to a narrower format; empty if none does.

    A gradient depends on each bit of its upstream. If an upstream and what a format keeps of it give the
    same, bit by bit, it is rounded. No tolerance is needed, and measured rounding doesn't explain it: such a
    gradient rounds everything that much.
    """
    if not pulled.precision.is_narrowed:
        return ""
    is_half = pulled.precision.nudge is None
    all_same: dict[tuple[int, str], npt.NDArray[np.bool_]] = {}
    # A sum of many terms stays the same by chance about once in 2^11.
    for draw in range(_DRAWS_IN_HALF if is_half else PATTERN):
        whole, *of_formats = pulled.pull_narrowed(draw)
        for (words, change), kept in zip(_FORMATS_IN_HALF if is_half else _FORMATS, of_formats, strict=True):
            for input_index in set(pulled.input_indices) - pulled.lossy:
                key, gradient = (input_index, words), whole[input_index]
                telling = _telling_elements(pulled, input_index, gradient, change)
                same = (gradient == kept[input_index]) & telling
                before = all_same.get(key, same)
                if is_half:  # each draw tells other elements, and all of them count
                    before = np.full(same.shape, before.any() and bool((same == telling).all()))
                all_same[key] = same & before
        if not any(same.any() for same in all_same.values()):
            return ""
    (input_index, words), same = next(item for item in all_same.items() if item[1].any())
    where = int(np.argmax(np.where(same, np.abs(whole[input_index]), -1.0)))
    return (
        f"{pulled.label(input_index)} rounds its upstream to {words}: element {where} is "
        f"{whole[input_index][where]:.6e} for a random upstream, and the same, bit by bit, for that upstream "
        "rounded so; use the upstream in the output's own dtype."
    )


def find_absorbed(pulled: OutputVjp) -> str:
    """Say which element of a probed pair, in half precision, is a sum that loses most of its terms.

    Where the Jacobian is at hand, its rows say what the terms are. Here differences of one input element in
    float64 say it. The upstream makes them positive and of one size, and the first one absorb the others,
    unless they are added in a wider dtype or in pairs. What they must add up to is the gradient in float64.
    """
    formula, output = pulled.formula, pulled.output
    if formula is None or pulled.shift != 1.0 or pulled.base.size < MANY:
        return ""
    for input_index in set(pulled.input_indices) - pulled.matrices.keys():
        element = int(np.argmax(np.nan_to_num(np.abs(pulled.first[input_index]), posinf=0.0)))
        point = packed_point(formula, input_index)
        ends = np.stack([point, point])
        step = _STEP * scales(point).step[element]
        ends[:, element] += (step, -step)
        above, below = packed_function(formula, input_index, [output])(ends)
        slopes = np.nan_to_num((above - below) / (2 * step), posinf=0.0, neginf=0.0)
        share = np.abs(slopes) / max(float(np.max(np.abs(slopes))), np.finfo(float).tiny)
        terms = np.flatnonzero(share > OWN_ORDER)  # smaller ones would need large upstreams
        if len(terms) < MANY:
            continue
        upstream = np.zeros(slopes.shape)
        upstream[terms] = np.sign(slopes[terms]) / share[terms]
        upstream[terms[1:]] *= _ABSORBED
        upstream[terms[0]] *= pulled.precision.absorbing
        upstream = pulled.precision.round(upstream)
        of_formula = pull_back(formula, output, upstream[None])[input_index]
        expected = 0.0 if of_formula is None else float(of_formula[0][element])
        actual = float(pulled.pull(upstream)[input_index][element])
        adds_up = abs(expected) >= (1 - KNOWN) * float(np.abs(upstream) @ np.abs(slopes))
        if adds_up and abs(actual - expected) > _MOST_ROUNDED * abs(expected):
            return (
                f"{pulled.label(input_index)} isn't linear in the upstream: for {ABSORBING} element "
                f"{element} is {actual:.6e}, but in float64 it is {expected:.6e}; add its terms in a wider "
                "dtype."
            )
    return ""


def _telling_elements(
    pulled: OutputVjp, input_index: int, gradient: Float, change: float
) -> npt.NDArray[np.bool_]:
    """Return where a change of the upstream by this share must show in its gradient, (n,).

    Elements far below the largest may be remainders of terms that cancel, which stay by chance. So may all of
    them, if they are no larger than the rounding of the output's value over the input.
    """
    op = pulled.op
    size = np.where(np.isfinite(gradient), np.abs(gradient), 0.0)
    largest = float(np.max(size, initial=0.0))
    if largest <= pulled.flushed_size(input_index) / TELLING:
        return np.zeros(gradient.shape, bool)
    if pulled.precision.nudge is None:  # the formula shows that its large elements are no remainders
        return np.asarray(size >= largest / 2)
    value = largest_finite(packed_magnitude(op.base_values[pulled.output], op.outputs[pulled.output]))
    step = float(np.min(scales(packed_point(op, input_index)).step, initial=np.inf))
    # A change shows in an element if it is larger than the rounding of the terms that it is a remainder of.
    rounded = 2 * OF_A_VALUE / change * pulled.precision.unit_roundoff * pulled.upstreams.size * value / step
    return np.asarray(size >= max(SLIGHT * largest, rounded))


def _bounds(
    pulled: OutputVjp, input_index: int, matrix: Jacobian, upstream: Float, total: Float
) -> tuple[Float, Float]:
    """Return the sum of the rows' magnitudes, and how much rounding may change the rows' sum, `total`."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = matrix.magnitudes.pull(np.abs(upstream))[0]
        rounding = rounding_slack(pulled.op, (pulled.output, input_index), upstream, matrix)[0]
        if pulled.precision.nudge is None:
            cancelled = rounding + _CANCELLED * largest_finite(total)
            # It doesn't cancel. (In a sum of a thousand ones, bfloat16 stops at 256.)
            adds_up = np.abs(total) >= (1 - KNOWN) * size
            # One term, or a few, may themselves be remainders.
            terms = matrix.magnitudes.pull(np.ones(upstream.shape))[0]
            adds_up &= terms >= MANY * largest_finite(matrix.values)
            rounding = np.where(adds_up, np.minimum(rounding, _MOST_ROUNDED * size), cancelled)
        return size, rounding


def compare(pulled: OutputVjp, input_index: int, gradient: Float, expected: Sum, flow: Flow) -> Fault | None:
    """Compare a gradient with a sum, element by element.

    Args:
        pulled: the output's vjp.
        input_index: which input.
        gradient: (n,) the upstream's gradient.
        expected: the sum that it must equal.
        flow: the upstream.

    Returns:
        An element that differs by more than the vjp may lose to rounding. Elements with an infinite sum
        don't count: the pair's own verdict covers them. Nor do overflows for an upstream above 1 or near
        the end of the dtype's range, which have nothing to do with linearity.
    """
    terms, precision = expected.terms, pulled.precision
    weight = float(np.sum(np.abs(flow.upstream))) if expected.bounds is not None else 0.0
    weight += sum(abs(factor) for factor, _ in terms)
    flushed = pulled.flushed_size(input_index) * (1.0 + weight)
    slack = flushed + (pulled.case.tolerance.atol or 0.0) * max(weight, 1.0)
    is_multiple = expected.bounds is None and len(terms) == 1
    largest = max(abs(factor) * largest_finite(term) for factor, term in terms)
    if is_multiple:
        # A gradient may take the upstream's logarithm, whose rounding grows with it.
        slack += abs(math.log(abs(terms[0][0]))) * precision.unit_roundoff * largest
    if flushed < TELLING * largest:
        pulled.resolved.add(input_index)
    is_measurable = precision.nudge is not None
    if not is_measurable and not is_multiple and expected.bounds is None:
        slack += _CANCELLED * largest
    may_overflow = flow.size > 1 or largest > precision.largest / 2**10
    rtol = _allowed_share(pulled, is_multiple=is_multiple)
    bounds: tuple[Float, Float] | None = None
    for chunk in chunks(gradient.size):
        with np.errstate(invalid="ignore", over="ignore"):
            total = np.asarray(sum(factor * term[chunk] for factor, term in terms))
            error = np.abs(gradient[chunk] - total)
            # The terms' magnitudes add up to no less than the sum.
            if (error <= rtol * np.abs(total)).all():
                continue
            if expected.bounds is not None and bounds is None:
                bounds = expected.bounds()
            size = sum(abs(factor) * np.abs(term[chunk]) for factor, term in terms)
            allowed = rtol * (size if bounds is None else bounds[0][chunk]) + slack
            allowed = allowed if bounds is None else allowed + bounds[1][chunk]
            right = (error <= allowed) | ~np.isfinite(total)
            right |= ~np.isfinite(gradient[chunk]) & may_overflow
            if not right.all() and is_measurable:
                lost = sum(vjp.rounding[input_index][chunk] for vjp in (pulled, *expected.others))
                # Twice, for upstreams whose sums cancel less than those of random ones.
                right |= error <= allowed + 2 * BOUND_BY_RUNS * lost * (flow.size / pulled.shift)
                if not right.all() and bounds is None and not is_multiple and pulled.shift == 1.0:
                    vjps = (pulled, *expected.others)
                    absorbed = np.sum([_absorbed_rounding(vjp, input_index) for vjp in vjps], axis=0)
                    right |= error <= allowed + absorbed[chunk] * flow.size
        if not right.all():
            where = int(np.argmin(right))
            return Fault(chunk.start + where, float(gradient[chunk][where]), float(total[where]))
    return None


def _absorbed_rounding(pulled: OutputVjp, input_index: int) -> Float:
    """Return how much each element's gradient may lose to rounding, (n,), for upstreams of size 1.

    What is added to something far larger is lost each time, however the upstream is rounded: softmax's
    u - sum(u s) beside an s of 1. This stands in for `rounding_slack` where the rows aren't at hand.
    """
    op = pulled.op
    value = packed_magnitude(op.base_values[pulled.output], op.outputs[pulled.output])
    step = scales(packed_point(op, input_index)).step
    return np.asarray(ROUNDINGS_OF_A_RUN * pulled.precision.unit_roundoff * largest_finite(value) / step)


def _allowed_share(pulled: OutputVjp, *, is_multiple: bool) -> float:
    """Return how far a gradient may be off, relative to the terms that it adds up.

    A right gradient may be off by the table's tolerance, and so may each of its rows: an iterative solver
    is no more linear than it is accurate. A factor of a power of two, or a sign, changes no rounding. The
    exceptions are sums whose order changes from run to run, and a vjp that takes the upstream's logarithm
    (cumulative_logsumexp).
    """
    share = rule_for(pulled.precision, FLOAT64).rtol
    if is_multiple:
        share = min(share, ROUNDINGS_OF_A_RUN * pulled.precision.unit_roundoff)
    return max(share, pulled.case.tolerance.rtol or 0.0)


def find_change(pulled: OutputVjp, input_index: int, repeated: Float) -> Fault | None:
    """Find an element of the first upstream's gradient that changes when it is pulled again.

    Measured rounding isn't allowed for here: a gradient that draws random numbers would pass as rounded.
    """
    first, matrix = pulled.first[input_index], pulled.matrices.get(input_index)
    unit = pulled.precision.unit_roundoff
    if matrix is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            slack = rounding_slack(pulled.op, (pulled.output, input_index), pulled.base[None], matrix)[0]
    else:
        largest = largest_finite(first)
        slack = np.broadcast_to(
            min(ROUNDINGS_OF_A_RUN * unit, 0.25) * largest + pulled.flushed_size(input_index), first.shape
        )
    for chunk in chunks(first.size):
        allowed = slack[chunk] + pulled.case.nondeterminism
        right = agree(first[chunk], repeated[chunk], allowed) | ~np.isfinite(allowed)
        if not right.all():
            where = int(np.argmin(right))
            return Fault(chunk.start + where, float(repeated[chunk][where]), float(first[chunk][where]))
    return None


def find_difference(
    case: Case, op: Operation, other_op: Operation, pair: tuple[int, int], rtol: float
) -> tuple[int, float, float] | None:
    """Find an element in which two forms of an op give different gradients for one random upstream.

    Args:
        case: has the seed, and how far a repeated gradient may differ.
        op: one form.
        other_op: the other form, with inputs and outputs of the same shapes.
        pair: output and input index of a pair that is connected in both.
        rtol: the allowed difference beyond rounding, relative to the largest element.

    Returns:
        The element's packed index and its value in each form; `None` where they agree.
    """
    output, input_index = pair
    vjp, other_vjp = (OutputVjp(case, form, output, (input_index,), {}) for form in (op, other_op))
    first, second = vjp.first[input_index], other_vjp.first[input_index]
    is_half = vjp.precision.nudge is None
    largest = max(largest_finite(first), largest_finite(second))
    allowed = (
        case.nondeterminism
        + (rtol + (_CANCELLED if is_half else 0.0)) * largest
        + vjp.flushed_size(input_index)
    )
    for chunk in chunks(first.size):
        right = agree(first[chunk], second[chunk], allowed)
        if not right.all() and not is_half:
            with np.errstate(invalid="ignore"):
                difference = np.abs(first[chunk] - second[chunk])
                # Twice, as in `compare`.
                right |= difference <= allowed + 2 * BOUND_BY_RUNS * vjp.rounding[input_index][chunk]
        if not right.all():
            where = chunk.start + int(np.argmin(right))
            return where, float(first[where]), float(second[where])
    return None
