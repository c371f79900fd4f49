"""What a vjp must give for an upstream: from the rows of the Jacobian, where it is at hand, else from sums.

What two upstreams give must add up. Either way a multiple must give the multiple.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.checks.pulled import NUDGE, TELLING, Pulled
from gradcheck_cli.checking.ops.jacobian import rounding_slack
from gradcheck_cli.numerics import FLOAT64, rule_for
from gradcheck_cli.numerics.agreement import VJP_ROUNDINGS, agree, largest_finite
from gradcheck_cli.numerics.probes.probe_direction import chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradcheck_cli.checking.checks.upstreams import Flow
    from gradcheck_cli.checking.ops.jacobian import Jacobian
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.spec.case import Case

# The largest of eight differences, times this, bounds what may be between any two: 4 sigma of each of two
# terms, over the half sigma that the largest of eight has at least 999 times in 1,000, and as much again, for
# upstreams whose own sums cancel less than random ones'.
_MEASURED = 32.0
# The halves have no bits for that: relative to the gradient's largest element, what a vjp that cancels
# inside may lose unseen by its rows.
_CANCELLED = 0.5


@dataclass(frozen=True)
class Fault:
    """An element that isn't what it must be: its packed place, what it is, and what it must be."""

    where: int
    is_now: float
    must_be: float


@dataclass(frozen=True)
class Sum:
    """What a gradient must add up to.

    Attributes:
        terms: factors, and the gradients that they go with.
        bounds: the sum of the terms' magnitudes, where `terms` don't tell them, and what rounding may have
            lost of these: of rows. Asked for where the sum itself leaves a doubt.
        others: vjps of other outputs, which have terms in the sum.
    """

    terms: Sequence[tuple[float, Float]]
    bounds: Callable[[], tuple[Float, Float]] | None = None
    others: Sequence[Pulled] = ()


def find_fault(pulled: Pulled, number: int, flow: Flow, gradient: Float) -> tuple[Fault, str] | None:
    """Find an element of a pulled gradient that isn't what the upstream must give.

    Args:
        pulled: the output's vjp.
        number: which input.
        flow: the upstream.
        gradient: (n,) what it gives.

    Returns:
        The fault, and words for what it must be; `None` where there is none.
    """
    matrix, first = pulled.matrices.get(number), pulled.first[number]
    if matrix is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            from_rows = matrix.pulled(flow.upstream[None])[0]
        bounds = partial(_bounds, pulled, number, matrix, flow.upstream[None])
        fault = compare(pulled, number, gradient, Sum([(1.0, from_rows)], bounds), flow)
        if fault is not None:
            return fault, "the rows of its own Jacobian add up to"
    if flow.factor is not None:
        fault = compare(pulled, number, gradient, Sum([(flow.factor, first)]), flow)
        return None if fault is None else (fault, f"{flow.factor:.3g} times what that one gives is")
    if matrix is not None:
        return None
    size = pulled.upstreams.size
    share = 2.0 ** np.round(np.log2(flow.size / size)) if size else 1.0
    both = pulled.with_base(flow, share)[number]
    fault = compare(pulled, number, gradient, Sum([(1.0, both), (-share, first)]), flow)
    return None if fault is None else (fault, "what it adds to another one's is")


