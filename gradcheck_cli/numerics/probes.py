"""Random probes: does u'Jv, from the vjp, equal u'(f(x+v) - f(x-v)), for random u and v?

One probe sees every element of a Jacobian at once for a few evaluations, so a Jacobian of 10^14 elements can
be checked without ever being written down. A probe also says what it can't see: from elements of sampled rows
it estimates how probable it is that an error of a given size in one element stays below its bound.

The central difference is taken at v and at 2v. The difference between the two bounds the truncation error and
shows the rows that a kink spoils. These are left out of u, and so of the vjp too. Where no kinks are known,
the two are extrapolated (Richardson), with one more difference at 4v, so that a longer step can be used. A
row is weighted by 1 / (how far it moves); otherwise the largest rows would drown the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics import sampling
from gradcheck_cli.numerics.differences import Mask
from gradcheck_cli.numerics.precision import FLOAT64, ROUNDINGS_OF_A_RUN, Float, Precision, ToleranceRule
from gradcheck_cli.numerics.problem import draw_signed
from gradcheck_cli.numerics.sampling import chunks
from gradcheck_cli.numerics.shared_limits import (
    BOUND_PER_SIGMA,
    DIGITS,
    FEW,
    KNOWN,
    MARGIN,
    OF_A_VALUE,
    OF_MANY_OPERATIONS,
)

# Which of `Precision.probe_steps`.
SHORT, MIDDLE, LONG, SMOOTH = range(4)
# So short that only an element on a kink itself changes sides: anything nearer counts as on it.
NEAREST = 2.0**-40


@dataclass(frozen=True)
class Span:
    """One input's part of a point, and how it moves."""

    size: int  # how many elements
    typical: float  # the input's typical size; it scales the step where an element is smaller
    precision: Precision  # the precision that its elements are rounded to
    low: float = -np.inf  # lower bound; may be infinite
    high: float = np.inf  # upper bound, likewise

    @property
    def is_bounded(self) -> bool:
        """Whether it has a bound."""
        return bool(np.isfinite(self.low) or np.isfinite(self.high))


@dataclass
class Target:
    """Pairs as a function of one packed vector, with its vjp; one point, one upstream at a time."""

    evaluate: Callable[[Float], Float]  # (n,) -> (m,), NaN where undefined
    pull: Callable[[Float], Float]  # (m,) -> (n,)
    point: Float  # (n,)
    base: Float  # (m,) f(x), for scales and sides; its last bits may differ from those of `evaluate`
    spans: Sequence[Span]  # the inputs that make up the point, in order
    unit: float  # unit roundoff of the values
    working: Precision  # the coarsest precision in play
    rule: ToleranceRule  # the tolerance of each element
    # a relative error that all elements share, where a formula's constants were seen to be rounded to its
    # declared dtype
    shared: float = 0.0
    most_shared: float = 0.0  # the most that it may be
    is_smooth: bool = False  # no kinks are known, so differences are extrapolated
    evaluations: int = 0

    @property
    def rtol(self) -> float:
        """The relative error that an element may have."""
        return self.rule.rtol

    @property
    def atol(self) -> float:
        """The absolute error that it may have in addition."""
        return self.rule.atol or 0.0

    @property
    def is_lenient(self) -> bool:
        """Whether a user set these: then an error that they allow is no alarm."""
        return self.rule.atol is not None or self.rule.is_rtol_fixed

    @cached_property
    def starts(self) -> list[int]:
        """Where each span starts, and where the last one ends."""
        return [0, *np.cumsum([span.size for span in self.spans]).tolist()]

    def at(self, point: Float) -> Float:
        """Evaluate at one point."""
        self.evaluations += 1
        return np.asarray(self.evaluate(point), dtype=np.float64)

    def row(self, index: int) -> Float:
        """Return a row of the analytic Jacobian, (n,)."""
        upstream = np.zeros(self.base.size)
        upstream[index] = 1.0
        return self.pull(upstream)

    def split_by_span(self, elements: slice) -> Iterator[tuple[Span, slice]]:
        """Split part of the point where inputs meet, and where it is longer than a chunk."""
        for span, start in zip(self.spans, self.starts, strict=False):
            first, last = max(start, elements.start), min(start + span.size, elements.stop)
            for chunk in chunks(last - first):
                yield span, slice(first + chunk.start, first + chunk.stop)


