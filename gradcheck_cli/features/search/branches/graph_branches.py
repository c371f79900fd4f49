"""The branches of a traced forward and its gradient, and the tensors that show which side a point takes.

Branches are ops of the gradient's graph: selections, comparisons that become masks, `tf.cond`, loops, and
functions with pieces such as `maximum` and `relu`. Their conditions become additional outputs of this graph,
so a point costs one more call; for conditions in bodies, see `side_graph`. TensorFlow's own gradients branch
as their forwards do, and don't count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.covered import Branch
from gradcheck_cli.features.search.branches.bodies import (
    SHAPES,
    bodies_of,
    body_arguments,
    follow,
    is_passed_on,
    moved_in_loop,
)
from gradcheck_cli.features.search.branches.branch_kinds import (
    CASES,
    COMPARED,
    COMPARISONS,
    CONDITIONALS,
    KINDS,
    LOOPS,
    MASK,
    Kind,
    align,
    index_kind,
    saturating_kind,
)
from gradcheck_cli.features.search.branches.conditions import (
    constants_of,
    describe_branch,
    describe_in_body,
    read_literals,
)
from gradcheck_cli.tensorflow_backend.frames import is_guard_of_tensorflow, place_of_branch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation

    Array = np.ndarray[Any, Any]
    Key = tuple[str, str, str]

_LARGEST_TABLE = 16  # entries
_MOST = 200  # branches of a case: a deep network repeats the same few


@dataclass(frozen=True)
class Outer:
    """A selection that has another one as a value.

    Attributes:
        tensor: its condition.
        holds: whether it takes this value where the condition is true, rather than where it is false.
    """

    tensor: Any
    holds: bool

    @staticmethod
    def all_of(op: Any) -> tuple[Outer, ...]:
        """Return the selections around a selection, going outward while nothing else uses a value."""
        outers: list[Outer] = []
        while op.type == "SelectV2":
            users = [user for user in op.outputs[0].consumers() if user.type not in SHAPES]
            input_indices = [
                input_index
                for user in users
                for input_index, value in enumerate(user.inputs)
                if value is op.outputs[0]
            ]
            if len(input_indices) != 1 or users[0].type != "SelectV2" or not input_indices[0]:
                break
            (op,) = users
            outers.append(Outer(op.inputs[0], input_indices[0] == 1))
        return tuple(outers)


@dataclass(frozen=True)
class Watched:
    """A branch in a graph, with the tensors that show its sides.

    Attributes:
        branch: with no side seen.
        kind: how it branches.
        tensors: the tensors that show its sides.
        within: the selections around this one, each with the side on which it takes this one's value.
        is_hidden: whether it is a comparison inside a branch's condition: no report has its sides, but a
            change of them may lie beside a side that no point takes.
    """

    branch: Branch
    kind: Kind
    tensors: tuple[Any, ...]
    within: tuple[Outer, ...] = ()
    is_hidden: bool = False

    @property
    def key(self) -> Key:
        """Its name, the same in every trace."""
        return self.branch.key

    @property
    def offered(self) -> frozenset[str]:
        """The sides that count only if a point takes them."""
        return self.kind.offered

    @property
    def fetched(self) -> tuple[Any, ...]:
        """The tensors that show its sides."""
        return (*self.tensors, *(outer.tensor for outer in self.within))

    def literals(self, side: int) -> tuple[tuple[Any, bool], ...]:
        """Return what must all be so at a point on a side; nothing if that isn't known."""
        if self.kind.margins is not None or self.tensors[0].dtype != tf.bool:
            return ()
        own = read_literals(self.tensors[0], holds=side == 0)
        return own + tuple(
            literal for outer in self.within for literal in read_literals(outer.tensor, holds=outer.holds)
        )

    def sides(self, values: Mapping[int, Any], math: Any) -> list[Any]:
        """Return for each side which elements take it.

        Args:
            values: by the id of a tensor, (B, *shape).
            math: NumPy, or `IN_GRAPH` for tensors of a graph.
        """
        own = [values[id(tensor)] for tensor in self.tensors]
        if self.kind.margins is None:
            truth = math.abs(own[0]) > 0
            sides = [truth, ~truth]
            for outer in self.within:
                is_taken = math.abs(values[id(outer.tensor)]) > 0
                is_taken = is_taken if outer.holds else ~is_taken
                sides = [
                    first & second
                    for first, second in (align([own_side, is_taken], math) for own_side in sides)
                ]
            return sides
        return [margin > 0 for margin in self.kind.margins(own, math)]

    def sides_taken(self, values: Mapping[int, Array]) -> list[Array]:
        """Return for each side the points at which some element takes it, (B,) of booleans each.

        Args:
            values: by the id of a tensor, (B, *shape).
        """
        with np.errstate(invalid="ignore"):
            sides = self.sides(values, np)
        return [np.asarray(side.reshape(len(side), -1).any(axis=1)) for side in sides]


