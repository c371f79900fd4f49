"""Check that the vjp is linear in the upstream, for each output and for all outputs together.

Where the Jacobian is at hand, its rows say what a vjp must return. Elsewhere the gradients of two upstreams
must add up to the gradient of their sum. In both cases a multiple of an upstream must give that multiple of
the gradient. A zero upstream, or one without elements, must give exact zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.checks.check import (
    ABSORBING,
    MANY,
    SIZES,
    Flow,
    OutputVjp,
    UpstreamView,
    pull_empty,
    random_upstream,
    report,
)
from gradcheck_cli.checking.ops.jacobian import (
    Jacobian,
    PairKey,
    packed_point,
    pull_back,
    pull_back_together,
    rounding_slack,
)
from gradcheck_cli.checking.ops.operation import Float, Operation
from gradcheck_cli.checking.ops.space import function_between
from gradcheck_cli.checking.pairs.pair import label_of
from gradcheck_cli.numerics import FLOAT64, rule_for
from gradcheck_cli.numerics.precision import ROUNDINGS_OF_A_RUN, agree, largest_finite, place_of_largest
from gradcheck_cli.numerics.problem import scales
from gradcheck_cli.numerics.sampling import chunks
from gradcheck_cli.numerics.shared_limits import (
    BOUND_PER_SIGMA,
    DIGITS,
    KNOWN,
    OWN_ORDER,
    PATTERN,
)
from gradcheck_cli.results import CheckResult, Status
from gradcheck_cli.spec.case import Case

# The formats that upstreams are often cast to. Beside each: by what share of itself each element of an
# upstream with all bits changes at least in such a cast; see `Upstreams.narrowed`.
_FORMATS = (("8 bits, as bfloat16 has", 3 * 2.0**-13), ("11 bits, as float16 and TF32 have", 2.0**-13))
# In float16 there are three bits to lose, and a product of several factors may stay the same by chance. What
# casts its whole upstream keeps every element, each time.
_FORMATS_IN_HALF = (("8 bits, as bfloat16 has", 1.5 * 2.0**-10),)
_DRAWS_IN_HALF = 16
# What is left of terms that cancel adds up by chance, about every second time.
_SUMS = 16
# In a sum of many terms that don't cancel, rounding takes no more than this share. What adds 60 terms in
# pairs, or in eight lanes, loses three per cent of the upstream that is tried; what adds one by one in
# bfloat16, a fifth.
_MOST_ROUNDED = 0.125
_SHARE = 4.0
_ABSORBED = 0.75  # of half a spacing: surely lost, though terms are rounded, too


@dataclass(frozen=True)
class Deviation:
    """A wrong element: its packed index, its value, and the value that it must have."""

    element: int
    actual: float
    expected: float


@dataclass(frozen=True)
class RowsBounds:
    """What bounds the error of a sum over a Jacobian's rows; each is found where the sum leaves a doubt."""

    pulled: OutputVjp
    input_index: int
    matrix: Jacobian
    upstream: Float
    total: Float  # the sum

    @cached_property
    def size(self) -> Float:
        """The sum of the rows' magnitudes."""
        return np.asarray(self.matrix.magnitudes.pull(np.abs(self.upstream))[0])

    @cached_property
    def rounding(self) -> tuple[Float, npt.NDArray[np.bool_]]:
        """How much rounding may change the sum, and where it cancels, so that measured rounding counts."""
        pulled, matrix = self.pulled, self.matrix
        rounding = rounding_slack(pulled.op, (pulled.output, self.input_index), self.upstream, matrix)[0]
        # In half precision, a sum of terms that don't cancel. (Of 1,000 ones, bfloat16 stops at 256.)
        adds_up = (self.total != 0) & (np.abs(self.total) >= (1 - KNOWN) * self.size)
        # One term, or a few, may themselves be remainders.
        terms = matrix.magnitudes.pull(np.ones(self.upstream.shape))[0]
        adds_up &= (terms >= MANY * largest_finite(matrix.values)) & pulled.precision.is_half
        return np.where(adds_up, np.minimum(rounding, _MOST_ROUNDED * self.size), rounding), ~adds_up


