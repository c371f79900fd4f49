"""The branches of a traced forward and its gradient, and the tensors that show which side a point takes.

Branches are ops of the gradient's graph: selections, comparisons that become masks, `tf.cond`, loops, and
functions with pieces such as `maximum` and `relu`. Their conditions become additional outputs of this graph,
so a point costs one more call. Nothing in the body of a loop, a branch or a function can be fetched.
TensorFlow's own gradients branch as their forwards do, and don't count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.gate import Branch
from gradcheck_cli.tensorflow_backend.frames import is_guard_of_tensorflow, place_of_branch
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import CALLS

Array = np.ndarray[Any, Any]
COMPARISONS = {
    "Greater": ">",
    "GreaterEqual": ">=",
    "Less": "<",
    "LessEqual": "<=",
    "Equal": "==",
    "NotEqual": "!=",
    "LogicalAnd": "&",
    "LogicalOr": "|",
}
CONDITIONALS = frozenset({"If", "StatelessIf"})
CASES = frozenset({"Case", "StatelessCase"})
LOOPS = frozenset({"While", "StatelessWhile"})
NO_ROUND = "no round"
# The attrs that name an op's bodies.
BODIES = {
    **dict.fromkeys(LOOPS, ("body",)),
    **dict.fromkeys(CONDITIONALS, ("then_branch", "else_branch")),
    **dict.fromkeys(CASES, ("branches",)),
    **dict.fromkeys(CALLS, ("f",)),
}
TRUTH = ("true", "false")


@dataclass(frozen=True)
class Kind:
    """How a kind of op branches."""

    sides: tuple[str, ...]  # their names
    # for each side, which elements take it, by the values that decide, (B, *shape) each
    taken: Callable[[Sequence[Array]], Sequence[Array]]
    inputs: tuple[int, ...] = (0,)  # the indices of the op's inputs that decide
    is_output: bool = False  # whether the op's first output decides instead


def align(values: Sequence[Array]) -> list[Array]:
    """Return stacks of values, (B, *shape) each, with added axes so that their rows broadcast."""
    most = max(value.ndim for value in values)
    return [value.reshape(len(value), *[1] * (most - value.ndim), *value.shape[1:]) for value in values]


def _are_true(values: Sequence[Array]) -> Sequence[Array]:
    is_true = np.abs(values[0]) > 0
    return is_true, ~is_true


def _have_signs(values: Sequence[Array]) -> Sequence[Array]:
    return values[0] > 0, values[0] < 0


def _compare(values: Sequence[Array]) -> Sequence[Array]:
    first, second = align(values)
    return first > second, second > first


def _clip(values: Sequence[Array]) -> Sequence[Array]:
    value, low, high = align(values)
    return value < low, (value > low) & (value < high), value > high


def _clip_at_six(values: Sequence[Array]) -> Sequence[Array]:
    value, six = values[0], 6.0
    return value < 0, (value > 0) & (value < six), value > six


def _count_rounds(values: Sequence[Array]) -> Sequence[Array]:
    return values[0] < 1, (values[0] > 0) & (values[0] < 2), values[0] > 1  # noqa: PLR2004 (two rounds)


def index_kind(count: int) -> Kind:
    """Return how an op selects one of some branches by an index: if it is out of range, the last."""

    def taken(values: Sequence[Array]) -> Sequence[Array]:
        selected = [values[0] == side for side in range(count - 1)]
        return [*selected, ~np.any(selected, axis=0)]

    return Kind(tuple(f"branch {side}" for side in range(count)), taken)


_CONDITION = Kind(TRUTH, _are_true)
MASK = Kind(TRUTH, _are_true, is_output=True)
_LARGER = Kind(("first larger", "second larger"), _compare, (0, 1))
KINDS = {
    **dict.fromkeys(("Maximum", "Minimum"), _LARGER),
    "Relu6": Kind(("< 0", "inside", "> 6"), _clip_at_six),
    "ClipByValue": Kind(("below", "inside", "above"), _clip, (0, 1, 2)),
    **dict.fromkeys(("Relu", "LeakyRelu", "Elu", "Selu", "Abs", "Sign"), Kind(("> 0", "< 0"), _have_signs)),
    **dict.fromkeys(("Select", "SelectV2", *sorted(CONDITIONALS)), _CONDITION),
    **dict.fromkeys(LOOPS, Kind((NO_ROUND, "one round", "more rounds"), _count_rounds, is_output=True)),
}


Key = tuple[str, str, str]


_MOST_BRANCHES = 200  # branches of a case: a deep network repeats the same few


@dataclass(frozen=True)
class Watched:
    """A branch in a graph, with the tensors that show its sides."""

    branch: Branch  # with no side seen
    kind: Kind  # how it branches
    tensors: tuple[Any, ...]  # the tensors that decide
    # whether nothing looks for its sides: a loop with as many rounds at all points, which may be none
    is_hidden: bool = False

    def sides_taken(self, values: Mapping[int, Array]) -> list[Array]:
        """Return for each side the points at which some element takes it, (B,) of booleans each.

        Args:
            values: by the id of a tensor, (B, *shape).
        """
        with np.errstate(invalid="ignore"):
            sides = self.kind.taken([values[id(tensor)] for tensor in self.tensors])
        return [np.asarray(side.reshape(len(side), -1).any(axis=1)) for side in sides]


@dataclass
class Branches:
    """What branches in a graph."""

    watched: list[Watched] = field(default_factory=list)  # the branches in it
    closed: set[str] = field(default_factory=set)  # ops with a body in which something branches
    constants: list[float] = field(default_factory=list)  # the numbers in it, and in its bodies


def find_branches(op: GraphOperation) -> Branches:
    """Find the branches on the way from what moves to the outputs and their gradients.

    Args:
        op: at a point whose graphs serve all others.

    Raises:
        CaseFailedError: what is called raises.
    """
    trace = op.traced.vjp_trace
    graph = trace.whole
    if not graph.sources:
        return Branches()
    names = {id(tensor): info.name for tensor, info in zip(trace.inputs, op.inputs, strict=False)}
    names |= {
        id(tensor): f"d{op.outputs[output_index].name}"
        for tensor, output_index in zip(graph.upstreams, graph.sources, strict=True)
    }
    finder = _Finder(names, graph.forward_ops)
    starts = [*trace.inputs, *graph.upstreams, *trace.held.draws]
    return finder.find(graph.function.graph, starts, graph.results)


@dataclass
class _Finder:
    """Finds the branches of a graph and of the bodies in it."""

    names: dict[int, str]  # what tensors are called, by id
    forward_ops: Collection[Any]  # the ops of the graph that aren't the gradient's
    part: str = ""  # what the current op belongs to, "forward" or "gradient"; empty in the whole graph
    count: int = 0  # how many were found

    def find(self, graph: Any, starts: Sequence[Any], results: Iterable[Any]) -> Branches:
        """Find what branches in a graph between tensors that move by themselves and those that are wanted."""
        moved, ops = follow(starts)
        needed, is_body = needed_by(results), bool(self.part)
        between, branches = ops & needed, Branches()
        for op in graph.get_operations():
            if op.type == "Const" and op in needed:
                branches.constants += constants_of(op.outputs[0])
            if op not in between or self.count >= _MOST_BRANCHES:
                continue
            if not is_body:
                self.part = "forward" if op in self.forward_ops else "gradient"
            watched = self._watch(op, moved)
            if watched is not None:
                branches.watched.append(watched)
                self.count += 1
            for inner in (self._find_inside(op, body, moved) for _, body in bodies_of(op)):
                branches.constants += inner.constants
                branches.closed |= {op.name} if inner.watched or inner.closed else set()
        self.part = self.part if is_body else ""
        return branches

    def _find_inside(self, op: Any, body: Any, moved: Collection[int]) -> Branches:
        arguments = list(op.inputs)[1:] if op.type in CONDITIONALS | CASES else list(op.inputs)
        is_loop = op.type in LOOPS
        moving_indices = moved_in_loop(op, moved)[0] if is_loop else range(len(arguments))
        starts = [
            inner
            for index, (outer, inner) in enumerate(zip(arguments, body.inputs, strict=True))
            if index in moving_indices and (is_loop or id(outer) in moved)
        ]
        return self.find(body, starts, body.outputs)

    def _watch(self, op: Any, moved: Collection[int]) -> Watched | None:
        kind = _kind_of(op)
        place = "" if kind is None else place_of_branch(op)
        if kind is None or not place:
            return None
        tensors = (op.outputs[0],) if kind.is_output else tuple(op.inputs[index] for index in kind.inputs)
        is_loop = op.type in LOOPS
        # A loop whose rounds nothing counts; or a side that a shape or a constant decides.
        is_fixed = not any(id(tensor) in moved for tensor in tensors)
        if is_loop:
            is_fixed = op.outputs[0].dtype != tf.int32
        # `reduce_logsumexp` has a guard: no finite values take its other side.
        if is_fixed or (tensors[0].op.type == "IsFinite" and is_guard_of_tensorflow(tensors[0].op)):
            return None
        branch = Branch(describe_branch(op, kind, self.names), place, self.part, kind.sides, ())
        # A loop with as many rounds at all points has no side to look for; it may have no round.
        return Watched(branch, kind, tensors, is_loop and not moved_in_loop(op, moved)[1])


def _kind_of(op: Any) -> Kind | None:
    """Return how an op branches; `None` if it doesn't."""
    if op.type in COMPARISONS:
        # If a comparison selects, the selection is the branch.
        is_mask = any(user.type == "Cast" for user in op.outputs[0].consumers())
        return MASK if is_mask else None
    if op.type in CASES:
        return index_kind(len(op.get_attr("branches")))
    kind = KINDS.get(op.type)
    if kind is None or kind.is_output:
        return kind
    deciding = [op.inputs[index] for index in kind.inputs]
    is_real = all(tensor.dtype.is_floating or tensor.dtype == tf.bool for tensor in deciding)
    return kind if is_real or op.type in CONDITIONALS else None


