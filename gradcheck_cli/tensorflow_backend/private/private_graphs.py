"""All reliance on TensorFlow's private parts for graphs, so that a new TensorFlow breaks only this.

Rows, and `tests/tensorflow_backend/test_twin.py`, say what users see of each of them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, op_def_pb2
from tensorflow.python.autograph.core import ag_ctx, converter
from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.autograph.impl import conversion
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import (
    atomic_function,
    attributes,
    concrete_function,
    polymorphic_function,
)
from tensorflow.python.framework import (
    func_graph,
    function,
    function_def_to_graph,
    kernels,
    op_def_library,
    op_def_registry,
    ops,
)
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow_graphs
from tensorflow.python.ops import custom_gradient, script_ops, while_v2

from gradcheck_cli import clock
from gradcheck_cli.reach import reached

# The class of tensors that have a value now; others belong to a graph.
EAGER_TENSOR = ops.EagerTensor
# The attr under which an op carries the name of its gradient override.
_OVERRIDE = "_gradient_op_type"
OWN_GRAPHS: weakref.WeakSet[Any] = weakref.WeakSet()  # those of our traces
# Names that AutoGraph gives to the functions it generates.
CONVERTED = re.compile(r"outer_factory\.<locals>\.inner_factory\.<locals>\.(tf__)?|\btf__")
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})  # of a tf.function
_OWN = "gradcheck_cli."
# The names under which our own wrappers close over the user's function.
_WRAPPED = ("gradient", "function")
_DEEPEST = 10
# What a tf.function returns as a tensor.
_NUMERIC = (np.ndarray, np.generic, bool, int, float, complex, tf.Variable)


@contextlib.contextmanager
def around_python_calls(
    modified: set[str], make: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
) -> Iterator[None]:
    """Enter a context around each call of a Python function that a graph makes, in the thread of the call.

    Args:
        modified: gets to know which functions write to which of their arrays.
    """
    original = script_ops.FuncRegistry.__call__

    def call(self: Any, token: str, device: Any, arguments: Sequence[Any]) -> Any:
        before = [np.array(array) for array in arguments]
        with make():
            result = original(self, token, device, arguments)
        for place, old in enumerate(before):
            if old.tobytes() != np.array(arguments[place]).tobytes():
                function = self.get(token)
                modified.add(f"{getattr(function, '__name__', 'code')} writes to its argument {place + 1}")
        return result

    with replace_attributes(script_ops.FuncRegistry, __call__=call):
        yield


@contextlib.contextmanager
def replace_attributes(home: Any, **values: Any) -> Iterator[None]:
    """Give attributes of one of TensorFlow's modules or classes other values in the block."""
    originals = {name: getattr(home, name) for name in values}
    for name, value in values.items():
        setattr(home, name, value)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(home, name, original)


def call_with_autograph(
    target: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    """Call a Python function as `tf.function` would: AutoGraph converts it and what it calls.

    `wrap_function` has no AutoGraph of its own, and a Python `if` or `while` on tensors needs it. AutoGraph
    leaves functions of TensorFlow and Keras as they are where a user's function calls them. So does this:
    to convert one takes longer than all else in many a case.
    """
    # A library's function may call one of the user's that is among its arguments; and TensorFlow turns
    # AutoGraph off while a library's runs, which may be what calls the target.
    with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED):
        if _is_librarys(target):
            return target(*arguments, **keywords)
        # No optional features, as in tf.function: with all of them, `[]` becomes a tensor list.
        options = converter.ConversionOptions(recursive=True, optional_features=None, user_requested=True)
        return autograph_api.converted_call(target, tuple(arguments), dict(keywords), options=options)


def _is_librarys(target: Any) -> bool:
    """Whether a target is a plain function of a library that AutoGraph doesn't convert inside a user's."""
    if not inspect.isfunction(target):
        return False
    function = inspect.unwrap(target)
    # One that another function made may call the user's.
    return "<locals>" not in getattr(function, "__qualname__", "<locals>") and bool(
        conversion.is_allowlisted(function)
    )


