"""Random vectors to move along or to pull back: random signs and no small values, which would hide errors."""

from __future__ import annotations

import numpy as np

from gradcheck_cli.numerics.precision import Float


def draw_signed(generator: np.random.Generator, size: int) -> Float:
    """Draw magnitudes between a half and one, with random signs; one array, however large."""
    drawn = generator.random(size)
    # One draw gives both: the first half of the interval is negative.
    np.subtract(drawn, 0.5, out=drawn)
    drawn += np.copysign(0.5, drawn)
    return drawn


def draw_signs(generator: np.random.Generator, shape: int | tuple[int, ...]) -> Float:
    """Draw signs, either with the same probability."""
    return np.copysign(1.0, generator.random(shape) - 0.5)


def draw_eight_bits(generator: np.random.Generator, shape: int | tuple[int, ...]) -> Float:
    """Draw numbers between -1 and 1 of eight bits, bfloat16's: as upstreams they are exact in every dtype.

    Only these vectors may have small or zero elements. They are drawn in one array, however large.
    """
    drawn = generator.random(shape)
    drawn -= 0.5
    drawn *= 256
    np.rint(drawn, out=drawn)
    drawn /= 128
    return drawn
