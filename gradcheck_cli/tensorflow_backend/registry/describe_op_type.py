"""What an op type looks like to whoever writes its spec: its inputs and attrs, from its OpDef."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.drafts.draft import Draft, DraftInput, as_flow
from gradcheck_cli.spec.values.dtype_names import DTYPES, VARYING_DTYPES
from gradcheck_cli.tensorflow_backend.binding.raw_op import unknown_op_type
from gradcheck_cli.tensorflow_backend.private import private_graphs

if TYPE_CHECKING:
    from collections.abc import Mapping

LENGTH = 2  # of a list input
# What an attr without a default is given first, by the OpDef's word for its type.
_FIRST: dict[str, Any] = {
    "int": 1,
    "float": 1.0,
    "bool": False,
    "list(int)": [1, 1, 1, 1],
    "list(float)": [1.0],
    "shape": [2],
    "string": "",
}


def describe_op_type(op_type: str) -> Draft:
    """Describe an op type.

    Args:
        op_type: TensorFlow's name of it.

    Returns:
        A draft in which an input's shape is `None` where it is to be found by trying.

    Raises:
        CaseFailedError: there is no such op type.
    """
    definition = private_graphs.op_def(op_type)
    if definition is None:
        raise CaseFailedError("op_type", unknown_op_type(op_type))
    inferred = {
        name for one in definition.input_arg for name in (one.type_attr, one.number_attr, one.type_list_attr)
    }
    kinds = {attr.name: attr for attr in definition.attr}
    attrs = {
        attr.name: _first(attr)
        for attr in definition.attr
        if attr.name not in inferred and not attr.HasField("default_value") and attr.type in _FIRST
    }
    keys: dict[str, Any] = {"op_type": op_type}
    remarks = {}
    if attrs:
        keys["attrs"] = attrs
        remarks["attrs"] = "those without a default: put in yours"
    inputs = tuple(_input(one, kinds) for one in definition.input_arg)
    more = {
        attr.name: _default(attr.default_value)
        for attr in definition.attr
        if attr.name not in inferred and attr.HasField("default_value") and attr.type in _FIRST
    }
    notes = [f"attrs: {as_flow(more)}   # their defaults"] if more else []
    notes += [
        f"{attr.name}: one of {', '.join(allowed)}"
        for attr in definition.attr
        if (allowed := [one.decode() for one in attr.allowed_values.list.s])
    ]
    notes += [f"dtypes: [{', '.join(_floating(kinds, definition))}]"]
    notes += ["second_order: true"]
    return Draft(op_type, keys, inputs, remarks, tuple(notes))


def _first(attr: Any) -> Any:
    allowed = [one.decode() for one in attr.allowed_values.list.s]
    return allowed[0] if allowed else _FIRST[attr.type]


def _default(value: Any) -> Any:
    field = value.WhichOneof("value")
    content: Any = getattr(value, field) if field else ""
    if field == "list":
        return [*content.i, *content.f, *(one.decode() for one in content.s)]
    if field == "shape":
        return None if content.unknown_rank else [one.size for one in content.dim]
    return content.decode() if isinstance(content, bytes) else content


def _input(argument: Any, kinds: Mapping[str, Any]) -> DraftInput:
    dtype = _dtype(argument, kinds)
    says = {} if dtype == "float64" else {"dtype": dtype}
    count = LENGTH if argument.number_attr or argument.type_list_attr else 0
    return DraftInput(argument.name, [dict(says) for _ in range(count)] if count else says, is_guess=True)


def _dtype(argument: Any, kinds: Mapping[str, Any]) -> str:
    """Return the first dtype that an input may have: one with gradients, if there is one."""
    if argument.type:
        name = str(tf.as_dtype(argument.type).name)
        return name if name in DTYPES else "float64"
    allowed = _allowed(kinds.get(argument.type_attr))
    for name in ("float64", "float32", "complex128", *VARYING_DTYPES, "int32", "int64"):
        if not allowed or name in allowed:
            return name
    return allowed[0]


def _allowed(attr: Any) -> list[str]:
    return [] if attr is None else [tf.as_dtype(one).name for one in attr.allowed_values.list.type]


def _floating(kinds: Mapping[str, Any], definition: Any) -> list[str]:
    attrs = [kinds[one.type_attr] for one in definition.input_arg if one.type_attr in kinds]
    allowed = _allowed(attrs[0]) if attrs else []
    return [name for name in VARYING_DTYPES if not allowed or name in allowed] or ["float64"]
