"""All reliance on TensorFlow's private parts for TensorFlow 1 code: its switches and its graphs.

`tests/acceptance/test_tensorflow1.py` and the rows of `tests/rows/tensorflow1.py` fail where one changes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python import tf2
from tensorflow.python.compat import v2_compat
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import eager_function_run
from tensorflow.python.framework import func_graph, op_def_registry, ops, stack, tensor_shape
from tensorflow.python.framework import tensor as tensor_module
from tensorflow.python.ops import control_flow_util, gradients_util, resource_variables_toggle
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow_graphs

_NUMBERS = itertools.count(1)
# The value of each switch in TensorFlow 2, under which gradcheck itself runs.
OWN: dict[str, Any] = {
    "v2": True,
    "eager": context.EAGER_MODE,
    "tensor_shape": True,
    "resource_variables": True,
    "tensor_equality": True,
    "control_flow": True,
    "functions_eagerly": False,
}
# Where each of them is stored: a module or class, and its attribute. "v2" is C++'s own.
_PLACES: dict[str, tuple[Any, str]] = {
    "eager": (context, "default_execution_mode"),
    "tensor_shape": (tensor_shape, "_TENSORSHAPE_V2_OVERRIDE"),
    "resource_variables": (resource_variables_toggle, "_DEFAULT_USE_RESOURCE"),
    "tensor_equality": (tensor_module.Tensor, "_USE_EQUALITY"),
    "control_flow": (control_flow_util, "ENABLE_CONTROL_FLOW_V2"),
    "functions_eagerly": (eager_function_run, "RUN_FUNCTIONS_EAGERLY"),
}


def switches() -> dict[str, Any]:
    """Return what each switch of the process is set to."""
    return {
        "v2": tf2.enabled(),
        **{name: getattr(home, attribute) for name, (home, attribute) in _PLACES.items()},
    }


def set_switches(values: Mapping[str, Any]) -> None:
    """Set some of the switches, whatever else has run in the process."""
    for name, value in values.items():
        if name != "v2":
            home, attribute = _PLACES[name]
            setattr(home, attribute, value)
        elif value != tf2.enabled():
            (tf2.enable if value else tf2.disable)()
            for callback in v2_compat._DATA_V2_CALLBACKS.list():
                v2_compat._DATA_V2_CALLBACKS.lookup(callback)()


@dataclass(frozen=True)
class Scene:
    """Where this thread's ops go, into a graph or nowhere, and which sessions and graphs are the default."""

    is_eager: bool
    graphs: tuple[Any, ...]
    sessions: tuple[Any, ...]
    entered: tuple[Any, ...]  # the contexts that `init_scope` leaves
    default_graph: Any  # the process's own; `None` until it is first needed


def scene() -> Scene:
    """Return where this thread's ops go."""
    eager_context = context.context()
    return Scene(
        eager_context._thread_local_data.is_eager,
        tuple(ops._default_graph_stack.stack),
        tuple(stack._default_session_stack.stack),
        tuple(eager_context.context_switches.stack),
        ops._default_graph_stack._global_default_graph,
    )


def set_scene(target: Scene) -> None:
    """Let this thread's ops go where they went before, whatever contexts were entered and left open."""
    eager_context = context.context()
    eager_context._thread_local_data.is_eager = target.is_eager
    ops._default_graph_stack.stack = list(target.graphs)
    stack._default_session_stack.stack = list(target.sessions)
    eager_context.context_switches.stack = list(target.entered)
    ops._default_graph_stack._global_default_graph = target.default_graph


def own_scene() -> Scene:
    """Return the scene of a program that has just started, in TensorFlow 2."""
    begun = context.ContextSwitch(False, context.eager_mode, None)  # noqa: FBT003 (a named tuple of TensorFlow's)
    return Scene(is_eager=True, graphs=(), sessions=(), entered=(begun,), default_graph=None)


def graph_scene(after: Scene) -> Scene:
    """Return a scene without eager execution, where a module's own graphs and sessions are the default."""
    return Scene(
        is_eager=False,
        graphs=after.graphs,
        sessions=after.sessions,
        entered=(*own_scene().entered, *after.entered[1:]),
        default_graph=after.default_graph,
    )


