"""Points of many kinds for all inputs of a case: near, far, tiny, tied, permuted, on and beside special ones.

Random draws hardly ever produce them, and code often treats them separately. A stated range is never left:
a spec says nothing about the function beyond it. Real and complex inputs whose elements are drawn one by one
are one vector of real numbers. Other inputs move as well: booleans, whole numbers, texts and other choices
are drawn anew, edited one at a time, or all the same.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gradcheck_cli.checking.ops.operation import TensorInfo, packed_size
from gradcheck_cli.checking.ops.space import Space
from gradcheck_cli.numerics import precision_of
from gradcheck_cli.spec.case import UNBOUNDED, Case, InputSpec, Interval, kind_of
from gradcheck_cli.spec.values.constraints import allowed_intervals, distribution_of, integer_ends
from gradcheck_cli.spec.values.draw_values import draw
from gradcheck_cli.spec.words import SOURCES
from gradcheck_cli.visible import join_first

Array = np.ndarray[Any, Any]

# How many standard deviations from the mean values may lie where the spec states no range: beyond 88, exp
# overflows in float32; and in half precision.
_FAR, _NEAR = 30.0, 6.0
# A stated normal distribution is as good as a range: a fixed-point iteration converges for the values that
# it draws, and not for larger ones, nor for as large ones that all have one sign. So a value lies no farther,
# and the root mean square of all is no larger than the distribution's. Where no range is stated, values as
# far are as good as stated: one of 16,000 normal values lies beyond. Farther out, it is a question.
_STATED = 4.0
_OF_STRUCTURE = 0.1  # how far a component of a structure, such as a probability, is moved at most
FIRST = 1_000  # above any requested number of samples: indices of points that the spec didn't ask for
_DRAWN = 16  # points of a batch that are drawn, of few points a quarter; the others are made from them
_NAMED = 3  # special facts, in a message
_HALF = 0.5  # the probability of each choice
_TRIED = 4_096  # values that are drawn to see which an element may have
_ROUNDING = 1e-6  # of a special value: its neighbour in float32 and in float64
_BAND = 0.1  # how far apart two special values lie at most, for their middle to be special
_SPECIAL = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)
CLOSE = 1e-3  # spreads: two values that near may be at a tie as far as differences show
# Spreads, or probabilities: values lie nearer to zero, or to each other, only where they are equal but for a
# rounding. One of a million draws lies so near. What is wrong nowhere else is a guard against a division by
# zero: at this distance `x / (norm(x) + 1e-12)` is off by 1e-6.
_NEAREST = 1e-6
# Elements nearer to zero than this, in spreads, are seldom so at once: the decimal logarithm of the chance.
_NEAR_ZERO, _LEAST_CHANCE = 0.01, -9.0


@dataclass(frozen=True)
class FreeInput:
    """One input whose elements may be chosen, as a vector of real numbers."""

    index: int  # its index among the case's inputs
    info: TensorInfo
    intervals: tuple[Interval, ...]  # where each component may lie, disjoint and ascending
    middle: float = 0.0  # the middle of the distribution
    spread: float = _OF_STRUCTURE  # its standard deviation
    is_normal: bool = False  # whether the spec states a normal distribution
    is_stated: bool = True  # whether the spec says how far it goes
    ends: tuple[float, ...] = ()  # the ends of its ranges, as the spec states them
    is_chosen: bool = False  # whether its elements may be chosen
    is_constant: bool = False  # whether it is a weight, or stated: the same at all points

    @property
    def size(self) -> int:
        """How many components it has."""
        return packed_size(self.info)

    def clip(self, values: Array) -> Array:
        """Return values, (B, size), each moved to the nearest allowed one."""
        nearest, *others = (np.clip(values, *ends) for ends in self.intervals)
        for other in others:
            nearest = np.where(np.abs(other - values) < np.abs(nearest - values), other, nearest)
        return np.asarray(nearest)

    def draw_in(self, values: Array) -> Array:
        """Return values, (B, size), drawn towards the middle where all together lie too far from it."""
        if not self.is_normal:
            return values
        distances = values - self.middle
        size = np.sqrt(np.mean(distances**2, axis=1, keepdims=True)) / self.spread
        return np.asarray(self.middle + distances / np.maximum(size, 1))


@dataclass(frozen=True)
class FreeInputs:
    """The inputs of a case that may be chosen, as one vector."""

    parts: tuple[FreeInput, ...]

    @property
    def size(self) -> int:
        """How many components there are."""
        return self.space.size

    @cached_property
    def space(self) -> Space:
        """The inputs as one vector."""
        return Space({part.index: part.info for part in self.parts})

    def pack(self, points: Mapping[int, Array]) -> Array:
        """Turn stacks of inputs, (B, *shape) by index, into vectors of their own, (B, size)."""
        count = len(next(iter(points.values())))
        return np.array(self.space.pack(points)) if self.parts else np.empty((count, 0))

    def unpack(self, vectors: Array, points: Mapping[int, Array]) -> dict[int, Any]:
        """Turn vectors, (B, size), into stacks of inputs; those that may not be chosen are as in `points`."""
        return {**points, **self.space.unpack(vectors)}

    def vector(self, point: Mapping[int, Array]) -> Array:
        """Turn one point into a vector, (size,)."""
        return np.array(self.space.pack_one(point))

    def at(self, vector: Array, point: Mapping[int, Array]) -> dict[int, Array]:
        """Turn a vector, (size,), into a point; inputs that may not be chosen are as in another one."""
        return {**point, **{index: stack[0] for index, stack in self.unpack(vector[None], {}).items()}}

    def each(self, vectors: Array, change: Callable[[FreeInput, Array], Array]) -> Array:
        """Return vectors with the components of each input changed."""
        parts = zip(self.parts, self.space.split(vectors), strict=True)
        return np.concatenate([vectors[:, :0], *(change(part, own) for part, own in parts)], axis=1)

    def clip(self, vectors: Array) -> Array:
        """Return vectors with each component moved to the nearest allowed value."""
        return self.each(vectors, FreeInput.clip)

    def draw_in(self, vectors: Array) -> Array:
        """Return vectors drawn towards the middle where they lie too far from it, and clipped."""
        return self.clip(self.each(vectors, FreeInput.draw_in))

    @property
    def spreads(self) -> Array:
        """Each component's standard deviation, (size,)."""
        return self.space.each([part.spread for part in self.parts])

    @cached_property
    def are_constant(self) -> Array:
        """Whether each component is one of a weight, or stated, (size,)."""
        return self.space.each([part.is_constant for part in self.parts])

    @property
    def middles(self) -> Array:
        """Each component's middle, (size,)."""
        return self.space.each([part.middle for part in self.parts])


