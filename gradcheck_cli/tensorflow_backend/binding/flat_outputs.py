"""Splits what a forward returns into flat tensors, and compares them with what the spec says about them.

Each is named by its path in the structure. The order is TensorFlow's own (tf.nest): a dict's keys are sorted,
everything else stays in order. If a spec names the keys or fields of what is returned, its order and names
are used.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend import dtypes, frames
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
    """Describe the outputs, with their shapes at the base point."""
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
        dtype_of: maps a dtype that the spec names to the one that is traced.

    Raises:
        CaseFailedError: of kind "outputs".
    """
    by_name = dict(zip(output_names, output_dtypes, strict=True))
    declared = [output.name for output in case.outputs]
    is_there = [any(name == actual or _is_part(actual, name) for actual in output_names) for name in declared]
    if not all(is_there):
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


# Characters that a label such as dy/dx can't contain.
NO_LABEL = re.compile(r"[\s/\[\]*?,:]+")


@dataclass(frozen=True)
class Leaf:
    """A leaf of a structure, and the path to it, such as `.loss` or `[0].h`."""

    path: str
    value: Any


@dataclass(frozen=True)
class _Part:
    """One part of a structure: its key, if it has one, and what it adds to the path."""

    key: str
    step: str
    value: Any


def flat_outputs(case: Case, result: Any, role: str, names: list[str] | None = None) -> list[Any]:
    """Return what a function returned as a flat list of tensors, in the order of the spec's names.

    Args:
        role: "forward" or "reference", for messages.
        names: filled with the name of each.

    Raises:
        CaseFailedError: of kind "outputs": something in it is no tensor, or its names aren't the spec's.
    """
    leaves = _name_leaves(case, result, role)
    tensors = [_tensor(leaf, role, is_root=leaf.value is result) for leaf in leaves]
    if names is not None:
        names[:] = unique([leaf.path for leaf in leaves])
    return tensors


def flat_arrays(case: Case, result: Any) -> Any:
    """Return what a NumPy forward returned as TensorFlow's `py_func` takes it: a structure flat.

    Raises:
        CaseFailedError: of kind "outputs": its names aren't the spec's.
    """
    is_flat = not any("." in leaf.path for leaf in leaves_of(result))  # lists may be an array's rows
    return result if is_flat else [leaf.value for leaf in _name_leaves(case, result, "forward")]


def unique(names: Sequence[str], used: Collection[str] = ()) -> list[str]:
    """Return the names, numbered where they are the same or used already."""
    chosen: list[str] = []
    for name in names:
        candidate, count = name, 0
        while candidate in used or candidate in chosen:
            count += 1
            candidate = f"{name}_{count}"
        chosen.append(candidate)
    return chosen


def _tensor(leaf: Leaf, role: str, *, is_root: bool) -> Any:
    kind = type(leaf.value).__name__
    what = f"returned a {kind}" if is_root else f"{leaf.path} is a {kind}"
    if leaf.value is None:
        raise CaseFailedError("outputs", f"{role}: must return tensors, but {what}; return each output.")
    try:
        return tf.convert_to_tensor(leaf.value)
    except (TypeError, ValueError) as error:
        remedy = " Return ta.stack() or ta.concat()." if isinstance(leaf.value, tf.TensorArray) else ""
        raise CaseFailedError(
            "outputs", f"{role}: must return tensors, but {what} ({frames.first_line(error)}).{remedy}"
        ) from error


# How a structure is split.


def leaves_of(value: Any, path: str = "") -> list[Leaf]:
    """Split a structure, including composite tensors; anything else is one leaf."""
    parts = _parts(value)
    if parts is None:
        return [Leaf(path, value)]
    return [leaf for part in parts for leaf in leaves_of(part.value, path + part.step)]


def _parts(value: Any) -> list[_Part] | None:
    """Return the parts of a structure that aren't None, in the order of tf.nest; `None` for anything else."""
    parts = _all_parts(value)
    return None if parts is None else [part for part in parts if part.value is not None]


def _all_parts(value: Any) -> list[_Part] | None:
    if isinstance(value, Mapping):
        return [_keyed_part(key, value[key]) for key in _sort_keys(value)]
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_Part("", f"[{index}]", part) for index, part in enumerate(value)]
    names = _field_names(value)
    return None if names is None else [_keyed_part(name, getattr(value, name)) for name in names]


