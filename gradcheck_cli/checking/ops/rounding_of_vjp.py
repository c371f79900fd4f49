"""How far rounding may move a gradient: as it is assumed, and as it is measured.

An error that rounding of the inputs explains is at most `BOUND_PER_SIGMA` times what the gradient moves by at
points that are a rounding away (`movement`), the worst of them. (Over the weights of a MobileNetV2, float32's
errors and these movements have the same root mean square to within 12 %; the largest error of each is up to
17 times that.) Whoever asks says how large that rounding is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.jacobian import Jacobian, packed_point, working_precision
from gradcheck_cli.checking.ops.operation import Array, Operation
from gradcheck_cli.checking.ops.packing import Float, pack, packed_magnitude, unpack
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics.precision import coarsest
from gradcheck_cli.numerics.shared_limits import RUNS
from gradcheck_cli.numerics.steps import scales
from gradcheck_cli.numerics.tolerance import ROUNDINGS_OF_A_RUN

_MOST_GROUPS = 32  # of rows, each with an upstream of its own

Point = Mapping[int, Array]  # by input index; the other inputs stay


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


def points_beside(op: Operation, size: Callable[[int], Array], seed: int) -> list[Point]:
    """Return points beside an op's, at which each element has moved up or down.

    Args:
        size: returns how far the elements of an input move.
        seed: decides on the directions.
    """
    points: list[Point] = []
    for draw in range(RUNS // 2):  # each with its mirror image, since a kink lies to one side
        generator = np.random.default_rng([seed, draw])
        steps = {
            index: np.multiply(size(index), generator.choice([-1.0, 1.0], size=value.shape))
            for index, (value, info) in enumerate(zip(op.point, op.inputs, strict=True))
            if info.is_differentiable
        }
        points.append({index: np.add(op.point[index], step) for index, step in steps.items()})
        points.append({index: np.subtract(op.point[index], step) for index, step in steps.items()})
    return points


def pull_beside(op: Operation, output: int, upstream: Float, point: Point) -> dict[int, Float]:
    """Pull upstreams, (B, m), back at another point, to (B, n) by input index; empty where that can't be."""
    stacks = {index: np.broadcast_to(value, (len(upstream), *value.shape)) for index, value in point.items()}
    pulled = op.vjp_beside(output, unpack(upstream, op.outputs[output]), stacks) or ()
    gradients = enumerate(zip(pulled, op.inputs, strict=False))
    return {index: pack(gradient, info) for index, (gradient, info) in gradients if gradient is not None}


def movement(op: Operation, output: int, upstream: Float, points: Iterable[Point]) -> dict[int, Float]:
    """Return how far each input's gradient, (B, n), moves from its point to some points beside it.

    A point at which a kernel fails (it may refuse a singular matrix) is left out.
    """
    moved: dict[int, Float] = {}
    with suppress(CaseFailedError):
        base = pull_beside(op, output, upstream, {})
        moved = {index: np.zeros(gradient.shape) for index, gradient in base.items()}
        for point in points:
            with suppress(CaseFailedError):
                for index, gradient in pull_beside(op, output, upstream, point).items():
                    moved[index] = np.fmax(moved[index], largest_change(base[index], [(gradient, 1.0)]))
    return moved


def movement_of_value(op: Operation, output: int, points: Iterable[Point]) -> Float:
    """Return how far each element of an output, (m,), moves from its point to some points beside it."""
    info = op.outputs[output]
    base = pack(op.base_values[output][np.newaxis], info)
    moved = np.zeros(base.shape)
    for point in points:
        with suppress(CaseFailedError):
            value = op.evaluate({index: at[np.newaxis] for index, at in point.items()})[output]
            moved = np.fmax(moved, largest_change(base, [(pack(value, info), 1.0)]))
    return np.asarray(moved[0])


def group_rows(
    where: npt.NDArray[np.bool_], rows: npt.NDArray[np.integer], size: int
) -> tuple[list[npt.NDArray[np.intp]], Float]:
    """Group rows with a chosen element; return the groups, and for each an upstream, 1 in its rows.

    Args:
        where: the chosen elements.
        rows: the Jacobian's row of each element.
        size: of an upstream.
    """
    groups = np.array_split(np.flatnonzero(where.any(axis=1)), _MOST_GROUPS)
    groups = [group for group in groups if group.size]
    upstream = np.zeros((len(groups), size))
    for own, group in zip(upstream, groups, strict=True):
        own[rows[group, 0]] = 1.0
    return groups, upstream
