"""Conditions of a graph: in words, and taken apart into what must all hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.features.search.branches.bodies import CALLS, bodies_of
from gradcheck_cli.features.search.branches.branch_kinds import (
    CASES,
    COMPARISONS,
    LOOPS,
    Kind,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 40  # characters of a condition
_MOST_NUMBERS = 16  # in a constant
_INFIX = {**COMPARISONS, "AddV2": "+", "Add": "+", "Sub": "-", "Mul": "*", "RealDiv": "/"}
# Ops that return their input unchanged, or in another shape or dtype.
SAME = frozenset({"Identity", "IdentityN", "Cast", "ReadVariableOp", "BroadcastTo", "StopGradient"})
_AND = frozenset({"LogicalAnd", "All"})
_OR = frozenset({"LogicalOr", "Any"})
_REDUCING = frozenset({"All", "Any"})
# Ops that store a value in a list or for a gradient, with the index of that input; and ops that read it back.
_STORES = {"TensorListPushBack": 1, "TensorListSetItem": 2, "OptionalFromValue": 0}
_READS_BACK = frozenset(
    {"TensorListPopBack", "TensorListFromTensor", "TensorListGetItem", "TensorListStack", "OptionalGetValue"}
)


def describe_branch(op: Any, kind: Kind, names: Mapping[int, str]) -> str:
    """Describe what an op branches on: a condition, or the function and its arguments."""
    if op.type in LOOPS:
        return "loop"
    if op.type in CASES:
        return _shorten(_describe_tensor(op.inputs[0], names, 3))
    if kind.margins is None:
        condition = op.outputs[0] if kind.is_output else op.inputs[0]
        return _shorten(_describe_tensor(condition, names, 3))
    arguments = ", ".join(_describe_tensor(op.inputs[index], names, 2) for index in kind.inputs)
    return _shorten(f"{op.type.lower()}({arguments})")


def describe_in_body(tensor: Any, names: Mapping[int, str]) -> str:
    """Describe a tensor that a body takes."""
    return _shorten(_describe_tensor(tensor, names, 1))


def _describe_tensor(tensor: Any, names: Mapping[int, str], depth: int) -> str:
    """Describe a tensor: an input's name, a number, or an op with its arguments."""
    if id(tensor) in names:
        return names[id(tensor)]
    op = tensor.op
    source = _source_of(tensor)
    if source is not None:
        return _describe_tensor(source, names, depth)
    if op.type in SAME and op.inputs:
        return _describe_tensor(op.inputs[min(tensor.value_index, len(op.inputs) - 1)], names, depth)
    if not op.inputs:
        return _constant_text(op) if op.type == "Const" else op.name.rpartition("/")[2].lower()
    arguments = [_describe_tensor(operand, names, depth - 1) for operand in op.inputs] if depth else ["..."]
    if op.type in _INFIX and len(arguments) == 2:  # noqa: PLR2004 (its two sides)
        return f"{arguments[0]} {_INFIX[op.type]} {arguments[1]}"
    return f"{op.type.lower()}({', '.join(arguments)})"


def _source_of(tensor: Any) -> Any | None:
    """Return the tensor behind the result of a call, or behind a value read from a list; else `None`."""
    op = tensor.op
    if op.type in _READS_BACK:
        return op.inputs[0]
    for _, body in bodies_of(op):
        inner = body.outputs[tensor.value_index]
        if op.type in CALLS:
            return inner
        if inner.op.type in _STORES:
            return inner.op.inputs[_STORES[inner.op.type]]
    return None


def _constant_text(op: Any) -> str:
    value = tf.make_ndarray(op.get_attr("value"))
    return f"{value.reshape(-1)[0]:g}" if value.size == 1 and value.dtype.kind in "fiub" else "constant"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def read_literals(tensor: Any, *, holds: bool) -> tuple[tuple[Any, bool], ...]:
    """Return what must all be so for a condition to hold, or not to hold: boolean tensors, each with a truth.

    A condition that holds if any of several does stays whole.
    """
    op = tensor.op
    if op.type in SAME and op.inputs and op.inputs[0].dtype == tf.bool:
        return read_literals(op.inputs[0], holds=holds)
    if op.type == "LogicalNot":
        return read_literals(op.inputs[0], holds=not holds)
    if op.type in (_AND if holds else _OR):
        parts = op.inputs[:1] if op.type in _REDUCING else op.inputs
        return tuple(literal for part in parts for literal in read_literals(part, holds=holds))
    return ((tensor, holds),)


def constants_of(tensor: Any) -> list[float]:
    """Return the numbers of a small constant tensor."""
    value = tf.get_static_value(tensor) if tensor.op.type == "Const" else None
    if value is None or value.dtype.kind not in "fiu" or value.size > _MOST_NUMBERS:
        return []
    return [float(number) for number in np.ravel(value) if np.isfinite(number)]
