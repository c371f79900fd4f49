"""Points of special kinds, as vectors over a case's free inputs: wide, narrow, tied, zero, on borders.

Random draws hardly ever produce them, and code often treats them separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradcheck_cli.spec.values.free_inputs import FreeInputs

    Array = np.ndarray[Any, Any]
    Pattern = Callable[["FreeInputs", Array, np.random.Generator, Sequence[float]], Array]

_HALF = 0.5  # the probability of each choice


def _scale(factor: float) -> Pattern:
    return lambda free, rows, _generator, _values: free.middles + factor * (rows - free.middles)


def _take_one_side(sign: float) -> Pattern:
    return lambda free, rows, _generator, _values: free.middles + sign * np.abs(rows - free.middles)


def _set_zeros(
    _free: FreeInputs, rows: Array, generator: np.random.Generator, _values: Sequence[float]
) -> Array:
    """Set some components to zero; in some points all of them."""
    share = generator.random((len(rows), 1)) ** 2 * 1.5
    return np.where(generator.random(rows.shape) < share, 0.0, rows)


def _tie(free: FreeInputs, rows: Array, generator: np.random.Generator, _values: Sequence[float]) -> Array:
    """Make two components of an input equal; in every other point all of them."""
    parts = free.split(rows.copy())
    for own in parts:
        if own.shape[1] > 1:
            first, second = generator.permuted(
                np.repeat(np.arange(own.shape[1])[None], len(own), axis=0), axis=1
            )[:, :2].T
            own[np.arange(len(own)), first] = own[np.arange(len(own)), second]
            own[::2] = own[::2, :1]
    return np.concatenate(parts, axis=1)


def _repeat_rows(
    free: FreeInputs, rows: Array, _generator: np.random.Generator, _values: Sequence[float]
) -> Array:
    """Make all slices of an input along its first axis the same."""
    parts = free.split(rows.copy())
    for part, own in zip(free.parts, parts, strict=True):
        if len(part.shape) > 1 and part.shape[0]:
            width = own.shape[1] // part.shape[0]
            own[:] = np.tile(own[:, :width], (1, part.shape[0]))
    return np.concatenate(parts, axis=1)


def _move_to_borders(
    free: FreeInputs, rows: Array, generator: np.random.Generator, _values: Sequence[float]
) -> Array:
    """Move some components to an end of their range."""
    ends = free.borders
    if not ends:
        return rows
    return np.where(generator.random(rows.shape) < _HALF, generator.choice(ends, rows.shape), rows)


def _round(_free: FreeInputs, rows: Array, generator: np.random.Generator, _values: Sequence[float]) -> Array:
    """Round to whole numbers, or to halves."""
    return np.round(rows * 2) / 2 if generator.random() < _HALF else np.round(rows)


def _set_compared(
    _free: FreeInputs, rows: Array, generator: np.random.Generator, values: Sequence[float]
) -> Array:
    """Set some components to a value that something is compared with, or close to one."""
    if not values:
        return rows
    drawn = generator.choice(np.array(values), rows.shape)
    drawn = drawn + generator.choice([0.0, 0.0, 1e-3, -1e-3, 1e-6, -1e-6], rows.shape) * np.maximum(
        np.abs(drawn), 1e-3
    )
    share = np.where(np.arange(len(rows)) % 2, 0.5, 1.5 / rows.shape[1])[:, None]
    return np.where(generator.random(rows.shape) < share, drawn, rows)


PATTERNS: tuple[Pattern, ...] = (
    _scale(10.0),
    _scale(0.1),
    _take_one_side(1.0),
    _take_one_side(-1.0),
    _set_zeros,
    _tie,
    _repeat_rows,
    _move_to_borders,
    _set_compared,
    _scale(3.0),
    _round,
    _scale(30.0),
)


def make_patterns(
    free: FreeInputs, rows: Array, generator: np.random.Generator, values: Sequence[float] = ()
) -> Array:
    """Return drawn points with every pattern in turn.

    Args:
        free: the free inputs.
        rows: (B, n), as drawn.
        generator: of random numbers.
        values: the values that components may be compared with.

    Returns:
        (B, n), inside the ranges that the spec states.
    """
    points = rows.copy()
    for index, pattern in enumerate(PATTERNS):
        own = slice(index, None, len(PATTERNS))
        if len(points[own]):
            points[own] = pattern(free, points[own], generator, values)
    return free.clip(points)