def needed_by(tensors: Iterable[Any]) -> set[Any]:
    """Return the ops from which some tensors are computed."""
    needed: set[Any] = set()
    waiting = [tensor.op for tensor in tensors]
    while waiting:
        op = waiting.pop()
        if op not in needed:
            needed.add(op)
            waiting += [tensor.op for tensor in op.inputs]
    return needed


_LONGEST = 40  # characters of a condition
_MOST_NUMBERS = 16  # in a constant
_INFIX = {**COMPARISONS, "AddV2": "+", "Add": "+", "Sub": "-", "Mul": "*", "RealDiv": "/"}
# Ops that return their input unchanged, or in another shape or dtype, or read what was stored in a list.
_SAME = {
    *("Identity", "IdentityN", "Cast", "ReadVariableOp", "BroadcastTo", "StopGradient", "OptionalGetValue"),
    *("TensorListPopBack", "TensorListFromTensor", "TensorListGetItem", "TensorListStack"),
}
# Ops that store a value in a list or for a gradient, with the index of that input.
_STORES = {"TensorListPushBack": 1, "TensorListSetItem": 2, "OptionalFromValue": 0}


def describe_branch(op: Any, kind: Kind, names: Mapping[int, str]) -> str:
    """Describe what an op branches on: a condition, or the function and its arguments."""
    if op.type in LOOPS:
        return "loop"
    if op.type in CASES or kind.sides == TRUTH:
        return _shorten(_describe_tensor(op.outputs[0] if kind.is_output else op.inputs[0], names, 3))
    arguments = ", ".join(_describe_tensor(op.inputs[index], names, 2) for index in kind.inputs)
    return _shorten(f"{op.type.lower()}({arguments})")


