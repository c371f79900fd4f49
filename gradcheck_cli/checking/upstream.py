"""Random upstreams and what they give: the material of the checks on the vjp as a function of its upstream.

One-hot upstreams, which make up the Jacobian, don't show a gradient that clips, squares, ignores or
replaces what flows in: random ones of several sizes do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.jacobian import pull_back, working_precision
from gradcheck_cli.checking.packing import Float, pack, packed_size
from gradcheck_cli.numerics.steps import scales

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.operation import Operation

# Sizes of the random upstreams: as a mean's (1/n), as a loss's own, beyond any customary clipping norm.
SIZES = (2.0**-10, 1.0, 2.0**10)
# A row's gradient and the same row within a sum differ by rounding alone: n terms of relative error u
# each, and what the vjp itself loses on the way, a few hundred operations' worth. 2^10 u of the sum of
# magnitudes is 1e-13 in float64 and 6e-5 in float32, far below any clipping.
ROUNDINGS = 2.0**10


@dataclass(frozen=True)
class Pulled:
    """What upstreams give: packed upstreams (B, m), and packed gradients (B, n) by input, of one output."""

    output: int
    upstream: Float
    gradients: Mapping[int, Float | None]


def pull_random(op: Operation, output: int, seed: int) -> Pulled:
    """Pull back a zero upstream, then a dense random one of each size."""
    rows = packed_size(op.outputs[output])
    generator = np.random.default_rng([seed, output])
    upstream = np.zeros((1 + len(SIZES), rows))
    # Rounded to bfloat16's eight bits, an upstream is exact in every dtype.
    coarse = np.round(generator.uniform(-1, 1, (len(SIZES), rows)) * 128) / 128
    upstream[1:] = coarse * np.asarray(SIZES)[:, np.newaxis]
    return Pulled(output, upstream, pull_back(op, output, upstream))


def each_gradient(op: Operation, pulled: list[Pulled]) -> list[tuple[Pulled, int, str]]:
    """Return every gradient that was pulled back: from which output, its input's number, its label."""
    return [
        (one, number, f"d{op.outputs[one.output].name}/d{op.inputs[number].name}")
        for one in pulled
        for number in one.gradients
    ]


def rounding_slack(op: Operation, output: int, number: int, upstream: Float, matrix: Float) -> Float:
    """Return the rounding, (B, n), that a gradient may show in the coarser of the two dtypes.

    Beside the rows' own magnitudes, the outputs' values over the input's scale count: a vjp that cancels,
    such as softmax's u s - s sum(u s) or y(1 - y) near saturation, is as good as its terms.
    """
    taken, produced = op.inputs[number], op.outputs[output]
    unit = max(working_precision(op, info.dtype).unit_roundoff for info in (produced, taken))
    point = np.abs(pack(op.point[number][np.newaxis], taken)[0])
    value = np.abs(pack(op.base_values[output][np.newaxis], produced)[0])
    value = np.where(np.isfinite(value), value, 0.0)
    size = np.abs(upstream)
    magnitudes = size @ np.abs(matrix) + (size @ value)[:, np.newaxis] / scales(point).step[np.newaxis, :]
    return np.asarray(min(ROUNDINGS * unit, 0.25) * magnitudes)
