"""The branches of a traced forward and its gradient, and which of their sides a point takes.

Branches are ops of the graph that the gradient is in: selections, comparisons that become masks, `tf.cond`,
loops, and functions with pieces such as `maximum` and `relu`. Their conditions are further outputs of that
graph, so that a point costs one more call. TensorFlow's own gradients branch as their forwards do, and aren't
counted; nor is what lies in the bodies of loops, branches and functions, where nothing can be fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.covered import Branch, with_excuses
from gradcheck_cli.tensorflow_backend.binding.binder import PY_FUNC_TYPES
from gradcheck_cli.tensorflow_backend.branches.numpy_branches import lines_traced, numpy_branches
from gradcheck_cli.tensorflow_backend.frames import place_of_branch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.branches.numpy_branches import Arcs
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    Array = np.ndarray[Any, Any]
    _Key = tuple[str, str, str]
    Look = Callable[[Sequence[Array]], Sequence[bool]]

_LARGEST = 2**22  # elements of the conditions at all candidates together: 32 MiB
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
_CASES = frozenset({"Case", "StatelessCase"})
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


def _index(count: int) -> _Kind:
    """Return how a `tf.switch_case` of so many branches branches: an index beyond them takes the last."""

    def look(values: Sequence[Array]) -> Sequence[bool]:
        taken = np.where((values[0] < 0) | (values[0] >= count), count - 1, values[0])
        return [bool(np.any(taken == number)) for number in range(count)]

    return _Kind(tuple(f"branch {number}" for number in range(count)), look)


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

    @property
    def key(self) -> _Key:
        """What names it in every trace."""
        return self.branch.text, self.branch.place, self.branch.part


class Sides:
    """The branches of an op, and the sides that points have taken so far."""

    def __init__(self, op: GraphOperation) -> None:
        """Find the branches.

        Args:
            op: at a point whose graphs serve all others.

        Raises:
            CaseFailedError: what is called raises.
        """
        self._op = op
        self._watched = _watched(op) if op.traced.vjp_trace.joint_outputs else []
        self._seen: dict[_Key, dict[str, bool]] = {
            one.key: dict.fromkeys(one.branch.sides, False) for one in self._watched
        }
        self._arcs: Arcs = set()

    def see(self, samples: Sequence[int]) -> None:
        """Count the sides that some points take.

        Raises:
            CaseFailedError: what is called raises.
        """
        for taken in self._taken(samples, self._fetches):
            for key, sides in taken.items():
                for side in sides:
                    self._seen[key][side] = True
        trace = self._op.traced.vjp_trace
        if trace.joint_outputs and any(op.type in PY_FUNC_TYPES for op in _needed(trace.results)):
            with lines_traced(self._arcs):
                self._op.runs.beside_gradient(trace.results, samples)

    def branches(self, excuses: Sequence[tuple[str, str]] = ()) -> tuple[Branch, ...]:
        """Return the branches, with the sides that were taken, and reasons why others aren't."""
        found = [
            Branch(*key, tuple(sides), tuple(side for side, is_seen in sides.items() if is_seen))
            for key, sides in self._seen.items()
        ]
        return tuple(with_excuses(branch, excuses) for branch in [*found, *numpy_branches(self._arcs)])

    def choose(self, samples: Sequence[int], excuses: Sequence[tuple[str, str]], most: int) -> list[int]:
        """Return those of some points that take sides which none has taken yet; nothing is counted.

        A point at which an output isn't finite is left out: there is no difference to take there.

        Args:
            samples: numbers of the points.
            excuses: see `branches`.
            most: how many to return at most.

        Raises:
            CaseFailedError: what is called raises.
        """
        wanted = {
            ((one.text, one.place, one.part), side) for one in self.branches(excuses) for side in one.unseen
        }
        size = sum(int(np.prod([part or 1 for part in tensor.shape])) for tensor in self._fetches)
        samples = samples[: _LARGEST // max(1, size)]
        if not wanted or not samples or not self._fetches:  # what NumPy's lines take isn't known beforehand
            return []
        count = len(self._op.outputs)
        outputs = self._op.traced.vjp_trace.results[:count]
        values = self._op.runs.beside_gradient(outputs, samples)
        finite = [
            all(np.all(np.isfinite(value[row])) for value in values if value.dtype.kind in "fc")
            for row in range(len(samples))
        ]
        gains = [
            {(key, side) for key, sides in taken.items() for side in sides} & wanted
            for taken in self._taken(samples, self._fetches)
        ]
        chosen: list[int] = []
        while len(chosen) < most:
            best = max(range(len(samples)), key=lambda row: (finite[row], len(gains[row] & wanted), -row))
            if not finite[best] or not gains[best] & wanted:
                break
            wanted -= gains[best]
            chosen.append(samples[best])
        return chosen

    @cached_property
    def _fetches(self) -> list[Any]:
        return list({id(tensor): tensor for one in self._watched for tensor in one.tensors}.values())

    def _taken(self, samples: Sequence[int], fetches: Sequence[Any]) -> Iterator[dict[_Key, set[str]]]:
        """Yield the sides that each point takes, by branch."""
        if not fetches:
            return
        values = dict(zip(map(id, fetches), self._op.runs.beside_gradient(fetches, samples), strict=True))
        for row in range(len(samples)):
            found: dict[_Key, set[str]] = {}
            for one in self._watched:
                is_taken = one.look([values[id(tensor)][row] for tensor in one.tensors])
                sides = found.setdefault(one.key, set())
                sides |= {side for side, taken in zip(one.branch.sides, is_taken, strict=True) if taken}
            yield found


def _watched(op: GraphOperation) -> list[_Watched]:
    """Find the branches on the way from what moves to the outputs and their gradients."""
    trace = op.traced.vjp_trace
    names = {id(tensor): info.name for tensor, info in zip(trace.inputs, op.inputs, strict=False)}
    names |= {
        id(tensor): f"d{op.outputs[number].name}"
        for tensor, number in zip(trace.upstreams, trace.joint_outputs, strict=True)
    }
    moved = _moved([*trace.inputs, *trace.upstreams, *trace.held.draws])
    between = moved & _needed(trace.results)
    found: list[_Watched] = []
    for one in trace.whole.graph.get_operations():
        if one not in between or len(found) == _MOST:
            continue
        kind = _kind_of(one)
        place = "" if kind is None else place_of_branch(one)
        if kind is None or not place:
            continue
        tensors = (one.outputs[0],) if kind.is_output else tuple(one.inputs[number] for number in kind.inputs)
        if one.type in _LOOPS and one.outputs[0].dtype != tf.int32:
            continue  # a loop that nobody counts
        if not any(tensor.op in moved or id(tensor) in names for tensor in tensors):
            continue  # decided by a shape, or by a constant
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
    if op.type in _CASES:
        return _index(len(op.get_attr("branches")))
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
    if op.type in _CASES:
        return _shortened(_told(op.inputs[0], names, 3))
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
