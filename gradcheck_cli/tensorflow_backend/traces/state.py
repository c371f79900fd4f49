"""Keep the state that a traced function changes: its order as it is traced, its values as it runs.

Each evaluation starts from the same values: what the forward writes to is put back after each call. What the
gradient alone writes to is left until the case ends, as it is from one step of a training to the next: a
gradient that counts its calls is found as another one each time.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.private import private_graphs, private_state, private_variables
from gradcheck_cli.tensorflow_backend.stacks import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.stacks import Stack

# A point of this many elements costs far more than its call: nothing is gained by batching it.
LARGE_POINT = 2**17
_MAPPABLE: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_TABLE_TYPES = ("LookupTableInsertV2", "LookupTableFindV2")


@dataclass(frozen=True)
class Kept:
    """A variable or a table outside of all graphs.

    Attributes:
        handle: its handle.
        dtypes: that of a variable; those of a table's keys and values.
    """

    handle: Any
    dtypes: tuple[Any, ...]

    def read(self) -> Any:
        """Return what it holds."""
        if len(self.dtypes) == 1:
            return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtypes[0])
        keys, values = self.dtypes
        return tf.raw_ops.LookupTableExportV2(table_handle=self.handle, Tkeys=keys, Tvalues=values)

    def write(self, value: Any) -> None:
        """Put back what `read` returned."""
        if len(self.dtypes) == 1:
            tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)
        else:
            tf.raw_ops.LookupTableImportV2(table_handle=self.handle, keys=value[0], values=value[1])


@dataclass
class State:
    """What has been written to, with the values from before."""

    before: dict[int, tuple[Kept, Any]] = field(default_factory=dict)

    def __contains__(self, handle: Any) -> bool:
        """Whether the value of what has this handle is remembered."""
        return id(handle) in self.before

    def keep(self, kept: Kept) -> None:
        """Remember what something holds, if this is the first time."""
        if kept.handle not in self:
            self.before[id(kept.handle)] = (kept, kept.read())

    def take(self, other_state: State) -> None:
        """Remember what another one does, but for what is remembered already."""
        self.before = {**other_state.before, **self.before}

    def put_back(self) -> None:
        """Put everything back, and go on remembering it."""
        for kept, value in self.before.values():
            kept.write(value)

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Put everything back at the end, and forget it."""
        try:
            yield
        finally:
            self.put_back()
            self.before.clear()


class Order:
    """Puts the ops of a graph that is being traced in the order that `tf.function` gives them.

    Args:
        graph: the graph; its bodies of loops and branches, traced from now on, get theirs too.
    """

    def __init__(self, graph: Any) -> None:
        """Begin where the graph is now."""
        self._graph = graph
        self._inner = private_state.Order()
        self._count = 0
        private_state.bodies_in_order(graph)

    def add(self) -> list[Any]:
        """Put in order what was traced since; return the ops of it that write to something."""
        ops = self._graph.get_operations()[self._count :]
        self._count += len(ops)
        return self._inner.add(ops)

    def branch(self) -> Order:
        """Return a copy of the order as it stands: several traces may go on from here, each with its own."""
        branched = Order(self._graph)
        branched._inner, branched._count = self._inner.copy(), len(self._graph.get_operations())
        return branched


def written(function: Any) -> list[Kept]:
    """Return what a traced function writes to as it runs, inside a function's body too."""
    graph = function.graph
    captured = {id(inner): outer for outer, inner in graph.captures if inner.dtype == tf.resource}
    if not captured:
        return []
    by_handle: dict[int, Kept] = {}
    for op in graph.get_operations():
        for tensor, is_written in private_state.resources_used(op):
            outer = captured.get(id(tensor))
            if outer is None or not is_written or id(outer) in by_handle:
                continue
            inner = [node.op for node in graph_path.inner_nodes(graph, op)]
            if private_state.is_write(op.type) or any(map(private_state.is_write, inner)):
                kept = _find_kept(graph, outer)
                if kept is not None:
                    by_handle[id(outer)] = kept
    return list(by_handle.values())


