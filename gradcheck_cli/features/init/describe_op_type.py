"""Describes an op type for drafts of its spec: inputs, attrs and dtypes, from its OpDef."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from gradcheck_cli.features.init.candidates import TABLES, nearest
from gradcheck_cli.features.init.draft import Draft, DraftInput
from gradcheck_cli.spec.words import DTYPES, VARYING_DTYPES
from gradcheck_cli.spec.yaml_tree import as_flow
from gradcheck_cli.tensorflow_backend import op_types

LENGTH = 2  # of a list input
_MOST_SETTINGS = 16  # attrs and dtypes that are tried together
# The order in which dtypes are tried: those with gradients first, precise ones before coarse ones.
_DTYPES = ("float64", "complex128", "float32", "complex64", *VARYING_DTYPES, "int32", "int64")
_WRITTEN = ("int", "float", "bool", "string", "shape", "type", "list(int)", "list(float)", "list(string)")


def describe_op_type(op_type: str) -> tuple[list[Draft], str]:
    """Return drafts of an op type's spec, with one choice of attrs and dtypes each, and why none can run.

    Raises:
        CaseFailedError: there is no such op type.
    """
    definition = op_types.definition_of(op_type)
    return [_draft(definition, chosen) for chosen in _settings(definition)], _reason_unguessable(definition)


def _reason_unguessable(definition: Any) -> str:
    """Say why no spec of this op type alone can run; empty if one may."""
    name, removed = definition.name, definition.deprecation.version
    if 0 < removed <= tf.version.GRAPH_DEF_VERSION:
        return f"TensorFlow has removed {name}: {definition.deprecation.explanation}"
    reasons = [
        f"input {argument.name} takes a handle to an object, which no input of a spec can be"
        for argument in definition.input_arg
        if _is_handle(argument)
    ]
    reasons += [
        f"attr {attr.name} takes a function, which no attr of a spec can be"
        for attr in definition.attr
        if "func" in attr.type and not attr.HasField("default_value")
    ]
    if definition.output_arg and all(_is_handle(argument) for argument in definition.output_arg):
        reasons.append(f"output {definition.output_arg[0].name} is a handle to an object, not numbers")
    if not reasons:
        return ""
    return (
        f"{reasons[0]}: write a function of tensors that makes it, calls tf.raw_ops.{name} and returns "
        f"tensors, and name that: 'forward: MODULE:FUNCTION' in place of op_type, with 'covers: [{name}]'."
    )


def _is_handle(argument: Any) -> bool:
    kinds = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)
    return argument.is_ref or argument.type in kinds or argument.name == "handle"


def _settings(definition: Any) -> list[dict[str, Any]]:
    """Return combinations of attrs, including dtypes of inputs, under the names of their attrs."""
    inferred = op_types.inferred_attrs(definition)
    names, choices = [], []
    for attr in definition.attr:
        has_default = attr.HasField("default_value")
        values: Sequence[Any] = ()
        if attr.type == "type":
            allowed = [tf.as_dtype(dtype).name for dtype in attr.allowed_values.list.type]
            values = tuple(name for name in dict.fromkeys(_DTYPES) if not allowed or name in allowed)
            # A dtype that is never a float's, such as an index's, or that may be any, matters little.
            is_number = any(name in VARYING_DTYPES for name in values)
            values = values[:4] if is_number and (allowed or attr.name not in inferred) else values[:1]
        elif attr.name not in inferred and (not has_default or attr.name in TABLES["attrs"]):
            allowed = [value.decode() for value in attr.allowed_values.list.s]
            least = attr.minimum if attr.has_minimum else 0
            values = allowed or _attr_values(attr.name, attr.type, least)
        if values:
            names.append(attr.name)
            choices.append(values)
    combined = itertools.islice(nearest(choices), _MOST_SETTINGS)
    return [dict(zip(names, chosen, strict=True)) for chosen in combined]


def _draft(definition: Any, settings: dict[str, Any]) -> Draft:
    """Return the draft with these attrs; its inputs have no shapes yet."""
    inferred = op_types.inferred_attrs(definition)
    kinds = {attr.name: attr for attr in definition.attr}
    defaults = {
        attr.name: _plain_default(attr.default_value)
        for attr in definition.attr
        if attr.name not in inferred and attr.HasField("default_value") and attr.type in _WRITTEN
    }
    attrs = {
        name: value
        for name, value in settings.items()
        if name not in inferred and (name not in defaults or defaults[name] != value)
    }
    keys: dict[str, Any] = {"op_type": definition.name}
    remarks = {}
    if attrs:
        keys["attrs"] = attrs
        remarks["attrs"] = "replace by yours"
    inputs = tuple(_draft_input(argument, kinds, settings) for argument in definition.input_arg)
    more = {name: value for name, value in defaults.items() if name not in attrs}
    notes = [f"attrs: {as_flow(more)}   # their defaults"] if more else []
    notes += [
        f"{attr.name}: one of {', '.join(allowed)}"
        for attr in definition.attr
        if (allowed := [value.decode() for value in attr.allowed_values.list.s])
    ]
    notes += [f"dtypes: [{', '.join(_floating_dtypes(kinds, definition))}]"]
    notes += ["second_order: true"]
    return Draft(definition.name, keys, inputs, remarks, tuple(notes))


def _plain_default(value: Any) -> Any:
    kind = value.WhichOneof("value")
    content: Any = getattr(value, kind) if kind else ""
    if kind == "list":
        return [*content.i, *content.f, *(text.decode() for text in content.s)]
    if kind == "shape":
        return None if content.unknown_rank else [dimension.size for dimension in content.dim]
    if kind == "type":
        return tf.as_dtype(content).name
    return content.decode() if isinstance(content, bytes) else content


def _draft_input(argument: Any, kinds: dict[str, Any], settings: dict[str, Any]) -> DraftInput:
    dtype = settings.get(argument.type_attr, "float64")
    if argument.type:
        dtype = str(tf.as_dtype(argument.type).name)
    says = {} if dtype == "float64" or dtype not in DTYPES else {"dtype": dtype}
    count_attr = kinds.get(argument.number_attr or argument.type_list_attr)
    count = 0 if count_attr is None else max(LENGTH, count_attr.minimum if count_attr.has_minimum else 0)
    if count and argument.name.endswith("splits"):
        count = 1  # one ragged dimension
    if len(settings.get("row_partition_types", ())) and argument.number_attr:
        count = len(settings["row_partition_types"])
    return DraftInput(
        argument.name,
        [dict(says) for _ in range(count)] if count else says,
        is_guess=True,
        is_of_op_type=True,
    )


def _attr_values(name: str, kind: str, least: int) -> Sequence[Any]:
    """Return the values that an attr may have, the likeliest first; none if nothing is known about it.

    `least` is its least value, or least length; 0 if it has none.
    """
    if name in TABLES["attrs"]:
        return TABLES["attrs"][name]  # type: ignore[no-any-return]
    if kind == "list(int)":  # sizes for each axis of images, of which 5 are volumes; 2 for a window
        return ([1, *[2 if name.startswith("ksize") else 1] * (max(least, 4) - 2), 1],)
    if kind == "int":
        return (max(least, 1),)
    return TABLES["attrs_by_kind"].get(kind, ())  # type: ignore[no-any-return]


def _floating_dtypes(kinds: dict[str, Any], definition: Any) -> Iterator[str]:
    attrs = [kinds[argument.type_attr] for argument in definition.input_arg if argument.type_attr in kinds]
    allowed = [tf.as_dtype(dtype).name for dtype in attrs[0].allowed_values.list.type] if attrs else []
    yield from [name for name in VARYING_DTYPES if not allowed or name in allowed] or ["float64"]
