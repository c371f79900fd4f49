"""Complex tensors as real vectors: real parts first, then imaginary parts; real tensors stay as they are.

With TensorFlow's convention, the gradient of a real loss L being dL/dRe + i dL/dIm, a vjp is right when
Re<vjp(u), v> = Re<u, J v> for every upstream u and real tangent v. On packed vectors that is
pack(vjp(u)) = R' pack(u), with R the Jacobian of the packed function.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.operation import Array, TensorInfo
from gradcheck_cli.errors import CaseFailedError

Float = npt.NDArray[np.float64]


def packed_size(info: TensorInfo) -> int:
    """Return the number of real components."""
    return info.size * (2 if info.is_complex else 1)


def pack(values: Array, info: TensorInfo) -> Float:
    """Turn (B, *shape) into (B, packed_size).

    Raises:
        CaseFailedError: of kind "outputs": the values aren't of the tensor's shape.
    """
    array = np.asarray(values)
    if array.size != len(array) * info.size:
        raise CaseFailedError(
            "outputs",
            f"{info.name} has the shape {list(info.shape)} at the first evaluation, and "
            f"{list(array.shape[1:])} at others. Leave it out of what forward returns.",
        )
    flat = array.reshape(len(array), info.size)
    if info.is_complex:
        flat = np.concatenate([flat.real, flat.imag], axis=1)
    return flat.astype(np.float64, copy=False)


def unpack(vectors: Float, info: TensorInfo) -> Array:
    """Turn (B, packed_size) into (B, *shape)."""
    if info.is_complex:
        whole = np.empty((len(vectors), info.size), np.complex128)
        whole.real, whole.imag = vectors[:, : info.size], vectors[:, info.size :]
        return whole.reshape(len(vectors), *info.shape)
    return vectors.reshape(len(vectors), *info.shape)


def packed_magnitude(values: Array, info: TensorInfo) -> Float:
    """Return the magnitude of the element behind each packed position, (packed_size,), for tolerances.

    Both parts of a complex number get its modulus: either is rounded relative to the whole, so an imaginary
    part of zero is only as accurate as the real part.
    """
    magnitude = np.abs(np.asarray(values).reshape(info.size)).astype(np.float64)
    return np.concatenate([magnitude, magnitude]) if info.is_complex else magnitude


def index_of(position: int, info: TensorInfo) -> tuple[int, ...]:
    """Return the tensor's own index of a packed position.

    At a sample point at which the tensor has another shape, it is the position.
    """
    if position >= packed_size(info):
        return (position,)
    return tuple(int(index) for index in np.unravel_index(position % info.size, info.shape))


def part_of(position: int, info: TensorInfo) -> str:
    """Return which part of a complex element a packed position holds: "", "re" or "im"."""
    if not info.is_complex:
        return ""
    return "im" if position >= info.size else "re"


def name_element(position: int, info: TensorInfo) -> str:
    """Name a packed position: `y[0,2]`, `im z[1]`."""
    index = ",".join(map(str, index_of(position, info)))
    return f"{part_of(position, info)} {info.name}{f'[{index}]' if index else ''}".strip()