def autograph_frames(error: BaseException) -> list[tuple[str, int, str, str]]:
    """Return (file, line, function, code) of the user's frames that AutoGraph recorded on an exception."""
    metadata = getattr(error, "ag_error_metadata", None)
    if metadata is None:
        return []
    return [
        (frame.filename, frame.lineno, frame.function_name, (frame.code or "").strip())
        for frame in reversed(metadata.translated_stack)
        if not frame.is_allowlisted
    ]


def op_def(op_type: str) -> Any | None:
    """Return the OpDef of an op type, or `None` if TensorFlow has no such op."""
    return op_def_registry.get(op_type)


@functools.cache
def may_call(op_type: str) -> bool:
    """Whether an op of this type may have functions among its attrs."""
    definition = op_def(op_type)
    return definition is None or any(attr.type in ("func", "list(func)") for attr in definition.attr)


def function_names(node: Any) -> list[str]:
    """Return the names of the functions that a NodeDef calls: a tf.function's body, a loop's, a branch's."""
    if not may_call(node.op):
        return []
    names = []
    for attr in node.attr.values():
        if attr.HasField("func"):
            names.append(attr.func.name)
        names += [function.name for function in attr.list.func]
    return names


def functions_called(nodes: Iterable[Any], definition: Callable[[str], Any]) -> dict[str, Any]:
    """Return the definitions of functions that NodeDefs call, and of those that these call, by name.

    Args:
        definition: returns a function's definition by its name; `None` for any other name.
    """

    def called(nodes: Iterable[Any]) -> list[str]:
        # The op type of a Defun's call is the function's name.
        names = (name for node in nodes for name in (node.op, *function_names(node)))
        return [name for name in names if definition(name) is not None]

    names = reached(called(nodes), lambda name: called(definition(name).node_def))
    return {name: definition(name) for name in names}


def override_of(node: Any) -> str:
    """Return the name of the gradient override that a NodeDef carries; empty if it carries none."""
    return str(node.attr[_OVERRIDE].s.decode()) if _OVERRIDE in node.attr else ""


def op_types() -> frozenset[str]:
    """Return every op type that this TensorFlow defines, with or without a Python gradient."""
    definitions = op_def_pb2.OpList()
    definitions.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return frozenset(definition.name for definition in definitions.op)


def apply_op(definition: Any, arguments: Mapping[str, Any], inferred: Collection[str]) -> Any:
    """Create an op of any type in the current graph, with inputs and attrs by their OpDef names.

    `tf.raw_ops` lacks the op types that aren't exported; this has all. It also requires attrs that have a
    default: `None` stands for the default. Attrs that are `inferred` from the inputs must be left out.
    """
    defaults = {
        attr.name: None
        for attr in definition.attr
        if attr.HasField("default_value") and attr.name not in inferred
    }
    # An op's name can't begin with an underscore, as some types do.
    name = definition.name
    return op_def_library.apply_op(name, **{"name": name.lstrip("_"), **defaults, **arguments})


def call_defun(
    name: str, body: Callable[..., Any], gradient: Callable[..., Any], inputs: Sequence[Any]
) -> Any:
    """Call `body` through `function.Defun` with a Python gradient function attached."""
    defined = function.Defun(*[tensor.dtype for tensor in inputs], func_name=name, python_grad_func=gradient)(
        body
    )
    return defined(*inputs)


def has_gradient(op_type: str) -> bool:
    """Whether an op type has a gradient function other than one that says "no gradient"."""
    return registered_gradient(op_type) is not None


def is_registered(op_type: str) -> bool:
    """Whether anything is registered for an op type: a gradient function, or that there is none."""
    try:
        ops.gradient_registry.lookup(op_type)
    except LookupError:
        return False
    return True


def registered_gradient(name: str) -> Any | None:
    """Return the gradient function that is registered for an op type, or under the name of an override.

    It is `None` where there is none: for an op type that isn't differentiable, and for an unknown name.
    """
    return ops.gradient_registry.lookup(name) if is_registered(name) else None


# The attribute of a wrapper around a custom gradient's function: what the user wrote.
USERS_GRADIENT = "_gradcheck_users_gradient"


