"""Conditions of a graph: in words, and as margins that say how far a point is from either side.

A margin is computed from the numbers that are compared, so its slope leads to the side that no draw takes. If
several conditions must hold, what each one lacks is added up, so that one step improves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.features.search.branches.bodies import CALLS, bodies_of
from gradcheck_cli.features.search.branches.branch_kinds import (
    CASES,
    COMPARISONS,
    LOOPS,
    Kind,
    align,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    Array = np.ndarray[Any, Any]

_LONGEST = 40  # characters of a condition
_DEEPEST = 12  # conditions inside conditions
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


@dataclass(frozen=True)
class Condition:
    """A condition of a graph as an expression of the numbers that it compares.

    Attributes:
        kind: an op type: a comparison, "LogicalAnd", "All" and so on; "" if nothing more is known.
        tensors: what is compared; the condition's own tensor if nothing more is known.
        parts: the conditions that it consists of.
        axes: the axes of a reduction; `None` for all.
    """

    kind: str
    tensors: tuple[Any, ...] = ()
    parts: tuple[Condition, ...] = ()
    axes: tuple[int, ...] | None = None
    keeps: bool = False

    @staticmethod
    def of(tensor: Any, depth: int = _DEEPEST) -> Condition:
        """Read the condition that a boolean tensor holds."""
        op = tensor.op
        if op.type in ("Identity", "StopGradient") and op.inputs:
            return Condition.of(op.inputs[0], depth)
        if not depth or len(op.outputs) != 1:
            return Condition("", (tensor,))
        if op.type in ("LogicalAnd", "LogicalOr", "LogicalNot"):
            return Condition(op.type, parts=tuple(Condition.of(operand, depth - 1) for operand in op.inputs))
        if op.type in _REDUCING:
            axes = tf.get_static_value(op.inputs[1])
            if axes is not None:
                inner = Condition.of(op.inputs[0], depth - 1)
                axis_indices = tuple(int(axis) for axis in np.ravel(axes))
                return Condition(op.type, parts=(inner,), axes=axis_indices, keeps=op.get_attr("keep_dims"))
        if op.type in COMPARISONS and all(_is_real(operand) for operand in op.inputs):
            return Condition(op.type, tuple(op.inputs))
        return Condition("", (tensor,))

    @property
    def fetched(self) -> tuple[Any, ...]:
        """Every tensor from which margins are computed."""
        return (*self.tensors, *(tensor for part in self.parts for tensor in part.fetched))

    def margin(self, values: Mapping[int, Any], math: Any, *, holds: bool) -> Any:
        """Return how far each element is on the side where this holds, or on the other.

        Args:
            values: by the id of a tensor, (B, *shape).
            math: NumPy, or `IN_GRAPH` for tensors of a graph.
            holds: which side.

        Returns:
            (B, ...): positive, or zero where an equality holds, on that side.
        """
        if self.kind == "LogicalNot":
            return self.parts[0].margin(values, math, holds=not holds)
        sign = 1.0 if holds else -1.0
        if self.parts:
            margins = [part.margin(values, math, holds=holds) for part in self.parts]
            every = (self.kind in _AND) == holds
            if self.kind in _REDUCING:
                axes = tuple(axis + 1 if axis >= 0 else axis for axis in self.axes or ())
                return _reduce_margins(margins[0], axes, math, every=every, keeps=self.keeps)
            first, second = align(margins, math)
            return join_margins(first, second, math, every=every)
        operands = [values[id(tensor)] for tensor in self.tensors]
        if not self.kind:
            return sign * (2.0 * operands[0] - 1.0)
        first, second = align(operands, math)
        difference = first - second
        if self.kind in ("Equal", "NotEqual"):
            size = math.abs(difference)
            return -size if (self.kind == "Equal") == holds else size
        return sign * (difference if self.kind.startswith("Greater") else -difference)

    def constants(self) -> list[float]:
        """Return the numbers that the condition compares with."""
        own = [value for tensor in self.tensors for value in _constants(tensor)] if self.kind else []
        return own + [value for part in self.parts for value in part.constants()]


def join_margins(first: Any, second: Any, math: Any, *, every: bool) -> Any:
    """Return the margin of both holding, or of one of them holding.

    The margin of both is the sum of the negative margins, or the smaller one if none is negative.
    """
    if not every:
        return math.maximum(first, second)
    missing = math.minimum(first, 0.0) + math.minimum(second, 0.0)
    return math.where(missing < 0, missing, math.minimum(first, second))


def _reduce_margins(margins: Any, axes: tuple[int, ...], math: Any, *, every: bool, keeps: bool) -> Any:
    """Return the margin of all elements along some axes holding, or of one; see `joined`."""
    if not every:
        return math.max(margins, axis=axes, keepdims=keeps)
    missing = math.sum(math.minimum(margins, 0.0), axis=axes, keepdims=keeps)
    return math.where(missing < 0, missing, math.min(margins, axis=axes, keepdims=keeps))


def _constants(tensor: Any) -> list[float]:
    value = tf.get_static_value(tensor) if tensor.op.type in ("Const", "Cast", "Identity") else None
    if value is None or value.dtype.kind not in "fiu" or value.size > _DEEPEST:
        return []
    return [float(number) for number in np.ravel(value)]


def _is_real(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_integer)
