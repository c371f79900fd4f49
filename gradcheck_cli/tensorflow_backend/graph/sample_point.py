"""A case's inputs at one sample point: their values, dtypes and shapes as a trace takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.opener import Dtype
from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.spec.case import MOVED, Case, InputSpec
from gradcheck_cli.spec.values.draw_values import draw
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.dtypes import Array
from gradcheck_cli.tensorflow_backend.twin.widening import Roundings

# A move towards zero, which most domains allow, and by far more than a gradient may lose by rounding. Inputs
# move by different shares of it, so that what is equal in two of them isn't any more.
_MOVE = 2.0**-4
_SHARES = (1.0, 0.6, 0.8, 0.7)


@dataclass
class SamplePoint:
    """The point at which a case is traced.

    Attributes:
        dtype: the dtypes that are traced; see `Opening`.
        has_wide_variables: whether `dtype` applies to variables as well; otherwise they keep their dtypes.
        is_exact: whether the values stay as they were drawn, before the declared dtypes round them.
        roundings: a seed by which the values of files, which were rounded before, are moved by one rounding.
        chosen: the arguments' values at points that were chosen, by sample number; others are drawn.
    """

    case: Case
    sample: int
    dtype: Dtype = "declared"
    has_wide_variables: bool = False
    is_exact: bool = False
    roundings: int | None = None
    chosen: Mapping[int, Sequence[Array]] = field(default_factory=dict)

    def dtype_of(self, dtype: str) -> str:
        """Return the dtype that is traced where the spec names this one."""
        if self.dtype == "complex128":
            return dtypes.complex_dtype(dtype)
        return dtypes.reference_dtype(dtype) if self.dtype == "float64" else dtype

    @cached_property
    def point(self) -> tuple[Array, ...]:
        """Every value, wide, as the declared dtype can hold it."""
        return tuple(
            self._wide_value(input_index, tensor) for input_index, tensor in enumerate(self.case.tensors)
        )

    def _wide_value(self, input_index: int, tensor: InputSpec) -> Array:
        if self.sample in self.chosen:
            value = np.asarray(self.chosen[self.sample][input_index])
        elif tensor.is_variable:
            return dtypes.widen(np.asarray(tensor.source.arguments["value"]))
        else:
            value = self._draw(input_index, tensor)
        if self.is_exact:
            return dtypes.widen(value)
        narrow = dtypes.narrow(value, tensor.dtype)
        if self.roundings is None or tensor.source.kind != "file" or not tensor.is_differentiable:
            return dtypes.widen(narrow)
        return cast("Array", Roundings(self.roundings).move(narrow, tf.as_dtype(tensor.dtype)))

    def _draw(self, input_index: int, tensor: InputSpec) -> Array:
        if self.sample != MOVED:
            return draw(self.case, tensor, self.sample)
        value: Array = np.asarray(draw(self.case, tensor, 0))
        if not tensor.is_differentiable or value.dtype.kind not in "fc":
            return value
        return _move(tensor, value, _MOVE * _SHARES[input_index % len(_SHARES)])

    def stacked(self, samples: Sequence[int]) -> dict[int, Array]:
        """Return the drawn arguments at several points, by index, (B, *shape) each."""
        points = [replace(self, sample=sample).point for sample in samples]
        return {
            input_index: np.stack([point[input_index] for point in points])
            for input_index, tensor in enumerate(self.case.tensors[: self.count])
            if tensor.source.kind not in ("value", "file") and points[0][input_index].dtype != object
        }

    @cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Every input tensor, lists flattened, in the dtype that is traced; then the variables."""
        return tuple(
            TensorInfo(
                tensor.name,
                tensor.dtype
                if tensor.is_variable and not self.has_wide_variables
                else self.dtype_of(tensor.dtype),
                value.shape,
                tensor.is_differentiable,
                of=tensor.upstream_of,
            )
            for tensor, value in zip(self.case.tensors, self.point, strict=True)
        )

    @cached_property
    def count(self) -> int:
        """How many inputs are arguments of the forward; the rest are variables."""
        return sum(not tensor.is_variable for tensor in self.case.tensors)

    @cached_property
    def arguments(self) -> list[tuple[str, tuple[int, ...]]]:
        """Dtype and shape of every input that is an argument of the forward."""
        return [(info.dtype, info.shape) for info in self.inputs[: self.count]]

    @cached_property
    def narrow(self) -> list[Array]:
        """Every argument's value in the NumPy form of the dtype that is traced."""
        return [
            dtypes.narrow(value, dtype)
            for value, (dtype, _) in zip(self.point[: self.count], self.arguments, strict=True)
        ]

    @property
    def tensors(self) -> list[Any]:
        """Every argument's value as a tensor, made anew each time: a large one takes much memory."""
        return [
            tf.constant(value, dtype) for value, (dtype, _) in zip(self.narrow, self.arguments, strict=True)
        ]

    @cached_property
    def seed(self) -> int:
        """The seed of the case's draws at this point; never 0, which means no seed."""
        return 1 + (self.case.seed * 1_000_003 + self.sample) % (2**31 - 1)

    @cached_property
    def differentiable(self) -> list[int]:
        """Indices of the inputs that gradients are taken for."""
        return [index for index, info in enumerate(self.inputs) if info.is_differentiable]


def _move(tensor: InputSpec, value: Any, share: float) -> Array:
    low, high = tensor.domain
    moved: Array = value * (1 - share) + np.where(value == 0, share, 0)
    if moved.dtype.kind == "f":
        moved = np.clip(moved, -np.inf if low is None else low, np.inf if high is None else high)
    return moved


def points(case: Case) -> Sequence[int]:
    """Return the sample indices of a case: a single one if every value is fixed."""
    return range(case.samples if case.is_generated else 1)
