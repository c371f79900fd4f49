"""The inputs of a case that may take other values than the drawn ones, as one vector of real numbers.

These are real and complex inputs whose elements are drawn one by one, and variables. A stated range is never
left: the spec says nothing about the function outside it. Normal values may lie far from the mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck_cli.spec.case import Case, InputSpec
from gradcheck_cli.spec.values.constraints import allowed_intervals
from gradcheck_cli.spec.values.distributions import Interval, distribution_of
from gradcheck_cli.spec.words import kind_of

Array = NDArray[Any]

# How many standard deviations from the mean normal values may lie: where float64 has digits to spare, and
# elsewhere.
_FAR, _NEAR = 300.0, 6.0
_OF_FLOAT32 = 30.0  # where exp overflows only beyond 88
# A stated normal distribution is as good as a range: a fixed-point iteration converges for the weights that
# it draws, and not for larger ones, nor for as large ones that all have one sign. So a value lies no farther,
# and the root mean square of all is no larger than a draw's. That of a variable is no larger than this times
# that of its values.
_STATED, _OF_VARIABLE = 4.0, 3.0


def reach_of(low_precision: Sequence[str]) -> float:
    """Return how many spreads from the middle values may lie, for an op that computes in these dtypes.

    Far away, a dtype with few digits may lose all of them, which says nothing about the formula.
    """
    return min(
        (_OF_FLOAT32 if name in ("float32", "complex64") else _NEAR for name in low_precision), default=_FAR
    )


@dataclass(frozen=True)
class FreeInput:
    """One input whose elements may be chosen."""

    index: int  # its index among the case's inputs
    shape: tuple[int, ...]  # its shape
    is_complex: bool  # whether each element has two parts; all real parts come first
    intervals: tuple[Interval, ...]  # where each real component may lie, disjoint and ascending
    middle: float  # the middle of the distribution
    spread: float  # its standard deviation
    reach: float = math.inf  # the most that the root mean square of all distances may be, in spreads
    is_variable: bool = False  # whether each of its values takes a call of its own

    @property
    def size(self) -> int:
        """How many real components it has."""
        return math.prod(self.shape) * (2 if self.is_complex else 1)

    def clip(self, values: Array) -> Array:
        """Return values, each moved to the nearest allowed one."""
        best = np.clip(values, *self.intervals[0])
        for low, high in self.intervals[1:]:
            moved = np.clip(values, low, high)
            is_nearer = ~(np.abs(best - values) <= np.abs(moved - values))
            best = np.where(is_nearer, moved, best)
        return best

    def draw_in(self, values: Array) -> Array:
        """Return values, (B, size), drawn towards the middle where all together lie too far from it."""
        if math.isinf(self.reach):
            return values
        distances = values - self.middle
        size = np.sqrt(np.mean(distances**2, axis=1, keepdims=True)) / (self.reach * self.spread)
        return np.where(size > 1, self.middle + distances / np.maximum(size, 1), values)


@dataclass(frozen=True)
class FreeInputs:
    """The inputs of a case that may be chosen, as one vector."""

    parts: tuple[FreeInput, ...]

    @staticmethod
    def of(case: Case, far: float) -> FreeInputs:
        """Return the free inputs of a case.

        Args:
            far: spreads from the middle that normal values may lie; see `reach_of`.
        """
        parts: list[FreeInput] = []
        for index, tensor in enumerate(case.tensors):
            if not tensor.is_variable:
                parts += _free_draws(index, tensor, far)
            # Variables have no range that says how far they may go: in few digits they stay.
            elif tensor.is_differentiable and far == _FAR:
                parts.append(_free_variable(index, tensor))
        return FreeInputs(tuple(part for part in parts if part.intervals and part.size))

    @property
    def size(self) -> int:
        """How many real components there are."""
        return sum(part.size for part in self.parts)

    def pack(self, points: Mapping[int, Array]) -> Array:
        """Turn stacks of inputs, (B, *shape) by index, into vectors, (B, size)."""
        flat = [np.empty((len(next(iter(points.values()))), 0))]
        for part in self.parts:
            values = points[part.index].reshape(len(points[part.index]), -1)
            flat.append(np.concatenate([values.real, values.imag], axis=1) if part.is_complex else values)
        return np.concatenate(flat, axis=1).astype(np.float64)

    def unpack(self, vectors: Array, others: Mapping[int, Array]) -> dict[int, Array]:
        """Turn vectors, (B, size), into stacks of inputs.

        Args:
            others: the other inputs, (B, *shape) or (1, *shape).
        """
        stacks = {
            input_index: np.broadcast_to(stack, (len(vectors), *stack.shape[1:]))
            for input_index, stack in others.items()
        }
        for part, own in zip(self.parts, self.split(vectors), strict=True):
            half = part.size // 2
            values = own[:, :half] + 1j * own[:, half:] if part.is_complex else own
            stacks[part.index] = values.reshape(len(vectors), *part.shape)
        return stacks

    def others(self, points: Mapping[int, Array]) -> dict[int, Array]:
        """Return the stacks of the inputs that may not be chosen."""
        chosen = {part.index for part in self.parts}
        return {input_index: stack for input_index, stack in points.items() if input_index not in chosen}

    def split(self, vectors: Array) -> list[Array]:
        """Split vectors, (B, size), into each input's components."""
        return np.split(vectors, np.cumsum([part.size for part in self.parts]), axis=1)[:-1]

    def clip(self, vectors: Array) -> Array:
        """Return vectors with each component moved to the nearest allowed value."""
        parts = zip(self.parts, self.split(vectors), strict=True)
        return np.concatenate([vectors[:, :0], *(part.clip(own) for part, own in parts)], axis=1)

    def draw_in(self, vectors: Array) -> Array:
        """Return vectors, (B, size), with each input drawn in to what its distribution may give."""
        parts = zip(self.parts, self.split(vectors), strict=True)
        return np.concatenate([vectors[:, :0], *(part.draw_in(own) for part, own in parts)], axis=1)

    def share_moves(self, vectors: Array, moves: Array) -> Array:
        """Return moves, (B, size), the same where a variable has the same value at successive points.

        So it takes few values: each takes a call of its own.
        """
        shared = []
        for part, own, own_moves in zip(self.parts, self.split(vectors), self.split(moves), strict=True):
            if not part.is_variable:
                shared.append(own_moves)
                continue
            begins = np.append(True, (own[1:] != own[:-1]).any(axis=1))
            shared.append(own_moves[np.maximum.accumulate(np.where(begins, np.arange(len(own)), 0))])
        return np.concatenate([moves[:, :0], *shared], axis=1)

    @property
    def spreads(self) -> Array:
        """Each component's standard deviation, (size,)."""
        return np.repeat([part.spread for part in self.parts], [part.size for part in self.parts])

    @property
    def middles(self) -> Array:
        """Each component's middle, (size,)."""
        return np.repeat([part.middle for part in self.parts], [part.size for part in self.parts])

    @property
    def borders(self) -> list[float]:
        """The ends of the ranges of components, if the spec states any."""
        ends = {end for part in self.parts for interval in part.intervals for end in interval}
        far = {
            part.middle + sign * scale * part.spread
            for part in self.parts
            for sign in (-1, 1)
            for scale in (_FAR, _NEAR, _STATED)
        }
        return sorted(ends - far)

    def ties(self, vectors: Array, within: float = 0.0) -> Array:
        """Return which components of vectors, (B, size), are zero or equal another one of their input.

        Args:
            within: how many spreads they may be off.
        """
        columns = [np.zeros((len(vectors), 0), bool)]
        for own, spreads in zip(self.split(vectors), self.split(self.spreads[None]), strict=True):
            near = within * spreads.max(initial=0.0)
            order = np.argsort(own, axis=1)
            ordered = np.take_along_axis(own, order, axis=1)
            same = np.zeros(own.shape, bool)
            same[:, 1:] = ordered[:, 1:] - ordered[:, :-1] <= near
            same[:, :-1] |= same[:, 1:]
            tied = np.zeros(own.shape, bool)
            np.put_along_axis(tied, order, same, axis=1)
            columns.append(tied | (np.abs(own) <= near))
        return np.concatenate(columns, axis=1)