@dataclass
class Body:
    """A graph, or the body of a loop, a branch or a function in it, with what branches there.

    Attributes:
        name: the function's name; empty for the whole graph.
        graph: its own graph.
        watched: the branches in it.
        calls: the bodies of each op in it, by the op's name, if something branches in one of them.
        constants: the numbers in it, and in its bodies.
    """

    name: str
    graph: Any
    watched: list[Watched] = field(default_factory=list)
    calls: dict[str, list[Body]] = field(default_factory=dict)
    constants: list[float] = field(default_factory=list)

    @property
    def inside(self) -> list[Watched]:
        """The branches in it, and in the bodies that it calls."""
        called = [watched for bodies in self.calls.values() for body in bodies for watched in body.inside]
        return self.watched + called


def find_branches(op: GraphOperation) -> Body:
    """Find the branches on the way from what moves to the outputs and their gradients.

    Args:
        op: at a point whose graphs serve all others.

    Raises:
        CaseFailedError: what is called raises.
    """
    trace = op.traced.vjp_trace
    whole = Body("", trace.whole.graph)
    if not trace.joint_outputs:
        return whole
    names = {id(tensor): info.name for tensor, info in zip(trace.inputs, op.inputs, strict=False)}
    names |= {
        id(tensor): f"d{op.outputs[output_index].name}"
        for tensor, output_index in zip(trace.upstreams, trace.joint_outputs, strict=True)
    }
    finder = _Finder(names, trace.forward_ops)
    finder.fill(whole, [*trace.inputs, *trace.upstreams, *trace.held.draws], trace.results)
    return whole