def _free_input(index: int, tensor: InputSpec, far: float, base: Array) -> FreeInput | None:
    """Return an input whose elements differences may be taken for; `None` for any other.

    They may be chosen if they are drawn one by one. A component of a structure, such as one of some
    probabilities, moves by itself for a difference, and so do weights and stated values, by their size.
    """
    distribution, kind = distribution_of(tensor), kind_of(tensor.dtype)
    info = TensorInfo(tensor.name, tensor.dtype, tensor.shape)
    is_free = kind in ("float", "complex") and not tensor.symmetric and tensor.min_gap is None
    is_kept = not is_free or (tensor.away_from and kind == "complex")
    if distribution is not None and distribution.kind in ("normal", "uniform") and not is_kept and info.size:
        is_default, is_normal = tensor.source.kind == "default", distribution.kind == "normal"
        low, high = distribution.range
        middle, spread = distribution.mean, distribution.stddev
        if is_normal:
            width = (far if is_default else _STATED) * spread
            low, high = middle - width, middle + width
        allowed = allowed_intervals(distribution, tensor)
        if intervals := allowed_intervals(distribution, tensor, (low, high)):
            return FreeInput(
                index,
                info,
                intervals,
                middle,
                spread or 1.0,
                is_normal and not is_default,
                not is_default or tensor.domain != UNBOUNDED,
                tuple(end for ends in allowed for end in ends if math.isfinite(end)),
                is_chosen=True,
            )
    if tensor.symmetric or not tensor.is_differentiable or not info.size:
        return None
    is_constant = tensor.is_stated or tensor.is_variable
    size = float(np.sqrt(np.mean(np.abs(base) ** 2))) if is_constant else 0.0
    return FreeInput(index, info, (tensor.domain,), spread=size or _OF_STRUCTURE, is_constant=is_constant)