@dataclass(frozen=True)
class Sum:
    """The sum that a gradient must equal."""

    terms: Sequence[tuple[float, Float]]  # factors and the gradients that they multiply
    bounds: RowsBounds | None = None  # for a sum over a Jacobian's rows
    others: Sequence[OutputVjp] = ()  # vjps of other outputs with terms in the sum
    weight: float = 1.0  # the size of all upstreams of the gradients that are compared, over the flow's


def find_fault(
    pulled: OutputVjp, input_index: int, flow: Flow, gradient: Float
) -> tuple[Deviation, str] | None:
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
        from_rows = matrix.pull(flow.upstream[None])[0]
        bounds = RowsBounds(pulled, input_index, matrix, flow.upstream[None], from_rows)
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
    share = _SHARE * 2.0 ** np.round(np.log2(flow.size / size)) if size else 1.0
    combined = pulled.pull_with_base(flow, share)[input_index]
    fault = compare(
        pulled, input_index, gradient, Sum([(1.0, combined), (-share, first)], weight=2 + 2 * _SHARE), flow
    )
    return None if fault is None else (fault, "what it adds to another upstream's is")


def find_narrowed(pulled: OutputVjp) -> str:
    """Say which element shows that the gradient rounds its upstream to a narrower format; empty if none does.

    A gradient depends on each bit of its upstream. If an upstream and what a format keeps of it give the
    same, bit by bit, it is rounded. No tolerance is needed, and measured rounding doesn't explain it: such a
    gradient rounds everything that much. What is left of terms that cancel stays the same, too, as in
    `u - u * cos(x)`; but that has too few digits to be linear, for upstreams that no format rounds.
    """
    if not pulled.precision.is_narrowed:
        return ""
    is_half = pulled.precision.is_half
    formats = _FORMATS_IN_HALF if is_half else _FORMATS
    all_same: dict[tuple[int, str, float], npt.NDArray[np.bool_]] = {}
    # A sum of many terms stays the same by chance about once in 2^11.
    for draw in range(_DRAWS_IN_HALF if is_half else PATTERN):
        whole, *of_formats = pulled.pull_narrowed(draw)
        for (words, change), kept in zip(formats, of_formats, strict=True):
            for input_index in set(pulled.input_indices) - pulled.lossy:
                key, gradient = (input_index, words, change), whole[input_index]
                telling = _telling_elements(pulled, input_index, gradient)
                same = (gradient == kept[input_index]) & telling
                before = all_same.get(key, same)
                if is_half:  # each draw tells other elements, and all of them count
                    before = np.full(same.shape, before.any() and bool((same == telling).all()))
                all_same[key] = same & before
        if not any(same.any() for same in all_same.values()):
            return ""
    for (input_index, words, change), same in all_same.items():
        gradient = whole[input_index]
        size = np.where(same, np.abs(gradient), 0.0)
        if not is_half and same.any():
            size[_lost_of_sums(pulled, input_index) > KNOWN * change * size] = 0.0
        if size.any():
            where = np.argmax(size)
            return (
                f"{pulled.label(input_index)} rounds its upstream to {words}: element {where} is "
                f"{gradient[where]:.6e} for a random upstream, and the same, bit by bit, for that upstream "
                "rounded so; use the upstream in the output's own dtype."
            )
    return ""


def _lost_of_sums(pulled: OutputVjp, input_index: int) -> Float:
    """Return how far gradients of upstreams of seven bits, whose sums have eight, don't add up, (n,)."""
    lost = np.zeros(pulled.first[input_index].shape)
    for draw in range(_SUMS):
        drawn = [random_upstream(pulled.op, pulled.output, pulled.case.seed, 2 * draw + k) for k in (0, 1)]
        halves = pulled.shift * np.round(64 * np.stack(drawn)) / 128
        upstreams = np.concatenate([halves, halves.sum(axis=0, keepdims=True)])
        gradients = pull_back(pulled.op, pulled.output, upstreams)[input_index]
        if gradients is not None:
            lost = np.fmax(lost, np.abs(gradients[0] + gradients[1] - gradients[2]))
    return lost


