"""Jacobians of packed tensors: the analytic one from the vjp, and the function to be differenced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.operation import (
    Array,
    Float,
    GradientFormError,
    Operation,
    TensorInfo,
    pack,
    packed_magnitude,
    packed_size,
    unpack,
)
from gradcheck_cli.checking.ops.space import Space
from gradcheck_cli.numerics import FLOAT64, Precision, precision_of
from gradcheck_cli.numerics.precision import ROUNDINGS_OF_A_RUN, coarsest, largest_finite
from gradcheck_cli.numerics.problem import scales
from gradcheck_cli.numerics.sampling import Index, Sparsity
from gradcheck_cli.numerics.shared_limits import DIGITS, FLOATS_AT_ONCE

PairKey = tuple[int, int]  # which output, which input


@dataclass(frozen=True)
class Jacobian:
    """The analytic Jacobian of a packed pair, whole, or without the zeros that its sparsity names."""

    values: Float  # (m, n); with a sparsity (m, slots)
    width: int  # n
    sparsity: Sparsity | None = None  # which columns the slots stand for

    @property
    def columns(self) -> Index:
        """The column of each element, (1 or m, slots)."""
        return np.arange(self.width)[None] if self.sparsity is None else self.sparsity.columns

    @cached_property
    def magnitudes(self) -> Jacobian:
        """The same with every element's absolute value."""
        return replace(self, values=np.abs(self.values))

    def whole(self) -> Jacobian:
        """Return the same with its zeros written out."""
        if self.sparsity is None:
            return self
        values = np.zeros((self.values.shape[0], self.width))
        np.put_along_axis(values, self.columns, self.values, axis=1)
        return Jacobian(values, self.width)

    def pull(self, upstream: Float) -> Float:
        """Return upstreams (B, m) times the Jacobian, (B, n)."""
        # Not `@`: for a few rows, threads of BLAS take longer to start than the sum takes.
        if self.sparsity is None:
            return np.asarray(np.einsum("bm,mn->bn", upstream, self.values))
        rows, blocks = self._by_class
        own = np.pad(upstream, ((0, 0), (0, 1)))[:, rows].transpose(1, 0, 2)
        pulled = np.zeros((len(upstream), self.width))
        pulled[:, self.sparsity.table] = np.einsum("cbr,crs->bcs", own, blocks)
        return pulled

    @cached_property
    def _by_class(self) -> tuple[Index, Float]:
        """Rows, (classes, rows), and values, (classes, rows, slots).

        Where a class has fewer rows than another, the row is m and the values are zero.
        """
        rows = np.arange(len(self.values))[None] if self.sparsity is None else self.sparsity.rows
        return rows, np.asarray(np.pad(self.values, ((0, 1), (0, 0)))[rows])

    def first_rows(self, terms: int) -> npt.NDArray[np.int64]:
        """Return the first row that isn't zero, of each column with at least this many such rows."""
        rows, slots = np.nonzero(self.values)
        columns = np.broadcast_to(self.columns, self.values.shape)[rows, slots]
        _, first, counts = np.unique(columns, return_index=True, return_counts=True)
        return np.asarray(rows[first[counts >= terms]])

    def finite_columns(self) -> npt.NDArray[np.bool_]:
        """Say which columns are finite throughout, (n,)."""
        if self.sparsity is None:
            return np.asarray(np.isfinite(self.values).all(axis=0))
        infinite = self.columns[~np.isfinite(self.values)]
        finite = np.ones(self.width, dtype=bool)
        finite[infinite] = False
        return finite


