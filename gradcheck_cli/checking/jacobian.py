"""Whole Jacobians of packed tensors: the analytic one row by row from the vjp, the numeric one's function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.operation import GradientFormError
from gradcheck_cli.checking.packing import Float, pack, packed_size, unpack
from gradcheck_cli.numerics import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, Precision, precision_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradcheck_cli.checking.operation import Operation

# Elements of upstreams or gradients that are held at once while a Jacobian's rows are pulled back.
_BLOCK = 2**22
_COARSEST_FIRST = (BFLOAT16, FLOAT16, FLOAT32, FLOAT64)


def analytic_rows(op: Operation, output: int) -> dict[int, Float | None]:
    """Return the analytic Jacobian of one output with respect to every differentiable input.

    Args:
        op: the op at its base point.
        output: the output's number.

    Returns:
        Input number -> (packed output size, packed input size), or `None` where it is disconnected.

    Raises:
        GradientFormError: a gradient's shape isn't its input's.
    """
    rows = packed_size(op.outputs[output])
    wanted = [number for number, info in enumerate(op.inputs) if info.is_differentiable]
    found: dict[int, Float | None] = {
        number: np.zeros((rows, packed_size(op.inputs[number]))) if op.is_connected(output, number) else None
        for number in wanted
    }
    if all(matrix is None for matrix in found.values()):
        return found
    widest = max([rows, *[packed_size(op.inputs[number]) for number in wanted], 1])
    block = max(1, _BLOCK // widest)
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        upstream = np.zeros((stop - start, rows))
        upstream[np.arange(stop - start), np.arange(start, stop)] = 1.0
        for number, gradient in pull_back(op, output, upstream).items():
            matrix = found[number]
            if matrix is not None and gradient is not None:
                matrix[start:stop] = gradient
    return found


def pull_back(op: Operation, output: int, upstream: Float) -> dict[int, Float | None]:
    """Pull packed upstreams (B, packed output size) back to packed gradients (B, packed input size)."""
    gradients = op.vjp(output, unpack(upstream, op.outputs[output]))
    packed: dict[int, Float | None] = {}
    for number, info in enumerate(op.inputs):
        if not info.is_differentiable:
            continue
        gradient = gradients[number]
        if gradient is None:
            packed[number] = None
            continue
        if gradient.shape[1:] != info.shape:
            raise GradientFormError(
                (number,),
                f"the gradient for {info.name} must have shape {list(info.shape)}, as its input has, but has "
                f"{list(gradient.shape[1:])} when it runs.",
            )
        packed[number] = pack(gradient, info)
    return packed


def packed_function(op: Operation, number: int, outputs: Sequence[int]) -> Callable[[Float], Float]:
    """Return the op as a function of one packed input, with the packed outputs side by side."""
    info = op.inputs[number]

    def evaluate(points: Float) -> Float:
        values = op.evaluate({number: unpack(points, info)})
        return np.concatenate([pack(values[output], op.outputs[output]) for output in outputs], axis=1)

    return evaluate


def packed_complex_function(
    op: Operation, number: int, outputs: Sequence[int]
) -> Callable[[npt.NDArray[np.complex128]], npt.NDArray[np.complex128]]:
    """Return an op opened in complex128 as a function of one input, with real tensors for real ones."""
    shape = op.inputs[number].shape

    def evaluate(points: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
        values = op.evaluate({number: points.reshape(len(points), *shape)})
        return np.concatenate([values[output].reshape(len(points), -1) for output in outputs], axis=1)

    return evaluate


def packed_point(op: Operation, number: int) -> Float:
    """Return the packed base point of one input."""
    return np.asarray(pack(op.point[number][np.newaxis], op.inputs[number])[0])


def working_precision(op: Operation, dtype: str) -> Precision:
    """Return the precision in which a tensor of this dtype moves: a coarser one on the path rules.

    A forward that casts float64 down to float32 inside is a staircase at float64's steps.
    """
    seen = {precision_of(name) for name in (dtype, *op.low_precision)}
    return next(precision for precision in _COARSEST_FIRST if precision in seen)