@dataclass
class _Finder:
    """Finds the branches of a graph and of the bodies in it.

    Attributes:
        names: what tensors are called, by id.
        forward_ops: the ops of the graph that aren't the gradient's.
        part: what the current op belongs to, "forward" or "gradient".
        count: how many were found.
    """

    names: dict[int, str]
    forward_ops: Collection[Any]
    part: str = ""
    count: int = 0

    def fill(self, body: Body, starts: Sequence[Any], results: Iterable[Any]) -> None:
        """Find what branches in a graph.

        Args:
            body: the graph; added to.
            starts: its tensors that move by themselves.
            results: the tensors that are wanted from it.
        """
        moved, ops = follow(starts)
        needed = needed_by(results)
        between = ops & needed
        body.constants = [
            value for op in needed if op.type == "Const" for value in constants_of(op.outputs[0])
        ]
        for op in body.graph.get_operations():
            if op not in between or self.count >= _MOST:
                continue
            if not body.name:
                self.part = "forward" if op in self.forward_ops else "gradient"
            branches = [self._watch(op, moved), _watch_compared(op, moved)]
            body.watched += [watched for watched in branches if watched is not None]
            self.count += branches[0] is not None
            bodies = [self._make_body(op, index, moved) for index in range(len(bodies_of(op)))]
            if any(not watched.is_hidden for inner in bodies for watched in inner.inside):
                body.calls[op.name] = bodies
            body.constants += [value for inner in bodies for value in inner.constants]

    def _make_body(self, op: Any, index: int, moved: Collection[int]) -> Body:
        name, graph = bodies_of(op)[index]
        arguments = body_arguments(op)
        is_loop = op.type in LOOPS
        moving_indices = moved_in_loop(op, moved)[0] if is_loop else range(len(arguments))
        starts = []
        for input_index, (outer, inner) in enumerate(zip(arguments, graph.inputs, strict=True)):
            text = describe_in_body(outer, self.names)
            varies = is_loop and inner.dtype != tf.variant and not is_passed_on(graph, input_index)
            self.names[id(inner)] = f"loop({text})" if varies else text
            if input_index in moving_indices and (is_loop or id(outer) in moved):
                starts.append(inner)
        body = Body(name, graph)
        self.fill(body, starts, graph.outputs)
        return body

    def _watch(self, op: Any, moved: Collection[int]) -> Watched | None:
        kind = self._saturating_kind(op) or _lookup_kind(op, moved) or _kind_of(op)
        place = "" if kind is None else place_of_branch(op)
        if kind is None or not place:
            return None
        tensors = (op.outputs[0],) if kind.is_output else tuple(op.inputs[index] for index in kind.inputs)
        if op.type in LOOPS and op.outputs[0].dtype != tf.int32:
            return None  # nothing counts its rounds
        if op.type in LOOPS and not moved_in_loop(op, moved)[1]:
            return None  # the same number of rounds at all points
        if not any(id(tensor) in moved for tensor in tensors) and op.type not in LOOPS:
            return None  # decided by a shape, or by a constant
        branch = Branch(describe_branch(op, kind, self.names), place, self.part, kind.sides, ())
        if tensors[0].op.type == "IsFinite" and is_guard_of_tensorflow(tensors[0].op):
            return None  # `reduce_logsumexp` has it: no finite values take its other side
        return Watched(branch, kind, tensors, Outer.all_of(op))

    def _saturating_kind(self, op: Any) -> Kind | None:
        """Return how a function saturates, if a hand-written gradient calls it or reads its values.

        Those that TensorFlow's own kernel differentiates don't count: a gradient may run the forward again.
        """
        kind = saturating_kind(op)
        if kind is None:
            return None
        readers = {*op.outputs[0].consumers(), *op.inputs[0].consumers()}
        if any(reader.type == f"{op.type}Grad" for reader in readers):
            return None
        if self.part == "gradient":
            return kind
        later = [reader for reader in readers if reader not in self.forward_ops]
        is_read = op in self.forward_ops and any(place_of_branch(reader) for reader in later)
        return kind if is_read else None


def _watch_compared(op: Any, moved: Collection[int]) -> Watched | None:
    """Watch which of two numbers that a comparison compares is larger."""
    if op.type not in COMPARISONS or not all(
        tensor.dtype.is_floating or tensor.dtype.is_integer for tensor in op.inputs
    ):
        return None
    if not any(id(tensor) in moved for tensor in op.inputs):
        return None
    branch = Branch(f"{op.graph.name} {op.name}", "", "hidden", COMPARED.sides, ())
    return Watched(branch, COMPARED, tuple(op.inputs), is_hidden=True)


def _lookup_kind(op: Any, moved: Collection[int]) -> Kind | None:
    """Return how a lookup in a constant table branches, if its indices are computed from floats."""
    if op.type != "GatherV2" or id(op.inputs[0]) in moved:
        return None
    axis = tf.get_static_value(op.inputs[2])
    shape = op.inputs[0].shape
    count = None if axis is None or shape.rank is None else shape[int(axis)]
    if not count or count > _LARGEST_TABLE or not _is_of_floats(op.inputs[1]):
        return None
    return index_kind(count, "entry", input_index=1)


def _is_of_floats(tensor: Any) -> bool:
    """Whether integers are computed from floats."""
    waiting, seen = [tensor], {id(tensor)}
    while waiting:
        for source in waiting.pop().op.inputs:
            if source.dtype.is_floating:
                return True
            if id(source) not in seen:
                seen.add(id(source))
                waiting.append(source)
    return False


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