@dataclass(frozen=True)
class Direction:
    """A random direction: the steps of each input, (n,), up to `share` of its scale; factors scale them."""

    target: Target
    steps: Float
    share: float
    is_rest: bool = False  # whether it moves only elements that are small beside others of their inputs

    def side(self, factor: float, elements: slice | None = None) -> Float:
        """Return x + factor v, rounded, inside the bounds; of some elements only, if asked for."""
        elements = slice(0, self.steps.size) if elements is None else elements
        there = np.empty(elements.stop - elements.start)
        for span, chunk in self.target.split_by_span(elements):
            own = there[chunk.start - elements.start : chunk.stop - elements.start]
            np.multiply(self.steps[chunk], factor, out=own)
            own += self.target.point[chunk]
            if span.is_bounded:
                np.clip(own, span.low, span.high, out=own)
            if span.precision is not FLOAT64:  # which rounds nothing, and passes over large arrays take long
                own[:] = span.precision.round(own)
        return there

    def difference(self, factor: float) -> Float:
        """Return f(x + factor v) - f(x - factor v), (m,); extrapolated where no kinks are known."""
        change = self.plain_difference(factor)
        return extrapolate(change, self.plain_difference(2 * factor)) if self.target.is_smooth else change

    def plain_difference(self, factor: float) -> Float:
        """Return f(x + factor v) - f(x - factor v), (m,), without extrapolation."""
        change = np.array(self.target.at(self.side(factor)))
        change -= self.target.at(self.side(-factor))
        return change

    def predict_change(self, gradient: Float, factor: float) -> tuple[float, float]:
        """Return the sum of gradient times displacement, and the root of the sum of squares of its terms."""
        total = squares = 0.0
        for chunk in chunks(self.steps.size):
            terms = gradient[chunk] * (self.side(factor, chunk) - self.side(-factor, chunk))
            # The gradient of an element that doesn't move doesn't matter.
            terms = np.where(self.steps[chunk] != 0, terms, 0.0)
            total += float(terms.sum())
            squares += float(np.square(terms).sum())
        return total, float(np.sqrt(squares))

    def measure_rest(self, gradient: Float) -> float:
        """Return the root of the sum of squares of the terms, if each were typical of its input."""
        squares = 0.0
        for span, start in zip(self.target.spans, self.target.starts, strict=False):
            own = slice(start, start + span.size)
            # Not `norm`, which calls BLAS, whose threads take longer to start than the sum takes.
            moved, typical = (np.einsum("i,i", part, part) for part in (self.steps[own], gradient[own]))
            squares += float(moved * typical) / max(span.size, 1)
        return 2 * float(np.sqrt(squares))

    def restrict_to(self, stretches: Sequence[slice]) -> Direction:
        """Return the same direction for several stretches of inputs; the others stay where they are."""
        steps = np.zeros(self.steps.size)
        for stretch in stretches:
            steps[stretch] = self.steps[stretch]
        return Direction(self.target, steps, self.share, self.is_rest)


def extrapolate(change: Float, far_change: Float) -> Float:
    """Return a central difference without its third-order part, by the one at twice the step (Richardson)."""
    return np.asarray((8 * change - far_change) / 6)


def draw_direction(
    target: Target, generator: np.random.Generator, reach: int = MIDDLE, fraction: float = 1.0
) -> Direction:
    """Draw a direction: each input moves by half a step to one step, up or down, inside its bounds.

    Args:
        target: the point and its bounds.
        reach: which of `Precision.probe_steps`.
        fraction: the part of that step.
    """
    share = target.working.probe_steps[reach] * fraction
    steps = draw_signed(generator, target.point.size)
    for span, chunk in target.split_by_span(slice(0, steps.size)):
        x = target.point[chunk]
        steps[chunk] *= share * np.maximum(np.abs(x), span.typical)
        if span.is_bounded:
            # Up to twice the step is taken to both sides.
            room = np.maximum(np.minimum(x - span.low, span.high - x), 0.0) / 2
            steps[chunk] = np.copysign(np.minimum(np.abs(steps[chunk]), room), steps[chunk])
    return Direction(target, steps, share)


