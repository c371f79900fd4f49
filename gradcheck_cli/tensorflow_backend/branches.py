"""The branches of a traced forward and its gradient, and which of their sides a point takes.

Branches are ops of the graph that the gradient is in: selections, comparisons that become masks, `tf.cond`,
loops, and functions with pieces such as `maximum` and `relu`. Their conditions are further outputs of that
graph, so that a point costs one more call. TensorFlow's own gradients branch as their forwards do, and aren't
counted; nor is what lies in the bodies of loops, branches and functions, where nothing can be fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.covered import Branch
from gradcheck_cli.tensorflow_backend.frames import place_of_branch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.graph_operation import GraphOperation

    Array = np.ndarray[Any, Any]
    Look = Callable[[Sequence[Array]], Sequence[bool]]

_MOST = 200  # branches of a case: a deep network repeats the same few
_LONGEST = 40  # characters of a condition
_COMPARISONS = {
    "Greater": ">",
    "GreaterEqual": ">=",
    "Less": "<",
    "LessEqual": "<=",
    "Equal": "==",
    "NotEqual": "!=",
    "LogicalAnd": "&",
    "LogicalOr": "|",
}
_INFIX = {**_COMPARISONS, "AddV2": "+", "Add": "+", "Sub": "-", "Mul": "*", "RealDiv": "/"}
# What hands a value on as it is, or its shape.
_SAME = frozenset({"Identity", "IdentityN", "Cast", "ReadVariableOp", "BroadcastTo", "StopGradient"})
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
_LOOPS = frozenset({"While", "StatelessWhile"})


@dataclass(frozen=True)
class _Kind:
    """How a kind of op branches: by which of its tensors, and how its sides are told from their values."""

    sides: tuple[str, ...]
    look: Look
    inputs: tuple[int, ...] = (0,)
    is_output: bool = False  # what tells is the op's first output


def _truth(values: Sequence[Array]) -> Sequence[bool]:
    return bool(np.any(values[0])), bool(np.any(~values[0].astype(bool)))


def _signs(values: Sequence[Array]) -> Sequence[bool]:
    return bool(np.any(values[0] > 0)), bool(np.any(values[0] < 0))


def _larger(values: Sequence[Array]) -> Sequence[bool]:
    return bool(np.any(values[0] > values[1])), bool(np.any(values[0] < values[1]))


def _capped(values: Sequence[Array]) -> Sequence[bool]:
    value = values[0]
    return bool(np.any(value < 0)), bool(np.any((value > 0) & (value < 6))), bool(np.any(value > 6))  # noqa: PLR2004 (relu6)


def _clipped(values: Sequence[Array]) -> Sequence[bool]:
    value, low, high = values
    inside = (value > low) & (value < high)
    return bool(np.any(value < low)), bool(np.any(inside)), bool(np.any(value > high))


def _rounds(values: Sequence[Array]) -> Sequence[bool]:
    count = int(np.max(values[0]))
    return count == 0, count == 1, count > 1


_SIGNS = _Kind(("> 0", "< 0"), _signs)
_CONDITION = _Kind(("true", "false"), _truth)
_KINDS = {
    "Maximum": _Kind(("first larger", "second larger"), _larger, (0, 1)),
    "Minimum": _Kind(("first larger", "second larger"), _larger, (0, 1)),
    "Relu6": _Kind(("< 0", "inside", "> 6"), _capped),
    "ClipByValue": _Kind(("below", "inside", "above"), _clipped, (0, 1, 2)),
    **dict.fromkeys(("Relu", "LeakyRelu", "Elu", "Selu", "Abs", "Sign"), _SIGNS),
    **dict.fromkeys(("Select", "SelectV2", "If", "StatelessIf"), _CONDITION),
    **dict.fromkeys(_LOOPS, _Kind(("no round", "one round", "more rounds"), _rounds, is_output=True)),
}


@dataclass(frozen=True)
class _Watched:
    """A branch in a graph, with the tensors that tell its sides."""

    branch: Branch
    tensors: tuple[Any, ...]
    look: Look


def branches_of(operations: Sequence[GraphOperation]) -> tuple[Branch, ...]:
    """Return the branches of an op, with the sides that its points take.

    Args:
        operations: the op at several points.

    Raises:
        CaseFailedError: what is called raises.
    """
    seen: dict[tuple[str, str, str], dict[str, bool]] = {}
    for op in operations:
        watched = _watched(op)
        fetches = list({id(tensor): tensor for one in watched for tensor in one.tensors}.values())
        if not fetches:
            continue
        values = dict(zip(map(id, fetches), op.run_beside_gradient(fetches), strict=True))
        for one in watched:
            key = (one.branch.text, one.branch.place, one.branch.part)
            taken = one.look([values[id(tensor)] for tensor in one.tensors])
            sides = seen.setdefault(key, dict.fromkeys(one.branch.sides, False))
            for side, is_taken in zip(one.branch.sides, taken, strict=True):
                sides[side] |= is_taken
    return tuple(
        Branch(*key, tuple(sides), tuple(side for side, is_seen in sides.items() if is_seen))
        for key, sides in seen.items()
    )


def _watched(op: GraphOperation) -> list[_Watched]:
    """Find the branches on the way from what moves to the outputs and their gradients."""
    trace = op.vjp_trace
    names = {id(tensor): info.name for tensor, info in zip(trace.inputs, op.inputs, strict=False)}
    names |= {
        id(tensor): f"d{op.outputs[number].name}"
        for tensor, number in zip(trace.upstreams, trace.joint_outputs, strict=True)
    }
    between = _moved([*trace.inputs, *trace.upstreams, *trace.held.draws]) & _needed(trace.results)
    found = []
    for one in trace.whole.graph.get_operations():
        if one not in between or len(found) == _MOST:
            continue
        kind = _kind_of(one)
        place = "" if kind is None else place_of_branch(one)
        if kind is None or not place:
            continue
        tensors = (one.outputs[0],) if kind.is_output else tuple(one.inputs[number] for number in kind.inputs)
        if kind.is_output and one.outputs[0].dtype != tf.int32:
            continue  # a loop that nobody counts
        part = "forward" if one in trace.forward_ops else "gradient"
        branch = Branch(_text(one, kind, names), place, part, kind.sides, ())
        found.append(_Watched(branch, tensors, kind.look))
    return found


def _kind_of(op: Any) -> _Kind | None:
    """Return how an op branches; `None` where it doesn't."""
    if op.type in _COMPARISONS:
        # A comparison that selects is told by what selects.
        is_mask = any(user.type == "Cast" for user in op.outputs[0].consumers())
        return _Kind(_CONDITION.sides, _truth, is_output=True) if is_mask else None
    kind = _KINDS.get(op.type)
    if kind is None or kind.is_output:
        return kind
    told = [op.inputs[number] for number in kind.inputs]
    is_real = all(tensor.dtype.is_floating or tensor.dtype == tf.bool for tensor in told)
    return kind if is_real or op.type in ("If", "StatelessIf") else None


