"""Values of one input at one sample point, in wide types: the backend rounds them to the declared dtype.

They depend only on seed, op, case, input name, shape and sample index: neither on the dtype (a float32 case
is checked at the float64 case's points), nor on other inputs, nor on the order of drawing. The imaginary part
of a complex value has its own stream, so that the real part is the real dtype's value.

With few elements, two independent draws often see only one side of a function. So elements with few possible
values take each in turn. If an input has few elements, then at every other point they lie on the other side
of the middle: of zero, or of the range of the distribution.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.hooks import GENERATORS, extensions
from gradcheck_cli.spec.case import Case, InputSpec, Interval, kind_of
from gradcheck_cli.spec.values import arrays, constraints
from gradcheck_cli.spec.values.constraints import (
    AWAY,
    FEW_ELEMENTS,
    ElementDistribution,
    allowed_intervals,
    distribution_of,
    few_values,
)

Array = NDArray[np.generic]
Floats = NDArray[np.floating | np.complexfloating]

# With the least probability that validation accepts (`allowed_intervals`), a value is still outside after
# this many draws with a probability of 0.99**5000, or 1e-22.
MAX_ROUNDS = 5_000
# A side with a probability of 1 % per draw is found with a probability of 99.8 %; otherwise elements stay on
# their side.
TURNS = 600
# Eigenvalues in this range keep the condition number of `spd` at 4 or less.
EIGENVALUES = (0.5, 2.0)
# Off-diagonal part of `triangular`, relative to 1/sqrt(n): small against a diagonal in [1, 2].
OFF_DIAGONAL = 0.5
# Least share of a probability, relative to the mean of the exponentials that are normalised.
PROBABILITY_FLOOR = 0.1
PARTS = ("real", "imaginary")  # of a complex value; any other is real


def draw(case: Case, tensor: InputSpec, sample: int) -> Array:
    """Draw the values of one input.

    Args:
        sample: index of the sample point, from 0; `value` and `file` are the same at every point.

    Returns:
        An array of the input's shape: float64, complex128, int64 (uint64 for uint64), bool, or object (text).

    Raises:
        CaseFailedError: a file changed since validation, or the requested values can't be drawn.
    """
    if tensor.source.kind == "value":
        return _read_value(tensor)
    if tensor.source.kind == "file":
        return _read_file(case, tensor)
    few = few_values(tensor)
    if few and sample:  # each element moves on through the values from its first one
        values = np.array(_convert(tensor, list(few)))
        which = np.argmax(_draw_sample(case, tensor, 0)[..., np.newaxis] == values, axis=-1)
        return np.asarray(values[(which + sample) % len(values)])
    return _draw_sample(case, tensor, sample)


def _draw_sample(case: Case, tensor: InputSpec, sample: int) -> Array:
    drawn = _draw_elements(case, tensor, sample)
    shaped: Array = drawn.astype(wide_type(tensor.dtype)).reshape(tensor.shape)
    return mirror(shaped) if tensor.symmetric else shaped


def wide_type(dtype: str) -> type:
    """Return the numpy type in which values of a dtype are drawn and stored."""
    if dtype == "uint64":
        return np.uint64
    wide: dict[str, type] = {
        "float": np.float64,
        "complex": np.complex128,
        "integer": np.int64,
        "bool": np.bool_,
        "string": np.object_,
    }
    return wide[kind_of(dtype)]


def stream(case: Case, tensor: InputSpec, sample: int, component: str) -> np.random.Generator:
    """Return the stream of random numbers for one part of an input at one sample point."""
    key = json.dumps([case.seed, case.op, case.name, tensor.name, list(tensor.shape), sample, component])
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    # PCG64 by name: numpy may change what default_rng returns.
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(digest, "big"))))


def _error(tensor: InputSpec, message: str) -> CaseFailedError:
    return CaseFailedError("values", f"inputs.{tensor.name}: {message}")


def _read_value(tensor: InputSpec) -> Array:
    value = tensor.source.arguments["value"]
    if isinstance(value, np.ndarray):  # given in Python
        return value
    flat = [leaf for _, leaf in constraints.leaves(value)]
    array = _convert(tensor, flat).reshape(constraints.shape_of(value) or ())
    try:
        return np.array(np.broadcast_to(array, tensor.shape))
    except ValueError:
        raise _error(tensor, f"values of shape {array.shape} don't broadcast to {tensor.shape}") from None


def _convert(tensor: InputSpec, flat: list[object]) -> Array:
    wide = wide_type(tensor.dtype)
    kind = kind_of(tensor.dtype)
    if kind == "complex":
        flat = [constraints.to_number(leaf) for leaf in flat]
    elif kind == "integer":
        flat = [int(str(leaf)) if isinstance(leaf, int) else int(float(str(leaf))) for leaf in flat]
    return np.array(flat, dtype=wide)


def _read_file(case: Case, tensor: InputSpec) -> Array:
    folder, arguments = case.origin.folder, tensor.source.arguments
    try:
        array = arrays.read(folder, arguments, tensor.dtype, tensor.shape, tensor.domain)
    except arrays.ArrayError as error:
        raise _error(tensor, f"file {error}") from error
    wide: Array = array.astype(wide_type(tensor.dtype), copy=False)
    if tensor.symmetric and not np.array_equal(wide, mirror(wide), equal_nan=True):
        raise _error(tensor, "file must hold a symmetric matrix (Hermitian, where it is complex)")
    return wide


def _draw_elements(case: Case, tensor: InputSpec, sample: int) -> Array:
    """Draw a tensor's elements; every other time each on the other side of those before."""
    source, kind = tensor.source, kind_of(tensor.dtype)
    count, distribution = math.prod(tensor.shape), distribution_of(tensor)
    rng = stream(case, tensor, sample, "real")
    if kind == "bool" and source.kind != "choice":
        return np.asarray(rng.random(count) < float(str(source.arguments.get("probability", 0.5))))
    if distribution is None and source.kind == "choice":
        return _pick(rng, count, _convert(tensor, list(source.arguments["values"])))  # type: ignore[call-overload]
    if distribution is None:
        return _draw_structured(tensor, rng)
    elementwise = _ELEMENTWISE[distribution.kind]

    def sampler(sample: int) -> Callable[[int], Array]:
        streams = [stream(case, tensor, sample, part) for part in PARTS[: 1 + (kind == "complex")]]

        def draw(n: int) -> Array:
            real, *others = (elementwise(rng, n, **distribution.arguments) for rng in streams)
            return np.asarray(real.astype(float) + 1j * others[0].astype(float) if others else real)

        return draw

    draw = sampler(sample)
    placed = _draw_allowed(tensor, distribution, draw)
    if sample % 2 and kind in {"float", "complex"} and count <= FEW_ELEMENTS:
        other = _draw_allowed(tensor, distribution, sampler(sample - 1))
        placed = _redraw_same_side(tensor, distribution, placed, other, draw)
    if tensor.min_gap is None or count <= 1:
        return placed
    intervals = allowed_intervals(distribution, tensor, distribution.range)
    if kind == "complex":  # with real parts apart, so are the numbers
        return np.asarray(_spread(placed.real, tensor.min_gap, intervals) + 1j * placed.imag)
    return _spread(placed.astype(np.float64), tensor.min_gap, intervals)