@contextlib.contextmanager
def _replace_attribute(home: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    original = getattr(home, name)
    setattr(home, name, make(original))
    try:
        yield
    finally:
        setattr(home, name, original)


def capture_values(value_of: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """Let functions that are traced capture `value_of(tensor)` for a tensor of a plain graph."""

    def replace(capture: Any) -> Any:
        def capture_value(self: Any, tensor: Any, *args: Any, **keywords: Any) -> Any:
            if isinstance(tensor, tf.Tensor) and not isinstance(tensor, ops.EagerTensor):
                home = tensor.graph
                if home is not self and not home.building_function:
                    tensor = value_of(tensor)
            return capture(self, tensor, *args, **keywords)

        return capture_value

    return _replace_attribute(func_graph.FuncGraph, "capture", replace)


@contextlib.contextmanager
def redirect_default_graph(graph: Any) -> Iterator[None]:
    """Send requests for a module's default graph to the graph that is being traced.

    TensorFlow 1 code calls `graph.gradient_override_map` and `graph.as_default()` on its only graph.
    """

    def meant(requested: Any) -> Any:
        if requested is not graph or tf.executing_eagerly():  # a session in the block means the graph itself
            return requested
        current = ops.get_default_graph()
        return current if current.building_function else requested

    def replace(method: Any) -> Any:
        return lambda self, *args, **keywords: method(meant(self), *args, **keywords)

    with (
        _replace_attribute(ops.Graph, "gradient_override_map", replace),
        _replace_attribute(ops.Graph, "as_default", replace),
    ):
        yield


@contextlib.contextmanager
def register_anew() -> Iterator[None]:
    """Let a function that registers a gradient whenever it is called do so in each trace.

    TensorFlow refuses a name that is taken. Each trace draws the same numbers, so code that draws a name for
    its `py_func` draws the same one again. The gradient then gets another name, which this trace's overrides
    use.
    """
    names: dict[str, str] = {}

    def replace_call(call: Any) -> Any:
        def register(self: Any, function: Any) -> Any:
            name = self._op_type
            if op_def_registry.get(name) is not None or name not in ops.gradient_registry.list():
                return call(self, function)
            names[name] = f"gradcheck_again_{next(_NUMBERS)}_{name}"
            ops.gradient_registry.register(function, names[name])
            return function

        return register

    def replace_override(override: Any) -> Any:
        def overridden(self: Any, mapping: Any) -> Any:
            if isinstance(mapping, dict):
                mapping = {op_type: names.get(name, name) for op_type, name in mapping.items()}
            return override(self, mapping)

        return overridden

    with (
        _replace_attribute(ops.RegisterGradient, "__call__", replace_call),
        _replace_attribute(ops.Graph, "gradient_override_map", replace_override),
    ):
        yield


def pass_overrides_to_bodies() -> contextlib.AbstractContextManager[None]:
    """Let loops and branches inherit overrides of gradients.

    They do in TensorFlow 1's control flow, where their ops are in the graph itself.
    """

    def replace(make: Any) -> Any:
        def made(self: Any, *args: Any, **keywords: Any) -> None:
            make(self, *args, **keywords)
            self._gradient_override_map.update(self.outer_graph._gradient_override_map)

        return made

    return _replace_attribute(control_flow_graphs.ControlFlowFuncGraph, "__init__", replace)


def differentiate_defuns() -> contextlib.AbstractContextManager[None]:
    """Build the gradient of a Defun op by op if it has no Python gradient function.

    Otherwise it is a `SymbolicGradient`, which a session would expand and a traced function can't run.
    """

    def replace(symbolic: Any) -> Any:
        def gradient(op: Any, upstreams: Any) -> Any:
            defined = getattr(op, "__defun", None)
            if defined is None:
                return symbolic(op, upstreams)
            if defined._grad_func is not None:
                return tf.nest.flatten(defined._grad_func(*op.inputs, *upstreams))
            arguments = op.inputs[: len(defined.declared_input_types)]
            outputs = tf.nest.flatten(defined._func(*arguments))
            return gradients_util._GradientsHelper(outputs, list(op.inputs), upstreams)

        return gradient

    return _replace_attribute(gradients_util, "_SymGrad", replace)


def is_function_tensor(value: Any) -> bool:
    """Whether a value is a tensor of a graph that a function is being traced into."""
    return (
        isinstance(value, tf.Tensor)
        and not isinstance(value, ops.EagerTensor)
        and value.graph.building_function
    )


def variable_of_handle(handle: Any) -> Any | None:
    """Return the variable of a plain graph that a resource belongs to; `None` for any other resource."""
    for variable in handle.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
        if getattr(variable, "handle", None) is handle:
            return variable
    return None


def new_session(graph: Any) -> Any:
    """Open a session on a plain graph, with its variables at their initial values."""
    session = tf.compat.v1.Session(graph=graph)
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    variables += graph.get_collection(tf.compat.v1.GraphKeys.LOCAL_VARIABLES)
    waiting = list(dict.fromkeys(variable.initializer for variable in variables))
    while waiting:  # one variable may start at another's value
        postponed = []
        for initializer in waiting:
            try:
                session.run(initializer)
            except tf.errors.FailedPreconditionError:
                postponed.append(initializer)
        if len(postponed) == len(waiting):
            session.run(postponed)
        waiting = postponed
    return session


def is_session(value: Any) -> bool:
    """Whether a value is an open session of TensorFlow 1."""
    return isinstance(value, tf.compat.v1.Session) and not value._closed
