"""How far rounding may move a gradient: as it is assumed, and as it is measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from gradcheck_cli.checking.ops.jacobian import Jacobian, packed_point, working_precision
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.checking.ops.packing import Float, packed_magnitude
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.steps import scales
from gradcheck_cli.numerics.tolerance import ROUNDINGS_OF_A_RUN


def largest_change(base: Float, runs: Iterable[tuple[Float, float]]) -> Float:
    """Return how far each element of a gradient moves in runs that differ from the first by rounding alone.

    Args:
        base: the gradient.
        runs: other runs' gradients, and the factor of each one's upstream. It is itself rounded to the op's
            dtype: an error of the gradient's own size, which doesn't matter.
    """
    moved = np.zeros(base.shape)
    for gradient, factor in runs:
        with np.errstate(invalid="ignore", over="ignore"):
            change = np.abs(gradient / factor - base)
        moved = np.fmax(moved, np.where(np.isfinite(change), change, 0.0))
    return moved


def rounding_slack(op: Operation, pair: tuple[int, int], upstream: Float, matrix: Jacobian) -> Float:
    """Return the rounding, (B, n), that a gradient may show in the coarser of a pair's two dtypes.

    It grows with the rows' magnitudes and with what the outputs' rounding is relative to, over the input's
    scale: a vjp that cancels, such as softmax's u s - s sum(u s) or y(1 - y) near saturation, is only as
    accurate as its terms.

    Args:
        upstream: (B, m).
        matrix: the pair's Jacobian.
    """
    output, input_info = op.outputs[pair[0]], op.inputs[pair[1]]
    precision = coarsest(*[working_precision(op, info.dtype) for info in (output, input_info)])
    point = np.abs(packed_point(op, pair[1]))
    value = packed_magnitude(op.rounded_sizes(pair[1])[pair[0]], output)
    value = np.where(np.isfinite(value), value, 0.0)
    size, step = np.abs(upstream), scales(point).step
    if matrix.sparsity is None:
        magnitudes = matrix.magnitudes.pull(size) + (size @ value)[:, np.newaxis] / step[np.newaxis, :]
    else:  # other classes' outputs don't matter
        terms = matrix.magnitudes.values + value[:, np.newaxis] / step[matrix.columns]
        magnitudes = replace(matrix, values=terms).pull(size)
    roundings = min(ROUNDINGS_OF_A_RUN * precision.unit_roundoff, 0.25)
    return np.asarray(roundings * magnitudes + ROUNDINGS_OF_A_RUN * precision.smallest_kept)
