"""Keep the variables that a traced function writes to, or that are moved, as they were."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes, path, private, private_variables
from gradcheck_cli.tensorflow_backend.stacks import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.stacks import Stack


def has_state(function: Any) -> bool:
    """Whether a traced function writes to variables as it runs, inside a function's body too."""
    graph = function.graph
    return any(
        op.type in path.WRITES or any(node.op in path.WRITES for node in path.inner_nodes(graph, op))
        for op in graph.get_operations()
    )


def put_back(function: Any, made: Callable[..., Any] | None = None) -> Callable[[Sequence[Any]], Any]:
    """Return what calls a traced function with its tensors, and leaves its variables as it found them.

    Args:
        function: the traced function.
        made: what is called in its place, if it is another: its compiled form.
    """

    def plain(tensors: Sequence[Any]) -> Any:
        return private.call_flat(function, tensors) if made is None else made(*tensors)

    if not has_state(function):
        return plain
    handles = private_variables.handles_of_variables(function)

    def call(tensors: Sequence[Any]) -> Any:
        values = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype) for handle, dtype in handles]
        try:
            return plain(tensors)
        finally:
            for (handle, _), value in zip(handles, values, strict=True):
                tf.raw_ops.AssignVariableOp(resource=handle, value=value)

    return call


@contextlib.contextmanager
def at_values(variables: Sequence[Any], moved: Mapping[int, Stack]) -> Iterator[Iterator[int]]:
    """Give the numbers of rows, with the variables at that row's values each time; put them back at the end.

    Args:
        variables: of which some move.
        moved: by number of the variable, stacks of wide values, or moves.
    """
    before = {number: variables[number].read_value() for number in moved}

    def rows() -> Iterator[int]:
        for row in range(len(next(iter(moved.values())))):
            for number, stack in moved.items():
                variable = variables[number]
                value = value_of(stack, row, tuple(variable.shape))
                variable.assign(tf.constant(dtypes.narrow(value, variable.dtype.name), variable.dtype))
            yield row

    try:
        yield rows()
    finally:
        for number, value in before.items():
            variables[number].assign(value)
