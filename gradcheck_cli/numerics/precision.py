"""The floating-point formats in which ops compute, each as its rounding error and its rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Precision:
    """A binary floating-point format whose values are held, exactly, in float64.

    Attributes:
        name: TensorFlow's name of the real dtype.
        unit_roundoff: largest relative rounding error to nearest, 2^-p with p significant bits.
        smallest_subnormal: the distance between values next to zero.
        largest: the largest finite value; a value that rounds beyond it is infinite.
        smallest_kept: kernels flush anything smaller to zero. It is the smallest normal number, except for
            float16, whose kernels compute in float32.
    """

    name: str
    unit_roundoff: float
    smallest_subnormal: float
    largest: float
    smallest_kept: float

    def round(self, x: npt.ArrayLike) -> Float:
        """Round to the nearest representable value, ties to even; overflow goes to infinity.

        Args:
            x: any shape.

        Returns:
            The rounded values, as float64 of the same shape.
        """
        wide = np.asarray(x, dtype=np.float64)
        if self.name == "float64":
            return wide
        quantum = self.spacing(wide)
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = np.rint(wide / quantum) * quantum
        rounded = np.where(np.abs(rounded) > self.largest, np.copysign(np.inf, wide), rounded)
        return np.where(np.isfinite(wide), rounded, wide)

    def spacing(self, x: npt.ArrayLike) -> Float:
        """Return the distance from |x| to the next larger value, never less than the smallest subnormal.

        Args:
            x: any shape; non-finite values count as 1.

        Returns:
            Powers of two, same shape.
        """
        wide = np.asarray(x, dtype=np.float64)
        # |x| = mantissa * 2^exponent with mantissa in [0.5, 1), so ulp = 2 u * 2^(exponent - 1).
        exponent = np.frexp(np.where(np.isfinite(wide), wide, 1.0))[1]
        return np.maximum(np.ldexp(self.unit_roundoff, exponent), self.smallest_subnormal)


# IEEE 754-2019, table 3.5 (binary64, binary32, binary16); bfloat16 is binary32 cut to 8 significant bits.
# Which values are flushed was tried with TensorFlow 2.21 on a CPU (products, sums, matmuls).
FLOAT64 = Precision("float64", 2.0**-53, 2.0**-1074, float(np.finfo(np.float64).max), 2.0**-1022)
FLOAT32 = Precision("float32", 2.0**-24, 2.0**-149, float(np.finfo(np.float32).max), 2.0**-126)
FLOAT16 = Precision("float16", 2.0**-11, 2.0**-24, 65504.0, 2.0**-24)
BFLOAT16 = Precision("bfloat16", 2.0**-8, 2.0**-133, (2.0 - 2.0**-7) * 2.0**127, 2.0**-126)

_BY_DTYPE = {
    "float64": FLOAT64,
    "float32": FLOAT32,
    "float16": FLOAT16,
    "half": FLOAT16,
    "bfloat16": BFLOAT16,
    "complex64": FLOAT32,
    "complex128": FLOAT64,
}


def precision_of(dtype_name: str) -> Precision:
    """Return the precision in which a dtype computes; a complex dtype has that of its parts.

    Args:
        dtype_name: TensorFlow's name, such as "float32" or "complex64".

    Returns:
        One of the four precisions.

    Raises:
        ValueError: the dtype is not a floating one.
    """
    if dtype_name not in _BY_DTYPE:
        names = ", ".join(sorted(_BY_DTYPE))
        raise ValueError(f"a derivative needs a floating dtype, one of {names}; got {dtype_name!r}")
    return _BY_DTYPE[dtype_name]


def coarsest(*precisions: Precision) -> Precision:
    """Return the precision with the largest rounding error: it limits what differences can show."""
    return max(precisions, key=lambda precision: precision.unit_roundoff)


def smallest_subnormals(unit: Float) -> Float:
    """Return, for each unit roundoff, its precision's smallest subnormal: what underflow may lose."""
    smallest = np.zeros(unit.shape)
    for precision in (FLOAT64, FLOAT32, FLOAT16, BFLOAT16):
        smallest = np.where(unit == precision.unit_roundoff, precision.smallest_subnormal, smallest)
    return smallest