class MixedPoints:
    """Makes points for a case."""

    def __init__(self, case: Case, base: Sequence[Array], low_precision: Sequence[str] = ()) -> None:
        """Draw nothing yet.

        Args:
            base: the values of all inputs at the first sample point.
            low_precision: the dtypes below float64 in which the op computes. In half precision, all digits
                are soon lost, which says nothing about the formula.
        """
        self.case = case
        self.far = min(
            (_FAR if own in ("float32", "complex64") else _NEAR for own in low_precision), default=_FAR
        )
        parts = [
            _free_input(index, tensor, self.far, base[index]) for index, tensor in enumerate(case.tensors)
        ]
        self.differenced = FreeInputs(tuple(part for part in parts if part is not None))
        self.free = FreeInputs(tuple(part for part in self.differenced.parts if part.is_chosen))
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
        """The values that each element of an input may have, or some of many; often special whole numbers."""
        pools = {}
        for index, tensor in self.moving.items():
            is_one_by_one = tensor.source.kind in ("default", "bool", "integers", "choice")
            is_number = kind_of(tensor.dtype) in ("float", "complex")
            if not is_one_by_one or is_number or tensor.symmetric or tensor.min_gap is not None:
                continue
            pool = np.unique(draw(self.case, replace(tensor, shape=(_TRIED,)), FIRST))
            if pool.dtype.kind in "iu":
                special = np.array([value for value in self._weighted_specials() if value == round(value)])
                near = np.concatenate([special, special - 1, special + 1])
                low, high = integer_ends(tensor)
                is_inside = (near >= low) & (near < high)
                is_allowed = is_inside if tensor.source.kind == "integers" else np.isin(near, pool)
                inside = near[is_allowed].astype(pool.dtype)
                pool = np.concatenate([pool, np.repeat(inside, 1 + len(pool) // max(len(inside), 1))])
            if pool.size > 1:
                pools[index] = pool
        return pools

    def add_specials(self, numbers: Sequence[float], most: int) -> None:
        """Add numbers of the code that aren't tiny to what components may be compared with, most in all."""
        least = _NEAREST * self.free.spreads.min(initial=1.0)
        own = (number for number in numbers if number == 0 or abs(number) >= least)
        self.specials = tuple(dict.fromkeys([*self.specials, *own]))[:most]

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
            points[index] = _edit(points[index], pool, generator)
        for index, tensor in self.moving.items():
            if tensor.source.kind == "probabilities":
                points[index] = _sharpen(points[index], generator, drawn)
        order = generator.permutation(count)  # so that some of them are as mixed as all
        return {index: stack[order] for index, stack in points.items()}

    def are_ordinary(self, vectors: Array) -> Array:
        """Whether nothing is special about vectors, (B, size), and they lie within what would be drawn."""
        is_near = (self.draw_near(vectors) == vectors).all(axis=1)
        return np.asarray(is_near & (self.count_special(vectors) == 0))

    def count_special(self, vectors: Array, within: float = 0.0) -> Array:
        """Return how many values are special, or equal to another one, up to so many spreads, (B,)."""
        gaps = np.diff(np.sort(vectors / self.free.spreads, axis=1), axis=1)
        return np.asarray((gaps <= within).sum(axis=1) + np.isin(vectors, self.specials).sum(axis=1))

    def draw_near(self, vectors: Array) -> Array:
        """Return vectors, (B, size), with each component that lies beyond moved to what would be drawn."""
        reach = _STATED * self.free.spreads
        return self.free.clip(np.clip(vectors, self.free.middles - reach, self.free.middles + reach))

    def describe_range(self, point: Mapping[int, Array]) -> str:
        """Ask about the range of the input that lies farthest beyond what the spec says; empty if none does.

        A special value lies beyond nothing, nor does its neighbour by a rounding.
        """
        farthest, size, name = _STATED, 0.0, ""
        for part in self.free.parts:
            values = Space({part.index: part.info}).pack_one(point)
            distances = np.where(self._are_special(values), 0.0, np.abs(values - part.middle) / part.spread)
            if not part.is_stated and distances.max() > farthest:
                farthest, at = distances.max(), distances.argmax()
                size, name = float(np.abs(values[at])), part.info.name
        if not name:
            return ""
        digit = 10.0 ** math.floor(math.log10(size))
        bound = f"{math.ceil(size / digit) * digit:g}"
        return (
            f"If {name} goes that far, say so (`uniform: {{low: -{bound}, high: {bound}}}`): then it is "
            "a mismatch. If not, say how far it goes: then nobody looks beyond."
        )

    def describe_nearness(self, point: Mapping[int, Array], base: Sequence[Array], *, is_alone: bool) -> str:
        """Ask whether an input comes as near to a special value, or to another element, as at a point.

        Draws hardly do if the gradient is wrong at this point alone, or if many elements must be near zero at
        once. Nothing is asked where a spec states the range, nor at a special value, unless others are tiny
        with it.

        Args:
            point: the values of all inputs.
            base: those at the sample point, which nothing is asked about.
            is_alone: whether the gradient is right beside the point.
        """
        at_special, near, log_chance = self.describe_specials(point), "", 0.0
        for part in self.free.parts:
            space = Space({part.index: part.info})
            values, own = (space.pack_one(each) for each in (point, {part.index: base[part.index]}))
            is_chosen, distances = ~self._are_special(values) & (values != own), np.abs(values) / part.spread
            if not part.is_stated:
                is_near = is_chosen & (distances < _NEAR_ZERO)
                log_chance += np.log10(distances[is_near]).sum()
                is_meant = is_chosen & (distances < CLOSE) if at_special else is_chosen
                near = near or (part.info.name if (is_meant if is_alone else is_near).any() else "")
        if not near or not (is_alone or log_chance < _LEAST_CHANCE):
            return ""
        return (
            f"{'It is right again beside this point: draws' if is_alone else 'Draws'} hardly come so near to "
            f"a value as 0, or to each other. If {near} does, give a case of its own such a `value`: then it "
            "is a mismatch. If not, keep it away from them (`away_from: [0]`, `min_gap: 0.01`)."
        )

    def _are_special(self, values: Array) -> Array:
        """Whether each of some values, (size,), is special, or a rounding away from that."""
        return np.asarray(np.isclose(values[:, None], self.specials, rtol=_ROUNDING, atol=0).any(axis=1))

    def describe_specials(self, point: Mapping[int, Array]) -> str:
        """Return what is special about a point as its dtypes round it, such as `x[2] == 0`; or nothing."""
        equal, other = [], []
        for part in self.free.parts:
            names: dict[object, str] = {0.0: "0"}
            held = np.asarray if part.info.is_complex else precision_of(part.info.dtype).round
            specials = set(held(self.specials).tolist())
            for place, number in np.ndenumerate(held(point[part.index])):
                own = f"{part.info.name}{list(map(int, place)) if place else ''}".replace(" ", "")
                if number in names:
                    equal.append(f"{own} == {names[number]}")
                elif number in specials:
                    other.append(f"{own} == {float(np.real(number)):g}")
                names.setdefault(number, own)
        return join_first(equal or other, _NAMED, " and ")

    def _weighted_specials(self) -> Array:
        """Return special values. At least half are of the code: `x`, `-x` or `exp(x)`, or a band."""
        general = [*_SPECIAL, *(end for part in self.free.parts for end in part.ends)]
        own = self.specials[len(_SPECIAL) :]
        bands = [(a + b) / 2 for a, b in itertools.pairwise(sorted(own)) if b - a < _BAND * abs(b)]
        logs = [math.log(value) for value in own if value > 0 and value != 1]
        every = [*own, *own, *(-value for value in own), *logs, *bands]
        return np.array([*general, *np.resize(every, max(len(every), len(general)) if own else 0)])

    def _patterns(self, points: dict[int, Array], generator: np.random.Generator, drawn: int) -> Any:
        vectors = self.free.pack(points)
        rows = vectors[drawn:]
        rows[:] = np.take_along_axis(vectors[:drawn], generator.integers(drawn, size=rows.shape), axis=0)
        context = _Context(self.free, self._weighted_specials(), generator, min(self.far / 2, 30.0))
        # Half of the points have a second pattern: a large value beside a tiny one.
        first = np.arange(len(rows)) % len(_FIRST)
        second = generator.integers(2 * len(_SECOND), size=len(rows))
        for patterns, turns in ((_FIRST, first), (_SECOND, second)):
            for pattern in dict.fromkeys(patterns):
                own = np.isin(turns, [turn for turn, other in enumerate(patterns) if other is pattern])
                if own.any():
                    rows[own] = pattern(context, rows[own])
        return self.free.unpack(self.free.draw_in(vectors), {})


@dataclass
class _Context:
    """What patterns need to know."""

    free: FreeInputs
    specials: Array
    generator: np.random.Generator
    most: float  # how many times as far from the middle as drawn values may lie

    def some(self, rows: Array, values: Array) -> Array:
        """Return rows with other values of one component, of half or of all."""
        share = np.array([1.01 / rows.shape[1], 0.5, 1.01])[np.arange(len(rows)) % 3][:, None]
        return np.where(self.generator.random(rows.shape) < share, values, rows)

    def signs(self, shape: tuple[int, ...]) -> Array:
        """Return random signs."""
        return np.where(self.generator.random(shape) < _HALF, 1.0, -1.0)


def _scale(context: _Context, rows: Array) -> Array:
    """Lie farther from the middle."""
    factors = np.minimum([10.0, 2.0, 3.0, 30.0], context.most)[np.arange(len(rows)) % 4, None]
    return context.some(rows, context.free.middles + factors * (rows - context.free.middles))


def _set_special(context: _Context, rows: Array) -> Array:
    """Set special values, zero more often than others; in every other point, lie at a distance from them.

    Half of these differ by a rounding of some dtype, the others by as much as draws do.
    """
    values, turns = context.generator.choice(context.specials, rows.shape), np.arange(len(rows))[:, None]
    values[turns[:, 0] % 8 == 0] = 0.0
    beside = np.maximum(np.abs(values), context.free.spreads) * _nearness(context, rows.shape)
    rounded = np.abs(values) * 10.0 ** context.generator.uniform(-16, -6, rows.shape)
    distances = np.where(turns % 4 == 1, rounded, beside) * context.signs(rows.shape)
    return context.some(rows, values + distances * (turns % 2))


def _make_tiny(context: _Context, rows: Array) -> Array:
    """Scale by a power of ten, each point by another one; all components or some."""
    least, tiny = _NEAREST * context.free.spreads, rows * _nearness(context, (len(rows), 1))
    return context.some(rows, np.where(rows == 0, 0.0, np.copysign(np.maximum(np.abs(tiny), least), tiny)))


def _nearness(context: _Context, shape: tuple[int, ...]) -> Array:
    """Draw distances from a special value, in spreads. Series beside closed forms end at 1e-2 to 1e-5."""
    return np.asarray(10.0 ** context.generator.uniform(math.log10(_NEAREST), -1, shape))


def _tie(context: _Context, rows: Array) -> Array:
    """Make two components of an input equal, in every other point all of them; some with opposite signs.

    Every other four are nearly so.
    """

    def change(_: FreeInput, own: Array) -> Array:
        order = context.generator.permuted(np.tile(np.arange(own.shape[1]), (len(own), 1)), axis=1)
        every = np.arange(len(own))
        own[every, order[:, 0]] = own[every, order[:, -1]]
        own[::4] = own[::4, :1]
        own[1::4] = own[1::4, :1] * context.signs(own[1::4].shape)
        return own

    near = np.arange(len(rows))[:, None] // 4 % 2
    distance = near * _nearness(context, (len(rows), 1))
    noise = distance * context.free.spreads * context.generator.standard_normal(rows.shape)
    return np.asarray(context.free.each(rows, change) + noise)


def _repeat_rows(context: _Context, rows: Array) -> Array:
    """Make slices of an input along its first or last axis the same, or zero; inputs of one shape equal."""
    first = context.free.parts[0]
    of_first = context.free.space.split(rows)[0][::3].copy()

    def change(part: FreeInput, own: Array) -> Array:
        if len(part.info.shape) > 1:
            # Of complex inputs, both parts apart.
            along_first = own.reshape(len(own), -1, own.shape[1] // part.info.shape[0])
            along_last = own.reshape(len(own), -1, part.info.shape[-1]).swapaxes(1, 2)
            for slices in (along_first[::2], along_last[1::2]):
                place, another = context.generator.integers(slices.shape[1], size=2)
                slices[0::4] = slices[0::4, :1]
                slices[1::4, place] = slices[1::4, another]
                slices[2::4, place] = 0.0
                slices[3::4] *= context.generator.integers(2, size=slices[3::4].shape[:2])[..., None]
        if part.size == first.size:
            own[::3] = of_first if part is not first else own[::3]
        return own

    return context.free.each(rows, change)


def _pad(context: _Context, rows: Array) -> Array:
    """End sequences early: zeros follow, or another special value, along the last axis or the one before."""
    fills = context.generator.choice(context.specials, (len(rows), 1, 1, 1))
    fills[np.arange(len(rows)) % 8 > 1] = 0.0  # two of eight keep theirs, one for each axis

    def change(part: FreeInput, own: Array) -> Array:
        count, width = (1, 1, *part.info.shape)[-2:]
        cells = own.reshape(len(own), -1, count, width)
        for axis in (2, 3):
            chosen = cells[axis % 2 :: 2]
            lengths = context.generator.integers(1, chosen.shape[axis] + 1, (*chosen.shape[:2], 1))
            is_over = np.expand_dims(np.arange(chosen.shape[axis]) >= lengths, 5 - axis)
            chosen[:] = np.where(is_over, fills[axis % 2 :: 2], chosen)
        return own

    return context.free.each(rows, change)


def _sort(context: _Context, rows: Array) -> Array:
    """Sort components, ascending or descending."""

    def change(_: FreeInput, own: Array) -> Array:
        own.sort(axis=1)
        own[::2] = own[::2, ::-1].copy()
        return own

    return context.free.each(rows, change)


# Signs that repeat: all the same, alternating, and whatever else has a period of up to four. By its period, a
# row lies so many times as far out: conditions on signs are often on sizes, too.
_SIGNS = [signs for period in range(1, 5) for signs in itertools.product((-1.0, 1.0), repeat=period)]
_FARTHER = (1.0, 3.0, 10.0, 2.0)


def _set_signs(context: _Context, rows: Array) -> Array:
    """Set signs that repeat, and then the same with one exception."""
    for turn, row in enumerate(rows):
        repeated = _SIGNS[turn % len(_SIGNS)]
        signs = np.resize(repeated, len(row)) * min(_FARTHER[len(repeated) - 1], context.most)
        signs[context.generator.integers(len(row))] *= -1.0 if turn >= len(_SIGNS) else 1.0
        row[:] = context.free.middles + np.abs(row - context.free.middles) * signs
    return rows


def _set_sum(context: _Context, rows: Array) -> Array:
    """Make the sum of an input's components special, or each fourth mean: by all of them, or by one."""

    def change(_: FreeInput, own: Array) -> Array:
        count, turns = own.shape[1], np.arange(len(own))[:, None] % 4
        wanted = np.resize(context.generator.permutation(np.unique(context.specials)), (len(own), 1))
        missing = np.where(turns, wanted, wanted * count) - own.sum(axis=1, keepdims=True)
        is_one = np.arange(count) == context.generator.integers(count, size=(len(own), 1))
        return np.asarray(own + np.where(turns == 1, missing * is_one, missing / count))

    return context.free.each(rows, change)


Pattern = Callable[[_Context, Array], Array]
# Which pattern each point has, in turns, and which may follow it in the same point.
_FIRST: tuple[Pattern, ...] = (
    *(_scale, _set_signs, _set_special, _tie, _scale, _sort, _make_tiny, _set_special, _repeat_rows),
    *(_set_special, _set_signs, _set_special, _make_tiny, _tie, _scale, _pad),
)
_SECOND: tuple[Pattern, ...] = (_scale, _set_signs, _set_special, _pad, _set_special, _make_tiny, _set_sum)


def _edit(stack: Array, pool: Array, generator: np.random.Generator) -> Array:
    """Return points with new values of a pool: everywhere, in one element, or the same in all elements.

    Every fourth point keeps what was drawn. If there are few combinations, each occurs.
    """
    flat = stack.reshape(len(stack), -1)
    count, size = flat.shape
    turns = np.arange(count)[:, None] % 4
    if len(pool) ** size <= count // 2:
        every = np.array(list(itertools.product(pool, repeat=size)), pool.dtype)
        values = every[generator.permutation(count) % len(every)]
        return np.asarray(np.where(turns == 0, flat, values).reshape(stack.shape))
    values = generator.choice(pool, flat.shape)
    values = np.where(turns == 1, values[:, :1], values)
    is_one = np.arange(size) == generator.integers(size, size=(count, 1))
    is_kept = (turns == 0) | (turns == 2) & ~is_one  # noqa: PLR2004 (the turns)
    kept = np.where(turns == 0, flat, flat[:1])
    return np.asarray(np.where(is_kept, kept, values).reshape(stack.shape))


def _sharpen(stack: Array, generator: np.random.Generator, drawn: int) -> Array:
    """Return probabilities, some of which lie nearer to the middle or to a corner.

    In every other point, one of them has most, and none of the others is nearly 0 for that.
    """
    count, ones = len(stack) - drawn, [1] * (stack.ndim - 1)
    powers, shares = 10.0 ** generator.uniform([[-1.0], [-2.0]], [[1.0], [0.0]], (2, count))
    shares[::2] = 1.0
    moved = stack[drawn:] ** powers.reshape(-1, *ones)
    moved /= moved.sum(axis=-1, keepdims=True)
    is_most = np.arange(stack.shape[-1]) == generator.integers(stack.shape[-1], size=(count, *ones))
    moved = is_most + shares.reshape(-1, *ones) * (moved - is_most)
    # A little of an even distribution: no probability is nearer to 0, and the sum stays.
    return np.concatenate([stack[:drawn], moved + _NEAREST * (1 - stack.shape[-1] * moved)])
