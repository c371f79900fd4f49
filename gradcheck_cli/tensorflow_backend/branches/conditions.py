"""Conditions of a graph: in words, and as margins that say how far a point is from either side.

A margin follows the numbers that are compared, so its slope leads to the side that no draw takes. If several
conditions must hold, what each one lacks is added up, so that one step moves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.branches.bodies import CALLS, bodies_of
from gradcheck_cli.tensorflow_backend.branches.branch_kinds import (
    CASES,
    COMPARISONS,
    LOOPS,
    Kind,
    aligned,
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
# Ops that store a value in a list or for a gradient, with that input's number; and ops that read it back.
_KEEPING = {"TensorListPushBack": 1, "TensorListSetItem": 2, "OptionalFromValue": 0}
_KEPT = frozenset(
    {"TensorListPopBack", "TensorListFromTensor", "TensorListGetItem", "TensorListStack", "OptionalGetValue"}
)


def text_of(op: Any, kind: Kind, names: Mapping[int, str]) -> str:
    """Describe what an op branches on: a condition, or the function and its arguments."""
    if op.type in LOOPS:
        return "loop"
    if op.type in CASES:
        return _shortened(_told(op.inputs[0], names, 3))
    if kind.margins is None:
        condition = op.outputs[0] if kind.is_output else op.inputs[0]
        return _shortened(_told(condition, names, 3))
    given = ", ".join(_told(op.inputs[number], names, 2) for number in kind.inputs)
    return _shortened(f"{op.type.lower()}({given})")


def told_in_body(tensor: Any, names: Mapping[int, str]) -> str:
    """Describe a tensor that a body takes."""
    return _shortened(_told(tensor, names, 1))


def _told(tensor: Any, names: Mapping[int, str], depth: int) -> str:
    """Describe a tensor: an input's name, a number, or an op with its arguments."""
    if id(tensor) in names:
        return names[id(tensor)]
    op = tensor.op
    inner = _given_by_body(tensor)
    if inner is not None:
        return _told(inner, names, depth)
    if op.type in SAME and op.inputs:
        return _told(op.inputs[min(tensor.value_index, len(op.inputs) - 1)], names, depth)
    if not op.inputs:
        return _number(op) if op.type == "Const" else op.name.rpartition("/")[2].lower()
    given = [_told(one, names, depth - 1) for one in op.inputs] if depth else ["..."]
    if op.type in _INFIX and len(given) == 2:  # noqa: PLR2004 (its two sides)
        return f"{given[0]} {_INFIX[op.type]} {given[1]}"
    return f"{op.type.lower()}({', '.join(given)})"


def _given_by_body(tensor: Any) -> Any | None:
    """Return what a called function returns, or what a body keeps for its gradient; otherwise `None`."""
    op = tensor.op
    if op.type in _KEPT:
        return op.inputs[0]
    for _, body in bodies_of(op):
        inner = body.outputs[tensor.value_index]
        if op.type in CALLS:
            return inner
        if inner.op.type in _KEEPING:
            return inner.op.inputs[_KEEPING[inner.op.type]]
    return None


def _number(op: Any) -> str:
    value = tf.make_ndarray(op.get_attr("value"))
    return f"{value.reshape(-1)[0]:g}" if value.size == 1 and value.dtype.kind in "fiub" else "constant"


def _shortened(text: str) -> str:
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
            return Condition(op.type, parts=tuple(Condition.of(one, depth - 1) for one in op.inputs))
        if op.type in _REDUCING:
            axes = tf.get_static_value(op.inputs[1])
            if axes is not None:
                inner = Condition.of(op.inputs[0], depth - 1)
                found = tuple(int(axis) for axis in np.ravel(axes))
                return Condition(op.type, parts=(inner,), axes=found, keeps=op.get_attr("keep_dims"))
        if op.type in COMPARISONS and all(_is_real(one) for one in op.inputs):
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
            inner = [part.margin(values, math, holds=holds) for part in self.parts]
            every = (self.kind in _AND) == holds
            if self.kind in _REDUCING:
                axes = tuple(axis + 1 if axis >= 0 else axis for axis in self.axes or ())
                return _reduced(inner[0], axes, math, every=every, keeps=self.keeps)
            first, second = aligned(inner, math)
            return joined(first, second, math, every=every)
        found = [values[id(tensor)] for tensor in self.tensors]
        if not self.kind:
            return sign * (2.0 * found[0] - 1.0)
        first, second = aligned(found, math)
        apart = first - second
        if self.kind in ("Equal", "NotEqual"):
            size = math.abs(apart)
            return -size if (self.kind == "Equal") == holds else size
        return sign * (apart if self.kind.startswith("Greater") else -apart)

    def constants(self) -> list[float]:
        """Return the numbers that the condition compares with."""
        found = [value for tensor in self.tensors for value in _constants(tensor)] if self.kind else []
        return found + [value for part in self.parts for value in part.constants()]


def joined(first: Any, second: Any, math: Any, *, every: bool) -> Any:
    """Return the margin of both holding, or of one of them holding.

    The margin of both is the sum of the negative margins, or the smaller one if none is negative.
    """
    if not every:
        return math.maximum(first, second)
    missing = math.minimum(first, 0.0) + math.minimum(second, 0.0)
    return math.where(missing < 0, missing, math.minimum(first, second))


def _reduced(margins: Any, axes: tuple[int, ...], math: Any, *, every: bool, keeps: bool) -> Any:
    """Return the margin of all elements along some axes holding, or of one; see `joined`."""
    if not every:
        return math.max(margins, axis=axes, keepdims=keeps)
    missing = math.sum(math.minimum(margins, 0.0), axis=axes, keepdims=keeps)
    return math.where(missing < 0, missing, math.min(margins, axis=axes, keepdims=keeps))


def _constants(tensor: Any) -> list[float]:
    value = tf.get_static_value(tensor) if tensor.op.type in ("Const", "Cast", "Identity") else None
    if value is None or value.dtype.kind not in "fiu" or value.size > _DEEPEST:
        return []
    return [float(one) for one in np.ravel(value)]


def _is_real(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_integer)
