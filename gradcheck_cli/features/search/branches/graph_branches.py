"""The branches of a traced forward and its gradient, and the tensors that show which side a point takes.

Branches are ops of the gradient's graph: selections, comparisons that become masks, `tf.cond`, loops, and
functions with pieces such as `maximum` and `relu`. What decides becomes an additional output of this graph.
Nothing in the body of a loop, a branch or a function can be fetched. TensorFlow's own gradients branch as
their forwards do, and don't count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.frames import place_of_branch
from gradcheck_cli.tensorflow_backend.graph_view import WholeGraph, ops_inside
from gradcheck_cli.tensorflow_backend.op_types import (
    BODIES,
    COMPARISONS,
    CONDITION,
    ROUNDS,
    SIDES,
    TRUTH,
    Sides,
)

Array = np.ndarray[Any, Any]
Key = tuple[str, str, str]  # of a branch: its condition, place and part
Side = tuple[Key, str]


_MOST_BRANCHES = 200  # branches of a case: a deep network repeats the same few


@dataclass(frozen=True)
class Watched:
    """A branch in a graph, with the tensors that show its sides."""

    key: Key
    kind: Sides  # how it branches
    tensors: tuple[Any, ...]  # the tensors that decide

    def sides_taken(self, values: Mapping[int, Array]) -> list[tuple[Side, Array]]:
        """Return each side, with the points at which some element takes it, (B,) of booleans.

        Args:
            values: by the id of a tensor, (B, *shape).
        """
        own = [values[id(tensor)] for tensor in self.tensors]
        most = max(value.ndim for value in own)
        # Their elements broadcast; so do their rows, with axes between.
        aligned = [value.reshape(len(value), *[1] * (most - value.ndim), *value.shape[1:]) for value in own]
        taken = self.kind.taken(*aligned)
        rows = [np.asarray(side.reshape(len(side), -1).any(axis=1)) for side in taken]
        return [((self.key, name), own) for name, own in zip(self.kind.names, rows, strict=True)]


def find_branches(graph: WholeGraph) -> tuple[list[Watched], set[str], list[float]]:
    """Find the branches on the way from what moves to the outputs and their gradients.

    Args:
        graph: of an op at a point whose graphs serve all others.

    Returns:
        The branches; the ops with a body in which something branches; and the numbers, also in bodies.

    Raises:
        CaseFailedError: what is called raises.
    """
    branches: list[Watched] = []
    closed: set[str] = set()
    numbers: list[float] = []
    for own in graph.ops if graph.sources else ():
        part = "forward" if graph.is_of_forward(own) else "gradient"
        watched = _watch(own, graph.moving, graph.names, part)
        if watched is not None and len(branches) < _MOST_BRANCHES:
            branches.append(watched)
        numbers += _numbers_of(own)
        for inner, inner_moving in ops_inside(own) if own in graph.moving else ():
            numbers += _numbers_of(inner)
            if _watch(inner, inner_moving, {}, part) is not None:
                closed.add(own.name)
    return branches, closed, numbers


def _watch(op: Any, moving: set[Any], names: Mapping[int, str], part: str) -> Watched | None:
    """Return an op as a branch; `None` if it doesn't branch, or not on what moves."""
    kind = _kind_of(op) if op in moving else None
    place = "" if kind is None else place_of_branch(op)
    if kind is None or not place:
        return None
    tensors = (op.outputs[0],) if kind.is_output else tuple(op.inputs[index] for index in kind.inputs)
    # A loop whose rounds nothing counts; or a side that a shape or a constant decides.
    is_loop = kind.names == ROUNDS
    is_fixed = tensors[0].dtype != tf.int32 if is_loop else moving.isdisjoint(tensor.op for tensor in tensors)
    if is_fixed or tensors[0].op.type == "IsFinite":  # no finite values take the other side of such a guard
        return None
    return Watched((_describe_branch(op, kind, names), place, part), kind, tensors)


def _kind_of(op: Any) -> Sides | None:
    """Return how an op branches; `None` if it doesn't."""
    if op.type in COMPARISONS:
        # If a comparison selects, the selection is the branch.
        is_mask = any(user.type == "Cast" for user in op.outputs[0].consumers())
        return replace(CONDITION, is_output=True) if is_mask else None
    if op.type in ("Case", "StatelessCase"):  # an index that is out of range selects the last
        last = len(op.get_attr("branches")) - 1
        sides = range(last + 1)
        return Sides(
            tuple(f"branch {side}" for side in sides),
            lambda index: [np.where((index < 0) | (index > last), last, index) == side for side in sides],
        )
    kind = SIDES.get(op.type)
    if kind is None or kind.is_output or op.type in BODIES:
        return kind
    deciding = [op.inputs[index].dtype for index in kind.inputs]
    return kind if all(dtype.is_floating or dtype == tf.bool for dtype in deciding) else None


_LONGEST = 40  # characters of a condition
_MOST_NUMBERS = 16  # in a constant
_INFIX = {**COMPARISONS, "AddV2": "+", "Add": "+", "Sub": "-", "Mul": "*", "RealDiv": "/"}
# Ops that return their input unchanged, or in another shape or dtype.
_SAME = {"Identity", "IdentityN", "Cast", "ReadVariableOp", "BroadcastTo", "StopGradient"}


def _describe_branch(op: Any, kind: Sides, names: Mapping[int, str]) -> str:
    """Describe what an op branches on: a condition, or the function and its arguments."""
    if kind.names == ROUNDS:
        return "loop"
    if op.type in BODIES or kind.names == TRUTH:
        text = _describe_tensor(op.outputs[0] if kind.is_output else op.inputs[0], names, 3)
    else:
        arguments = (_describe_tensor(op.inputs[index], names, 2) for index in kind.inputs)
        text = f"{op.type.lower()}({', '.join(arguments)})"
    return shorten(text)


def shorten(text: str) -> str:
    """Return the beginning of a long condition."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _describe_tensor(tensor: Any, names: Mapping[int, str], depth: int) -> str:
    """Describe a tensor: an input's name, a number, or an op with its arguments."""
    op = tensor.op
    if id(tensor) in names:
        return names[id(tensor)]
    if op.type in _SAME and op.inputs:
        return _describe_tensor(op.inputs[tensor.value_index], names, depth)
    if op.type == "Const":
        value = tf.make_ndarray(op.get_attr("value"))
        return f"{value.flat[0]:g}" if value.size == 1 and value.dtype.kind in "fiub" else "constant"
    if not op.inputs:
        return str(op.name.rpartition("/")[2].lower())
    arguments = [_describe_tensor(operand, names, depth - 1) for operand in op.inputs] if depth else ["..."]
    if op.type in _INFIX and len(arguments) == 2:  # noqa: PLR2004 (its two sides)
        return f"{arguments[0]} {_INFIX[op.type]} {arguments[1]}"
    return f"{op.type.lower()}({', '.join(arguments)})"


def _numbers_of(op: Any) -> list[float]:
    """Return the numbers of a small constant."""
    value = tf.make_ndarray(op.get_attr("value")) if op.type == "Const" else np.array("")
    if value.dtype.kind not in "fiu" or value.size > _MOST_NUMBERS:
        return []
    return [float(number) for number in np.ravel(value) if np.isfinite(number)]
