"""A point to probe at, of one input or of several side by side, and random directions from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradcheck_cli.numerics.precision import Float, Precision
from gradcheck_cli.numerics.random_vectors import draw_signed
from gradcheck_cli.numerics.tolerance import ToleranceRule

# Which of `Precision.probe_steps`.
SHORT, MIDDLE, LONG, SMOOTH = range(4)
# So short that only an element on a kink itself changes sides: anything nearer counts as on it.
NEAREST = 2.0**-40
# How many elements are handled at a time, so that temporary arrays stay small beside the tensors themselves.
CHUNK = 2**18


@dataclass(frozen=True)
class Span:
    """One input's part of a point, and how it moves."""

    size: int  # how many elements
    typical: float  # the input's typical size; it scales the step where an element is smaller
    precision: Precision  # the precision that its elements are rounded to
    low: float = -np.inf  # lower bound; may be infinite
    high: float = np.inf  # upper bound, likewise


@dataclass
class Target:
    """Pairs as a function of one packed vector, with its vjp; one point, one upstream at a time.

    Attributes:
        shared: a relative error that all elements share, where a formula's constants were seen to be rounded
            to its declared dtype.
    """

    evaluate: Callable[[Float], Float]  # (n,) -> (m,), NaN where undefined
    pull: Callable[[Float], Float]  # (m,) -> (n,)
    point: Float  # (n,)
    base: Float  # (m,) f(x), for scales and sides; its last bits may differ from those of `evaluate`
    spans: Sequence[Span]  # the inputs that make up the point, in order
    unit: float  # unit roundoff of the values
    working: Precision  # the coarsest precision in play
    rule: ToleranceRule  # the tolerance of each element
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
        with np.errstate(all="ignore"):
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
            for begin in range(first, last, CHUNK):
                yield span, slice(begin, min(begin + CHUNK, last))


@dataclass(frozen=True)
class Direction:
    """A random direction: the steps of each input, (n,), up to `share` of its scale; factors scale them."""

    target: Target
    steps: Float
    share: float

    def side(self, factor: float, elements: slice | None = None) -> Float:
        """Return x + factor v, rounded, inside the bounds; of some elements only, if asked for."""
        elements = slice(0, self.steps.size) if elements is None else elements
        there = self.target.point[elements] + factor * self.steps[elements]
        for span, chunk in self.target.split_by_span(elements):
            own = there[chunk.start - elements.start : chunk.stop - elements.start]
            own[:] = span.precision.round(np.clip(own, span.low, span.high))
        return there

    def difference(self, factor: float) -> Float:
        """Return f(x + factor v) - f(x - factor v), (m,); extrapolated where no kinks are known."""
        change = self.plain_difference(factor)
        return extrapolate(change, self.plain_difference(2 * factor)) if self.target.is_smooth else change

    def plain_difference(self, factor: float) -> Float:
        """Return f(x + factor v) - f(x - factor v), (m,), without extrapolation."""
        change = np.array(self.target.at(self.side(factor)))
        with np.errstate(all="ignore"):
            change -= self.target.at(self.side(-factor))
        return change

    def predict_change(self, gradient: Float, factor: float) -> tuple[float, float]:
        """Return the sum of gradient times displacement, and the root of the sum of squares of its terms."""
        total = squares = 0.0
        for chunk in chunks(self.steps.size):
            with np.errstate(all="ignore"):
                terms = gradient[chunk] * (self.side(factor, chunk) - self.side(-factor, chunk))
                # The gradient of an element that doesn't move doesn't matter.
                terms = np.where(self.steps[chunk] != 0, terms, 0.0)
                total += float(terms.sum())
                squares += float(np.square(terms).sum())
        return total, float(np.sqrt(squares))

    def restrict_to(self, stretches: Sequence[slice]) -> Direction:
        """Return the same direction for several stretches of inputs; the others stay where they are."""
        steps = np.zeros(self.steps.size)
        for stretch in stretches:
            steps[stretch] = self.steps[stretch]
        return Direction(self.target, steps, self.share)


def extrapolate(change: Float, far_change: Float) -> Float:
    """Return a central difference without its third-order part, by the one at twice the step (Richardson)."""
    with np.errstate(all="ignore"):
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
        if np.isfinite(span.low) or np.isfinite(span.high):
            # Up to twice the step is taken to both sides.
            room = np.maximum(np.minimum(x - span.low, span.high - x), 0.0) / 2
            steps[chunk] = np.copysign(np.minimum(np.abs(steps[chunk]), room), steps[chunk])
    return Direction(target, steps, share)


def chunks(size: int) -> Iterator[slice]:
    """Split a length into slices that are small enough for temporary arrays."""
    for start in range(0, size, CHUNK):
        yield slice(start, min(start + CHUNK, size))