@dataclass(frozen=True)
class CustomGradient:
    """A `tf.custom_gradient` in a graph.

    There it is an IdentityN whose inputs are the results, then the arguments, then the variables. Its
    registered gradient function knows the rest.
    """

    results: int  # how many results it has
    function: Any  # its gradient function, which the user wrote
    variables: tuple[Any, ...]  # the variables that it has gradients for

    @property
    def is_stepped_over(self) -> bool:
        """Whether backpropagation steps over its forward; `tf.recompute_grad`'s is computed again."""
        return not recomputes(self.function)


def recomputes(function: Any) -> bool:
    """Whether a custom gradient, or its gradient function, is `tf.recompute_grad`'s."""
    return function.__module__ == custom_gradient.__name__ and "recompute_grad" in function.__qualname__


def custom_gradient_behind(function: Any) -> CustomGradient | None:
    """Return the `tf.custom_gradient` of a registered gradient function; `None` for any other function."""
    try:
        wrapper = inspect.unwrap(function)  # our own wrapper counts its calls
        closure = closure_of(closure_of(wrapper)["tape_grad_fn"])
        function = getattr(closure["grad_fn"], USERS_GRADIENT, closure["grad_fn"])
        return CustomGradient(int(closure["flat_result_len"]), function, tuple(closure["variables"]))
    except (LookupError, AttributeError, TypeError):  # the user's own override
        return None


def custom_gradient_named(name: str) -> CustomGradient | None:
    """Return the `tf.custom_gradient` registered under a name; `None` for an override of another kind."""
    function = registered_gradient(name)
    return None if function is None else custom_gradient_behind(function)


def custom_gradient_in(node: Any) -> CustomGradient | None:
    """Return the `tf.custom_gradient` that a NodeDef stands for; `None` for any other node."""
    name = override_of(node) if node.op == "IdentityN" else ""
    return custom_gradient_named(name) if name else None


def custom_gradient_of(op: Any) -> CustomGradient | None:
    """Return the `tf.custom_gradient` that an op stands for; `None` for any other op."""
    return custom_gradient_in(op.node_def) if op.type == "IdentityN" else None


def custom_gradient_results(op: Any) -> int:
    """Return how many of an op's leading inputs are results of a `tf.custom_gradient` that is stepped over.

    It is 0 for any other op.
    """
    unit = custom_gradient_of(op)
    return unit.results if unit is not None and unit.is_stepped_over else 0


def closure_of(target: Any) -> dict[str, Any]:
    """Return what a function closes over, by name."""
    cells = (cell.cell_contents for cell in target.__closure__ or ())
    return dict(zip(target.__code__.co_freevars, cells, strict=True))


def users_function(function: Any) -> Any:
    """Return the user's function inside our own wrappers, which call it and check what it returns."""
    for _ in range(_DEEPEST):
        if not str(getattr(function, "__module__", "")).startswith(_OWN):
            break
        inside = closure_of(function)
        wrapped = next((inside[name] for name in _WRAPPED if callable(inside.get(name))), None)
        if wrapped is None:
            break
        function = wrapped
    return function


def call_flat(function: Any, tensors: Sequence[Any]) -> Any:
    """Call a concrete function with one tensor for each of its feeds.

    If it is called in the public way, a pruned function first tries the signature that it has lost. The error
    raised there prints every tensor, which takes five milliseconds per call, fifty times as long as the call.
    """
    clock.add_work(calls=1, points=1)
    return function._call_flat(list(tensors), function.captured_inputs)


@functools.cache
def has_one_device() -> bool:
    """Whether everything runs on one CPU."""
    return [device.device_type for device in tf.config.list_logical_devices()] == ["CPU"]


def map_flat(function: Any, stacks: Sequence[Any], constants: Sequence[Any]) -> list[Any]:
    """Call a concrete function once for each row of stacked tensors, by a loop inside one op.

    This is the op that `tf.data` maps with: nothing is traced or converted, and the function's own kernels
    compute one row at a time. It has a kernel only for the CPU.

    Args:
        stacks: for its first feeds, (B, *shape) each.
        constants: for its other feeds.

    Returns:
        Its results, stacked.
    """
    clock.add_work(calls=1, points=len(stacks[0]))
    results = tf.raw_ops.MapDefun(
        arguments=list(stacks),
        captured_inputs=[*constants, *function.captured_inputs],
        output_types=[tensor.dtype for tensor in function.outputs],
        # Dynamic shapes: a gradient may have another shape than its graph says.
        output_shapes=[tf.TensorShape(None)] * len(function.outputs),
        f=function._inference_function,
        max_intra_op_parallelism=1,
    )
    return list(results)


