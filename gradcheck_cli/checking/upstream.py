"""Random upstreams and what they give: the material of the checks on the vjp as a function of its upstream.

One-hot upstreams, which make up the Jacobian, don't show a gradient that clips, squares, ignores or
replaces what flows in: random ones of several sizes do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.jacobian import pull_back, working_precision
from gradcheck_cli.checking.packing import Float, pack, packed_magnitude, packed_size
from gradcheck_cli.numerics.steps import scales

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.jacobian import Jacobian
    from gradcheck_cli.checking.operation import Operation

# Sizes of the random upstreams: tiny ones, a mean's (1/n), a loss's own, beyond any customary clipping norm,
# and beyond a mixed-precision loss scale. float16 can't hold the outer two.
_SIZES = (2.0**-24, 2.0**-10, 1.0, 2.0**10, 2.0**24)
_SIZES_FLOAT16 = (2.0**-10, 1.0, 2.0**10)
# A row's gradient and the same row within a sum differ by rounding alone: n terms of relative error u
# each, and what the vjp itself loses on the way, a few hundred operations' worth. 2^10 u of the sum of
# magnitudes is 1e-13 in float64 and 6e-5 in float32, far below any clipping.
ROUNDINGS = 2.0**10
# A kernel that leaves its result as it found the memory finds zeros one time in two. (empirical)
_TRIES = 16
_MOST_TRIED = 2**22  # elements of all tries together: a large table's gradient is pulled back once
# Relative to the gradient's largest element: what a vjp that cancels inside may lose unseen by its rows.
# Clipping, squaring, ignoring or replacing the upstream changes it by its own size, at one size at least.
CANCELLATION = {"float64": 1e-6, "float32": 0.1, "float16": 0.5, "bfloat16": 0.5}


@dataclass(frozen=True)
class Pulled:
    """What upstreams give: packed upstreams (B, m), and packed gradients (B, n) by input, of one output."""

    output: int
    upstream: Float
    gradients: Mapping[int, Float | None]
    _slack: dict[int, Float] = field(default_factory=dict)

    def slack(self, op: Operation, number: int, matrix: Jacobian) -> Float:
        """Return `rounding_slack` of these upstreams, taken once."""
        if number not in self._slack:
            self._slack[number] = rounding_slack(op, self.output, number, self.upstream, matrix)
        return self._slack[number]


def pull_random(op: Operation, output: int, seed: int) -> Pulled:
    """Pull back a zero upstream, then a dense random one of each size."""
    rows = packed_size(op.outputs[output])
    generator = np.random.default_rng([seed, output])
    is_half = working_precision(op, op.outputs[output].dtype).name == "float16"
    sizes = _SIZES_FLOAT16 if is_half else _SIZES
    upstream = np.zeros((1 + len(sizes), rows))
    upstream[1:] = coarse(generator, (len(sizes), rows)) * np.asarray(sizes)[:, np.newaxis]
    return Pulled(output, upstream, pull_back(op, output, upstream))


def pull_empty(op: Operation, output: int) -> Pulled:
    """Pull upstreams of an output without elements back, often: what isn't computed may be zero by luck."""
    widest = max((packed_size(info) for info in op.inputs if info.is_differentiable), default=1)
    tries = max(1, min(_TRIES, _MOST_TRIED // widest)) if widest else 1
    upstream = np.zeros((tries, 0))
    return Pulled(output, upstream, pull_back(op, output, upstream))


def coarse(generator: np.random.Generator, shape: int | tuple[int, int]) -> Float:
    """Draw numbers between -1 and 1 of eight bits, bfloat16's: as upstreams they are exact in every dtype.

    They may be as many as memory allows: drawn in one array.
    """
    drawn = generator.random(shape)
    drawn -= 0.5
    drawn *= 256
    np.rint(drawn, out=drawn)
    drawn /= 128
    return drawn


def each_gradient(op: Operation, pulled: list[Pulled]) -> list[tuple[Pulled, int, str]]:
    """Return every gradient that was pulled back: from which output, its input's number, its label."""
    return [
        (one, number, f"d{op.outputs[one.output].name}/d{op.inputs[number].name}")
        for one in pulled
        for number in one.gradients
    ]


def rounding_slack(op: Operation, output: int, number: int, upstream: Float, matrix: Jacobian) -> Float:
    """Return the rounding, (B, n), that a gradient may show in the coarser of the two dtypes.

    Beside the rows' own magnitudes, the outputs' values over the input's scale count: a vjp that cancels,
    such as softmax's u s - s sum(u s) or y(1 - y) near saturation, is as good as its terms.
    """
    taken, produced = op.inputs[number], op.outputs[output]
    unit = max(working_precision(op, info.dtype).unit_roundoff for info in (produced, taken))
    point = np.abs(pack(op.point[number][np.newaxis], taken)[0])
    value = packed_magnitude(op.base_values[output], produced)
    value = np.where(np.isfinite(value), value, 0.0)
    size, step = np.abs(upstream), scales(point).step
    if matrix.sparsity is None:
        magnitudes = matrix.magnitudes.pulled(size) + (size @ value)[:, np.newaxis] / step[np.newaxis, :]
    else:  # other classes' outputs don't come into it
        terms = matrix.magnitudes.values + value[:, np.newaxis] / step[matrix.columns]
        magnitudes = replace(matrix, values=terms).pulled(size)
    # Below the smallest normal number a gradient is off by a subnormal for each operation.
    tiny = max(working_precision(op, info.dtype).smallest_subnormal for info in (produced, taken))
    return np.asarray(min(ROUNDINGS * unit, 0.25) * magnitudes + ROUNDINGS * tiny)


def is_linear(  # noqa: PLR0913, PLR0917 (a gradient, and what it is held against)
    op: Operation, number: int, found: Float, expected: Float, slack: Float, size: float
) -> Float:
    """Say where a pulled gradient (n,) is what its Jacobian's rows add up to.

    Args:
        op: the op.
        number: the input's number.
        found: the gradient.
        expected: the sum of rows, in float64.
        slack: from `rounding_slack`.
        size: the upstream's size.

    Returns:
        True where it is, where the sum isn't finite (judged in the pair), and where the gradient overflows
        for an upstream beyond 1, or near the end of its dtype's range: that is no matter of linearity.
    """
    precision = working_precision(op, op.inputs[number].dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.max(np.abs(np.where(np.isfinite(expected), expected, 0.0)), initial=0.0))
        lost = CANCELLATION[precision.name] * largest
        right = (np.abs(found - expected) <= slack + lost) | ~np.isfinite(expected)
        overflows = ~np.isfinite(found) & ((size > 1) | (largest > precision.largest / 2**10))
    return np.asarray(right | overflows)
