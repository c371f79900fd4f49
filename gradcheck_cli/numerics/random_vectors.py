"""Random vectors to move along or to pull back: random signs and no small values, which would hide errors."""

from __future__ import annotations

import numpy as np

from gradcheck_cli.numerics.precision import Float

# Seeds of `draw_frozen`.
LARGEST_SEED = 2**32


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


def draw_spread(generator: np.random.Generator, shape: int | tuple[int, ...]) -> Float:
    """Draw magnitudes between a half and one and a half, with random signs drawn before them."""
    sign = draw_signs(generator, shape)
    return np.asarray(sign * generator.uniform(0.5, 1.5, shape))


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


def draw_frozen(seed: int, out: Float) -> None:
    """Fill a vector with multiples of 2^-7 between a half and one, with random signs: exact in every dtype.

    Baselines store numbers computed from them. NumPy's legacy generator has a stream that is frozen for ever.
    The new generator's stream may change with NumPy, which would break all baselines.

    Args:
        seed: below `LARGEST_SEED`.
        out: (n,) the vector.
    """
    generator = np.random.RandomState(seed)
    drawn = generator.randint(64, 129, out.shape[0], dtype=np.int16)  # int16 keeps a large array small
    drawn *= 2 * generator.randint(0, 2, drawn.shape, dtype=np.int16) - 1
    np.divide(drawn, 128.0, out=out)