def _pick(rng: np.random.Generator, count: int, values: Sequence[object] | Array) -> Array:
    """Draw some of these values, with replacement, in their own type."""
    array = np.asarray(values)
    return np.asarray(array[rng.integers(0, len(array), count)])


# Vectors of so many values, of the generators that draw each element by itself.
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    # Not low + share * (high - low): the width overflows.
    "uniform": lambda rng, count, low, high: np.clip(
        low * (1 - (share := rng.random(count))) + high * share, low, high
    ),
    "normal": lambda rng, count, mean=0.0, stddev=1.0: mean + stddev * rng.standard_normal(count),
    # 64-bit integers, unsigned where they must be.
    "integers": lambda rng, count, low, high: rng.integers(
        low, high, count, dtype=np.uint64 if high > 2**63 else np.int64
    ),
    "choice": _pick,
}


def _draw_allowed(
    tensor: InputSpec, distribution: ElementDistribution, sample: Callable[[int], Array]
) -> Array:
    """Draw elements, and redraw those outside the allowed intervals until there are none."""
    drawn = sample(math.prod(tensor.shape))
    if not tensor.is_limited:
        return drawn
    for _ in range(MAX_ROUNDS):
        outside = np.flatnonzero(~_is_inside(tensor, distribution, drawn))
        if not outside.size:
            return drawn
        drawn[outside] = sample(outside.size)
    raise _error(
        tensor,
        f"domain and away_from leave almost none of what {distribution.kind} draws. "
        "Draw from where values are wanted, for example with uniform",
    )


