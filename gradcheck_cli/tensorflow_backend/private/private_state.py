"""All reliance on TensorFlow's private parts about variables and state: which ops write to what, and when.

`tests/tensorflow_backend/test_variables.py` and the rows of `state` fail where one of them changes.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import auto_control_deps, auto_control_deps_utils, ops
from tensorflow.python.ops import control_flow_util, custom_gradient, resource_variable_ops

from gradcheck_cli.tensorflow_backend.dtypes import is_differentiable
from gradcheck_cli.tensorflow_backend.private import private_graphs


def in_order_of_creation(variables: Iterable[Any]) -> list[Any]:
    """Return those of the variables that are trainable and of a floating dtype, the oldest first."""
    trainable = [
        variable
        for variable in variables
        if variable.trainable
        and is_differentiable(variable.dtype)
        and isinstance(variable.handle, ops.EagerTensor)  # a trace takes a graph's as a constant
    ]
    return sorted(trainable, key=lambda variable: int(variable.handle._id))


def captured_handles(function: Any) -> dict[int, Any]:
    """Return a traced function's own tensor for each variable it uses, by `id` of the variable's handle."""
    return {id(outer): inner for outer, inner in function.graph.captures}


def dtype_of_variable(handle: Any) -> Any | None:
    """Return the dtype of the variable that a handle belongs to; `None` for anything but a variable."""
    data = getattr(handle, "_handle_data", None)
    if handle.dtype != tf.resource or data is None or not data.is_set or not data.shape_and_type:
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)


def attribute_paths(module: tf.Module) -> dict[int, str]:
    """Return where in a `tf.Module` each variable is, by `id` of the variable."""
    flat = module._flatten(predicate=lambda value: isinstance(value, tf.Variable), with_path=True)
    return {id(variable): ".".join(map(str, path)) for path, variable in flat}


def keras_paths(layer: Any) -> dict[int, str]:
    """Return the path of each variable of a Keras layer, by `id` of TensorFlow's variable behind it."""
    variables = getattr(layer, "variables", ())
    if not isinstance(variables, list | tuple):
        return {}
    return {id(variable.value): variable.path for variable in variables if hasattr(variable, "path")}


def constraints_of(owner: Any) -> dict[int, Any]:
    """Return what keeps the variables of a layer, or a variable, in bounds, by `id` of the handle.

    Keras applies a constraint to a variable after each step of training.
    """
    inner = getattr(owner, "variables", ())
    held = [owner] if isinstance(owner, tf.Variable) else inner if isinstance(inner, list | tuple) else []
    constraints = {}
    for variable in held:
        own = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", None)
        constraint = getattr(variable, "constraint", None)
        if isinstance(own, tf.Variable) and callable(constraint):
            constraints[id(own.handle)] = constraint
    return constraints


@contextlib.contextmanager
def read_outside_bodies() -> Iterator[list[Any]]:
    """Let what the body of a loop or of a branch reads of a variable be read once, in the graph around it.

    So other values can be fed for it. What is read so is wrong where the variable is written to meanwhile.

    Yields:
        The handles of these variables.
    """
    kind = resource_variable_ops.BaseResourceVariable
    original, values, handles = kind._read_variable_op, {}, []

    def read(variable: Any, *args: Any, **keywords: Any) -> Any:
        graph = body = tf.compat.v1.get_default_graph()
        while private_graphs.is_body(graph) and not private_graphs.is_defun_body(graph):
            graph = graph.outer_graph
        is_outside = isinstance(variable.handle, ops.EagerTensor)
        if graph is body or not is_outside or private_graphs.is_defun_body(graph):
            return original(variable, *args, **keywords)
        key = id(graph), id(variable.handle)
        if key not in values:
            handles.append(variable.handle)
            with graph.as_default(), tf.control_dependencies(None):
                values[key] = original(variable, *args, **keywords)
        resource_variable_ops.variable_accessed(variable)  # a custom gradient asks for its variables
        return values[key]

    with private_graphs.replace_attributes(kind, _read_variable_op=read):
        yield handles


