"""All reliance on TensorFlow's private parts for eager execution; `private_graphs` has those for graphs.

`tests/rows/freeze.py`, `state.py` and `modes.py` have rows that fail where one of them changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.eager import context, record
from tensorflow.python.framework import op_callbacks
from tensorflow.python.ops import (
    custom_gradient,
    gen_array_ops,
    lookup_ops,
    resource_variable_ops,
)

from gradcheck_cli.tensorflow_backend.graph.second_order import IS_BACKPROPAGATION
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import replace_attributes

# How methods that write begin; `_skip_single_var` is a generator's, of its own state.
_WRITES = ("_skip_single_var", "assign", "batch_scatter", "erase", "insert", "remove", "scatter")


@contextlib.contextmanager
def observe_ops(note: Callable[[str, Iterable[Any]], None]) -> Iterator[None]:
    """Call `note(op_type, outputs)` after each op that runs eagerly."""

    def callback(  # noqa: PLR0913, PLR0917 (TensorFlow's signature)
        op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        del inputs, attrs, op_name
        if graph is None:
            note(op_type.decode() if isinstance(op_type, bytes) else str(op_type), outputs)

    op_callbacks.add_op_callback(callback)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(callback)


def function_nodes(name: str) -> list[Any]:
    """Return the NodeDefs of a function that was called eagerly, and of those that it calls."""
    eager_context = context.context()

    def definition(name: str) -> Any | None:
        return eager_context.get_function_def(name) if eager_context.has_function(name) else None

    call = node_def_pb2.NodeDef(op=name)
    bodies = private_graphs.functions_called([call], definition)
    return [node for body in bodies.values() for node in body.node_def]


@contextlib.contextmanager
def run_functions_eagerly() -> Iterator[None]:
    """Let calls of a `tf.function` run its Python function, op by op."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(run_eagerly=True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextlib.contextmanager
def replace_stop_gradients(
    replace: Callable[[Any, bool], Any], note: Callable[[Any], None] = lambda _: None
) -> Iterator[None]:
    """Let `replace(result, is_met)` decide what each `stop_gradient` returns to its caller.

    `is_met` is false inside the forward of a `tf.custom_gradient`, which backpropagation skips, and in
    backpropagation itself, when it is differentiated again.

    Args:
        note: is called with the function of each `tf.custom_gradient`, except `tf.recompute_grad`'s own.
    """
    original, decorator = gen_array_ops.stop_gradient, custom_gradient._eager_mode_decorator
    depth = 0

    def stop(input: Any, name: Any = None) -> Any:  # noqa: A002 (TensorFlow's own name for it)
        return replace(original(input, name=name), not depth and not IS_BACKPROPAGATION.get())

    def decorated(function: Any, args: Any, keywords: Any) -> Any:
        nonlocal depth
        if private_graphs.recomputes(function):
            return decorator(function, args, keywords)
        note(function)
        depth += 1
        try:
            return decorator(function, args, keywords)
        finally:
            depth -= 1

    with (
        replace_attributes(gen_array_ops, stop_gradient=stop),
        replace_attributes(tf.raw_ops, StopGradient=stop),
        replace_attributes(custom_gradient, _eager_mode_decorator=decorated),
    ):
        yield


class _LookedAtRecord:
    """Replaces the module `record`, with which a custom gradient records its gradient function."""

    def __init__(self, note: Callable[[Any], None], note_fault: Callable[[Any, Any], None]) -> None:
        self._note, self._note_fault = note, note_fault

    def __getattr__(self, name: str) -> Any:
        return getattr(record, name)

    def record_operation(self, op_type: Any, outputs: Any, inputs: Any, backward: Any, *rest: Any) -> Any:
        """Record the gradient function so that its calls are looked at, except `tf.recompute_grad`'s.

        Nothing in it is counted. A gradient of another shape than its input is found where a tape would use
        it.
        """
        function = private_graphs.closure_of(backward).get("grad_fn")
        if function is not None and not private_graphs.recomputes(function):
            called = private_gradients.exclude_from_count(backward)
            is_used = [record.should_record_backprop([tensor]) for tensor in inputs]

            def backward(*upstreams: Any) -> Any:
                self._note(function)
                gradients = list(called(*upstreams))
                for tensor, used, returned in zip(inputs, is_used, gradients, strict=False):
                    gradient = private_gradients.from_number(returned, tensor.dtype)
                    has_shape = isinstance(gradient, tf.Tensor | tf.IndexedSlices)
                    if used and has_shape and not gradient.shape.is_compatible_with(tensor.shape):
                        self._note_fault(tensor, gradient)
                return gradients

        return record.record_operation(op_type, outputs, inputs, backward, *rest)


def look_at_gradients(
    note: Callable[[Any], None], note_fault: Callable[[Any, Any], None]
) -> contextlib.AbstractContextManager[None]:
    """Look at each call of a `tf.custom_gradient`'s gradient function; what it differentiates isn't counted.

    Args:
        note: is called with each gradient function when it is called.
        note_fault: is called with an input and its gradient where their shapes differ.
    """
    return replace_attributes(custom_gradient, record=_LookedAtRecord(note, note_fault))


@contextlib.contextmanager
def note_writes(note: Callable[[Any, tuple[Any, ...]], None]) -> Iterator[None]:
    """Call `note(handle, dtypes)` before Python code writes to a variable, a table or a generator's state.

    `dtypes` has the variable's dtype, or those of the table's keys and values.
    """
    kinds = (
        resource_variable_ops.BaseResourceVariable,
        resource_variable_ops.ResourceVariable,  # it has its own methods of the same names
        lookup_ops.MutableHashTable,
        lookup_ops.DenseHashTable,
        tf.random.Generator,
    )

    def noting(original: Any) -> Any:
        def write(self: Any, *args: Any, **keywords: Any) -> Any:
            target = args[0] if isinstance(self, tf.random.Generator) else self
            if isinstance(target, tf.Variable):
                note(target.handle, (target.dtype,))
            else:
                note(target.resource_handle, (target.key_dtype, target.value_dtype))
            return original(self, *args, **keywords)

        return write

    with contextlib.ExitStack() as replaced:
        for kind in kinds:
            writes = {name: noting(method) for name, method in vars(kind).items() if name.startswith(_WRITES)}
            replaced.enter_context(replace_attributes(kind, **writes))
        yield
