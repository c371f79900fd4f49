"""Points of many kinds for all inputs of a case: near, far, tiny, tied, permuted, on and beside special ones.

Random draws hardly ever produce them, and code often treats them separately. A stated range is never left:
a spec says nothing about the function beyond it. Inputs that aren't real numbers move, too: booleans, whole
numbers, texts and other choices are drawn anew, edited one at a time, or all the same.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gradcheck_cli.features.search.free_inputs import FreeInputs
from gradcheck_cli.spec.case import Case, InputSpec
from gradcheck_cli.spec.values.constraints import allowed_intervals
from gradcheck_cli.spec.values.distributions import contains, distribution_of, integer_ends
from gradcheck_cli.spec.values.draw_values import draw
from gradcheck_cli.spec.words import SOURCES, kind_of

Array = np.ndarray[Any, Any]

FIRST = 1_000  # above any requested number of samples: indices of points that the spec didn't ask for
_DRAWN = 24  # points of a batch that are drawn, of few points a quarter; the others are made from them
_NAMED = 3  # special facts, in a message
_HALF = 0.5  # the probability of each choice
_WHOLE = 4_096  # whole numbers of a range; of a larger range, as many are drawn
_SPECIAL = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)
_SETTINGS = 32  # points with the same values of variables: setting a variable takes a call of its own


class MixedPoints:
    """Makes points for a case."""

    def __init__(self, case: Case, far: float) -> None:
        """Draw nothing yet.

        Args:
            far: spreads from the middle that normal values may lie; see `reach_of`.
        """
        self.case, self.far = case, far
        self.free = FreeInputs.of(case, far)  # its inputs that are vectors of real numbers
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
            if tensor.is_variable:
                value = np.asarray(tensor.source.arguments["value"])
                points[index] = np.broadcast_to(value, (count, *value.shape))
            else:
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
        start = 0
        for part in self.free.parts:  # variables have the same values at several points
            if self.moving[part.index].is_variable:
                block = slice(start, start + part.size)
                turns = np.arange(len(vectors)) // _SETTINGS
                rows = np.array([0, *(drawn + row for row in _ROWS_OF_SETTINGS)])[turns % _SETS]
                vectors[:, block] = vectors[rows % len(vectors), block]
            start += part.size
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


_FAR, _NEGATIVE = _scale(10.0), _set_signs(0)
_PATTERNS: tuple[Callable[[_Context, Array], Array], ...] = (
    *(_FAR, _change_one, _set_signs(1), _set_zeros, _set_beside, _tie, _permute, _make_tiny),
    *(_NEGATIVE, _set_special, _scale(0.1), _repeat_rows, _set_signs(2), _change_one, _scale(3.0)),
    *(_tie_closely, _set_beside, _round, _scale(30.0), _make_tiny),
)


# Variables take few values: their own, far, half of them zero, tiny, half of them special, negative, zero.
_ROWS_OF_SETTINGS = tuple(
    _PATTERNS.index(pattern) + turn * len(_PATTERNS)
    for pattern, turn in (
        *((_FAR, 0), (_set_zeros, 1), (_make_tiny, 2)),
        *((_set_special, 1), (_NEGATIVE, 0), (_set_zeros, 2)),
    )
)
_SETS = 1 + len(_ROWS_OF_SETTINGS)


def _values_of(tensor: InputSpec) -> Array:
    """Return the values that each element of an input may have by itself; none if there are too many."""
    source, kind = tensor.source, kind_of(tensor.dtype)
    distribution = distribution_of(tensor)
    values = np.array([])
    if tensor.is_variable or tensor.symmetric or tensor.min_gap is not None:
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