def find_absorbed(pulled: OutputVjp) -> str:
    """Say which element of a probed pair, in half precision, is a sum that loses most of its terms.

    Where the Jacobian is at hand, its rows say what the terms are. Here differences of one input element in
    float64 say it. The upstream makes them positive and of one size, and the first one absorb the others,
    unless they are added in a wider dtype or in pairs. What they must add up to is the gradient in float64.
    """
    output, is_half = pulled.output, pulled.precision.is_half
    if pulled.formula is None or not is_half or pulled.shift != 1.0 or pulled.base.size < MANY:
        return ""
    formula = pulled.formula.op
    for input_index in set(pulled.input_indices) - pulled.matrices.keys():
        element = np.argmax(np.nan_to_num(np.abs(pulled.first[input_index]), posinf=0.0))
        point = packed_point(formula, input_index)
        ends = np.stack([point, point])
        step = FLOAT64.first_step * scales(point).step[element]
        ends[:, element] += (step, -step)
        above, below = function_between(formula, [input_index], [output])(ends)
        slopes = np.nan_to_num((above - below) / (2 * step), posinf=0.0, neginf=0.0)
        share = np.abs(slopes) / max(largest_finite(slopes), np.finfo(float).tiny)
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
        actual = pulled.pull(upstream)[input_index][element]
        adds_up = abs(expected) >= (1 - KNOWN) * float(np.abs(upstream) @ np.abs(slopes))
        if adds_up and abs(actual - expected) > _MOST_ROUNDED * abs(expected):
            return (
                f"{pulled.label(input_index)} isn't linear in the upstream: for {ABSORBING} element "
                f"{element} is {actual:.6e}, but in float64 it is {expected:.6e}; add its terms in a wider "
                "dtype."
            )
    return ""


def _telling_elements(pulled: OutputVjp, input_index: int, gradient: Float) -> npt.NDArray[np.bool_]:
    """Return where a change of the upstream must show in its gradient, (n,): not far below the largest.

    The formula shows that in half precision the large elements are no remainders of terms that cancel.
    """
    size = np.where(np.isfinite(gradient), np.abs(gradient), 0.0)
    largest = np.max(size, initial=0.0)
    if largest <= pulled.flushed_size(input_index) / KNOWN:
        return np.zeros(gradient.shape, bool)
    return np.asarray(size >= (0.5 if pulled.precision.is_half else OWN_ORDER) * largest)


def compare(
    pulled: OutputVjp, input_index: int, gradient: Float, expected: Sum, flow: Flow
) -> Deviation | None:
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
    terms, bounds, precision = expected.terms, expected.bounds, pulled.precision
    weight = float(np.abs(flow.upstream).sum()) if bounds is not None else 0.0
    weight += sum(abs(factor) for factor, _ in terms)
    flushed = pulled.flushed_size(input_index) * (1.0 + weight)
    slack = flushed + (pulled.case.judging.tolerance.atol or 0.0) * max(weight, 1.0)
    is_multiple = bounds is None and len(terms) == 1
    largest = max(abs(factor) * largest_finite(term) for factor, term in terms)
    if is_multiple:
        # A gradient may take the upstream's logarithm, whose rounding grows with it.
        slack += abs(math.log(abs(terms[0][0]))) * precision.unit_roundoff * largest
    if flushed < KNOWN * largest:
        pulled.resolved.add(input_index)
    if precision.is_half and not is_multiple and bounds is None:
        # float16 and bfloat16 have few bits: what is measured may be less than what a vjp loses that cancels.
        slack += KNOWN * largest
    rtol = _allowed_share(pulled, is_multiple=is_multiple)
    for chunk in chunks(gradient.size):
        total = np.asarray(sum(factor * term[chunk] for factor, term in terms))
        error = np.abs(gradient[chunk] - total)
        # The terms' magnitudes add up to no less than the sum.
        if (error <= rtol * np.abs(total)).all():
            continue
        size = sum(abs(factor) * np.abs(term[chunk]) for factor, term in terms)
        allowed = rtol * (size if bounds is None else bounds.size[chunk]) + slack
        right = (error <= allowed) | ~np.isfinite(total)
        if flow.size > 1 or largest > precision.largest / 2**10:
            right |= ~np.isfinite(gradient[chunk])
        # Twice, for upstreams whose sums cancel less than those of random ones.
        share = np.asarray(2 * BOUND_PER_SIGMA * (expected.weight * flow.size / pulled.shift))
        if not right.all() and bounds is not None:
            rounding, cancels = bounds.rounding
            allowed, share = allowed + rounding[chunk], share * cancels[chunk]
            right |= error <= allowed
        if not right.all():
            measured = _measure_rounding([pulled, *expected.others], input_index)
            mark_explained(right, error, allowed, (share * lost[chunk] for lost in measured))
        if not right.all():
            where = int(np.argmin(right))
            return Deviation(chunk.start + where, float(gradient[chunk][where]), float(total[where]))
    return None