@contextlib.contextmanager
def restore_seed() -> Iterator[None]:
    """Let `tf.random.set_seed` be called, and restore the process's own seed afterwards."""
    eager_context = context.context()
    # There is no public way to read it; the generator is made with the first seed.
    saved = {name: vars(eager_context)[name] for name in ("_seed", "_rng") if name in vars(eager_context)}
    try:
        yield
    finally:
        vars(eager_context).pop("_rng", None)
        vars(eager_context).update(saved)


@contextlib.contextmanager
def reset_keras_names() -> Iterator[None]:
    """Let Keras name the first layer `dense` whatever was made before, and continue its count afterwards."""
    if "keras" not in sys.modules:  # it counts from the start when it is imported
        yield
        return
    from keras.src.backend.common import global_state  # noqa: PLC0415 (only where the user has it imported)

    key = "object_name_uids"
    before = global_state.get_global_attribute(key)
    global_state.set_global_attribute(key, collections.defaultdict(int))
    try:
        yield
    finally:
        global_state.set_global_attribute(key, before)


class _Ordered(set[Any]):
    """A set of references to variables that is iterated in our own order."""

    order: Callable[[Iterable[Any]], list[Any]]

    def __iter__(self) -> Iterator[Any]:
        return iter(type(self).order(super().__iter__()))


@contextlib.contextmanager
def order_of_variables(note: Callable[[Sequence[Any]], None], *, reverse: bool = False) -> Iterator[None]:
    """Give a custom gradient its `variables=` sorted by name, or in reverse order.

    In a graph TensorFlow sorts them by name; eagerly, they come in the order of a set, which varies from run
    to run. `note` is called with the variables of each custom gradient, except for `tf.recompute_grad`'s own.
    """
    running: list[Any] = []

    def watching(decorator: Any) -> Any:
        def decorated(function: Any, args: Any, keywords: Any) -> Any:
            running.append(function)
            try:
                return decorator(function, args, keywords)
            finally:
                running.pop()

        return decorated

    def by_name(variables: Iterable[Any], key: Any = None) -> list[Any]:
        del key  # TensorFlow's is the name alone, which several variables may share
        ordered_variables = builtins.sorted(
            variables, key=lambda variable: (variable.name, int(variable.handle._id)), reverse=reverse
        )
        if ordered_variables and running and not private_graphs.recomputes(running[-1]):
            note(ordered_variables)
        return ordered_variables

    def ordered(references: Iterable[Any]) -> list[Any]:
        return [variable.ref() for variable in by_name([reference.deref() for reference in references])]

    kind = type("_OrderedSet", (_Ordered,), {"order": staticmethod(ordered)})
    decorators = {name: watching(getattr(custom_gradient, name)) for name in _DECORATORS}
    # Names in the module hide the builtins that it means. There are none before, unless this is nested.
    names = {name: vars(custom_gradient)[name] for name in ("sorted", "set") if name in vars(custom_gradient)}
    custom_gradient.sorted, custom_gradient.set = by_name, kind
    try:
        with private_graphs.replace_attributes(custom_gradient, **decorators):
            yield
    finally:
        del custom_gradient.sorted, custom_gradient.set
        vars(custom_gradient).update(names)


_DECORATORS = ("_graph_mode_decorator", "_eager_mode_decorator")


# They don't change their table, but TensorFlow treats each as a write.
_TABLE_READS = frozenset({"LookupTableExportV2", "LookupTableFindV2", "LookupTableSizeV2"})
# Calls of Python, which TensorFlow assumes to have state: it keeps their order.
_PYTHON = frozenset({"PyFunc", "EagerPyFunc"})


