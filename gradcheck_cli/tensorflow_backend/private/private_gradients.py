"""All reliance on TensorFlow's private parts that show how an op is differentiated.

`tests/tensorflow_backend/test_private_gradients.py` tests each of them.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import ops, registry
from tensorflow.python.ops import gradients_util
from tensorflow.python.ops.custom_gradient import Bind

from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import replace_attributes

# Names under which TensorFlow, or gradcheck, registers a gradient at run time; no op type has a hyphen.
RUN_TIME_NAME = re.compile(r"(CustomGradient|PartitionedCall|StatefulPartitionedCall)-\d+|gradcheck_.*")
_GENERATED = "__autograph_generated_file"
_IS_UNCOUNTED = contextvars.ContextVar("is_uncounted", default=False)


@dataclass(frozen=True)
class Visit:
    """One op that backpropagation called the gradient of."""

    op: Any
    # the incoming gradients, one for each output: a tensor, IndexedSlices, or neither if there is none and no
    # zeros could replace it
    upstreams: tuple[Any, ...]
    # the outgoing gradients, one for each input; `None` if the gradient function returns that
    gradients: tuple[Any, ...]


def _look_at_each_op(
    look: Callable[[Any, Any, Any], None],
) -> contextlib.AbstractContextManager[None]:
    """Call `look(op, upstreams, gradients)` for each op that `tf.gradients` visits in the block.

    Where the gradients are a list, backpropagation goes on with that list, and `look` may change it.
    """
    log = gradients_util._LogOpGradients

    def looking(op: Any, upstreams: Any, gradients: Any) -> Any:
        look(op, upstreams, gradients)
        return log(op, upstreams, gradients)

    return replace_attributes(gradients_util, _LogOpGradients=looking)


@contextlib.contextmanager
def backward_log() -> Iterator[list[Visit]]:
    """Record each op that `tf.gradients` visits in the block, in order from the outputs to the inputs.

    What a gradient function itself differentiates (a loop's body, a `tf.gradients` in a custom gradient)
    isn't recorded.
    """
    visits: list[Visit] = []
    depth = 0
    helper = gradients_util._GradientsHelper

    def note(op: Any, upstreams: Any, gradients: Any) -> None:
        if depth == 1:
            visits.append(Visit(op, tuple(upstreams), tuple(gradients)))

    def counting(*args: Any, **keywords: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            return helper(*args, **keywords)
        finally:
            depth -= 1

    with _look_at_each_op(note), replace_attributes(gradients_util, _GradientsHelper=counting):
        yield visits


def exclude_from_count(function: Any) -> Any:
    """Wrap a gradient function so that nothing it calls is counted."""

    @functools.wraps(function)
    def uncounted(*args: Any, **keywords: Any) -> Any:
        token = _IS_UNCOUNTED.set(True)
        try:
            return function(*args, **keywords)
        finally:
            _IS_UNCOUNTED.reset(token)

    return uncounted


def from_number(gradient: Any, dtype: tf.DType) -> Any:
    """Return a gradient that is a Python number or a NumPy array as a tensor, and any other as it is.

    Under a tape, such a gradient trains like a tensor; `tf.gradients` would fail to read its name.
    """
    is_number = isinstance(gradient, int | float | complex | np.ndarray | np.generic)
    # A variable's handle doesn't say the variable's dtype.
    return tf.constant(gradient, dtype) if is_number and dtype != tf.resource else gradient


def accept_numbers() -> contextlib.AbstractContextManager[None]:
    """Let gradient functions return numbers and arrays in the block; see `from_number`."""

    def convert(op: Any, _: Any, gradients: Any) -> None:
        if isinstance(gradients, list):
            for input_index, (tensor, gradient) in enumerate(zip(op.inputs, gradients, strict=False)):
                gradients[input_index] = from_number(gradient, tensor.dtype)

    return _look_at_each_op(convert)


def note_shape_faults(
    note: Callable[[Any, int, Any], None], spread: Callable[[Any, Any], Any]
) -> contextlib.AbstractContextManager[None]:
    """Replace gradients of another shape than their input by zeros, and note them.

    TensorFlow stops at the first, so nothing would be known about the others.

    Args:
        note: is called with the op, the index of its input, and the gradient.
        spread: makes a tensor of hand-written IndexedSlices; it also gets their op's input.
    """

    def mend(op: Any, _: Any, gradients: Any) -> None:
        for input_index, (tensor, gradient) in enumerate(zip(op.inputs, gradients, strict=False)):
            # A variable's handle has another shape than its gradient; TensorFlow ignores that.
            is_value = tensor.dtype.is_floating or tensor.dtype.is_complex
            if not (is_value and isinstance(gradient, tf.Tensor | tf.IndexedSlices)):
                continue
            is_list = isinstance(gradients, list)
            if gradient.shape.is_compatible_with(tensor.shape):
                if is_list and isinstance(gradient, tf.IndexedSlices) and has_own_gradient(op):
                    gradients[input_index] = spread(gradient, tensor)
                continue
            if not is_list:
                continue  # nothing can replace it: TensorFlow raises, and its message says so
            note(op, input_index, gradient)
            gradients[input_index] = tf.zeros_like(tensor)

    return _look_at_each_op(mend)


@contextlib.contextmanager
def count_gradients(
    counts: Counter[str], ran: Callable[[str, Any, Any], None] = lambda *_: None
) -> Iterator[None]:
    """Count the calls of each registered gradient function in the block, by its registered name.

    Calls are counted in graphs, in the bodies of loops, branches and functions whose gradients are built in
    the block, and under tapes: each of these looks its function up here. Names that are made at run time (for
    a `tf.custom_gradient`, for calls of a tf.function, and by gradcheck) aren't op types and aren't counted.
    What the gradient function of a `tf.custom_gradient` differentiates itself isn't counted either:
    backpropagation doesn't go there.

    Args:
        counts: where they are counted.
        ran: is called for each call under any name, with the name, the function and the op.
    """
    original = registry.Registry.lookup

    def lookup(self: Any, name: str | bytes) -> Any:
        function = original(self, name)
        # An override's name is read from the op's attr, as bytes.
        shown = name.decode() if isinstance(name, bytes) else name
        if self is not ops.gradient_registry or function is None:
            return function
        unit = private_graphs.custom_gradient_behind(function)
        called = exclude_from_count(function) if unit is not None and unit.is_stepped_over else function
        is_op_type = not RUN_TIME_NAME.fullmatch(shown)

        @functools.wraps(function)
        def counted(*args: Any, **keywords: Any) -> Any:
            if is_op_type and not _IS_UNCOUNTED.get():
                counts[shown] += 1
            # A tape inside a gradient passes a stand-in without a graph.
            ran(shown, function, args[0] if args and isinstance(args[0], tf.Operation) else None)
            gradients = called(*args, **keywords)
            # TensorFlow accepts either and goes on with the same object; in a list, `note_shape_faults` can
            # replace a gradient.
            return list(gradients) if type(gradients) is tuple else gradients

        return counted

    with replace_attributes(registry.Registry, lookup=lookup):
        yield


@contextlib.contextmanager
def differentiate_functions_anew() -> Iterator[None]:
    """Make each call of a tf.function in a graph build the gradient of its body, even if it was built before.

    The gradient is cached with the function, which may be as old as the process.
    """
    functions = concrete_function._DelayedRewriteGradientFunctions
    original = functions.forward_backward

    def anew(self: Any, num_doutputs: int | None = None) -> Any:
        self._cached_function_pairs.clear()
        return original(self, num_doutputs)

    with replace_attributes(functions, forward_backward=anew):
        yield


def has_own_gradient(op: Any) -> bool:
    """Whether an op carries an override, from `gradient_override_map` or from a `tf.custom_gradient`."""
    return bool(private_graphs.override_of(op.node_def))


def gradient_function(op: Any) -> Any | None:
    """Return the Python function that computes an op's gradient; for a `tf.custom_gradient`, the user's own.

    It is `None` for an op type that is registered as not differentiable, and for a Defun's body that
    TensorFlow differentiates itself.
    """
    unit = private_graphs.custom_gradient_of(op)
    if unit is not None:
        return unit.function
    try:
        return ops.get_gradient_function(op)
    except LookupError:
        pass
    defined = op.graph._get_function(op.type)
    return None if defined is None else getattr(defined, "python_grad_func", None)


def overriding_function(name: str) -> Any | None:
    """Return the function behind a gradient's registered name; for a `tf.custom_gradient`, the user's own."""
    unit = private_graphs.custom_gradient_named(name)
    return private_graphs.registered_gradient(name) if unit is None else unit.function


def source_place(file: str, line: int) -> tuple[str, int] | None:
    """Return the source of a line of AutoGraph's generated code; `None` for other code."""
    if _GENERATED not in file:
        return None
    origins: dict[int, tuple[str, int]] = {}
    for converted in list(autograph_api._TRANSPILER._cache._cache.values()):
        for factory in converted.values():
            for generated, origin in (factory.source_map or {}).items():
                if generated.filename == file and generated.lineno >= line:
                    origins[generated.lineno] = (str(origin.loc.filename), int(origin.loc.lineno))
    # A function begins at its decorators. AutoGraph added some of them, which have no source.
    return origins[min(origins)] if origins else None


def names_of_gradients() -> list[str]:
    """Return the names in the gradient registry, without those that TensorFlow or gradcheck makes."""
    return [name for name in list(ops.gradient_registry.list()) if not RUN_TIME_NAME.fullmatch(name)]


def is_custom_gradient(value: object) -> bool:
    """Whether this is what `tf.custom_gradient` returns."""
    return isinstance(value, Bind)
