"""The bodies of loops, branches and functions that a graph calls, and which tensors in them move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradcheck_cli.tensorflow_backend.branches.branch_kinds import CASES, CONDITIONALS, LOOPS
from gradcheck_cli.tensorflow_backend.private import private_graphs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_BODIES = {
    **dict.fromkeys(LOOPS, ("body",)),
    **dict.fromkeys(CONDITIONALS, ("then_branch", "else_branch")),
    **dict.fromkeys(CASES, ("branches",)),
    **dict.fromkeys(CALLS, ("f",)),
}
SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
_SAME = frozenset({"Identity", "StopGradient"})


def bodies_of(op: Any) -> list[tuple[str, Any]]:
    """Return (function name, graph) of each body of a loop, a branch or a call.

    Empty for other ops, and if the graph of a body isn't known or is compiled.
    """
    found = [
        (name, private_graphs.body_named(op.graph, name))
        for attr in _BODIES.get(op.type, ())
        for name in _names(op, attr)
    ]
    return [] if any(body is None for _, body in found) else found


def _names(op: Any, attr: str) -> list[str]:
    value = op.get_attr(attr)
    return [one.name for one in (value if isinstance(value, list) else [value])]


def taken_by_bodies(op: Any) -> Sequence[Any]:
    """Return the inputs of an op that it passes to its bodies, one for each input of theirs."""
    return list(op.inputs)[1:] if op.type in CONDITIONALS | CASES else list(op.inputs)


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
            for output in _moved_outputs(user, moved):
                if id(output) not in moved:
                    moved.add(id(output))
                    waiting.append(output)
    return moved, ops


def _moved_outputs(op: Any, moved: Collection[int]) -> list[Any]:
    if op.type not in LOOPS:
        return list(op.outputs)
    numbers, _ = moved_in_loop(op, moved)
    return [op.outputs[number] for number in numbers]


def moved_in_loop(op: Any, moved: Collection[int]) -> tuple[set[int], bool]:
    """Return the numbers of a loop's variables that move, and whether the number of rounds changes.

    Args:
        op: the loop.
        moved: the ids of the tensors that move in the graph around it.
    """
    bodies, condition = bodies_of(op), private_graphs.body_named(op.graph, op.get_attr("cond").name)
    found = {number for number, tensor in enumerate(op.inputs) if id(tensor) in moved}
    if not bodies or condition is None:
        return set(range(len(op.outputs))), True
    body = bodies[0][1]
    while True:
        inside, _ = follow(body.inputs[number] for number in found)
        new = {number for number, tensor in enumerate(body.outputs) if id(tensor) in inside}
        decided, _ = follow(condition.inputs[number] for number in found)
        depends = id(condition.outputs[0]) in decided
        if depends:
            new |= {number for number in range(len(body.outputs)) if not is_kept(body, number)}
        if new <= found:
            return found, depends
        found |= new


def is_kept(body: Any, number: int) -> bool:
    """Whether a loop's body passes one of its variables on unchanged."""
    tensor = body.outputs[number]
    while tensor.op.type in _SAME:
        tensor = tensor.op.inputs[0]
    return tensor is body.inputs[number]