def _measure_rounding(vjps: Sequence[OutputVjp], input_index: int) -> Iterator[Float]:
    """Yield what the gradients of vjps lose to rounding together, as far as it is measured; it only grows."""
    before: Float | float = 0.0
    for vjp in vjps:
        for lost in vjp.measure_rounding(input_index):
            yield before + lost
        before = before + lost


def mark_explained(
    right: npt.NDArray[np.bool_], error: Float, allowed: Float | float, roundings: Iterable[Float]
) -> None:
    """Mark the errors that rounding explains, in place; no more is measured once all are."""
    for lost in roundings:
        right |= error <= allowed + lost
        if right.all():
            return


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
    return max(share, pulled.case.judging.tolerance.rtol or 0.0)


def find_change(pulled: OutputVjp, input_index: int, repeated: Float) -> Deviation | None:
    """Find an element of the first upstream's gradient that changes when it is pulled again.

    Measured rounding isn't allowed for here: a gradient that draws random numbers would pass as rounded.
    """
    first, matrix = pulled.first[input_index], pulled.matrices.get(input_index)
    if np.array_equal(first, repeated, equal_nan=True):  # what rounding may change takes longer to find
        return None
    if matrix is not None:
        slack = rounding_slack(pulled.op, (pulled.output, input_index), pulled.base[None], matrix)[0]
    else:
        slack = np.broadcast_to(
            min(ROUNDINGS_OF_A_RUN * pulled.precision.unit_roundoff, 0.25) * largest_finite(first)
            + pulled.flushed_size(input_index),
            first.shape,
        )
    for chunk in chunks(first.size):
        allowed = slack[chunk] + pulled.case.judging.nondeterminism
        right = agree(first[chunk], repeated[chunk], allowed) | ~np.isfinite(allowed)
        if not right.all():
            where = int(np.argmin(right))
            return Deviation(chunk.start + where, float(repeated[chunk][where]), float(first[chunk][where]))
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
    allowed = rtol * max(largest_finite(first), largest_finite(second))
    allowed += case.judging.nondeterminism + vjp.flushed_size(input_index)
    for chunk in chunks(first.size):
        right = agree(first[chunk], second[chunk], allowed)
        if not right.all() and not vjp.precision.is_half:
            difference = np.abs(first[chunk] - second[chunk])
            # Twice, as in `compare`.
            runs = (2 * BOUND_PER_SIGMA * lost[chunk] for lost in vjp.measure_rounding(input_index))
            mark_explained(right, difference, allowed, runs)
        if not right.all():
            where = chunk.start + int(np.argmin(right))
            return where, float(first[where]), float(second[where])
    return None


# The checks.

_QUESTION = "is the upstream clipped, squared, replaced or ignored?"
_IF_DIGITS = (
    "either the upstream isn't used linearly, or the gradient loses digits for upstreams of this size (as an "
    "adjoint by scaling and squaring does); divide the upstream by its size, and multiply the gradient by it."
)
_IF_SMALL = (
    "either an upstream this small is dropped, or the gradient comes from an iteration that stops at an "
    "absolute error, whatever the upstream's size; make that error relative to the upstream."
)
# No loss sends a larger upstream, even with a loss scale.
_LOSS_SCALE = 2.0**20
# The excused error, as a share of the first upstream, times this is the size of one more upstream. It shows
# whether the gradient drops upstreams that are larger than a solver's error may be.
_ABOVE_STOP = 2.0


def check_linearity(view: UpstreamView) -> list[CheckResult]:
    """Check that sums and multiples of upstreams give sums and multiples of gradients."""
    return [_check_linearity(view)] if view.pulled else []


