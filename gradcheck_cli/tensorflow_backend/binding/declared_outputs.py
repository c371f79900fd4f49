"""Compares what a spec says about its outputs with what the forward returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.binding.user_gradient import shape_text


def names(case: Case, count: int, returned_names: Sequence[str] = ()) -> list[str]:
    """Return the outputs' names: those from what the forward returned, the spec's, y, or y0, y1, ..."""
    if len(returned_names) == count:
        return list(returned_names)
    if len(case.outputs) == count:
        return [output.name for output in case.outputs]
    return ["y"] if count == 1 else [f"y{index}" for index in range(count)]


def infos(
    case: Case, output_names: Sequence[str], output_dtypes: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> tuple[TensorInfo, ...]:
    """Describe the outputs.

    Args:
        output_dtypes: their dtypes.
        shapes: their shapes at the base point.
    """
    owners = {output.name: output.gradient_of for output in case.outputs}
    return tuple(
        TensorInfo(name, dtype.name, tuple(shape), dtypes.is_differentiable(dtype), of=owners.get(name, ""))
        for name, dtype, shape in zip(output_names, output_dtypes, shapes, strict=True)
    )


def check_dtypes(
    case: Case,
    output_names: Sequence[str],
    output_dtypes: Sequence[Any],
    dtype_of: Callable[[str], str],
    role: str,
) -> None:
    """Compare the outputs' number and dtypes with the spec.

    Args:
        output_dtypes: their dtypes.
        dtype_of: maps a dtype that the spec names to the one that is traced.
        role: "forward" or "reference", for messages.

    Raises:
        CaseFailedError: of kind "outputs".
    """
    by_name = dict(zip(output_names, output_dtypes, strict=True))
    declared = [output.name for output in case.outputs]
    if declared and not all(_names_output(name, output_names) for name in declared):
        raise CaseFailedError(
            "outputs",
            f"the {role} returns {len(output_dtypes)} output(s), but the spec names {len(declared)}: "
            f"{', '.join(declared)}.",
        )
    for output in case.outputs:
        dtype = by_name.get(output.name)
        if dtype is None:
            if output.dtype is not None or output.shape is not None:
                parts = [name for name in output_names if _is_part(name, output.name)]
                raise CaseFailedError(
                    "outputs",
                    f"output {output.name} of the {role} is a structure of {', '.join(parts)}, which has no "
                    "dtype and no shape of its own: leave them out of the spec.",
                )
        elif output.dtype is not None and dtype_of(output.dtype) != dtype.name:
            raise CaseFailedError(
                "outputs",
                f"output {output.name} of the {role} must be {dtype_of(output.dtype)} by the spec, "
                f"but is {dtype.name}.",
            )


def _names_output(name: str, output_names: Sequence[str]) -> bool:
    return any(output_name == name or _is_part(output_name, name) for output_name in output_names)


def _is_part(name: str, owner: str) -> bool:
    return name.startswith((f"{owner}.", f"{owner}["))


def check_shapes(case: Case, output_names: Sequence[str], values: Sequence[np.ndarray[Any, Any]]) -> None:
    """Compare the outputs' shapes with the spec.

    Raises:
        CaseFailedError: of kind "outputs".
    """
    by_name = dict(zip(output_names, values, strict=True))
    for declared in case.outputs:
        expected, value = declared.shape, by_name.get(declared.name)
        if (
            expected is not None
            and value is not None
            and not tf.TensorShape(expected).is_compatible_with(value.shape)
        ):
            raise CaseFailedError(
                "outputs",
                f"output {declared.name} must have shape {shape_text(expected)} by the spec, but "
                f"has {shape_text(value.shape)}.",
            )