def _redraw_same_side(
    tensor: InputSpec,
    distribution: ElementDistribution,
    drawn: Array,
    other: Array,
    sample: Callable[[int], Array],
) -> Array:
    """Redraw the elements that lie on the same side as another point's, until none does.

    Their magnitudes stay independent: at -x, a gradient that keeps a value of x would often be right.
    """
    middle = distribution.middle
    for _ in range(TURNS):
        is_same = (drawn.real > middle) == (other.real > middle)
        if np.iscomplexobj(drawn):
            is_same |= (drawn.imag > middle) == (other.imag > middle)
        same = np.flatnonzero(is_same)
        if not same.size:
            break
        drawn[same] = sample(same.size)
        if tensor.is_limited:
            # An element that falls outside returns to the same side, and is drawn once more.
            outside = same[~_is_inside(tensor, distribution, drawn[same])]
            drawn[outside] = other[outside]
    return drawn


def _is_inside(tensor: InputSpec, distribution: ElementDistribution, drawn: Array) -> NDArray[np.bool_]:
    if _is_complex(tensor):
        distances = [np.abs(drawn.astype(complex) - point) for point in tensor.away_from]
        return np.asarray(np.all([distance >= AWAY * distribution.stddev for distance in distances], axis=0))
    wide = drawn.astype(np.float64)
    inside = [(low < wide) & (wide < high) for low, high in allowed_intervals(distribution, tensor)]
    return np.asarray(np.any(inside, axis=0)) if inside else np.zeros(wide.shape, np.bool_)


def _is_complex(tensor: InputSpec) -> bool:
    return kind_of(tensor.dtype) == "complex"


