"""The branches of a traced forward and its gradient, and the tensors that tell which side a point takes.

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
from gradcheck_cli.tensorflow_backend.branches.branch_kinds import (
    CASES,
    COMPARISONS,
    CONDITIONALS,
    KINDS,
    LOOPS,
    MASK,
    Kind,
    index_kind,
)
from gradcheck_cli.tensorflow_backend.branches.conditions import Condition, text_of
from gradcheck_cli.tensorflow_backend.frames import place_of_branch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    Array = np.ndarray[Any, Any]
    Key = tuple[str, str, str]

_MOST = 200  # branches of a case: a deep network repeats the same few
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})


@dataclass(frozen=True)
class Watched:
    """A branch in a graph, with the tensors that tell its sides.

    Attributes:
        branch: with no side seen.
        kind: how it branches.
        tensors: what tells its sides.
        condition: what decides, where a condition does.
    """

    branch: Branch
    kind: Kind
    tensors: tuple[Any, ...]
    condition: Condition | None = None

    @property
    def key(self) -> Key:
        """What names it in every trace."""
        return self.branch.key

    @property
    def fetched(self) -> tuple[Any, ...]:
        """The tensors that tell its sides, and how far a point is from each."""
        return self.tensors + (() if self.condition is None else self.condition.fetched)

    def taken(self, values: Mapping[int, Array]) -> list[Array]:
        """Return of each side at which points some element takes it, (B,) of booleans each.

        Args:
            values: by the id of a tensor, (B, *shape).
        """
        own = [values[id(tensor)] for tensor in self.tensors]
        sides: list[Array]
        if self.kind.margins is None:
            truth: Array = own[0].astype(bool)
            sides = [truth, np.asarray(~truth)]
        else:
            with np.errstate(invalid="ignore"):
                sides = [np.asarray(margin > 0) for margin in self.kind.margins(own)]
        return [np.asarray(side.reshape(len(side), -1).any(axis=1)) for side in sides]

    def margin(self, values: Mapping[int, Array], side: int) -> Array:
        """Return how far points are on one side, by the element that is furthest, (B,); -inf for NaN.

        Args:
            values: as for `taken`.
            side: its number.
        """
        with np.errstate(invalid="ignore"):
            if self.condition is not None:
                margin = self.condition.margin(values, holds=side == 0)
            elif self.kind.margins is not None:
                margin = self.kind.margins([values[id(tensor)] for tensor in self.tensors])[side]
            flat = np.nan_to_num(margin.reshape(len(margin), -1), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        return np.asarray(np.max(flat, axis=1, initial=-np.inf))


def find_branches(op: GraphOperation) -> list[Watched]:
    """Find the branches on the way from what moves to the outputs and their gradients.

    Args:
        op: at a point whose graphs serve all others.

    Raises:
        CaseFailedError: what is called raises.
    """
    trace = op.traced.vjp_trace
    if not trace.joint_outputs:
        return []
    names = {id(tensor): info.name for tensor, info in zip(trace.inputs, op.inputs, strict=False)}
    names |= {
        id(tensor): f"d{op.outputs[number].name}"
        for tensor, number in zip(trace.upstreams, trace.joint_outputs, strict=True)
    }
    moved = _moved([*trace.inputs, *trace.upstreams, *trace.held.draws])
    between = moved & needed_by(trace.results)
    found: list[Watched] = []
    for one in trace.whole.graph.get_operations():
        if one not in between or len(found) == _MOST:
            continue
        kind = _kind_of(one)
        place = "" if kind is None else place_of_branch(one)
        if kind is None or not place:
            continue
        tensors = (one.outputs[0],) if kind.is_output else tuple(one.inputs[number] for number in kind.inputs)
        if one.type in LOOPS and one.outputs[0].dtype != tf.int32:
            continue  # a loop that nobody counts
        if not any(tensor.op in moved or id(tensor) in names for tensor in tensors):
            continue  # decided by a shape, or by a constant
        part = "forward" if one in trace.forward_ops else "gradient"
        branch = Branch(text_of(one, kind, names), place, part, kind.sides, ())
        decides = kind.margins is None and tensors[0].dtype == tf.bool
        found.append(Watched(branch, kind, tensors, Condition.of(tensors[0]) if decides else None))
    return found


def _kind_of(op: Any) -> Kind | None:
    """Return how an op branches; `None` where it doesn't."""
    if op.type in COMPARISONS:
        # A comparison that selects is told by what selects.
        is_mask = any(user.type == "Cast" for user in op.outputs[0].consumers())
        return MASK if is_mask else None
    if op.type in CASES:
        return index_kind(len(op.get_attr("branches")))
    kind = KINDS.get(op.type)
    if kind is None or kind.is_output:
        return kind
    told = [op.inputs[number] for number in kind.inputs]
    is_real = all(tensor.dtype.is_floating or tensor.dtype == tf.bool for tensor in told)
    return kind if is_real or op.type in CONDITIONALS else None


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


def needed_by(tensors: Iterable[Any]) -> set[Any]:
    """Return the ops that some tensors are computed of."""
    found: set[Any] = set()
    waiting = [tensor.op for tensor in tensors]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [tensor.op for tensor in op.inputs]
    return found