# Rows are left out whose two differences disagree by more than a thousandth: those of a smooth row disagree
# by h^2 times its curvature, those of an unusable row by any share. So are rows whose two sides differ by
# more than a tenth, except those in which that is at least three times as much at twice the step: a curve's
# grows by four, a kink's by two.
_CURVES = 3.0
# The median of about this many rows is what is typical: more would take time only.
_TYPICAL_ROWS = 2**12
# Rounding of values is independent from row to row: six standard deviations of its sum.
_SIGMAS = 6.0
# An alarm is checked again at this many times the step.
_FARTHER = 4.0
# In how many rounds rows are sampled: a few rows first, to see how many elements each has, then as many as
# fit.
_SAMPLED_ROUNDS = 2
# ... and a few further rounds while fewer elements of an input were seen: too few to say anything about it.
_ENOUGH_SEEN = 100


@dataclass(frozen=True)
class Differenced:
    """How rows move along a direction."""

    direction: Direction
    change: Float  # (m,) f(x+v) - f(x-v), 0 in unusable rows
    disagreement: Float  # (m,) that minus half of f(x+2v) - f(x-2v)
    weight: (
        Float  # (m,) 1 / (how far a row moves), or an upstream made from that; 0 where the row is unusable
    )
    is_noise: bool  # whether nothing moves by more than what rounding of the largest value explains

    @property
    def is_unusable(self) -> npt.NDArray[np.bool_]:
        """Rows in which this direction shows nothing, (m,)."""
        return np.asarray(self.weight == 0)


@dataclass(frozen=True)
class Probe:
    """One comparison, in units of the weighed rows' movement."""

    error: float  # |u'Jv of the vjp - u'Jv of the differences|
    bound: float  # the error that rounding and truncation may cause
    rounding: float  # the part of the bound that comes from rounding, of values and of constants
    tolerated: float  # the error that errors within every element's tolerance may cause
    size: float  # the root of the sum of squares of u_j (Jv)_j: errors are relative to this
    upstream: Float  # u
    gradient: Float  # its vjp
    level: float  # the error above which there is an alarm: `bound` or `tolerated`

    @property
    def curvature(self) -> float:
        """The bound over its rounding part: where curvature dominates, shorter steps see more."""
        if self.rounding > 0:
            return self.bound / self.rounding
        return np.inf if self.bound > 0 else 1.0

    @property
    def is_alarm(self) -> bool:
        """Whether the error is larger than the numbers explain; NaN counts as such."""
        return not self.error <= self.level


def draw_upstream(differenced: Differenced, generator: np.random.Generator, rows: slice) -> Float:
    """Make a random upstream from some rows' weights; if from all rows, in place; unusable rows stay 0."""
    weight = differenced.weight
    if rows.stop - rows.start < weight.size:
        upstream = np.zeros(weight.size)
        upstream[rows] = draw_signed(generator, int(rows.stop - rows.start))
        upstream[rows] *= weight[rows]
        return upstream
    for chunk in chunks(weight.size):
        weight[chunk] *= draw_signed(generator, chunk.stop - chunk.start)
    return weight