def _draw_structured(tensor: InputSpec, rng: np.random.Generator) -> Array:
    """Draw an array with structure; its elements can't be redrawn one by one, so the whole array is."""
    low, high = tensor.domain
    if 0 in tensor.shape:
        return np.zeros(tensor.shape)
    for _ in range(MAX_ROUNDS // 50):
        drawn = _STRUCTURED[tensor.source.kind](rng, tensor)
        if _is_complex(tensor) or (low <= drawn.min() and drawn.max() <= high):
            return drawn
    raise _error(
        tensor, f"domain must hold what {tensor.source.kind} draws, but it doesn't. Widen it, or drop it"
    )


def _spread(values: NDArray[np.float64], gap: float, intervals: Sequence[Interval]) -> NDArray[np.float64]:
    """Move values as little as needed for every two to differ by at least `gap`.

    The intervals are joined end to end on a line: two values that are `gap` apart on this line are really at
    least that far apart. On the line, subtracting rank times gap turns "at least gap apart" into "in
    ascending order". The mean of the running maximum from below and the running minimum from above is a
    symmetric repair of the order; values in order stay as they are.

    Args:
        gap: least distance.
        intervals: disjoint and ascending, where values may lie; together long enough.

    Returns:
        The moved values; the order of elements by size is that of the input.
    """
    count = values.size
    low, high = np.array(intervals, np.float64).T
    # Total length of the gaps below each interval; there is none below the first.
    cut = np.concatenate([[0.0], np.cumsum(low[1:] - high[:-1])])
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    joined = ascending - cut[np.clip(np.searchsorted(low, ascending, side="right") - 1, 0, None)]
    # Rounding of the values, and of each step back, must not reduce the gap.
    finite = np.abs(np.concatenate([joined, low[np.isfinite(low)], high[np.isfinite(high)]])).max(initial=0.0)
    ranks = (gap * (1 + 1e-9) + 8 * np.spacing(finite + count * gap)) * np.arange(count)
    slack = joined - ranks
    slack = (np.maximum.accumulate(slack) + np.minimum.accumulate(slack[::-1])[::-1]) / 2
    end = high[-1] - cut[-1]
    joined = np.clip(slack, low[0], max(end - ranks[-1], low[0])) + ranks
    moved = np.empty_like(values)
    moved[order] = joined + cut[np.searchsorted(low[1:] - cut[1:], joined, side="right")]
    return moved


def _draw_places(rng: np.random.Generator, tensor: InputSpec) -> Array:
    """Draw distinct places in the dense shape among the arguments, in order.

    The tensor's own shape says how many places, and how many indices each has.
    """
    dense: tuple[int, ...] = tensor.source.arguments["shape"]  # type: ignore[assignment]
    chosen = np.sort(rng.choice(math.prod(dense), tensor.shape[0], replace=False))
    return np.stack(np.unravel_index(chosen, dense), axis=-1)


def mirror(matrix: Array) -> Array:
    """Return a matrix, or a stack of them, with its lower triangle mirrored: symmetric, or Hermitian."""
    values: Floats = np.asarray(matrix)
    lower = np.tril(values, -1)
    diagonal = np.arange(values.shape[-1])
    full = lower + np.conj(np.swapaxes(lower, -1, -2))
    full[..., diagonal, diagonal] = values[..., diagonal, diagonal].real
    return np.asarray(full)


def _gaussian(rng: np.random.Generator, tensor: InputSpec) -> Floats:
    real = rng.standard_normal(tensor.shape)
    return real + 1j * rng.standard_normal(tensor.shape) if _is_complex(tensor) else real


def _one_hot(rng: np.random.Generator, tensor: InputSpec) -> Array:
    shape = tensor.shape
    chosen = rng.integers(0, shape[-1], (*shape[:-1], 1))
    return np.asarray(np.arange(shape[-1]) == chosen, np.int64)


def _probabilities(rng: np.random.Generator, tensor: InputSpec) -> Array:
    weights = rng.standard_exponential(tensor.shape) + PROBABILITY_FLOOR
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _orthogonal(rng: np.random.Generator, tensor: InputSpec) -> Floats:
    q, r = np.linalg.qr(_gaussian(rng, tensor))
    # Without the signs of r's diagonal, q isn't uniformly distributed (Mezzadri 2007, "How to generate random
    # matrices from the classical compact groups").
    diagonal = np.diagonal(r, axis1=-2, axis2=-1)
    return np.asarray(q * (diagonal / np.abs(diagonal))[..., np.newaxis, :])


def _spd(rng: np.random.Generator, tensor: InputSpec) -> Floats:
    q, shape = _orthogonal(rng, tensor), tensor.shape
    low, high = EIGENVALUES
    size = shape[-1]
    # One eigenvalue in the middle half of each of n equal slots: none repeats, so gradients of eigenvalue
    # decompositions exist and are moderate.
    slots = (np.arange(size) + rng.uniform(0.25, 0.75, shape[:-1])) / size
    product = (q * (low + (high - low) * slots)[..., np.newaxis, :]) @ np.conj(np.swapaxes(q, -1, -2))
    return np.asarray((product + np.conj(np.swapaxes(product, -1, -2))) / 2)


def _triangular(rng: np.random.Generator, tensor: InputSpec) -> Floats:
    rows, columns = tensor.shape[-2:]
    scale = OFF_DIAGONAL / np.sqrt(max(rows, columns))
    full = scale * _gaussian(rng, tensor)
    triangle = np.tril(full, -1) if tensor.source.arguments["side"] == "lower" else np.triu(full, 1)
    diagonal = np.arange(min(rows, columns))
    triangle[..., diagonal, diagonal] = 1j * full[..., diagonal, diagonal].imag if _is_complex(tensor) else 0
    triangle[..., diagonal, diagonal] += rng.uniform(1.0, 2.0, triangle[..., diagonal, diagonal].shape)
    return np.asarray(triangle)


def _call_extension(rng: np.random.Generator, tensor: InputSpec) -> Array:
    """Draw with a function of another package.

    Raises:
        CaseFailedError: there is no generator of that name, it raises, or it returns another shape.
    """
    name, installed = str(tensor.source.arguments["name"]), extensions(GENERATORS)
    if name not in installed:
        raise CaseFailedError(
            "values",
            f"no installed package brings a generator '{name}' (entry points of {GENERATORS}); there are: "
            f"{', '.join(sorted(installed)) or 'none'}.",
        )
    try:
        drawn = np.asarray(installed[name](rng, tensor.shape))
    except Exception as error:
        raise CaseFailedError(
            "values", f"generator '{name}' raised {type(error).__name__}: {error}"
        ) from error
    if drawn.shape != tensor.shape or drawn.dtype.kind not in "fciub":
        raise CaseFailedError(
            "values",
            f"generator '{name}' must return numbers of shape {list(tensor.shape)}, but returned "
            f"{drawn.dtype} of shape {list(drawn.shape)}.",
        )
    return drawn


# The generators of arrays whose elements depend on each other. The last one or two dimensions hold the
# structure, the others are a batch. Those of one_hot
# and of places are integers.
_STRUCTURED: dict[str, Callable[[np.random.Generator, InputSpec], Array]] = {
    "places": _draw_places,
    "one_hot": _one_hot,
    "probabilities": _probabilities,
    "spd": _spd,
    "triangular": _triangular,
    "generator": _call_extension,
}
