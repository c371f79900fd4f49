"""Functions that read one triangle of a matrix: their gradient may be right though the Jacobians differ."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.operation import Float, TensorInfo
from gradcheck_cli.numerics import FLOAT64
from gradcheck_cli.numerics.shared_limits import DIGITS


def are_equal(left: npt.NDArray[np.inexact], right: npt.NDArray[np.inexact]) -> bool:
    """Whether two Jacobians are equal and not both zero."""
    scale = float(np.max(np.abs(right), initial=0.0))
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
                    f"then say 'symmetric: true' of {input_info.name}"
                )
    return ""


def _as_matrices(values: Float, input_info: TensorInfo) -> npt.NDArray[np.complex128]:
    """Return packed rows as matrices, complex ones for a complex input."""
    real, imaginary = values[:, : input_info.size], values[:, input_info.size :]
    whole = real + 1j * imaginary if input_info.is_complex else real + 0j
    return np.asarray(whole.reshape(-1, *input_info.shape), np.complex128)