def take_difference(direction: Direction) -> Differenced:
    """Difference along a direction, and find the rows that can't be trusted.

    Arrays may be as large as memory allows, so each is used for several values in turn.
    """
    target = direction.target
    base, unit = target.base, target.unit
    change, bend = _take_change_and_bend(direction, 1.0)
    far_change, far_bend = _take_change_and_bend(direction, 2.0)
    if target.is_smooth:
        farther = direction.plain_difference(4.0)
        for chunk in chunks(base.size):
            change[chunk] = extrapolate(change[chunk], far_change[chunk])
            far_change[chunk] = extrapolate(far_change[chunk], farther[chunk])
        del farther
    is_noise = _largest(far_change) <= OF_MANY_OPERATIONS * unit * _largest(base)
    sizes: list[Float] = []
    ratios: list[Float] = []
    for chunk in chunks(base.size):
        noise = 2 * OF_A_VALUE * unit * np.abs(base[chunk])
        disagree = change[chunk] - far_change[chunk] / 2
        size = np.abs(change[chunk])
        is_fine = np.abs(disagree) <= DIGITS * size + 4 * noise
        # A kink's bend grows with the step, a curve's with its square.
        is_curve = far_bend[chunk] >= _CURVES * bend[chunk]
        is_fine &= ((bend[chunk] <= KNOWN * size + 4 * noise) | is_curve) & np.isfinite(base[chunk])
        far_change[chunk] = np.where(is_fine, disagree, 0.0)
        change[chunk] = np.where(is_fine, change[chunk], 0.0)
        bend[chunk] = is_fine
        moves = np.flatnonzero(is_fine & (size > 0))[:: max(1, base.size // _TYPICAL_ROWS)]
        sizes.append(size[moves])
        ratios.append(size[moves] / np.maximum(noise[moves], np.finfo(np.float64).tiny))
    del far_bend
    disagreement, weight = far_change, bend
    # A row that moves by less than a tenth of what is typical, relative to its rounding error, gets a lower
    # weight; otherwise its noise would drown the others. So does one that moves by far less than others.
    stillest, faintest = FLOAT64.half_the_digits * _median(sizes), KNOWN * _median(ratios)
    for chunk in chunks(base.size):
        least = np.maximum(stillest, faintest * 2 * OF_A_VALUE * unit * np.abs(base[chunk]))
        scale = np.maximum(np.abs(change[chunk]), least)
        weight[chunk] = np.where(weight[chunk] != 0, 1 / np.where(scale > 0, scale, 1.0), 0.0)
    return Differenced(direction, change, disagreement, weight, is_noise)


def _take_change_and_bend(direction: Direction, factor: float) -> tuple[Float, Float]:
    """Return f(x + cv) - f(x - cv) and |f(x + cv) - 2 f(x) + f(x - cv)|, (m,) each, with c the factor."""
    target = direction.target
    above = np.array(target.at(direction.side(factor)))
    below = np.array(target.at(direction.side(-factor)))
    for chunk in chunks(above.size):
        up, down = above[chunk].copy(), below[chunk].copy()
        above[chunk], below[chunk] = up - down, np.abs(up - 2 * target.base[chunk] + down)
    return above, below


def _largest(values: Float) -> float:
    """Return the largest magnitude, without a temporary array of that size; NaN where one is."""
    return float(np.max([np.max(np.abs(values[chunk])) for chunk in chunks(values.size)], initial=0.0))


def _median(arrays: list[Float]) -> float:
    values = np.concatenate(arrays) if arrays else np.zeros(0)
    return float(np.median(values)) if values.size else 0.0


def compare(differenced: Differenced, upstream: Float) -> Probe:
    """Compare vjp and difference for one upstream, which must be 0 in unusable rows."""
    target = differenced.direction.target
    gradient = target.pull(upstream)
    from_vjp, terms = differenced.direction.predict_change(gradient, 1.0)
    numeric, size, noise, disagreement, squares = _sum_terms(differenced, upstream)
    rounding = _SIGMAS * noise
    if differenced.direction.is_rest:
        # What rounded constants change of a gradient is relative to its large elements.
        rounding += target.most_shared * BOUND_PER_SIGMA * differenced.direction.measure_rest(gradient)
    bound = rounding + abs(disagreement) + 2 * squares + ROUNDINGS_OF_A_RUN * target.unit * terms
    # Errors within rtol are allowed even if they all have the same sign.
    largest = abs(numeric) + BOUND_PER_SIGMA * max(size, terms)
    if not differenced.direction.is_rest:
        bound += target.shared * largest
    tolerated = bound + _sum_tolerated(differenced, upstream, largest)
    return Probe(
        error=abs(from_vjp - numeric),
        bound=bound,
        rounding=rounding,
        tolerated=tolerated,
        size=size,
        upstream=upstream,
        gradient=gradient,
        level=tolerated if target.is_lenient else bound,
    )


def persists(differenced: Differenced, probe: Probe) -> bool:
    """Say whether an alarm grows with the step; the effect of rounding inside the forward doesn't."""
    if not np.isfinite(probe.error):
        return True
    return not _error_along(differenced.direction, probe, _FARTHER) <= _FARTHER / 2 * probe.error


def _error_along(direction: Direction, probe: Probe, factor: float) -> float:
    """Return the error of a probe's gradient along another direction, or at another step."""
    terms = probe.upstream * direction.difference(factor)
    numeric = float(np.sum(np.where(probe.upstream != 0, terms, 0.0)))
    return abs(direction.predict_change(probe.gradient, factor)[0] - numeric)


def _sum_tolerated(differenced: Differenced, upstream: Float, largest: float) -> float:
    """Return what errors within every element's tolerance may add up to."""
    target = differenced.direction.target
    allowed = target.rtol * largest
    if target.atol:
        moved = 2 * np.linalg.norm(differenced.direction.steps)
        allowed += target.atol * BOUND_PER_SIGMA * float(np.linalg.norm(upstream) * moved)
    return allowed


def _sum_terms(differenced: Differenced, upstream: Float) -> tuple[float, float, float, float, float]:
    """Return sum u d, rss(u d), rss(u noise), sum u e and rss(u e), a chunk at a time."""
    target = differenced.direction.target
    total = disagreement = 0.0
    squares = np.zeros(3)
    for chunk in chunks(upstream.size):
        u = upstream[chunk]
        moved, unsure = u * differenced.change[chunk], u * differenced.disagreement[chunk]
        # An upstream of 0 leaves a row out, even if the row isn't finite.
        rounding = np.where(u != 0, u * (2 * OF_A_VALUE * target.unit) * np.abs(target.base[chunk]), 0.0)
        total += float(moved.sum())
        disagreement += float(unsure.sum())
        squares += [float(np.square(each).sum()) for each in (moved, rounding, unsure)]
    size, noise, unsure_size = np.sqrt(squares)
    return total, float(size), float(noise), disagreement, float(unsure_size)


@dataclass
class Unseen:
    """By input: elements in which an error would have stayed below the bound, and all that were examined."""

    hidden: npt.NDArray[np.int64]  # (spans,) how many would have
    seen: npt.NDArray[np.int64]  # (spans,) how many of the examined elements can be told from zero
    is_sample: bool = False  # whether some elements weren't examined

    def add(self, other: Unseen) -> None:
        """Add the elements that another one counted."""
        self.hidden = self.hidden + other.hidden
        self.seen = self.seen + other.seen
        self.is_sample |= other.is_sample

    def shares(self) -> Float:
        """Return the share that is hidden, by input; NaN where nothing was examined.

        If none of N was missed, three in N is the upper limit at 95 % (the rule of three).
        """
        return np.asarray((self.hidden + (3 if self.is_sample else 0)) / self.seen).clip(max=1.0)


def count_unseen(
    direction: Direction, probe: Probe, size: float, rows: slice, generator: np.random.Generator
) -> Unseen:
    """Count the elements in which an error of some relative size would have stayed below the bound.

    The elements are those of sampled rows: taken one by one if there are few, or many at a time where rows
    have so few elements that they hardly ever share a column.

    Args:
        direction: of the probe.
        probe: may lack its gradient.
        size: of the error.
        rows: the rows to sample from.
        generator: chooses the rows.
    """
    nothing = np.zeros(len(direction.target.spans), np.int64)
    counted = Unseen(nothing, nothing)
    level = _level(probe, size)
    count = rows.stop - rows.start
    if count <= FEW:
        for row in np.flatnonzero(probe.upstream[rows]) + rows.start:
            counted.add(_count_below(direction, probe.upstream, np.array([row]), level))
        return counted
    wanted, elements = FEW, direction.steps.size
    for round_number in range(FEW):
        if round_number >= _SAMPLED_ROUNDS and counted.seen.min() >= _ENOUGH_SEEN:
            break
        chosen = _choose_rows(probe.upstream, rows, wanted, generator)
        if not chosen.size:
            break
        counted.add(_count_below(direction, probe.upstream, chosen, level))
        per_row = int(counted.seen.sum()) / (chosen.size * (round_number + 1))
        wanted = max(1, min(count, int(elements / 4 / max(per_row, 1))))
    counted.is_sample = True
    return counted


def _count_below(direction: Direction, upstream: Float, rows: npt.NDArray[np.int64], level: float) -> Unseen:
    """Count the elements of some rows whose effect is below a level, and all with an effect, by input."""
    alone = np.zeros(upstream.size)
    alone[rows] = upstream[rows]
    target = direction.target
    gradient = target.pull(alone)
    faint = _faintest(direction, alone)
    del alone
    hidden, seen = (np.zeros(len(target.spans), np.int64) for _ in range(2))
    for span_index, (start, span) in enumerate(zip(target.starts, target.spans, strict=False)):
        for _, chunk in target.split_by_span(slice(start, start + span.size)):
            effect = np.abs(gradient[chunk] * (2 * direction.steps[chunk]))
            seen[span_index] += np.count_nonzero(effect > faint)
            hidden[span_index] += np.count_nonzero((effect > faint) & ~(effect > level))
    return Unseen(hidden, seen)


def show_elements(direction: Direction, probe: Probe, size: float) -> tuple[Mask, Mask]:
    """Say in which elements of a few rows a comparison would show an error, and which have an effect at all.

    Args:
        direction: of the probe.
        probe: the comparison.
        size: of the error, relative.

    Returns:
        (m, n) each; nothing of elements that don't move, or of rows that don't take part.
    """
    level = _level(probe, size)
    shown, counted = (np.zeros((probe.upstream.size, direction.steps.size), dtype=bool) for _ in range(2))
    for row in np.flatnonzero(probe.upstream):
        alone = np.zeros(probe.upstream.size)
        alone[row] = probe.upstream[row]
        gradient, faint = direction.target.pull(alone), _faintest(direction, alone)
        for chunk in chunks(gradient.size):
            effect = np.abs(gradient[chunk] * (2 * direction.steps[chunk]))
            shown[row, chunk], counted[row, chunk] = effect > level, effect > faint
    return shown, counted


def _level(probe: Probe, size: float) -> float:
    """Return what an element's effect must exceed for an error of some size to show.

    The error must exceed the bound even when the other errors point the opposite way.
    """
    return (probe.level + (probe.error if np.isfinite(probe.error) else 0.0)) / size


def _faintest(direction: Direction, upstream: Float) -> float:
    """Return the effect below which an element counts as zero, given the value's own rounding.

    See numerics/precision.py.
    """
    target = direction.target
    values = float(np.sum(np.abs(upstream * target.base)))
    return ROUNDINGS_OF_A_RUN * target.unit * values * 2 * direction.share


def _choose_rows(
    upstream: Float, rows: slice, count: int, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Choose about this many of the rows that take part, at random."""
    height = rows.stop - rows.start
    if height <= sampling.CHUNK:
        taking_part = np.flatnonzero(upstream[rows]) + rows.start
        return np.asarray(generator.choice(taking_part, min(count, taking_part.size), replace=False))
    # A list of the rows of a large output would take as much memory as the output itself.
    drawn = np.unique(generator.integers(height, size=2 * min(count, height // 4))) + rows.start
    drawn = drawn[upstream[drawn] != 0]
    return drawn if drawn.size <= count else generator.choice(drawn, count, replace=False)


def follow(size: int, error_of: Callable[[slice], float]) -> int:
    """Follow an error to one of `size` elements: always take the half with the larger error, NaN first."""
    start, stop = 0, size
    while stop - start > 1:
        middle = (start + stop) // 2
        first, second = (
            np.nan_to_num(error_of(half), nan=np.inf) for half in (slice(start, middle), slice(middle, stop))
        )
        start, stop = (start, middle) if first >= second else (middle, stop)
    return start


def bisect_input(differenced: Differenced, probe: Probe) -> int:
    """Follow an alarm to one input."""
    factor = _shorten_step(probe)

    def error_of(columns: slice) -> float:
        return _error_along(differenced.direction.restrict_to([columns]), probe, factor)

    return follow(probe.gradient.size, error_of)


def bisect_output(differenced: Differenced, probe: Probe, column: int) -> int:
    """Follow an alarm in one input to one output."""
    there = slice(column, column + 1)
    single, factor = differenced.direction.restrict_to([there]), _shorten_step(probe)
    change = single.difference(factor)
    change[differenced.is_unusable] = 0.0
    moved = float((single.side(factor, there) - single.side(-factor, there))[0])

    def error_of(rows: slice) -> float:
        upstream = np.zeros(probe.upstream.size)
        upstream[rows] = probe.upstream[rows]
        numeric = float(np.sum(upstream[rows] * change[rows]))
        return abs(float(single.target.pull(upstream)[column]) * moved - numeric)

    return follow(probe.upstream.size, error_of)


def _shorten_step(probe: Probe) -> float:
    """Return the part of the step at which the alarm is still clear: halving the step crosses fewer kinks."""
    if not (np.isfinite(probe.error) and probe.error > 0):
        return 1.0
    return float(np.clip(np.exp2(np.ceil(np.log2(MARGIN * probe.bound / probe.error))), DIGITS, 1.0))
