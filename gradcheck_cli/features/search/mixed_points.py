"""Points of many kinds for all inputs of a case: near, far, tiny, tied, permuted, on and beside special ones.

Random draws hardly ever produce them, and code often treats them separately. A stated range is never left:
a spec says nothing about the function beyond it. Real and complex inputs whose elements are drawn one by one,
are one vector of real numbers; normal values may lie far from the mean. Other inputs move as
well: booleans, whole numbers, texts and other choices are drawn anew, edited one at a time, or all the same.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gradcheck_cli.spec.case import Case, InputSpec, kind_of
from gradcheck_cli.spec.values.constraints import (
    Interval,
    allowed_intervals,
    contains,
    distribution_of,
    integer_ends,
)
from gradcheck_cli.spec.values.draw_values import draw
from gradcheck_cli.spec.words import SOURCES

Array = np.ndarray[Any, Any]

# How many standard deviations from the mean values may lie where the spec states no range: beyond 88, exp
# overflows in float32; and in half precision.
_FAR, _NEAR = 30.0, 6.0
# A stated normal distribution is as good as a range: a fixed-point iteration converges for the values that
# it draws, and not for larger ones, nor for as large ones that all have one sign. So a value lies no farther,
# and the root mean square of all is no larger than a draw's.
_STATED = 4.0
# Where no range is stated, values as far as a stated distribution would draw are as good as stated: one of
# 16,000 normal values lies beyond. Farther out, a disagreement is a question about the range.


def reach_of(low_precision: Sequence[str]) -> float:
    """Return how many spreads from the middle values may lie, for an op that computes in these dtypes.

    In half precision, all digits are soon lost, which says nothing about the formula.
    """
    return min((_FAR if name in ("float32", "complex64") else _NEAR for name in low_precision), default=_FAR)


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
    is_stated: bool = True  # whether the spec says how far it goes

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
            parts += _free_draws(index, tensor, far)
        return FreeInputs(tuple(part for part in parts if part.intervals and part.size))

    @staticmethod
    def differenced(case: Case, free: FreeInputs) -> FreeInputs:
        """Return all inputs that differences may be taken for: the free ones, and drawn structures.

        A component of a structure, such as one of some probabilities, moves by itself for a difference.
        """
        parts = {part.index: part for part in free.parts}
        for index, tensor in enumerate(case.tensors):
            is_drawn = not (tensor.is_stated or tensor.is_variable or tensor.symmetric)
            if index not in parts and is_drawn and tensor.is_differentiable and 0 not in tensor.shape:
                low, high = (
                    sign * math.inf if end is None else end
                    for sign, end in zip((-1, 1), tensor.domain, strict=True)
                )
                is_complex = kind_of(tensor.dtype) == "complex"
                parts[index] = FreeInput(index, tensor.shape, is_complex, ((low, high),), 0.0, _OF_STRUCTURE)
        return FreeInputs(tuple(parts[index] for index in sorted(parts)))

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
    is_known = tensor.source.kind != "default" or tensor.domain != (None, None)
    yield FreeInput(index, tensor.shape, kind == "complex", intervals, middle, spread, reach, is_known)


FIRST = 1_000  # above any requested number of samples: indices of points that the spec didn't ask for
_DRAWN = 24  # points of a batch that are drawn, of few points a quarter; the others are made from them
_NAMED = 3  # special facts, in a message
_HALF = 0.5  # the probability of each choice
_WHOLE = 4_096  # whole numbers of a range; of a larger range, as many are drawn
_OF_STRUCTURE = 0.1  # how far a component of a structure, such as a probability, is moved at most
_ROUNDING = 1e-6  # of a special value: its neighbour in float32 and in float64
_SPECIAL = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)


class MixedPoints:
    """Makes points for a case."""

    def __init__(self, case: Case, far: float) -> None:
        """Draw nothing yet.

        Args:
            far: spreads from the middle that normal values may lie; see `reach_of`.
        """
        self.case, self.far = case, far
        self.free = FreeInputs.of(case, far)  # its inputs that are vectors of real numbers
        self.differenced = FreeInputs.differenced(case, self.free)
        self.specials: tuple[float, ...] = _SPECIAL  # what components may be compared with
        self._seed = zlib.crc32(f"{case.op} {case.name}".encode())

    @cached_property
    def moving(self) -> dict[int, InputSpec]:
        """The inputs that move, by index."""
        chosen = {part.index for part in self.free.parts}
        return {
            index: tensor
            for index, tensor in enumerate(self.case.tensors)
            if index in chosen or not SOURCES[tensor.source.kind].is_fixed
            if math.prod(tensor.shape)
        }

    @cached_property
    def _pools(self) -> dict[int, Array]:
        """The values that each element of an input may have, for inputs with few."""
        pools = {index: _values_of(tensor) for index, tensor in self.moving.items()}
        return {index: pool for index, pool in pools.items() if pool.size > 1}

    def make(self, count: int, batch: int = 0) -> dict[int, Array]:
        """Return points, (B, *shape) by the input's index; the same for the same arguments.

        Args:
            batch: which batch of points; each has other ones.
        """
        generator = np.random.default_rng([self.case.seed, self._seed, batch])
        drawn = min(_DRAWN, -(-count // 4))
        first = FIRST + batch * _DRAWN
        points: dict[int, Array] = {}
        for index, tensor in self.moving.items():
            draws = np.stack([draw(self.case, tensor, first + row) for row in range(drawn)])
            points[index] = draws[np.arange(count) % drawn]
        if self.free.size and count:
            points |= self._patterns(points, generator, drawn)
        for index, pool in self._pools.items():
            points[index] = _edit(points[index], self._with_specials(pool), generator, drawn)
        for index, tensor in self.moving.items():
            if tensor.source.kind == "probabilities":
                points[index] = _sharpen(points[index], generator, drawn)
        return points

    def are_ordinary(self, vectors: Array) -> Array:
        """Whether nothing is special about vectors, (B, size), and they lie within what would be drawn."""
        near = np.abs(vectors - self.free.middles) <= _STATED * self.free.spreads
        return np.asarray(near.all(axis=1) & ~self.free.ties(vectors).any(axis=1))

    def describe_range(self, point: Mapping[int, Array]) -> str:
        """Ask about the range of the input that lies farthest beyond what the spec says; empty if none does.

        A special value lies beyond nothing, nor does its neighbour by a rounding.
        """
        specials, farthest, asked = np.array(self.specials), _STATED, ""
        for part in self.free.parts:
            values = point[part.index]
            reals = (
                np.concatenate([values.real.ravel(), values.imag.ravel()])
                if part.is_complex
                else values.ravel()
            )
            distances = np.abs(reals - part.middle) / part.spread
            distances[np.isclose(reals[:, None], specials, rtol=_ROUNDING, atol=0).any(axis=1)] = 0.0
            if part.is_stated or not distances.max(initial=0.0) > farthest:
                continue
            farthest, name = float(distances.max()), self.case.tensors[part.index].name
            size = float(np.abs(reals[distances.argmax()]))
            digit = 10.0 ** math.floor(math.log10(size))
            bound = f"{math.ceil(size / digit) * digit:g}"
            asked = (
                f"If {name} goes that far, say so (`uniform: {{low: -{bound}, high: {bound}}}`): then it is "
                "a mismatch. If not, say how far it goes: then nobody looks beyond."
            )
        return asked

    def describe_specials(self, point: Mapping[int, Array]) -> str:
        """Return what is special about a point, such as `x[2] == 0`; empty if nothing is."""
        facts = [
            text
            for part in self.free.parts
            for text in _specials_of(self.case.tensors[part.index].name, point[part.index], self.specials)
        ]
        more = f" and {len(facts) - _NAMED} more" if len(facts) > _NAMED else ""
        return " and ".join(facts[:_NAMED]) + more

    def _with_specials(self, pool: Array) -> Array:
        """Return a pool in which the special values among it are frequent."""
        if pool.dtype.kind not in "iu":
            return pool
        special = np.array([value for value in self.specials if value == round(value)])
        near = np.concatenate([special, special - 1, special + 1])
        inside = near[(near >= pool.min()) & (near <= pool.max())].astype(pool.dtype)
        if len(pool) < _WHOLE:  # else it is a sample of a large range
            inside = inside[np.isin(inside, pool)]
        return np.concatenate([pool, np.repeat(inside, 1 + len(pool) // (4 * max(len(inside), 1)))])

    def _patterns(self, points: dict[int, Array], generator: np.random.Generator, drawn: int) -> Any:
        vectors = self.free.pack(points)
        rest = vectors[drawn:]
        if len(rest):
            mixed = generator.integers(drawn, size=rest.shape)
            rest = np.take_along_axis(vectors[:drawn], mixed, axis=0)
            specials = np.array([*self.specials, *self.free.borders])
            context = _Context(self.free, specials, vectors[0], generator, min(self.far / 2, 30.0))
            for turn, pattern in enumerate(_PATTERNS):
                own = slice(turn, None, len(_PATTERNS))
                if len(rest[own]):
                    rest[own] = pattern(context, rest[own])
            vectors[drawn:] = rest
        vectors = self.free.clip(self.free.draw_in(vectors))
        return self.free.unpack(vectors, {})


@dataclass
class _Context:
    """What patterns need to know."""

    free: FreeInputs
    specials: Array
    base: Array  # (size,) a vector of which others differ in one component
    generator: np.random.Generator
    most: float  # how many times as far from the middle as drawn values may lie

    def some(self, rows: Array) -> Array:
        """Return which components change: one in some points, half or all in others."""
        share = np.array([1.01 / rows.shape[1], 0.5, 1.01])[np.arange(len(rows)) % 3][:, None]
        return self.generator.random(rows.shape) < share

    def beside(self, shape: tuple[int, ...]) -> Array:
        """Return special values, and values at all distances from them."""
        values = self.generator.choice(self.specials, shape)
        size = np.maximum(np.abs(values), self.free.spreads) * 10.0 ** self.generator.uniform(-16, -1, shape)
        return np.asarray(values + np.where(self.generator.random(shape) < _HALF, size, -size))

    def each(self, rows: Array, change: Callable[[Array, tuple[int, ...]], None]) -> Array:
        """Change the components of each input in place."""
        parts = self.free.split(rows.copy())
        for part, own in zip(self.free.parts, parts, strict=True):
            change(own, part.shape)
        return np.concatenate(parts, axis=1)


def _scale(factor: float) -> Callable[[_Context, Array], Array]:
    def pattern(context: _Context, rows: Array) -> Array:
        middles = context.free.middles
        return np.asarray(middles + min(factor, context.most) * (rows - middles))

    return pattern


def _set_zeros(context: _Context, rows: Array) -> Array:
    return np.where(context.some(rows), 0.0, rows)


def _set_special(context: _Context, rows: Array) -> Array:
    return np.where(context.some(rows), context.generator.choice(context.specials, rows.shape), rows)


def _set_beside(context: _Context, rows: Array) -> Array:
    return np.where(context.some(rows), context.beside(rows.shape), rows)


def _make_tiny(context: _Context, rows: Array) -> Array:
    """Scale by a power of ten, each point by another one; all components or some."""
    # Series beside closed forms end at 1e-2 to 1e-5, and are worst there: half of the points are that near.
    least = np.where(np.arange(len(rows)) % 2, -5.0, -14.0)[:, None]
    powers = 10.0 ** context.generator.uniform(least, -1, (len(rows), 1))
    return np.where(context.some(rows), rows * powers, rows)


def _tie(context: _Context, rows: Array) -> Array:
    """Make two components of an input equal, in every other point all of them; some with opposite signs."""

    def change(own: Array, _shape: tuple[int, ...]) -> None:
        if own.shape[1] > 1:
            order = context.generator.permuted(np.tile(np.arange(own.shape[1]), (len(own), 1)), axis=1)
            first, second = order[:, :2].T
            own[np.arange(len(own)), first] = own[np.arange(len(own)), second]
            own[::4] = own[::4, :1]
            own[1::4] = own[1::4, :1] * np.where(context.generator.random(own[1::4].shape) < _HALF, 1.0, -1.0)

    return context.each(rows, change)


def _tie_closely(context: _Context, rows: Array) -> Array:
    distance = 10.0 ** context.generator.uniform(-15, -2, (len(rows), 1))
    noise = distance * context.free.spreads * context.generator.standard_normal(rows.shape)
    return np.asarray(_tie(context, rows) + noise)


def _repeat_rows(context: _Context, rows: Array) -> Array:
    """Make slices of an input along its first axis the same, or zero; inputs of one shape equal."""

    def change(own: Array, shape: tuple[int, ...]) -> None:
        if len(shape) > 1 and shape[0]:
            slices = own.reshape(len(own), -1, own.shape[1] // shape[0])  # of complex inputs, parts apart
            row, another = context.generator.integers(slices.shape[1], size=2)
            slices[0::4] = slices[0::4, :1]
            slices[1::4, row] = slices[1::4, another]
            slices[2::4, row] = 0.0
            slices[3::4] = (
                np.where(context.generator.random(slices[3::4].shape[:2])[..., None] < _HALF, 0.0, 1.0)
                * slices[3::4]
            )

    made = context.each(rows, change)
    parts = context.free.split(made)
    for part, own in zip(context.free.parts[1:], parts[1:], strict=True):
        if part.size == context.free.parts[0].size:
            own[::3] = parts[0][::3]
    return np.concatenate(parts, axis=1)


def _permute(context: _Context, rows: Array) -> Array:
    """Sort components, ascending or descending, or permute them."""

    def change(own: Array, _shape: tuple[int, ...]) -> None:
        own[0::3] = np.sort(own[0::3], axis=1)
        own[1::3] = np.sort(own[1::3], axis=1)[:, ::-1]
        own[2::3] = context.generator.permuted(own[2::3], axis=1)

    return context.each(rows, change)


# Signs that repeat: all the same, alternating, and whatever else has a period of up to four.
_SIGNS = [signs for period in range(1, 5) for signs in itertools.product((-1.0, 1.0), repeat=period)]


def _set_signs(turn: int) -> Callable[[_Context, Array], Array]:
    """Return a pattern with every third of the signs that repeat, and then with random ones."""

    def pattern(context: _Context, rows: Array) -> Array:
        signs = np.where(context.generator.random(rows.shape) < _HALF, 1.0, -1.0)
        for row, repeated in zip(signs, _SIGNS[turn::3], strict=False):
            row[:] = np.resize(repeated, len(row))
        return np.asarray(context.free.middles + np.abs(rows - context.free.middles) * signs)

    return pattern


def _change_one(context: _Context, rows: Array) -> Array:
    """Differ from one draw in one component, which lies anywhere."""
    columns = context.generator.integers(rows.shape[1], size=len(rows))
    at = np.arange(len(rows)), columns
    sizes = context.generator.choice([1.0, 3.0, 10.0, 30.0, 100.0], len(rows)).clip(max=context.most)
    made = np.tile(context.base, (len(rows), 1))
    far = context.free.middles + sizes[:, None] * (rows - context.free.middles)
    made[at] = np.where(np.arange(len(rows)) % 2, far[at], context.beside(rows.shape)[at])
    return made


def _round(_context: _Context, rows: Array) -> Array:
    """Round to whole numbers, or to halves."""
    return np.where(np.arange(len(rows))[:, None] % 2, np.round(rows * 2) / 2, np.round(rows))


_PATTERNS: tuple[Callable[[_Context, Array], Array], ...] = (
    *(_scale(10.0), _change_one, _set_signs(1), _set_zeros, _set_beside, _tie, _permute, _make_tiny),
    *(_set_signs(0), _set_special, _scale(0.1), _repeat_rows, _set_signs(2), _change_one, _scale(3.0)),
    *(_tie_closely, _set_beside, _round, _scale(30.0), _make_tiny),
)


def _values_of(tensor: InputSpec) -> Array:
    """Return the values that each element of an input may have by itself; none if there are too many."""
    source, kind = tensor.source, kind_of(tensor.dtype)
    distribution = distribution_of(tensor)
    values = np.array([])
    if tensor.symmetric or tensor.min_gap is not None:
        return values
    if source.kind == "choice" and kind not in ("complex", "float"):
        written = list(source.arguments["values"])  # type: ignore[call-overload] # checked when it was read
        values = np.array(written, object if kind == "string" else None)
    elif kind == "bool" and source.kind in ("default", "bool"):
        return np.array([False, True])
    elif distribution is not None and distribution.kind == "integers":
        low, high = integer_ends(tensor)
        values = np.arange(low, min(high, low + _WHOLE))
        if high - low > _WHOLE:
            values = np.random.default_rng(0).integers(low, high, _WHOLE)
            values[:2] = low, high - 1
    if distribution is not None and (tensor.away_from or tensor.domain != (None, None)):
        inside = allowed_intervals(distribution, tensor.away_from, tensor.domain)
        values = np.array([value for value in values if contains(inside, float(value))])
    return values


def _edit(stack: Array, pool: Array, generator: np.random.Generator, drawn: int) -> Array:
    """Return points with new values of a pool: everywhere, in one element, or the same in all elements.

    Every third point keeps what was drawn.
    """
    edited = stack.copy()
    flat = edited.reshape(len(stack), -1)
    shape = (len(pool),) * flat.shape[1]
    # If there are few combinations, each occurs.
    few: Any = generator.permutation(math.prod(shape)) if math.prod(shape) <= len(flat) else []
    for row in range(min(drawn, 2), len(flat)):
        if row % 6 == 1:
            flat[row] = flat[0]
            flat[row, generator.integers(flat.shape[1])] = generator.choice(pool)
        elif row % 6 == 2:  # noqa: PLR2004 (the turns)
            flat[row] = generator.choice(pool)
        elif row % 3 and len(few):
            turn = row // 6 * 2 + row % 3 - 1
            flat[row] = pool[list(np.unravel_index(few[turn % len(few)], shape))]
        elif row % 3:
            flat[row] = generator.choice(pool, flat.shape[1])
    return np.asarray(edited)


def _sharpen(stack: Array, generator: np.random.Generator, drawn: int) -> Array:
    """Return probabilities, some of which lie nearer to the middle or to a corner."""
    powers = 10.0 ** generator.uniform(-1.0, 1.0, len(stack) - drawn)
    made = np.array(stack)
    moved = made[drawn:] ** powers.reshape(-1, *[1] * (made.ndim - 1))
    made[drawn:] = moved / moved.sum(axis=-1, keepdims=True)
    return made


def _specials_of(name: str, value: Array, specials: tuple[float, ...]) -> list[str]:
    if value.size > 1 and (value == value.flat[0]).all():
        return [f"all elements of {name} are equal" if value.any() else f"{name} == 0"]
    facts, other = [], []
    names: dict[object, str] = {0.0: "0"}
    for row in range(len(value) if value.ndim > 1 and value.size > len(value) else 0):
        own, key = f"{name}[{row}]", value[row].tobytes() if value[row].any() else 0.0
        if key in names:
            facts.append(f"{own} == {names[key]}")
        names.setdefault(key, own)
    for place in np.ndindex(value.shape if not facts else (0,)):
        number, own = value[place].item(), f"{name}{list(place) if place else ''}".replace(" ", "")
        if number in names:
            facts.append(f"{own} == {names[number]}")
        elif number in specials:
            other.append(f"{own} == {float(np.real(number)):g}")
        names.setdefault(number, own)
    return facts or other
