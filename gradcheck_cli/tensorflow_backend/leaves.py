"""Structures of values split into leaves, each with a label that says where it is: `y.loss`, `xs[0]`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

# Characters that a label such as dy/dx can't contain.
NO_LABEL = re.compile(r"[\s/\[\]*?,:]+")


@dataclass(frozen=True)
class Leaf:
    """A leaf of a structure, and the path to it, such as `.loss` or `[0].h`."""

    path: str
    value: Any


@dataclass(frozen=True)
class Part:
    """One part of a structure: its key, if it has one, and what it adds to the path."""

    key: str
    step: str
    value: Any


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


def leaves_of(value: Any, path: str = "") -> list[Leaf]:
    """Split a structure, including composite tensors; anything else is one leaf."""
    parts = parts_of(value)
    if parts is None:
        return [Leaf(path, value)]
    return [leaf for part in parts for leaf in leaves_of(part.value, path + part.step)]


def parts_of(value: Any) -> list[Part] | None:
    """Return the parts of a structure that aren't None, in the order of tf.nest; `None` for anything else."""
    parts = _all_parts(value)
    return None if parts is None else [part for part in parts if part.value is not None]


def _all_parts(value: Any) -> list[Part] | None:
    if isinstance(value, Mapping):
        return [_keyed_part(key, value[key]) for key in _sort_keys(value)]
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [Part("", f"[{index}]", part) for index, part in enumerate(value)]
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


def _keyed_part(key: Any, value: Any) -> Part:
    if isinstance(key, int):
        return Part(str(key), f"[{key}]", value)
    name = NO_LABEL.sub("_", str(key))
    return Part(name, f".{name}", value)
