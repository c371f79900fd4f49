"""Arrays whose elements depend on each other, by generator, in float64 or integers.

Each function fills a whole shape; it doesn't know dtypes, domains or seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.extensions import GENERATORS, extensions

Floats = NDArray[np.floating | np.complexfloating]

Shape = tuple[int, ...]

# Eigenvalues in this range keep the condition number of `spd` at 4 or less.
EIGENVALUES = (0.5, 2.0)
# Off-diagonal part of `triangular`, relative to 1/sqrt(n): small against a diagonal in [1, 2].
OFF_DIAGONAL = 0.5
# Least share of a probability, relative to the mean of the exponentials that are normalised.
PROBABILITY_FLOOR = 0.1


@dataclass(frozen=True)
class Drawing:
    """What to draw."""

    rng: np.random.Generator  # source of randomness
    shape: Shape  # the result's shape
    arguments: Mapping[str, object]  # the generator's arguments
    is_complex: bool = False  # whether matrices are complex


def draw_places(
    rng: np.random.Generator, arguments: Mapping[str, object], shape: Shape
) -> NDArray[np.generic]:
    """Draw distinct places in the dense shape among the arguments, in order.

    The int64 result's `shape` says how many places, and how many indices each has.
    """
    dense: Shape = arguments["shape"]  # type: ignore[assignment]
    if not shape[0]:
        return np.zeros(shape, np.int64)
    chosen = np.sort(rng.choice(math.prod(dense), shape[0], replace=False))
    return np.stack(np.unravel_index(chosen, dense), axis=-1).reshape(shape).astype(np.int64)


def mirror(matrix: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a matrix, or a stack of them, with its lower triangle mirrored: symmetric, or Hermitian."""
    values: Floats = np.asarray(matrix)
    lower = np.tril(values, -1)
    diagonal = np.arange(values.shape[-1])
    full = lower + np.conj(np.swapaxes(lower, -1, -2))
    full[..., diagonal, diagonal] = values[..., diagonal, diagonal].real
    return np.asarray(full)


def _gaussian(drawing: Drawing) -> Floats:
    real = drawing.rng.standard_normal(drawing.shape)
    return real + 1j * drawing.rng.standard_normal(drawing.shape) if drawing.is_complex else real


def _one_hot(drawing: Drawing) -> NDArray[np.generic]:
    shape = drawing.shape
    chosen = drawing.rng.integers(0, shape[-1], (*shape[:-1], 1))
    return np.asarray(np.arange(shape[-1]) == chosen, np.int64)


def _probabilities(drawing: Drawing) -> NDArray[np.generic]:
    weights = drawing.rng.standard_exponential(drawing.shape) + PROBABILITY_FLOOR
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _orthogonal(drawing: Drawing) -> Floats:
    *batch, rows, columns = drawing.shape
    tall = replace(drawing, shape=(*batch, max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(_gaussian(tall))
    # Without the signs of r's diagonal, q isn't uniformly distributed (Mezzadri 2007, "How to generate random
    # matrices from the classical compact groups").
    diagonal = np.diagonal(r, axis1=-2, axis2=-1)
    q = q * (diagonal / np.abs(diagonal))[..., np.newaxis, :]
    return np.asarray(q if rows >= columns else np.conj(np.swapaxes(q, -1, -2)))


def _spd(drawing: Drawing) -> Floats:
    q, shape = _orthogonal(drawing), drawing.shape
    low, high = EIGENVALUES
    size = shape[-1]
    # One eigenvalue in the middle half of each of n equal slots: none repeats, so gradients of eigenvalue
    # decompositions exist and are moderate.
    slots = (np.arange(size) + drawing.rng.uniform(0.25, 0.75, shape[:-1])) / size
    product = (q * (low + (high - low) * slots)[..., np.newaxis, :]) @ np.conj(np.swapaxes(q, -1, -2))
    return np.asarray((product + np.conj(np.swapaxes(product, -1, -2))) / 2)


def _triangular(drawing: Drawing) -> Floats:
    rows, columns = drawing.shape[-2:]
    scale = OFF_DIAGONAL / np.sqrt(max(rows, columns))
    full = scale * _gaussian(drawing)
    triangle = np.tril(full, -1) if drawing.arguments["side"] == "lower" else np.triu(full, 1)
    diagonal = np.arange(min(rows, columns))
    triangle[..., diagonal, diagonal] = 1j * full[..., diagonal, diagonal].imag if drawing.is_complex else 0
    triangle[..., diagonal, diagonal] += drawing.rng.uniform(
        1.0, 2.0, triangle[..., diagonal, diagonal].shape
    )
    return np.asarray(triangle)


def _call_extension(drawing: Drawing) -> NDArray[np.generic]:
    """Draw with a function of another package.

    Raises:
        CaseFailedError: there is no generator of that name, it raises, or it returns another shape.
    """
    name, installed = str(drawing.arguments["name"]), extensions(GENERATORS)
    if name not in installed:
        raise CaseFailedError(
            "values",
            f"no installed package brings a generator '{name}' (entry points of {GENERATORS}); there are: "
            f"{', '.join(sorted(installed)) or 'none'}.",
        )
    try:
        drawn = np.asarray(installed[name](drawing.rng, drawing.shape))
    except Exception as error:
        raise CaseFailedError(
            "values", f"generator '{name}' raised {type(error).__name__}: {error}"
        ) from error
    if drawn.shape != drawing.shape or drawn.dtype.kind not in "fciub":
        raise CaseFailedError(
            "values",
            f"generator '{name}' must return numbers of shape {list(drawing.shape)}, but returned "
            f"{drawn.dtype} of shape {list(drawn.shape)}.",
        )
    return drawn


_STRUCTURED: dict[str, Callable[[Drawing], NDArray[np.generic]]] = {
    "permutation": lambda drawing: np.asarray(np.argsort(drawing.rng.random(drawing.shape), axis=-1)),
    "one_hot": _one_hot,
    "probabilities": _probabilities,
    "spd": _spd,
    "orthogonal": _orthogonal,
    "triangular": _triangular,
    "generator": _call_extension,
}


def draw_structured(kind: str, drawing: Drawing) -> NDArray[np.generic]:
    """Draw an array whose elements depend on each other, by a generator that isn't elementwise.

    The last one or two dimensions hold the structure, the others are a batch. Those of permutation and
    one_hot are integers.
    """
    if 0 in drawing.shape:
        return np.zeros(drawing.shape, complex if drawing.is_complex else float)
    return _STRUCTURED[kind](drawing)