def _moved(tensors: Iterable[Any]) -> set[Any]:
    """Return the ops that some tensors' values lead to; a shape isn't a value."""
    found: set[Any] = set()
    waiting = list(tensors)
    while waiting:
        for user in waiting.pop().consumers():
            if user not in found and user.type not in _SHAPES:
                found.add(user)
                waiting += user.outputs
    return found


def _needed(tensors: Iterable[Any]) -> set[Any]:
    """Return the ops that some tensors are computed of."""
    found: set[Any] = set()
    waiting = [tensor.op for tensor in tensors]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [tensor.op for tensor in op.inputs]
    return found


def _text(op: Any, kind: _Kind, names: Mapping[int, str]) -> str:
    """Say what an op branches by: a condition, or the function and what it is given."""
    if op.type in _LOOPS:
        return "loop"
    if kind.look is _truth:
        condition = op.outputs[0] if kind.is_output else op.inputs[0]
        return _shortened(_told(condition, names, 3))
    given = ", ".join(_told(op.inputs[number], names, 2) for number in kind.inputs)
    return _shortened(f"{op.type.lower()}({given})")


def _told(tensor: Any, names: Mapping[int, str], depth: int) -> str:
    """Say what a tensor is: an input's name, a number, or an op with what it is given."""
    if id(tensor) in names:
        return names[id(tensor)]
    op = tensor.op
    if op.type in _SAME and op.inputs:
        return _told(op.inputs[min(tensor.value_index, len(op.inputs) - 1)], names, depth)
    if not op.inputs:
        return _number(op) if op.type == "Const" else op.type.lower()
    given = [_told(one, names, depth - 1) for one in op.inputs] if depth else ["..."]
    if op.type in _INFIX and len(given) == 2:  # noqa: PLR2004 (its two sides)
        return f"{given[0]} {_INFIX[op.type]} {given[1]}"
    return f"{op.type.lower()}({', '.join(given)})"


def _number(op: Any) -> str:
    value = tf.make_ndarray(op.get_attr("value"))
    return f"{value.reshape(-1)[0]:g}" if value.size == 1 and value.dtype.kind in "fiub" else "constant"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