def _find_kept(graph: Any, handle: Any) -> Kept | None:
    dtype = private_variables.dtype_of_variable(handle)
    if dtype is not None:
        return Kept(handle, (dtype,))
    for key, value in _table_dtypes(graph):
        with contextlib.suppress(tf.errors.OpError):
            kept = Kept(handle, (key, value))
            kept.read()
            return kept
    return None


def _table_dtypes(graph: Any) -> list[tuple[Any, Any]]:
    nodes = [
        node for op in graph.get_operations() for node in (op.node_def, *graph_path.inner_nodes(graph, op))
    ]
    pairs = (
        (tf.as_dtype(node.attr["Tin"].type), tf.as_dtype(node.attr["Tout"].type))
        for node in nodes
        if node.op in _TABLE_TYPES
    )
    return list(dict.fromkeys(pairs))


def written_before_read(function: Any, outputs: Sequence[Any]) -> set[int]:
    """Return the ids of the variable handles that a traced function writes to and reads later."""
    outer = {id(inner): id(outer) for outer, inner in function.graph.captures}
    return {
        outer[id(tensor)]
        for op in graph_path.ops_before(outputs)
        for writer in private_state.ordered_before(op)
        for tensor, is_written in private_state.resources_used(writer)
        if is_written and id(tensor) in outer
    }


def captured(function: Any) -> set[int]:
    """Return the ids of the handles that a traced function uses."""
    return {id(outer) for outer, inner in function.graph.captures if inner.dtype == tf.resource}


def put_back(
    function: Any, compiled: Callable[..., Any] | None = None, left_handles: Collection[int] = ()
) -> Callable[[Sequence[Any]], Any]:
    """Return what calls a traced function with its tensors, and leaves its state as it found it.

    Args:
        function: the traced function.
        compiled: what is called in its place, if it is another: its compiled form.
        left_handles: ids of the handles of what isn't put back.
    """

    def plain(tensors: Sequence[Any]) -> Any:
        return private_graphs.call_flat(function, tensors) if compiled is None else compiled(*tensors)

    all_kept = [kept for kept in written(function) if id(kept.handle) not in left_handles]
    if not all_kept:
        return plain

    def call(tensors: Sequence[Any]) -> Any:
        values = [kept.read() for kept in all_kept]
        try:
            return plain(tensors)
        finally:
            for kept, value in zip(all_kept, values, strict=True):
                kept.write(value)

    return call


def is_mappable(function: Any) -> bool:
    """Whether one op may call a function in a loop: on the CPU, in any order, in any thread."""
    if function not in _MAPPABLE:
        _MAPPABLE[function] = (
            private_graphs.has_one_device() and not written(function) and graph_path.is_free(function.graph)
        )
    return _MAPPABLE[function]


def call_once(function: Any, tensors: Sequence[Any]) -> list[Any]:
    """Call a traced function at one point, and leave its state as it found it.

    In the way in which it is called at many points, if it can be: to prepare a graph to be called takes
    milliseconds, once for each way.
    """
    sizes = [tensor.shape.num_elements() for tensor in (*function.inputs, *function.outputs)]
    is_small = all(size is not None and size < LARGE_POINT for size in sizes)
    if not tensors or not is_small or not is_mappable(function):
        return list(put_back(function)(tensors))
    try:
        stacked = private_graphs.map_flat(function, [tensors[0][tf.newaxis]], tensors[1:])
    except tf.errors.OpError:  # a call may do: it prepares the graph first
        return list(put_back(function)(tensors))
    return [tf.squeeze(value, 0) for value in stacked]


@contextlib.contextmanager
def at_values(variables: Sequence[Any], moved: Mapping[int, Stack]) -> Iterator[Iterator[int]]:
    """Give the numbers of rows, with the variables at that row's values each time; put them back at the end.

    Args:
        variables: of which some move.
        moved: by number of the variable, stacks of wide values, or moves.
    """
    before = {index: variables[index].read_value() for index in moved}

    def rows() -> Iterator[int]:
        for row in range(len(next(iter(moved.values())))):
            for index, stack in moved.items():
                variable = variables[index]
                value = value_of(stack, row, tuple(variable.shape))
                variable.assign(tf.constant(dtypes.narrow(value, variable.dtype.name), variable.dtype))
            yield row

    try:
        yield rows()
    finally:
        for index, value in before.items():
            variables[index].assign(value)
