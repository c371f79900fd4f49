"""What a spec says of its outputs, held against what the forward returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.checking.operation import TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.user_gradient import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from gradcheck_cli.spec.case import Case


def names(case: Case, count: int) -> list[str]:
    """Return the outputs' names: the spec's, else y, or y0, y1, ..."""
    if case.outputs:
        return [output.name for output in case.outputs]
    return ["y"] if count == 1 else [f"y{number}" for number in range(count)]


def infos(case: Case, found: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> tuple[TensorInfo, ...]:
    """Describe the outputs.

    Args:
        case: the case.
        found: the outputs' dtypes.
        shapes: their shapes at the base point.
    """
    named = names(case, len(found))
    owners = [output.gradient_of for output in case.outputs] or [""] * len(named)
    return tuple(
        TensorInfo(name, dtype.name, tuple(shape), dtypes.is_differentiable(dtype), of=owner)
        for name, dtype, shape, owner in zip(named, found, shapes, owners, strict=True)
    )


def check_dtypes(case: Case, found: Sequence[Any], dtype_of: Callable[[str], str], role: str) -> None:
    """Hold the number of outputs and their dtypes against the spec.

    Args:
        case: the case.
        found: the outputs' dtypes.
        dtype_of: maps a dtype that the spec names to the one that is traced.
        role: "forward" or "reference", for messages.

    Raises:
        CaseFailedError: of kind "outputs".
    """
    declared = case.outputs
    if not declared:
        return
    if len(declared) != len(found):
        raise CaseFailedError(
            "outputs",
            f"the {role} returns {len(found)} output(s), but the spec names {len(declared)}: "
            f"{', '.join(output.name for output in declared)}.",
        )
    for output, dtype in zip(declared, found, strict=True):
        if output.dtype is not None and dtype_of(output.dtype) != dtype.name:
            raise CaseFailedError(
                "outputs",
                f"output {output.name} of the {role} must be {dtype_of(output.dtype)} by the spec, "
                f"but is {dtype.name}.",
            )


def check_shapes(case: Case, values: Sequence[np.ndarray[Any, Any]]) -> None:
    """Hold the outputs' shapes against the spec.

    Raises:
        CaseFailedError: of kind "outputs".
    """
    for declared, value in zip(case.outputs, values, strict=False):
        wanted = declared.shape
        if wanted is not None and not tf.TensorShape(wanted).is_compatible_with(value.shape):
            raise CaseFailedError(
                "outputs",
                f"output {declared.name} must have shape {shape_text(wanted)} by the spec, but "
                f"has {shape_text(value.shape)}.",
            )