def _describe_tensor(tensor: Any, names: Mapping[int, str], depth: int) -> str:
    """Describe a tensor: an input's name, a number, or an op with its arguments."""
    if id(tensor) in names:
        return names[id(tensor)]
    op = tensor.op
    source = _source_of(tensor)
    if source is not None:
        return _describe_tensor(source, names, depth)
    if op.type == "Const":
        value = tf.make_ndarray(op.get_attr("value"))
        return f"{value.flat[0]:g}" if value.size == 1 and value.dtype.kind in "fiub" else "constant"
    if not op.inputs:
        return str(op.name.rpartition("/")[2].lower())
    arguments = [_describe_tensor(operand, names, depth - 1) for operand in op.inputs] if depth else ["..."]
    if op.type in _INFIX and len(arguments) == 2:  # noqa: PLR2004 (its two sides)
        return f"{arguments[0]} {_INFIX[op.type]} {arguments[1]}"
    return f"{op.type.lower()}({', '.join(arguments)})"


def _source_of(tensor: Any) -> Any | None:
    """Return the tensor of which a tensor is a copy: a call's result, or read from a list; else `None`."""
    op = tensor.op
    if op.type in _SAME and op.inputs:
        return op.inputs[tensor.value_index if op.type == "IdentityN" else 0]
    for _, body in bodies_of(op):
        inner = body.outputs[tensor.value_index]
        if op.type in CALLS:
            return inner
        if inner.op.type in _STORES:
            return inner.op.inputs[_STORES[inner.op.type]]
    return None


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def constants_of(tensor: Any) -> list[float]:
    """Return the numbers of a small constant tensor."""
    value = tf.get_static_value(tensor) if tensor.op.type == "Const" else None
    if value is None or value.dtype.kind not in "fiu" or value.size > _MOST_NUMBERS:
        return []
    return [float(number) for number in np.ravel(value) if np.isfinite(number)]


SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})


def bodies_of(op: Any) -> list[tuple[str, Any]]:
    """Return (function name, graph) of each body of a loop, a branch or a call.

    Empty for other ops, and if the graph of a body isn't known or is compiled.
    """
    functions = [op.get_attr(attr) for attr in BODIES.get(op.type, ())]
    bodies = [
        (function.name, private_graphs.body_named(op.graph, function.name))
        for group in functions
        for function in (group if isinstance(group, list) else [group])
    ]
    return [] if any(body is None for _, body in bodies) else bodies


def follow(tensors: Iterable[Any]) -> tuple[set[int], set[Any]]:
    """Return the ids of the tensors that move with some tensors, including these, and the ops on the way.

    A shape isn't a value. A variable that a loop only passes on doesn't move with the loop's other variables.
    """
    waiting = list(tensors)
    moved, ops = {id(tensor) for tensor in waiting}, set()
    while waiting:
        for user in waiting.pop().consumers():
            if user.type in SHAPES or (user in ops and user.type not in LOOPS):
                continue
            ops.add(user)
            indices = moved_in_loop(user, moved)[0] if user.type in LOOPS else range(len(user.outputs))
            new = [user.outputs[index] for index in indices if id(user.outputs[index]) not in moved]
            moved.update(map(id, new))
            waiting += new
    return moved, ops


def moved_in_loop(op: Any, moved: Collection[int]) -> tuple[set[int], bool]:
    """Return the indices of a loop's variables that move, and whether the number of its rounds changes."""
    bodies, condition = bodies_of(op), private_graphs.body_named(op.graph, op.get_attr("cond").name)
    moving = {index for index, tensor in enumerate(op.inputs) if id(tensor) in moved}
    if not bodies or condition is None:
        return set(range(len(op.outputs))), True
    body = bodies[0][1]
    while True:
        inside, _ = follow(body.inputs[index] for index in moving)
        new = {index for index, tensor in enumerate(body.outputs) if id(tensor) in inside}
        decided, _ = follow(condition.inputs[index] for index in moving)
        depends = id(condition.outputs[0]) in decided
        if depends:
            new |= {index for index in range(len(body.outputs)) if not is_passed_on(body, index)}
        if new <= moving:
            return moving, depends
        moving |= new


def is_passed_on(body: Any, index: int) -> bool:
    """Whether a loop's body passes one of its variables on unchanged."""
    tensor = body.outputs[index]
    while tensor.op.type in ("Identity", "StopGradient"):
        tensor = tensor.op.inputs[0]
    return tensor is body.inputs[index]
