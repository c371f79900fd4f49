"""Arrays by kind of generator, in float64 (or integers, booleans, text), from a numpy random generator.

Each function fills a whole shape; nothing here knows of dtypes, domains or seeds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.floating | np.complexfloating]

Shape = tuple[int, ...]

# Eigenvalues between these keep the condition number of `spd` at 4 at most.
EIGENVALUES = (0.5, 2.0)
# Off-diagonal part of `triangular`, relative to 1/sqrt(n): small against a diagonal in [1, 2].
OFF_DIAGONAL = 0.5
# Least share of a probability, relative to the mean of the exponentials that are normalised.
PROBABILITY_FLOOR = 0.1


def elements(
    rng: np.random.Generator, kind: str, arguments: Mapping[str, object], count: int
) -> NDArray[np.generic]:
    """Draw independent elements.

    Args:
        rng: source of randomness.
        kind: uniform, normal, integers or choice.
        arguments: the generator's arguments; the `values` of choice as an array.
        count: how many.

    Returns:
        A vector; of integers for `integers`, of the values' type for `choice`.
    """
    if kind == "uniform":
        low, high = np.float64(arguments["low"]), np.float64(arguments["high"])  # type: ignore[arg-type]
        share = rng.random(count)
        # Not low + share * (high - low): the width of the whole float64 range overflows.
        return np.asarray(np.clip(low * (1 - share) + high * share, low, high))
    if kind == "normal":
        mean, stddev = np.float64(arguments["mean"]), np.float64(arguments["stddev"])  # type: ignore[arg-type]
        return np.asarray(mean + stddev * rng.standard_normal(count))
    if kind == "integers":
        low, high = int(str(arguments["low"])), int(str(arguments["high"]))
        return rng.integers(low, high, count, dtype=np.uint64 if high > 2**63 else np.int64)
    values = np.asarray(arguments["values"])
    return np.asarray(values[rng.integers(0, len(values), count)])


def places(rng: np.random.Generator, arguments: Mapping[str, object], shape: Shape) -> NDArray[np.generic]:
    """Draw distinct places in a dense shape, in order.

    Args:
        rng: source of randomness.
        arguments: the dense `shape`.
        shape: how many places, and how many indices each has.

    Returns:
        An array of `shape`, int64.
    """
    dense: Shape = arguments["shape"]  # type: ignore[assignment]
    if not shape[0]:
        return np.zeros(shape, np.int64)
    chosen = np.sort(rng.choice(math.prod(dense), shape[0], replace=False))
    return np.stack(np.unravel_index(chosen, dense), axis=-1).reshape(shape).astype(np.int64)


def structured(  # noqa: PLR0911 (one return per kind)
    rng: np.random.Generator, kind: str, shape: Shape, *, is_complex: bool, side: str = "lower"
) -> NDArray[np.generic]:
    """Draw an array whose elements depend on each other.

    Args:
        rng: source of randomness.
        kind: permutation, one_hot, probabilities, spd, orthogonal or triangular.
        shape: of the result; the last one or two dimensions hold the structure, the others are a batch.
        is_complex: whether matrices are complex.
        side: of the triangle, lower or upper.

    Returns:
        Integers for permutation and one_hot, else floats or complex numbers.
    """
    if 0 in shape:
        return np.zeros(shape, complex if is_complex else float)
    if kind == "permutation":
        return np.asarray(np.argsort(rng.random(shape), axis=-1))
    if kind == "one_hot":
        chosen = rng.integers(0, shape[-1], (*shape[:-1], 1))
        return np.asarray(np.arange(shape[-1]) == chosen, np.int64)
    if kind == "probabilities":
        weights = rng.standard_exponential(shape) + PROBABILITY_FLOOR
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
    if kind == "spd":
        return _spd(rng, shape, is_complex=is_complex)
    if kind == "orthogonal":
        return _orthogonal(rng, shape, is_complex=is_complex)
    return _triangular(rng, shape, side, is_complex=is_complex)


def mirrored(matrix: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a matrix, or a stack of them, with its lower triangle mirrored: symmetric, or Hermitian."""
    values: Floats = np.asarray(matrix)
    lower = np.tril(values, -1)
    on = np.arange(values.shape[-1])
    full = lower + np.conj(np.swapaxes(lower, -1, -2))
    full[..., on, on] = values[..., on, on].real
    return np.asarray(full)


def _gaussian(rng: np.random.Generator, shape: Shape, *, is_complex: bool) -> Floats:
    real = rng.standard_normal(shape)
    return real + 1j * rng.standard_normal(shape) if is_complex else real


def _orthogonal(rng: np.random.Generator, shape: Shape, *, is_complex: bool) -> Floats:
    *batch, rows, columns = shape
    tall = (*batch, max(rows, columns), min(rows, columns))
    q, r = np.linalg.qr(_gaussian(rng, tall, is_complex=is_complex))
    # Without the signs of r's diagonal, q isn't uniformly distributed (Mezzadri 2007, "How to generate
    # random matrices from the classical compact groups").
    diagonal = np.diagonal(r, axis1=-2, axis2=-1)
    q = q * (diagonal / np.abs(diagonal))[..., np.newaxis, :]
    return np.asarray(q if rows >= columns else np.conj(np.swapaxes(q, -1, -2)))


def _spd(rng: np.random.Generator, shape: Shape, *, is_complex: bool) -> Floats:
    q = _orthogonal(rng, shape, is_complex=is_complex)
    low, high = EIGENVALUES
    size = shape[-1]
    # One eigenvalue in the middle half of each of n equal slots: none repeats, so that gradients of
    # eigenvalue decompositions exist and are tame.
    slots = (np.arange(size) + rng.uniform(0.25, 0.75, shape[:-1])) / size
    product = (q * (low + (high - low) * slots)[..., np.newaxis, :]) @ np.conj(np.swapaxes(q, -1, -2))
    return np.asarray((product + np.conj(np.swapaxes(product, -1, -2))) / 2)


def _triangular(rng: np.random.Generator, shape: Shape, side: str, *, is_complex: bool) -> Floats:
    rows, columns = shape[-2:]
    scale = OFF_DIAGONAL / np.sqrt(max(rows, columns))
    full = scale * _gaussian(rng, shape, is_complex=is_complex)
    kept = np.tril(full, -1) if side == "lower" else np.triu(full, 1)
    on = np.arange(min(rows, columns))
    kept[..., on, on] = 1j * full[..., on, on].imag if is_complex else 0
    kept[..., on, on] += rng.uniform(1.0, 2.0, kept[..., on, on].shape)
    return np.asarray(kept)