@cache
def is_write(op_type: str) -> bool:
    """Whether an op of this type writes to one of its resources: a variable, a table, a generator.

    A call of a function doesn't count; the ops in its body do.
    """
    definition = private_graphs.op_def(op_type)
    if definition is None or op_type in auto_control_deps_utils.RESOURCE_READ_OPS | _TABLE_READS:
        return False
    return not private_graphs.may_call(op_type) and any(
        arg.type == types_pb2.DT_RESOURCE for arg in definition.input_arg
    )


def resources_used(op: Any) -> list[tuple[Any, bool]]:
    """Return an op's resource tensors, each with whether it may write to it."""
    if not any(tensor.dtype == tf.resource for tensor in op.inputs):
        return []
    resources = auto_control_deps._get_resource_inputs(op)
    only_reads = op.type in _TABLE_READS
    return [
        (tensor, not only_reads and kind is auto_control_deps.ResourceType.READ_WRITE)
        for tensor, kind in resources
    ]


def calls_python(op: Any) -> bool:
    """Whether an op calls Python when it runs, itself or in a function's body."""
    if op.type in _PYTHON:
        return True
    if not op._is_stateful:
        return False

    def definition(name: str) -> Any | None:
        function = op.graph._get_function(name)
        return None if function is None else function.cached_definition

    bodies = private_graphs.functions_called([op.node_def], definition)
    return any(node.op in _PYTHON for body in bodies.values() for node in body.node_def)


def ordered_before(op: Any) -> list[Any]:
    """Return the ops that write to what an op uses, immediately before it does."""
    return [neighbour for neighbour in op.control_inputs if _writes_for(neighbour, op)]


def ordered_after(op: Any) -> list[Any]:
    """Return the ops that use what an op has written to, immediately after it did."""
    return [neighbour for neighbour in op._control_outputs if _writes_for(op, neighbour)]


def _writes_for(op: Any, later_op: Any) -> bool:
    written = {id(tensor) for tensor, is_written in resources_used(op) if is_written}
    return any(id(tensor) in written for tensor in later_op.inputs)


@dataclass
class Order:
    """Gives the ops of a graph that is being traced the order in which they use resources and call Python.

    That is the order of the program, which `tf.function` adds to a graph and `wrap_function` doesn't. Unlike
    there, a print or an assertion that nothing depends on needn't run here. Bodies of loops and branches that
    are traced from then on are ordered, too.
    """

    graph: Any
    count: int = 0  # how many of its ops are in order
    last_write: dict[int, Any] = field(default_factory=dict)  # by resource, the last op that wrote to it
    reads: dict[int, list[Any]] = field(default_factory=dict)  # by resource, the ops that have read it since
    last_call: Any = None  # the last op that called Python

    def __post_init__(self) -> None:
        self.graph._add_control_dependencies = True

    def branch(self) -> Order:
        """Return a copy of the order: several traces may continue from here, each with its own."""
        reads = {key: list(readers) for key, readers in self.reads.items()}
        count = len(self.graph.get_operations())
        return Order(self.graph, count, dict(self.last_write), reads, self.last_call)

    def add(self) -> list[Any]:
        """Order what was traced since the last call; return those of its ops that write to something."""
        ops, writes = self.graph.get_operations()[self.count :], []
        self.count += len(ops)
        for op in ops:
            if control_flow_util.IsInWhileLoop(op):  # TensorFlow 1's, which has its own order
                continue
            before = set()
            for tensor, is_written in resources_used(op):
                if id(tensor) in self.last_write:
                    before.add(self.last_write[id(tensor)])
                if is_written:
                    before.update(self.reads.pop(id(tensor), ()))
                    self.last_write[id(tensor)] = op
                    writes.append(op)
                else:
                    self.reads.setdefault(id(tensor), []).append(op)
            if calls_python(op):
                before.update(() if self.last_call is None else (self.last_call,))
                self.last_call = op
            context = op._control_flow_context
            before = {earlier_op for earlier_op in before if earlier_op._control_flow_context is context}
            op._add_control_inputs(sorted(before, key=lambda earlier_op: str(earlier_op.name)))
        return list(dict.fromkeys(writes))
