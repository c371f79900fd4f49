"""`py_func`, which users call: the widely copied one, with a gradient that is checked as `run` checks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.binding.binder import OpView, guard_gradient, unique_name
from gradcheck_cli.tensorflow_backend.dtypes import as_list
from gradcheck_cli.tensorflow_backend.op_types import PYTHON_CALLS


def py_func(  # noqa: PLR0913, PLR0917 (the well-known signature)
    func: Callable[..., Any],
    inputs: Sequence[Any],
    Tout: Any,  # noqa: N803 (TensorFlow's name for it)
    grad: Callable[..., Any],
    stateful: bool = True,  # noqa: FBT001, FBT002 (the well-known signature)
    name: str | None = None,
    *,
    shapes: Any = None,
) -> Any:
    """Wrap a NumPy function as an op with a gradient of its own.

    The gradient is registered under a name that no other call in this process has, instead of a random one.
    Shapes are kept: a NumPy ufunc's output has the shape that its inputs broadcast to. For other functions,
    state them by `shapes`, which is compared with what they return. In eager mode, where overrides have no
    effect, the same gradient is attached by `tf.custom_gradient`.

    Args:
        func: arrays in, one array or a list of arrays out.
        inputs: a list of tensors, or of what converts to tensors.
        Tout: dtype of the output, or a list of dtypes.
        grad: `(op, *upstream)` to one gradient, or `None`, per input; `op` has inputs and outputs.
        stateful: as in `tf.compat.v1.py_func`: `False` allows TensorFlow to call `func` fewer times.
        shapes: shape of the output, or a list of shapes where `Tout` is a list; `None` for unknown.

    Returns:
        A tensor, or a list of them where `Tout` is a list.

    Raises:
        TypeError: `inputs` is a tensor, not a list of tensors.
        CaseFailedError: `grad` returned something that is no gradient.
        GradientFormError: `grad` returned a gradient of another shape or dtype than its input.
        tf.errors.InvalidArgumentError: an output doesn't have the shape in `shapes` (when it runs).
    """
    if not isinstance(inputs, list | tuple):  # a tensor would be iterated over
        kind = type(inputs).__name__
        raise TypeError(f"inputs: must be a list of tensors, but is a {kind}; write [x] for a single one.")
    tensors = [tf.convert_to_tensor(value) for value in inputs]
    gradient = guard_gradient(grad, [f"input {index}" for index in range(len(tensors))])
    is_list = isinstance(Tout, list | tuple)
    known_shapes = _known_shapes(func, tensors, shapes, is_list=is_list, count=len(Tout) if is_list else 1)
    if tf.executing_eagerly():
        return _call_eagerly(func, tensors, Tout, gradient, known_shapes)
    gradient_name = unique_name(name or str(getattr(func, "__name__", "py_func")))
    tf.RegisterGradient(gradient_name)(gradient)
    mapping = dict.fromkeys(PYTHON_CALLS, gradient_name)
    with tf.compat.v1.get_default_graph().gradient_override_map(mapping):
        result = tf.compat.v1.py_func(func, tensors, Tout, stateful=stateful, name=name)
    outputs = _ensure_shapes(as_list(result), known_shapes)
    return outputs if is_list else outputs[0]


def _call_eagerly(
    func: Callable[..., Any],
    tensors: list[Any],
    dtypes: Any,
    gradient: Callable[..., Any],
    known_shapes: list[Any],
) -> Any:
    is_list = isinstance(dtypes, list | tuple)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(*values: Any) -> Any:
        result = tf.numpy_function(func, list(values), dtypes)
        outputs = _ensure_shapes(as_list(result), known_shapes)
        view = OpView("PyFunc", "py_func", values, outputs, {})
        return outputs if is_list else outputs[0], lambda *upstream: gradient(view, *upstream)

    return call(*tensors)


def _known_shapes(
    func: Callable[..., Any], tensors: list[Any], shapes: Any, *, is_list: bool, count: int
) -> list[Any]:
    """Return each output's static shape, `None` where nothing is known."""
    if shapes is not None:
        return [tf.TensorShape(shape) for shape in (shapes if is_list else [shapes])]
    if isinstance(func, np.ufunc) and func.signature is None:
        shape = tensors[0].shape
        for tensor in tensors[1:]:
            shape = tf.broadcast_static_shape(shape, tensor.shape)
        return [shape] * count
    return [None] * count


def _ensure_shapes(outputs: list[Any], known_shapes: list[Any]) -> list[Any]:
    return [
        output if shape is None else tf.ensure_shape(output, shape)
        for output, shape in zip(outputs, known_shapes, strict=True)
    ]
