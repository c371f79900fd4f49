"""All reliance on TensorFlow's private parts about variables.

`tests/tensorflow_backend/test_private_variables.py` tests each of them.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import custom_gradient


def trainable_of(function: Any) -> list[Any]:
    """Return the trainable floating-point variables that a traced function reads, the oldest first."""
    return in_order_of_creation(function.graph.variables)


def in_order_of_creation(variables: Iterable[Any]) -> list[Any]:
    """Return those of the variables that are trainable and of a floating dtype, the oldest first."""
    trainable = [
        variable
        for variable in variables
        if variable.trainable
        and (variable.dtype.is_floating or variable.dtype.is_complex)
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


def is_layer(value: Any) -> bool:
    """Whether something is a layer or model of Keras, the installed one or the older `tf_keras`."""
    kinds = (sys.modules.get("keras"), sys.modules.get("tf_keras"))
    return any(kind is not None and isinstance(value, kind.layers.Layer) for kind in kinds)


def keras_paths(layer: Any) -> dict[int, str]:
    """Return the path of each variable of a Keras layer, by `id` of TensorFlow's variable behind it."""
    variables = getattr(layer, "variables", ())
    if not isinstance(variables, list | tuple):
        return {}
    return {id(variable.value): variable.path for variable in variables if hasattr(variable, "path")}


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
    decorators = {name: getattr(custom_gradient, name) for name in _DECORATORS}
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
        ordered_variables = builtins.sorted(variables, key=_name_and_age, reverse=reverse)
        if ordered_variables and running and not recomputes(running[-1]):
            note(ordered_variables)
        return ordered_variables

    def ordered(references: Iterable[Any]) -> list[Any]:
        return [variable.ref() for variable in by_name([reference.deref() for reference in references])]

    kind = type("_OrderedSet", (_Ordered,), {"order": staticmethod(ordered)})
    for name, decorator in decorators.items():
        setattr(custom_gradient, name, watching(decorator))
    # Names in the module hide the builtins that it means. There are none before, unless this is nested.
    names = {name: vars(custom_gradient)[name] for name in ("sorted", "set") if name in vars(custom_gradient)}
    custom_gradient.sorted, custom_gradient.set = by_name, kind
    try:
        yield
    finally:
        for name, decorator in decorators.items():
            setattr(custom_gradient, name, decorator)
        del custom_gradient.sorted, custom_gradient.set
        vars(custom_gradient).update(names)


def _name_and_age(variable: Any) -> tuple[str, int]:
    return variable.name, int(variable.handle._id)


_DECORATORS = ("_graph_mode_decorator", "_eager_mode_decorator")


def recomputes(function: Any) -> bool:
    """Whether a custom gradient is `tf.recompute_grad`'s: backpropagation goes through its forward."""
    return function.__module__ == custom_gradient.__name__ and "recompute_grad" in function.__qualname__