def show_xla(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function see, when it is traced, that XLA compiles it: `tf.function(jit_compile=True)`."""

    def call(*tensors: Any) -> Any:
        with polymorphic_function.OptionalXlaContext(is_compiled=True):
            return function(*tensors)

    return call


def is_body(graph: Any) -> bool:
    """Whether a graph is the body of a loop, of a branch or of a Defun, which can't be fed."""
    return isinstance(graph, control_flow_graphs.ControlFlowFuncGraph) or is_defun_body(graph)


def is_in_own_trace() -> bool:
    """Whether an op that is made now belongs to a trace of ours, or to a loop or a branch in it."""
    graph = ops.get_default_graph()
    while isinstance(graph, control_flow_graphs.ControlFlowFuncGraph):
        graph = graph.outer_graph
    return graph in OWN_GRAPHS


def is_defun_body(graph: Any) -> bool:
    """Whether a graph is the body of a Defun."""
    return isinstance(graph, function._FuncGraph)


def body_named(graph: Any, name: str) -> Any | None:
    """Return the graph of a function that a graph calls, as Python traced it.

    It is `None` if it was loaded or made by a Defun, or if XLA must compile it.
    """
    while graph is not None:
        function_called = graph._functions.get(name)
        if function_called is not None:
            body = getattr(function_called, "_cached_graph", None)
            if body is None:
                return None
            attrs = function_called.cached_definition.attr
            compiled = attributes.XLA_COMPILE in attrs and attrs[attributes.XLA_COMPILE].b
            return None if compiled else body
        graph = getattr(graph, "outer_graph", None)
    return None


def op_of_body(graph: Any, function: str, name: str) -> Any | None:
    """Return an op of a graph, or of a function that it calls, as Python traced it; `None` if it didn't."""
    body = getattr(graph._functions.get(function), "_cached_graph", None) if function else graph
    return None if body is None else op_named(body, name)


def mark(op: Any, name: str) -> None:
    """Set our own attr on an op; it stays on the NodeDef when a function is made from the graph."""
    op._set_attr(name, attr_value_pb2.AttrValue(b=True))


@contextlib.contextmanager
def replace_outputs(
    prepare: Callable[[str, dict[str, Any]], dict[str, Any]],
    replace: Callable[[Any, Sequence[Any]], Sequence[Any]],
) -> Iterator[None]:
    """Let `replace(op, outputs)` decide what the caller gets for each op that is created in a graph.

    `prepare(op_type, arguments)` may change its arguments first. Loops that are made in the block run one
    round at a time, so that the Python calls in a body have an order.
    """
    apply, loop = op_def_library._apply_op_helper, while_v2.while_loop

    def apply_and_replace(op_type_name: str, name: str | None = None, **keywords: Any) -> Any:
        keywords = prepare(op_type_name, keywords)
        structure, is_stateful, op, outputs = apply(op_type_name, name=name, **keywords)
        return structure, is_stateful, op, replace(op, outputs)

    def loop_in_order(*args: Any, **keywords: Any) -> Any:
        return loop(*args, **{**keywords, "parallel_iterations": 1})

    with (
        replace_attributes(op_def_library, _apply_op_helper=apply_and_replace),
        replace_attributes(while_v2, while_loop=loop_in_order),
    ):
        yield


@contextlib.contextmanager
def inline_functions() -> Iterator[None]:
    """Make calls of a `tf.function` run its Python function, so that its ops are in the caller's graph."""
    original = polymorphic_function.Function.__call__

    def call(self: Any, *args: Any, **keywords: Any) -> Any:
        if tf.executing_eagerly():
            return original(self, *args, **keywords)
        args, keywords = _as_arguments(self, args, keywords)
        target = self._python_function
        with _no_overrides():
            if self._autograph:
                result = call_with_autograph(target, args, keywords)
            else:
                result = target(*args, **keywords)
        return tf.nest.map_structure(
            lambda value: tf.convert_to_tensor(value) if isinstance(value, _NUMERIC) else value, result
        )

    with replace_attributes(polymorphic_function.Function, __call__=call):
        yield


@contextlib.contextmanager
def _no_overrides() -> Iterator[None]:
    """Suspend overrides of gradients, since none enters a tf.function's body."""
    overrides = tf.compat.v1.get_default_graph()._gradient_override_map
    saved = dict(overrides)
    overrides.clear()
    try:
        yield
    finally:
        overrides.update(saved)


def _as_arguments(target: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, Any]:
    """Convert arguments as `tf.function` does: arrays to tensors, with the signature's dtypes."""

    def convert(value: Any, spec: Any = None) -> Any:
        if isinstance(spec, tf.TensorSpec) and not isinstance(value, tf.Tensor):
            return tf.convert_to_tensor(value, spec.dtype)
        return tf.convert_to_tensor(value) if isinstance(value, np.ndarray | np.generic) else value

    args = [tf.nest.map_structure(convert, value) for value in args]
    for index, spec in enumerate((target.input_signature or ())[: len(args)]):
        if isinstance(spec, tf.TensorSpec):
            args[index] = convert(args[index], spec)
    return args, {key: tf.nest.map_structure(convert, value) for key, value in keywords.items()}


class _Subgraph:
    """A FuncGraph with only those ops of a graph that some outputs need; everything else is the graph's."""

    def __init__(self, graph: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._graph = graph
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.structured_outputs = self.outputs
        self.control_outputs: list[Any] = []
        self._output_names = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What `isinstance` sees: TensorFlow makes functions of a FuncGraph only."""
        return func_graph.FuncGraph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def get_operations(self) -> list[Any]:
        """Return the placeholders and the ops that the outputs depend on, in the order of the graph."""
        return self._operations

    @cached_property
    def _operations(self) -> list[Any]:
        placeholders = (tensor.op for tensor in self.inputs if tensor.op.type == "Placeholder")
        needed = {*ops_run(self.outputs, self.inputs), *placeholders}
        return [op for op in self._graph.get_operations() if op in needed]


def ops_run(outputs: Sequence[Any], fed: Sequence[Any]) -> dict[Any, Any]:
    """Return the ops that run for some outputs; those whose tensors are fed don't."""

    def before(op: Any) -> list[Any]:
        return [*(tensor.op for tensor in op.inputs), *op.control_inputs]

    return reached((tensor.op for tensor in outputs), before, closed=(tensor.op for tensor in fed))


def feeds_of(function: Any) -> list[Any]:
    """Return the tensors that a function of a part of a graph takes, without its captures."""
    return list(function.inputs[: len(function.inputs) - len(function.captured_inputs)])


def subgraph_function(function: Any, feeds: Sequence[Any], fetches: Sequence[Any]) -> Any:
    """Return a function of `feeds` that computes `fetches`, without the ops that these don't need.

    It does the same as `prune` of a wrapped function. That copies the ops one by one in Python, which took a
    quarter of the time of a case with several outputs.

    Args:
        feeds: tensors of its graph, placeholders or not, but none of its captures. If one output of an op is
            fed, its others are unavailable.
        fetches: tensors of its graph.
    """
    graph = whole_graph(function)
    subgraph = _Subgraph(graph, [*feeds, *graph.internal_captures], fetches)
    name = concrete_function._inference_name("part")
    return concrete_function.ConcreteFunction(atomic_function.from_func_graph(name, subgraph, None))


@contextlib.contextmanager
def take_values_of_other_graphs() -> Iterator[None]:
    """Let graphs in the block use what functions kept of an earlier trace, where it is always the same.

    A function that makes a constant or a table on its first call, and keeps it, runs in a `tf.function`,
    which is traced once.
    """
    original = func_graph.FuncGraph.capture

    def capture(graph: Any, tensor: Any, name: Any = None, shape: Any = None) -> Any:
        return original(graph, _value_elsewhere(graph, tensor), name, shape)

    with replace_attributes(func_graph.FuncGraph, capture=capture):
        yield


def _value_elsewhere(graph: Any, tensor: Any) -> Any:
    """Return the value of a tensor of a graph that isn't around this one; itself where it may vary."""
    own = graph
    while own is not None:
        # The gradient of a loop or a branch takes tensors of its body.
        theirs = own, getattr(own, "_forward_graph", None)
        if isinstance(tensor, EAGER_TENSOR) or getattr(tensor, "graph", own) in theirs:
            return tensor
        own = getattr(own, "outer_graph", None)
    if not isinstance(tensor.graph, func_graph.FuncGraph):
        return tensor
    captured = [each for each in tensor.graph.captures if isinstance(each[0], EAGER_TENSOR)]
    part = _Subgraph(tensor.graph, [inner for _, inner in captured], [tensor])
    ops_of_part = set(part.get_operations()) - {inner.op for _, inner in captured}
    if any(op.type == "Placeholder" or op.op_def.is_stateful for op in ops_of_part):
        return tensor
    with tf.init_scope():
        kept = atomic_function.from_func_graph(concrete_function._inference_name("kept"), part, None)
        return kept.call_flat(*[outer for outer, _ in captured])[0]


def whole_graph(function: Any) -> Any:
    """Return the graph that a function, or a part of a function, was made from."""
    graph = function.graph
    return graph._graph if type(graph) is _Subgraph else graph


def op_named(graph: Any, name: str) -> Any | None:
    """Return an op of a graph; `None` where there is none of this name."""
    try:
        return graph.get_operation_by_name(name)
    except KeyError:
        return None


@functools.cache
def kernel_constraints(op_type: str) -> tuple[dict[str, frozenset[int]], ...]:
    """Return, for each CPU kernel of an op type, the dtypes (as numbers) that it takes for an attr.

    It is empty if no kernel is registered: for calls of functions, and for ops that are rewritten before they
    run.
    """
    registered = kernels.get_registered_kernels_for_op(op_type).kernel
    return tuple(
        {constraint.name: frozenset(constraint.allowed_values.list.type) for constraint in kernel.constraint}
        for kernel in registered
        if kernel.device_type in {"CPU", "DEFAULT"}
    )


def import_graph(
    graph_def: Any, captures: Mapping[str, Any], called: Sequence[Any]
) -> tuple[Any, dict[str, Any]]:
    """Import a GraphDef, with its own names, into a graph from which functions can be made.

    Args:
        captures: eager tensors by the name of the node, not in the GraphDef, that they stand for.
        called: its NumPy functions, or the objects they belong to: they live as long as the graph.
    """
    for definition in graph_def.library.function:
        context.context().add_function_def(definition)
    graph = func_graph.FuncGraph("float64")
    graph._py_funcs_used_in_graph = list(called)
    used = {
        input_name.removeprefix("^").partition(":")[0] for node in graph_def.node for input_name in node.input
    }
    with graph.as_default():
        inner = {name: graph.capture(value) for name, value in captures.items()}
        feeds = {f"{name}:0": tensor for name, tensor in inner.items() if name in used}
        tf.graph_util.import_graph_def(graph_def, feeds, name="")
    return graph, inner


def graph_of_function(graph: Any, name: str) -> Any | None:
    """Return a graph with the ops of a function that a graph calls, however that was made."""
    function_called = graph._functions.get(name)
    if function_called is None:
        return None
    with graph.as_default():
        body = function_def_to_graph.function_def_to_graph(function_called.cached_definition)
    body._functions.update(graph._functions)
    return body


def numpy_function(token: str) -> Callable[..., Any] | None:
    """Return the function that a PyFunc calls, by the token on its node; `None` if it is gone."""
    return script_ops._py_funcs.get(token)  # type: ignore[no-any-return]


def register_numpy_function(function: Callable[..., Any]) -> str:
    """Register a function for a PyFunc to call, and return its token; the caller keeps the function alive."""
    return str(script_ops._py_funcs.insert(function))