def _free_variable(input_index: int, tensor: InputSpec) -> FreeInput:
    """Return a variable, which moves around zero by the size of its values."""
    size = float(np.sqrt(np.mean(np.abs(np.asarray(tensor.source.arguments["value"])) ** 2)))
    spread = size if math.isfinite(size) and size else 1.0
    is_complex = kind_of(tensor.dtype) == "complex"
    ends = (-_FAR * spread, _FAR * spread)
    return FreeInput(
        input_index, tensor.shape, is_complex, (ends,), 0.0, spread, reach=_OF_VARIABLE, is_variable=True
    )


def _free_draws(index: int, tensor: InputSpec, far: float) -> Iterator[FreeInput]:
    """Yield an input if its elements are real or complex, and drawn one by one."""
    distribution, kind = distribution_of(tensor), kind_of(tensor.dtype)
    if (
        distribution is None
        or distribution.kind not in ("normal", "uniform")
        or kind not in ("float", "complex")
        or tensor.symmetric
        or tensor.min_gap is not None
        or (tensor.away_from and kind == "complex")
    ):
        return
    is_stated = tensor.source.kind != "default" and distribution.kind == "normal"
    low, high = distribution.range
    middle = distribution.mean
    if distribution.kind == "normal":
        far = _STATED if is_stated else far
        low, high = middle - far * distribution.stddev, middle + far * distribution.stddev
    allowed = allowed_intervals(distribution, tensor.away_from, tensor.domain)
    intervals = tuple((max(a, low), min(b, high)) for a, b in allowed if max(a, low) < min(b, high))
    reach = 1.0 if is_stated else math.inf
    spread = distribution.stddev or 1.0
    yield FreeInput(index, tensor.shape, kind == "complex", intervals, middle, spread, reach)