def _field_names(value: Any) -> list[str] | None:
    """Return the names of the attributes that hold the parts of an object, including composite tensors."""
    fields: list[str] | None = None
    if isinstance(value, tf.SparseTensor):
        fields = ["indices", "values", "dense_shape"]
    elif isinstance(value, tf.RaggedTensor):
        fields = ["flat_values", "row_splits" if value.ragged_rank == 1 else "nested_row_splits"]
    elif isinstance(value, tf.IndexedSlices):
        fields = ["values", "indices", *(["dense_shape"] if value.dense_shape is not None else [])]
    elif isinstance(value, tuple):  # a named tuple
        fields = list(value._fields)  # type: ignore[attr-defined]
    elif isinstance(value, tf.experimental.ExtensionType):
        # TensorFlow's own attributes have this prefix.
        fields = [name for name in vars(value) if not name.startswith("_tf_")]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
    elif hasattr(type(value), "__attrs_attrs__"):
        fields = [field.name for field in type(value).__attrs_attrs__]
    return fields


def _sort_keys(value: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(value)
    except TypeError:  # keys of several kinds, which tf.nest refuses
        return list(value)


def _keyed_part(key: Any, value: Any) -> _Part:
    if isinstance(key, int):
        return _Part(str(key), f"[{key}]", value)
    name = NO_LABEL.sub("_", str(key))
    return _Part(name, f".{name}", value)


# How leaves are named.


def _name_leaves(case: Case, result: Any, role: str) -> list[Leaf]:
    """Return the leaves under their full names, in the order of the spec's names."""
    leaves = leaves_of(result)
    if not leaves or result is None:
        raise CaseFailedError(
            "outputs",
            f"{role}: must return tensors, but returned {type(result).__name__}; return each output.",
        )
    parts = _parts(result) or []
    spec_names = [output.name for output in case.outputs]
    if isinstance(result, list | tuple) and not hasattr(result, "_fields"):
        return _name_by_position(parts, leaves, spec_names, role)
    keys = [part.key for part in parts]
    if parts and set(spec_names) == set(keys):
        by_key = {part.key: part for part in parts}
        return [leaf for name in spec_names for leaf in leaves_of(by_key[name].value, name)]
    if len(spec_names) <= 1:
        root = spec_names[0] if spec_names else "y"
        return [Leaf(root + leaf.path, leaf.value) for leaf in leaves]
    # The spec's own names are given by position. A dict has no position, and a field's name mustn't be used
    # for another field.
    positions = {key: position for position, key in enumerate(keys)}
    is_in_order = all(positions.get(name, index) == index for index, name in enumerate(spec_names))
    if parts and not isinstance(result, Mapping) and is_in_order:
        return _name_by_position(parts, leaves, spec_names, role)
    if parts:
        raise CaseFailedError(
            "outputs",
            f"the {role} returns a {type(result).__name__} of {', '.join(keys)}, but the spec names "
            f"{', '.join(spec_names)}. Name its keys, or the whole by one name.",
        )
    raise _count_error(role, len(leaves), spec_names)


def _name_by_position(
    parts: Sequence[_Part], leaves: Sequence[Leaf], spec_names: Sequence[str], role: str
) -> list[Leaf]:
    """Name the leaves of a list or tuple: by its elements, or each leaf by itself."""
    names = spec_names or (["y"] if len(parts) == 1 else [f"y{index}" for index in range(len(parts))])
    if len(names) == len(parts):
        return [leaf for name, part in zip(names, parts, strict=True) for leaf in leaves_of(part.value, name)]
    if len(spec_names) == len(leaves):
        return [Leaf(name, leaf.value) for name, leaf in zip(spec_names, leaves, strict=True)]
    raise _count_error(role, len(leaves), spec_names)


def _count_error(role: str, count: int, spec_names: Sequence[str]) -> CaseFailedError:
    listed = ", ".join(spec_names)
    return CaseFailedError(
        "outputs", f"the {role} returns {count} output(s), but the spec names {len(spec_names)}: {listed}."
    )
