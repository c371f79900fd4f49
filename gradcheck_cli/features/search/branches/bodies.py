"""The bodies of loops, branches and functions that a graph calls, and which tensors in them move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradcheck_cli.features.search.branches.branch_kinds import CASES, CONDITIONALS, LOOPS
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
    bodies = [
        (name, private_graphs.body_named(op.graph, name))
        for attr in _BODIES.get(op.type, ())
        for name in _function_names(op, attr)
    ]
    return [] if any(body is None for _, body in bodies) else bodies


def _function_names(op: Any, attr: str) -> list[str]:
    functions = op.get_attr(attr)
    return [function.name for function in (functions if isinstance(functions, list) else [functions])]


def body_arguments(op: Any) -> Sequence[Any]:
    """Return the inputs that an op passes to its bodies, in the order of the bodies' inputs."""
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
    indices, _ = moved_in_loop(op, moved)
    return [op.outputs[index] for index in indices]


def moved_in_loop(op: Any, moved: Collection[int]) -> tuple[set[int], bool]:
    """Return the indices of a loop's variables that move, and whether the number of rounds changes.

    Args:
        op: the loop.
        moved: the ids of the tensors that move in the graph around it.
    """
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
    while tensor.op.type in _SAME:
        tensor = tensor.op.inputs[0]
    return tensor is body.inputs[index]
