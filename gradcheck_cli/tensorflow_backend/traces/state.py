"""Keeps the state that a traced function changes when it runs.

Each evaluation starts from the same values: what the forward writes is restored after each call. State that
only the gradient writes is restored at the end of the case: it lasts from call to call, as from one training
step to the next. So a gradient that counts its calls is found to differ from call to call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes, graph_path
from gradcheck_cli.tensorflow_backend.dtypes import shape_text
from gradcheck_cli.tensorflow_backend.op_types import FRACTIONAL, FREE_STATEFUL
from gradcheck_cli.tensorflow_backend.private import private_graphs, private_state

Thing = TypeVar("Thing")
# A point of this many elements costs far more than its call: batching it gains nothing.
LARGE_POINT = 2**17
_MAPPABLE: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_TABLE_TYPES = ("LookupTableInsertV2", "LookupTableFindV2")


@dataclass
class Made:
    """What was made of objects: once of each. The objects are kept, so that their ids stay in use."""

    _made: dict[Any, tuple[Any, Any]] = field(default_factory=dict)

    def of(self, make: Callable[[], Thing], *sources: Any, kind: str = "") -> Thing:
        """Return what was made of objects, which `make` makes the first time."""
        key = kind, *map(id, sources)
        if key not in self._made:
            self._made[key] = make(), sources
        thing: Thing = self._made[key][0]
        return thing

    def clear(self) -> None:
        """Forget all of it."""
        self._made.clear()


@dataclass(frozen=True)
class Resource:
    """A variable or a table outside of all graphs."""

    handle: Any
    dtypes: tuple[Any, ...]  # the variable's, or those of the table's keys and values

    @property
    def dtype(self) -> Any:
        """The variable's dtype."""
        return self.dtypes[0]

    def read(self) -> Any:
        """Return its value."""
        if len(self.dtypes) == 1:
            return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtypes[0])
        keys, values = self.dtypes
        return tf.raw_ops.LookupTableExportV2(table_handle=self.handle, Tkeys=keys, Tvalues=values)

    def write(self, value: Any) -> None:
        """Restore what `read` returned."""
        if len(self.dtypes) == 1:
            tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)
        else:
            tf.raw_ops.LookupTableImportV2(table_handle=self.handle, keys=value[0], values=value[1])


@dataclass
class State:
    """What has been written to, with the earlier values."""

    earlier_values: dict[int, tuple[Resource, Any]] = field(default_factory=dict)

    @staticmethod
    def of(resources: Iterable[Resource]) -> State:
        """Return the present state of some resources."""
        state = State()
        for resource in resources:
            state.record(resource)
        return state

    def __contains__(self, handle: Any) -> bool:
        """Whether the value behind this handle is recorded."""
        return id(handle) in self.earlier_values

    def record(self, resource: Resource) -> None:
        """Record the current value of a resource, the first time."""
        if resource.handle not in self:
            self.earlier_values[id(resource.handle)] = (resource, resource.read())

    def add_missing(self, other_state: State) -> None:
        """Add what another state has recorded, except what is recorded here already."""
        self.earlier_values = {**other_state.earlier_values, **self.earlier_values}

    def restore(self) -> None:
        """Restore everything, and keep the record."""
        for resource, value in self.earlier_values.values():
            resource.write(value)

    @contextlib.contextmanager
    def restore_at_end(self) -> Iterator[None]:
        """Restore everything at the end, and drop the record."""
        try:
            yield
        finally:
            self.restore()
            self.earlier_values.clear()


def find_written(function: Any) -> list[Resource]:
    """Return what a traced function writes to when it runs, also inside a function's body."""
    graph = function.graph
    captured = {id(inner): outer for outer, inner in graph.captures if inner.dtype == tf.resource}
    if not captured:
        return []
    by_handle: dict[int, Resource] = {}
    for op in graph.get_operations():
        for tensor, is_written in private_state.resources_used(op):
            outer = captured.get(id(tensor))
            if outer is None or not is_written or id(outer) in by_handle:
                continue
            inner = [node.op for node in graph_path.inner_nodes(op)]
            if private_state.is_write(op.type) or any(map(private_state.is_write, inner)):
                resource = _find_resource(graph, outer)
                if resource is not None:
                    by_handle[id(outer)] = resource
    return list(by_handle.values())


def find_read(function: Any) -> list[Resource]:
    """Return the variables of a floating dtype that a traced function reads and doesn't write to."""
    written = {id(resource.handle) for resource in find_written(function)}
    handles = [outer for outer, _ in function.graph.captures if id(outer) not in written]
    dtypes_of = [private_state.dtype_of_variable(handle) for handle in handles]
    return [
        Resource(handle, (dtype,))
        for handle, dtype in zip(handles, dtypes_of, strict=True)
        if dtype is not None and dtypes.is_differentiable(dtype) and hasattr(handle, "numpy")
    ]


def _find_resource(graph: Any, handle: Any) -> Resource | None:
    dtype = private_state.dtype_of_variable(handle)
    if dtype is not None:
        return Resource(handle, (dtype,))
    for key, value in _table_dtypes(graph):
        with contextlib.suppress(tf.errors.OpError):
            resource = Resource(handle, (key, value))
            resource.read()
            return resource
    return None


def _table_dtypes(graph: Any) -> list[tuple[Any, Any]]:
    nodes = [node for op in graph.get_operations() for node in (op.node_def, *graph_path.inner_nodes(op))]
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


def captured_ids(function: Any) -> set[int]:
    """Return the ids of the handles that a traced function uses."""
    return {id(outer) for outer, inner in function.graph.captures if inner.dtype == tf.resource}