def _check_linearity(view: UpstreamView) -> CheckResult:
    lossy = ""
    for pulled in view.pulled:
        wrong, excused = _find_wrong(pulled, " (in float64)" if view.is_formula else "")
        if wrong:
            return report("linearity", wrong)
        lossy = lossy or excused
    joint = _check_joint(view.op, [pulled for pulled in view.pulled if pulled.shift == 1.0], lossy)
    if joint.status is not Status.PASSED:
        return joint
    if lossy:
        return CheckResult("linearity", Status.INCONCLUSIVE, lossy)
    if not view.is_last:
        return joint
    undecided = [
        pulled.label(input_index)
        for pulled in view.pulled
        for input_index in pulled.input_indices
        if input_index not in pulled.resolved
        and (pulled.first[input_index][np.isfinite(pulled.first[input_index])] != 0).any()
    ]
    if not undecided:
        return joint
    return CheckResult(
        "linearity",
        Status.INCONCLUSIVE,
        f"{', '.join(undecided)}: so close to the smallest number of the dtype that underflow hides how "
        "the gradient depends on its upstream; scale the inputs, or check in float64.",
    )


def _find_wrong(pulled: OutputVjp, precision: str) -> tuple[str, str]:
    """Return what is wrong with one output's vjp, and what was excused until then; empty where nothing is."""
    excused: list[str] = []
    for flow, gradients in _pull_flows(pulled, excused):
        for input_index in pulled.input_indices:
            match = find_fault(pulled, input_index, flow, gradients[input_index])
            if match is not None:
                fault, source = match
                label = pulled.label(input_index)
                detail = (
                    f"{precision}: for {flow.words} element {fault.element} is {fault.actual:.6e}, but "
                    f"{source} {fault.expected:.6e}"
                )
                remedy = _excuse(pulled, input_index, flow, fault, gradients[input_index])
                if not remedy:
                    return f"{label} isn't linear in the upstream{detail}; {_QUESTION}", "".join(excused[:1])
                excused.append(f"{label}{detail}; {remedy}")
    return find_narrowed(pulled) or find_absorbed(pulled), "".join(excused[:1])


def _pull_flows(pulled: OutputVjp, excused: Sequence[str]) -> Iterator[tuple[Flow, dict[int, Float]]]:
    """Yield the upstreams and their gradients, the last one just above what a solver's error may be.

    Args:
        pulled: the output's vjp.
        excused: what is excused by then, read after each upstream.
    """
    yield from zip(pulled.upstreams.flows(), pulled.gradients_for("linearity"), strict=True)
    if any(text.endswith(_IF_SMALL) for text in excused):
        factor = 2.0 ** math.floor(math.log2(_ABOVE_STOP * pulled.own_share))
        flow = Flow(
            f"a random upstream of size {factor * pulled.upstreams.size:.1e}", factor * pulled.base, factor
        )
        yield flow, pulled.pull(flow.upstream)


def _excuse(pulled: OutputVjp, input_index: int, flow: Flow, fault: Deviation, gradient: Float) -> str:
    """Return what else may explain a fault, and the remedy; empty if nothing does.

    Digits may be lost for large upstreams. Or an iterative solver stops at an absolute error: it is small
    beside an ordinary upstream's gradient, and large beside that of a small upstream.
    """
    if flow.factor is not None and _loses_digits(pulled, input_index, flow.upstream, flow.factor, fault):
        return _IF_DIGITS
    error = abs(fault.actual - fault.expected)
    is_small = flow.size <= pulled.upstreams.size / 2
    if is_small and flow.factor is not None:  # the largest error, not the first
        error = max(error, largest_finite(gradient - flow.factor * pulled.first[input_index]))
    size = largest_finite(pulled.first[input_index]) if is_small else abs(fault.expected)
    if (is_small or flow.factor is not None) and error <= pulled.own_share * size:
        return _IF_SMALL if is_small else _IF_DIGITS
    return ""


def _loses_digits(
    pulled: OutputVjp, input_index: int, upstream: Float, factor: float, fault: Deviation
) -> bool:
    """Whether a multiple of the first upstream loses digits: in float64 few, and far above any loss scale.

    Below float64 it may lose all of them, and small upstreams are flushed.
    """
    actual, expected = fault.actual, fault.expected
    if pulled.formula is not None and abs(factor) != 1:
        pulled_back = pull_back(pulled.formula.op, pulled.output, np.stack([upstream, pulled.base]))
        if (gradients := pulled_back[input_index]) is not None:
            actual, expected = gradients[:, fault.element] * (1.0, factor)
    elif factor <= _LOSS_SCALE:
        return False
    return bool(abs(actual - expected) <= DIGITS * abs(expected))


