"""All reliance on TensorFlow's private parts, in one place, so that a new TensorFlow breaks it here.

`tests/tensorflow_backend/test_private.py` holds each of them to what is relied on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.python.autograph.core import converter
from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.framework import function, op_def_library, op_def_registry, ops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# The class of tensors that have a value now; others belong to a graph.
EAGER_TENSOR = ops.EagerTensor


def call_with_autograph(target: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Call a Python function as `tf.function` would: AutoGraph converts it and what it calls.

    `wrap_function` has no AutoGraph of its own, and a Python `if` or `while` on tensors needs it.
    """
    # No optional features, as tf.function has none: with all of them, `[]` becomes a tensor list.
    options = converter.ConversionOptions(recursive=True, optional_features=None, user_requested=True)
    return autograph_api.converted_call(target, tuple(arguments), dict(keywords), options=options)


def autograph_frames(error: BaseException) -> list[tuple[str, int, str, str]]:
    """Return (file, line, function, code) of the user's frames that AutoGraph noted on an exception."""
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


def apply_op(op_type: str, arguments: Mapping[str, Any]) -> Any:
    """Create an op of any type in the current graph, inputs and attrs by their OpDef names.

    `tf.raw_ops` lacks the op types that aren't exported; this has every one. It asks for attrs that have
    a default, too: `None` stands for it. Attrs that follow from the inputs must be left out.
    """
    definition = op_def(op_type)
    inferred = {
        name for arg in definition.input_arg for name in (arg.type_attr, arg.number_attr, arg.type_list_attr)
    }
    defaults = {
        attr.name: None
        for attr in definition.attr
        if attr.HasField("default_value") and attr.name not in inferred
    }
    # An op's name can't begin with an underscore, as some types do.
    return op_def_library.apply_op(op_type, **{"name": op_type.lstrip("_"), **defaults, **arguments})


def call_defun(
    name: str,
    body: Callable[..., Any],
    gradient: Callable[..., Any],
    inputs: Sequence[Any],
) -> Any:
    """Call `body` through `function.Defun` with a Python gradient function attached."""
    defined = function.Defun(*[tensor.dtype for tensor in inputs], func_name=name, python_grad_func=gradient)(body)
    return defined(*inputs)
