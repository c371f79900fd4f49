"""The values of one argument at many points, written out or described as moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.numerics.moves import Moves

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Values of shape (B, *shape), or moves of the flattened elements.
Stack = np.ndarray[Any, Any] | Moves


def take_points(stack: Stack, rows: slice) -> Stack:
    """Return some of a stack's points."""
    return stack.take(rows) if isinstance(stack, Moves) else stack[rows]


def value_of(stack: Stack, position: int, shape: tuple[int, ...]) -> Array:
    """Write one of a stack's points out, in its shape."""
    return stack.point(position).reshape(shape) if isinstance(stack, Moves) else stack[position]