def _check_joint(op: Operation, all_pulled: list[OutputVjp], lossy: str) -> CheckResult:
    """Check that upstreams of several outputs together give the sum of their separate gradients.

    A gradient that mixes them (u1 * u2) is right for each alone, and wrong as soon as a loss uses both. Once,
    every second output's has the other sign: what mixes them may depend on their product's.

    Args:
        lossy: what was excused of single outputs; then small upstreams show nothing more.
    """
    if len(all_pulled) > 1:
        factors = np.outer(SIZES[1:-1], np.ones(len(all_pulled)))  # that every dtype holds
        factors[1, 1::2] *= -1
        upstreams = {
            pulled.output: np.outer(of_output, pulled.base)
            for pulled, of_output in zip(all_pulled, factors.T, strict=True)
        }
        for input_index, joint in pull_back_together(op, upstreams).items():
            # An input is left out if all its pairs are expected to be wrong.
            if joint is None or not any(input_index in pulled.input_indices for pulled in all_pulled):
                continue
            for row, gradient in zip(factors, joint, strict=True):
                if lossy and row[0] < 1:
                    continue
                message = _find_joint_fault(op, all_pulled, input_index, gradient, row)
                if message:
                    return report("linearity", message)
    return report("linearity", "")


def _find_joint_fault(
    op: Operation, all_pulled: list[OutputVjp], input_index: int, gradient: Float, factors: Float
) -> str:
    terms = [
        (factor, pulled.first[input_index])
        for factor, pulled in zip(factors.tolist(), all_pulled, strict=True)
        if input_index in pulled.first
    ]
    if not terms:
        return ""
    # The coarsest of the outputs' precisions decides how much rounding is allowed.
    coarsest = max(
        (pulled for pulled in all_pulled if input_index in pulled.first),
        key=lambda pulled: pulled.precision.unit_roundoff,
    )
    flow = Flow("", factors[0] * np.concatenate([pulled.base for pulled in all_pulled]))
    other_vjps = [pulled for pulled in all_pulled if input_index in pulled.first and pulled is not coarsest]
    fault = compare(coarsest, input_index, gradient, Sum(terms, others=other_vjps), flow)
    if fault is None:
        return ""
    return (
        f"the gradient for {op.inputs[input_index].name} isn't the sum of what each output's upstream gives "
        f"alone: element {fault.element} is {fault.actual:.6e} with all of them, their sum is "
        f"{fault.expected:.6e}; does the gradient mix the outputs' upstreams?"
    )


def check_zero_upstream(view: UpstreamView) -> list[CheckResult]:
    """Require exact zeros for a zero upstream, and for one without elements."""
    if view.is_formula:
        return []
    return [_check_empty(view.op, view.empty) if view.empty else _check_zero(view.pulled)]


def _check_zero(all_pulled: list[OutputVjp]) -> CheckResult:
    """Require exact zeros wherever the Jacobian is finite."""
    for pulled in all_pulled:
        gradients = next(pulled.gradients_for("zero_upstream"))
        for input_index in pulled.input_indices:
            matrix = pulled.matrices.get(input_index)
            is_finite = np.isfinite(pulled.first[input_index]) if matrix is None else matrix.finite_columns()
            wrong = (gradients[input_index] != 0) & is_finite
            if wrong.any():
                where = int(np.argmax(wrong))
                return report(
                    "zero_upstream",
                    f"{pulled.label(input_index)} isn't zero for a zero upstream: element {where} is "
                    f"{gradients[input_index][where]:.6e}.",
                )
    return report("zero_upstream", "")


def _check_empty(op: Operation, pairs: Sequence[PairKey]) -> CheckResult:
    """Require zeros for an output without elements: its gradient is a sum without terms.

    A kernel with nothing to do may never write its result, which then holds whatever was in memory. So each
    of several tries is looked at.
    """
    for output in sorted({output for output, _ in pairs}):
        gradients: dict[int, Float] = pull_empty(op, output)
        for of_output, input_index in pairs:
            wrong = (
                gradients[input_index] != 0
                if of_output == output and input_index in gradients
                else np.zeros((1, 1), bool)
            )
            if wrong.any():
                row, where = place_of_largest(wrong)
                return report(
                    "zero_upstream",
                    f"{label_of(op, (output, input_index))} isn't zero, though "
                    f"{op.outputs[output].name} has no elements: element {where} is "
                    f"{gradients[input_index][row, where]:.6e}; is its memory left unwritten?",
                )
    return report("zero_upstream", "")