def _bounds(pulled: Pulled, number: int, matrix: Jacobian, upstream: Float) -> tuple[Float, Float]:
    """Return the sum of the rows' magnitudes, and what rounding loses of it."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = matrix.magnitudes.pulled(np.abs(upstream))[0]
        return size, rounding_slack(pulled.op, (pulled.output, number), upstream, matrix)[0]


def compare(pulled: Pulled, number: int, gradient: Float, expected: Sum, flow: Flow) -> Fault | None:
    """Compare a gradient with a sum, element by element.

    Args:
        pulled: the output's vjp.
        number: which input.
        gradient: (n,) what the upstream gives.
        expected: what it must add up to.
        flow: the upstream.

    Returns:
        An element that differs by more than the vjp may lose. Where the sum isn't finite there is none
        (that is judged in the pair), nor where the gradient overflows for an upstream beyond 1, or near
        the end of its dtype's range: that is no matter of linearity.
    """
    terms, precision = expected.terms, pulled.precision
    weight = float(np.sum(np.abs(flow.upstream))) if expected.bounds is not None else 0.0
    weight += sum(abs(factor) for factor, _ in terms)
    flushed = pulled.flushed(number) * (1.0 + weight)
    slack = flushed + (pulled.case.tolerance.atol or 0.0) * max(weight, 1.0)
    is_multiple = expected.bounds is None and len(terms) == 1
    largest = max(largest_finite(factor * each) for factor, each in terms)
    if is_multiple:
        # A gradient may take the upstream's logarithm, whose rounding grows with it.
        slack += abs(math.log(abs(terms[0][0]))) * precision.unit_roundoff * largest
    if flushed < TELLING * largest:
        pulled.told.add(number)
    is_measurable = precision.name in NUDGE
    if not is_measurable and not is_multiple:
        slack += _CANCELLED * largest
    ends = flow.size > 1 or largest > precision.largest / 2**10
    share = _share(pulled, is_multiple=is_multiple)
    bounds: tuple[Float, Float] | None = None
    for part in chunks(gradient.size):
        with np.errstate(invalid="ignore", over="ignore"):
            total = np.sum([factor * each[part] for factor, each in terms], axis=0)
            error = np.abs(gradient[part] - total)
            # What the terms amount to is no less than their sum.
            if (error <= share * np.abs(total)).all():
                continue
            if expected.bounds is not None and bounds is None:
                bounds = expected.bounds()
            size = sum(abs(factor) * np.abs(each[part]) for factor, each in terms)
            allowed = share * (size if bounds is None else bounds[0][part]) + slack
            allowed = allowed if bounds is None else allowed + bounds[1][part]
            right = (error <= allowed) | ~np.isfinite(total)
            right |= ~np.isfinite(gradient[part]) & ends
            if not right.all() and is_measurable:
                lost = sum(each.rounding[number][part] for each in (pulled, *expected.others))
                right |= error <= allowed + _MEASURED * lost * (flow.size / pulled.shift)
        if not right.all():
            where = int(np.argmin(right))
            return Fault(part.start + where, float(gradient[part][where]), float(total[where]))
    return None


def _share(pulled: Pulled, *, is_multiple: bool) -> float:
    """Return what a gradient may lose, relative to the terms that it adds up.

    A right gradient may be off by the table's tolerance, and so may each of its rows: one that is solved
    for step by step is no more linear than it is right. A power of two, or a sign, changes no rounding,
    but of sums that are added up in another order each time, and of a vjp that takes the upstream's
    logarithm (cumulative_logsumexp).
    """
    share = rule_for(pulled.precision, FLOAT64).rtol
    if is_multiple:
        share = min(share, VJP_ROUNDINGS * pulled.precision.unit_roundoff)
    return max(share, pulled.case.tolerance.rtol or 0.0)


def find_change(pulled: Pulled, number: int, again: Float) -> Fault | None:
    """Find an element in which the first upstream's gradient is another one when it is pulled again.

    Measured rounding has no say here: a gradient that draws would count as rounded.
    """
    first, matrix = pulled.first[number], pulled.matrices.get(number)
    unit = pulled.precision.unit_roundoff
    if matrix is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            slack = rounding_slack(pulled.op, (pulled.output, number), pulled.base[None], matrix)[0]
    else:
        largest = largest_finite(first)
        slack = np.broadcast_to(
            min(VJP_ROUNDINGS * unit, 0.25) * largest + pulled.flushed(number), first.shape
        )
    for part in chunks(first.size):
        allowed = slack[part] + pulled.case.nondeterminism
        right = agree(first[part], again[part], allowed) | ~np.isfinite(allowed)
        if not right.all():
            where = int(np.argmin(right))
            return Fault(part.start + where, float(again[part][where]), float(first[part][where]))
    return None


def find_difference(
    case: Case, op: Operation, other: Operation, pair: tuple[int, int], rtol: float
) -> tuple[int, float, float] | None:
    """Find an element in which two forms of an op give different gradients for one random upstream.

    Args:
        case: for its seed, and for how far a repeated gradient may differ.
        op: one form.
        other: the other, with inputs and outputs of the same shapes.
        pair: connected in both.
        rtol: what they may differ by beside rounding, of the largest element.

    Returns:
        The element's packed place and its value in each; `None` where they agree.
    """
    output, number = pair
    own, others = (Pulled(case, form, output, (number,), {}) for form in (op, other))
    first, second = own.first[number], others.first[number]
    is_half = own.precision.name not in NUDGE
    largest = max(largest_finite(first), largest_finite(second))
    allowed = case.nondeterminism + (rtol + (_CANCELLED if is_half else 0.0)) * largest + own.flushed(number)
    for part in chunks(first.size):
        right = agree(first[part], second[part], allowed)
        if not right.all() and not is_half:
            with np.errstate(invalid="ignore"):
                difference = np.abs(first[part] - second[part])
                right |= difference <= allowed + _MEASURED * own.rounding[number][part]
        if not right.all():
            where = part.start + int(np.argmin(right))
            return where, float(first[where]), float(second[where])
    return None
