"""Keep the variables that a traced function writes to, or that are moved, as they were."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes, path, private_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    Array = np.ndarray[Any, Any]


def has_state(function: Any) -> bool:
    """Whether a traced function writes to variables as it runs, inside a function's body too."""
    graph = function.graph
    return any(
        op.type in path.WRITES or any(node.op in path.WRITES for node in path.inner_nodes(graph, op))
        for op in graph.get_operations()
    )


def put_back(function: Any, traced: Any = None) -> Callable[..., Any]:
    """Return the function with each call leaving its variables as it found them.

    Args:
        function: what is called.
        traced: the traced function that it was made of, if it is another.
    """
    traced = traced or function
    if not has_state(traced):
        return function  # type: ignore[no-any-return]
    handles = private_variables.handles_of_variables(traced)

    def call(*arguments: Any) -> Any:
        values = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype) for handle, dtype in handles]
        try:
            return function(*arguments)
        finally:
            for (handle, _), value in zip(handles, values, strict=True):
                tf.raw_ops.AssignVariableOp(resource=handle, value=value)

    return call


@contextlib.contextmanager
def at_values(variables: Sequence[Any], moved: Mapping[int, Array]) -> Iterator[Iterator[int]]:
    """Give the numbers of rows, with the variables at that row's values each time; put them back at the end.

    Args:
        variables: of which some move.
        moved: by number of the variable, stacks of wide values.
    """
    before = {number: variables[number].read_value() for number in moved}

    def rows() -> Iterator[int]:
        for row in range(len(next(iter(moved.values())))):
            for number, stack in moved.items():
                variable = variables[number]
                variable.assign(tf.constant(dtypes.narrow(stack[row], variable.dtype.name), variable.dtype))
            yield row

    try:
        yield rows()
    finally:
        for number, value in before.items():
            variables[number].assign(value)