def analytic_rows(op: Operation, output: int, input_indices: Sequence[int]) -> dict[int, Float | None]:
    """Return the whole analytic Jacobian of one output with respect to some differentiable inputs.

    Args:
        op: the op at its base point.
        input_indices: the inputs.

    Returns:
        Input index -> (packed output size, packed input size), or `None` where it is disconnected.

    Raises:
        GradientFormError: a gradient's shape isn't its input's.
    """
    info = op.outputs[output]
    rows = packed_size(info)
    jacobians: dict[int, Float | None] = {
        input_index: np.zeros((rows, packed_size(op.inputs[input_index])))
        if op.facts.is_connected(output, input_index)
        else None
        for input_index in input_indices
    }
    if all(matrix is None for matrix in jacobians.values()):
        return jacobians
    widest = max([rows, *[packed_size(op.inputs[input_index]) for input_index in input_indices], 1])
    block = max(1, FLOATS_AT_ONCE // widest)
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        upstream = unit_vectors(np.arange(start, stop), rows)
        for input_index, gradient in pull_back(op, output, upstream).items():
            matrix = jacobians.get(input_index)
            if matrix is not None and gradient is not None:
                matrix[start:stop] = gradient
    return jacobians


def unit_vectors(places: Index, size: int) -> Float:
    """Return vectors that are 1 in one place each, and 0 elsewhere, (len(places), size)."""
    vectors = np.zeros((len(places), size))
    vectors[np.arange(len(places)), places] = 1.0
    return vectors


def pull_back(op: Operation, output: int, upstream: Float) -> dict[int, Float | None]:
    """Pull packed upstreams (B, packed output size) back to packed gradients (B, packed input size)."""
    return _pack_gradients(op, op.vjp(output, unpack(upstream, op.outputs[output])))


def pull_back_together(op: Operation, upstreams: Mapping[int, Float]) -> dict[int, Float | None]:
    """Pull packed upstreams of several outputs back at once; see `pull_back`."""
    stacks = {output: unpack(upstream, op.outputs[output]) for output, upstream in upstreams.items()}
    return _pack_gradients(op, op.joint_vjp(stacks))


def _pack_gradients(op: Operation, gradients: Sequence[Array | None]) -> dict[int, Float | None]:
    packed: dict[int, Float | None] = {}
    for input_index, info in enumerate(op.inputs):
        if not info.is_differentiable:
            continue
        gradient = gradients[input_index]
        if gradient is None:
            packed[input_index] = None
            continue
        if gradient.shape[1:] != info.shape:
            raise GradientFormError(
                (input_index,),
                f"the gradient for {info.name} must have shape {list(info.shape)}, as its input has, but has "
                f"{list(gradient.shape[1:])} when it runs.",
            )
        packed[input_index] = pack(gradient, info)
    return packed


def packed_point(op: Operation, input_index: int) -> Float:
    """Return the packed base point of one input."""
    return Space.of(op.inputs, [input_index]).pack_one(op.point)


def working_precision(op: Operation, dtype: str) -> Precision:
    """Return the precision in which a tensor of this dtype moves: the coarsest one on the path.

    A forward that casts float64 down to float32 inside is a staircase at the step sizes of float64.
    """
    return coarsest(*map(precision_of, (dtype, *op.facts.low_precision)))


def working_dtype(op: Operation, dtype: str) -> str:
    """Return the dtype with the precision in which a tensor of this dtype moves; see `working_precision`."""
    precision = working_precision(op, dtype)
    return dtype if precision == precision_of(dtype) else precision.name


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


# What a whole Jacobian looks like.


def are_equal(left: npt.NDArray[np.inexact], right: npt.NDArray[np.inexact]) -> bool:
    """Whether two Jacobians are equal and not both zero."""
    scale = largest_finite(right)
    return left.shape == right.shape and scale > 0 and bool(np.all(np.abs(left - right) <= DIGITS * scale))


def hint_on_triangle(analytic: Float, numeric: Float, input_info: TensorInfo) -> str:
    """Say that a function reads only one triangle of a matrix, if that explains the whole difference.

    Either the gradient or the differences are zero in one triangle and doubled in the other. For a matrix
    that stays symmetric, both are the same derivative.
    """
    is_square = len(input_info.shape) > 1 and input_info.shape[-1] == input_info.shape[-2] > 1
    if not is_square or are_equal(analytic, numeric):
        return ""
    jacobians = [_as_matrices(values, input_info) for values in (analytic, numeric)]
    symmetric_parts = [matrices + np.conj(np.swapaxes(matrices, -1, -2)) for matrices in jacobians]
    if not are_equal(symmetric_parts[0], symmetric_parts[1]):
        return ""
    for matrices, whose in zip(jacobians, ("gradient is", "differences are"), strict=True):
        # TensorFlow's Cholesky may leave memory unwritten: differences of subnormal numbers stand for zero.
        zero = FLOAT64.half_the_digits * np.max(np.abs(matrices), initial=0.0)
        for triangle, where in ((np.triu(matrices, 1), "above"), (np.tril(matrices, -1), "below")):
            if np.max(np.abs(triangle), initial=0.0) <= zero:
                return (
                    f"the {whose} zero {where} the diagonal of {input_info.name}, and the symmetric parts "
                    "agree: one triangle is read, and the gradient is right if the matrix stays symmetric; "
                    f"then say 'symmetric: true' of {input_info.name}, or check a function of (a + a^T) / 2"
                )
    return ""


def _as_matrices(values: Float, input_info: TensorInfo) -> npt.NDArray[np.complex128]:
    """Return packed rows as matrices, complex ones for a complex input."""
    real, imaginary = values[:, : input_info.size], values[:, input_info.size :]
    whole = real + 1j * imaginary if input_info.is_complex else real + 0j
    return np.asarray(whole.reshape(-1, *input_info.shape), np.complex128)
