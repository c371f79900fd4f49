"""The one Protocol through which checks see an op, so that a NumPy fake can drive them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class TensorInfo:
    """Name, dtype (TensorFlow's name of it) and static shape of an input or output."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_differentiable: bool = True

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


class Operation(Protocol):
    """An op at a base point: evaluates its forward in batches and multiplies by its analytic Jacobian.

    Values cross this border in wide NumPy dtypes (float64, complex128, int64, bool, object for strings)
    that hold the op's own dtype exactly: float16, bfloat16 and float32 widen without loss. Points that go
    in must be representable in the input's own dtype.
    """

    @property
    def inputs(self) -> Sequence[TensorInfo]:
        """Every input tensor, lists flattened, in positional order."""

    @property
    def outputs(self) -> Sequence[TensorInfo]:
        """Every output tensor, with its shape at the base point."""

    @property
    def point(self) -> Sequence[Array]:
        """The base point: one array per input."""

    def evaluate(self, batch: Mapping[int, Array]) -> list[Array]:
        """Evaluate the forward at several points.

        Args:
            batch: input number -> values of shape (B, *input.shape); other inputs stay at the base point.

        Returns:
            One array per output, of shape (B, *output.shape).
        """

    def vjp(self, output: int, upstream: Array) -> list[Array | None]:
        """Pull upstreams of one output back to every input.

        Args:
            output: the output's number.
            upstream: shape (B, *output.shape).

        Returns:
            Per input, shape (B, *input.shape), or `None` where there's no path.
        """