def restoring_call(
    function: Any, compiled: Callable[..., Any] | None = None, unrestored: Collection[int] = ()
) -> Callable[[Sequence[Any]], Any]:
    """Return a function that calls a traced function with its tensors and then restores its state."""

    def plain(tensors: Sequence[Any]) -> Any:
        return private_graphs.call_flat(function, tensors) if compiled is None else compiled(*tensors)

    written = [resource for resource in find_written(function) if id(resource.handle) not in unrestored]
    if not written:
        return plain

    def call(tensors: Sequence[Any]) -> Any:
        with State.of(written).restore_at_end():
            return plain(tensors)

    return call


def is_mappable(function: Any) -> bool:
    """Whether one op may call a function in a loop: on the CPU, in any order, in any thread."""
    if function not in _MAPPABLE:
        types = graph_path.types_of(function.graph.get_operations())
        definitions = map(private_graphs.op_def, types - FREE_STATEFUL)
        _MAPPABLE[function] = (
            private_graphs.has_one_device()
            and not find_written(function)
            and not types & FRACTIONAL
            and not any(definition is not None and definition.is_stateful for definition in definitions)
        )
    return _MAPPABLE[function]


def call_once(function: Any, tensors: Sequence[Any]) -> list[Any]:
    """Call a traced function at one point, restore its state, and return the values, in NumPy's form.

    It is called in the same way as at many points, if possible: preparing a graph takes milliseconds, once
    for each way.

    Raises:
        CaseFailedError: an output has no value, or another shape than its graph says.
    """
    sizes = [tensor.shape.num_elements() for tensor in (*function.inputs, *function.outputs)]
    is_small = all(size is not None and size < LARGE_POINT for size in sizes)
    if tensors and is_small and is_mappable(function):
        with contextlib.suppress(tf.errors.OpError):  # a call may succeed: it prepares the graph first
            stacks = [tf.constant(np.asarray(tensor.numpy())[np.newaxis], tensor.dtype) for tensor in tensors]
            stacked = private_graphs.map_flat(function, stacks, [])
            if all(value.shape[0] for value in stacked):
                return [value.numpy()[0] for value in stacked]
    values = restoring_call(function)(tensors)
    for index, (output, value) in enumerate(zip(function.outputs, values, strict=True)):
        if output.shape.is_compatible_with(value.shape):
            continue
        if not value.shape.num_elements():  # TensorFlow returns an empty tensor
            raise CaseFailedError(
                "forward",
                f"output {index} has no value: it is the side of a Switch that isn't taken. Return what "
                "tf.cond returns, which has one whichever side is taken.",
            )
        raise CaseFailedError(
            "outputs",
            f"output {index} must have shape {shape_text(output.shape)}, by the spec's 'outputs' or by "
            f"set_shape, but has {shape_text(value.shape)}.",
        )
    return [value.numpy() for value in values]


@contextlib.contextmanager
def at_values(
    variables: Sequence[Any], moved: Mapping[int, dtypes.Stack], count: int = 1
) -> Iterator[Iterator[int]]:
    """Yield the indices of rows, with the variables set to each row's values; restore them at the end.

    Args:
        moved: stacks of wide values, or moves, of those that move, by index.
        count: how many rows there are if none moves.
    """
    variable_of = {index: variables[index] for index in moved}

    def rows() -> Iterator[int]:
        for row in range(len(next(iter(moved.values()), range(count)))):
            for index, stack in moved.items():
                variable = variable_of[index]
                value = dtypes.value_of(stack, row, tuple(variable.shape))
                variable.assign(dtypes.constant(value, variable.dtype))
            yield row

    resources = (Resource(variable.handle, (variable.dtype,)) for variable in variable_of.values())
    with State.of(resources).restore_at_end():
        yield rows()


@dataclass(frozen=True)
class TraceMode:
    """How a graph is traced and run."""

    # which dimensions the trace doesn't know: "none", "first" (of each tensor) or "all"
    unknown: str = "none"
    compiled: bool = False  # whether XLA compiles what is run

    def shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return a tensor's shape with the dimensions that the trace may know."""
        if self.unknown == "none":
            return tuple(shape)
        return (None,) * len(shape) if self.unknown == "all" else (None, *shape[1:])[: len(shape)]

    def signature(self, arguments: Sequence[tuple[str, tuple[int, ...]]]) -> list[Any]:
        """Return the signature of a trace of arguments of these dtypes and shapes."""
        return [
            tf.TensorSpec(self.shape(shape), dtype, f"input_{index}")  # one name in each graph
            for index, (dtype, shape) in enumerate(arguments)
        ]

    def compile(self, function: Any, *, prepare: bool = False) -> Callable[..., Any] | None:
        """Return what is run instead of a traced function: its compiled form, or nothing.

        Grappler may prepare its graph, if it isn't compiled.
        """
        if not self.compiled:
            return partial(_run_prepared, function) if prepare else None
        return tf.function(  # type: ignore[no-any-return]
            lambda *tensors: private_graphs.call_flat(function, tensors), jit_compile=True, autograph=False
        )


def _run_prepared(function: Any, *tensors: Any) -> Any:
    optimizer = tf.config.optimizer
    optimizer.set_experimental_options({"disable_meta_optimizer": False})
    try:
        return private_graphs.call_flat(function, tensors)
    finally:
        optimizer.set_experimental_options({"disable_meta_optimizer": True})


GRAPH = TraceMode()
ALL_UNKNOWN = TraceMode("all")
FIRST_UNKNOWN = TraceMode("first")
COMPILED = TraceMode(compiled=True)
