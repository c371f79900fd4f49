"""The user's gradient function, called as TensorFlow would call it; its results are checked first.

TensorFlow doesn't check a gradient: a wrong dtype passes, and a float or an ndarray ends in
`AttributeError: ... 'name'`. Here, each such mistake gets a clear message. `py_func`, which users call, is
the widely copied one, with such a gradient.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes, frames

PREFIX = "gradcheck_"  # of every name that we register; `list` hides these names
PY_FUNC_TYPES = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_NUMBERS = itertools.count(1)
Gradient = Any  # tf.Tensor, tf.IndexedSlices or None

# Called with the input of a malformed gradient and the fault, where the other gradients are still to be
# judged.
_note: contextvars.ContextVar[Callable[[Any, str], None] | None] = contextvars.ContextVar(
    "note", default=None
)


def unique_name(stem: str) -> str:
    """Return a name that no earlier registration in this process has used."""
    safe = "".join(char if char.isalnum() else "_" for char in stem)
    return f"{PREFIX}{safe}_{next(_NUMBERS)}"


@contextlib.contextmanager
def note_form_faults(note: Callable[[Any, str], None]) -> Iterator[None]:
    """Replace malformed gradients by zeros and note them, instead of raising an error."""
    token = _note.set(note)
    try:
        yield
    finally:
        _note.reset(token)


def _replace_malformed(gradients: list[Gradient], op: Any, names: Sequence[str]) -> list[Gradient]:
    """Return gradients of the right form; malformed ones are replaced by zeros where they are noted.

    Raises:
        GradientFormError: one is malformed, and malformed ones aren't noted.
    """
    well_formed = list(gradients)
    for input_index, name in enumerate(names):
        tensor = op.inputs[input_index]
        message = _fault(name, gradients[input_index], tensor)
        if message:
            _note_or_raise(op, input_index, message)
            well_formed[input_index] = tf.zeros_like(tensor)
    return well_formed


def _note_or_raise(op: Any, input_index: int, message: str) -> None:
    note = _note.get()
    if note is None:
        raise GradientFormError((input_index,), message)
    note(op.inputs[input_index], message)


def guard_gradient(gradient: Callable[..., Any], names: Sequence[str]) -> Callable[..., list[Gradient]]:
    """Wrap a gradient `(op, *upstream)` so that its results are checked before TensorFlow sees them."""

    def call(op: Any, *upstream: Any) -> list[Gradient]:
        try:
            result = gradient(op, *upstream)
        except (CaseFailedError, GradientFormError, KeyboardInterrupt):
            raise
        except BaseException as error:  # the user's code may raise anything
            raise CaseFailedError(
                "gradient",
                f"the gradient function raised {frames.first_line(error)}",
                frames.user_frames(error),
            ) from error
        gradients = list(result) if isinstance(result, list | tuple) else [result]
        if len(gradients) != len(names):
            raise CaseFailedError(
                "gradient_count",
                f"the gradient function must return {len(names)} gradient(s), one (or None) for each of "
                f"{', '.join(names)}, but returned {len(gradients)}.",
            )
        return _replace_malformed(gradients, op, names)

    return call


def _fault(name: str, value: Gradient, tensor: Any) -> str:
    """Say what is wrong with a gradient's form; empty if nothing is. CaseFailedError if it is no tensor."""
    if value is None:
        return ""
    if not isinstance(value, tf.Tensor | tf.IndexedSlices):
        actual = type(value).__module__ + "." + type(value).__qualname__
        raise CaseFailedError(
            "gradient",
            f"the gradient for {name} must be a tensor or None, but is a {actual.removeprefix('builtins.')}; "
            "return a tensor, such as tf.constant(...), or name a NumPy function as "
            "'gradient: {numpy: module:function}'.",
        )
    if not dtypes.is_differentiable(tensor.dtype):
        return ""
    if value.dtype != tensor.dtype:
        expected, actual = tensor.dtype.name, value.dtype.name
        return f"the gradient for {name} must be {expected}, as its input is, but is {actual}."
    if not isinstance(value, tf.Tensor) or value.shape.is_compatible_with(tensor.shape):
        return ""
    return f"the gradient for {name} {form_fault(tensor.shape, value.shape)}"


def form_fault(input_shape: Any, gradient_shape: Any) -> str:
    """Say that a gradient hasn't its input's shape, and whether a sum may be missing."""
    text = (
        f"must have shape {shape_text(input_shape)}, as its input has, but has {shape_text(gradient_shape)}."
    )
    try:  # whether the input may have been broadcast to the gradient's shape
        is_broadcast = tf.broadcast_static_shape(gradient_shape, input_shape) == gradient_shape
    except ValueError:
        is_broadcast = False
    return f"{text} Sum it over the axes that broadcasting added." if is_broadcast else text


def shape_text(shape: Any) -> str:
    """Return a shape as `[2, 3]`, with `?` for unknown dimensions."""
    dims = tf.TensorShape(shape)
    if dims.rank is None:
        return "of unknown rank"
    return "[" + ", ".join("?" if size is None else str(size) for size in dims.as_list()) + "]"


def from_numpy(
    function: Callable[..., Any],
    point: Sequence[np.ndarray[Any, Any]],
    output_shapes: Sequence[tuple[int, ...]],
    names: Sequence[str],
) -> Callable[..., list[Gradient]]:
    """Turn a NumPy gradient `(*upstream, *inputs) -> arrays` into a registered-gradient function.

    Which gradients are `None`, and their dtypes, must be known when the graph is built, so the
    function is called once at `point` with upstreams of ones.
    """

    def gradient(op: Any, *upstream: Any) -> list[Gradient]:
        inputs = [
            dtypes.narrow(value, tensor.dtype.base_dtype.name)
            for value, tensor in zip(point, op.inputs, strict=True)
        ]
        # An integer output has no upstream; the function still expects an array in its place.
        all_upstreams = [
            tf.zeros_like(output) if flow is None else flow
            for flow, output in zip(upstream, op.outputs, strict=True)
        ]
        ones = [
            np.ones(shape, tensor.dtype.as_numpy_dtype)
            for shape, tensor in zip(output_shapes, all_upstreams, strict=True)
        ]
        first_gradients = _as_list(function(*ones, *inputs))
        if len(first_gradients) != len(names):
            raise CaseFailedError(
                "gradient_count",
                f"the NumPy gradient must return {len(names)} array(s), one (or None) for each of "
                f"{', '.join(names)}, but returned {len(first_gradients)}.",
            )
        indices = [input_index for input_index, value in enumerate(first_gradients) if value is not None]
        indices = _check_dtypes(first_gradients, indices, op, names)
        if not indices:  # a py_func without outputs is an operation and returns nothing
            return [None] * len(names)

        def body(*arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
            values = _as_list(function(*arrays))
            return [np.asarray(values[input_index]) for input_index in indices]

        tensors = tf.compat.v1.py_func(
            body,
            [*all_upstreams, *op.inputs],
            [op.inputs[input_index].dtype for input_index in indices],
            stateful=True,
        )
        result: list[Gradient] = [None] * len(names)
        # In eager mode, a single result comes as an array, without a list around it.
        for input_index, tensor in zip(indices, _as_list(tensors), strict=True):
            result[input_index] = tf.convert_to_tensor(tensor)
        return result

    return gradient


def _check_dtypes(gradients: list[Any], indices: list[int], op: Any, names: Sequence[str]) -> list[int]:
    """Return the indices of arrays that have their input's dtype: `py_func` would refuse others when run."""
    malformed = []
    for input_index in indices:
        expected, actual = op.inputs[input_index].dtype, np.asarray(gradients[input_index]).dtype
        if dtypes.is_differentiable(expected) and actual != expected.as_numpy_dtype:
            message = (
                f"the gradient for {names[input_index]} must be {expected.name}, as its input is, "
                f"but is {actual.name}; NumPy may have promoted it."
            )
            _note_or_raise(op, input_index, message)
            malformed.append(input_index)
    return [input_index for input_index in indices if input_index not in malformed]


def _as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, list | tuple) else [result]


@dataclass(frozen=True)
class OpView:
    """Stands in for `tf.Operation` under the binding `custom_gradient`.

    `inputs` and `outputs` are tensors, lists flattened, as TensorFlow's own ops hold them. `get_attr`
    reads the spec's `attrs`.
    """

    type: str
    name: str
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    attrs: Mapping[str, Any]

    def get_attr(self, name: str) -> Any:
        """Return the attribute of that name; ValueError if the spec gives none, as `tf.Operation` does."""
        if name not in self.attrs:
            attr_names = ", ".join(sorted(self.attrs)) or "none"
            raise ValueError(
                f"Operation {self.name!r} has no attr named {name!r}; the spec's attrs: {attr_names}."
            )
        return self.attrs[name]


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
    mapping = dict.fromkeys(PY_FUNC_TYPES, gradient_name)
    with tf.compat.v1.get_default_graph().gradient_override_map(mapping):
        result = tf.compat.v1.py_func(func, tensors, Tout, stateful=stateful, name=name)
    outputs = _ensure_shapes(list(result) if is_list else [result], known_shapes)
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
        outputs = _ensure_shapes(list(result) if is_list else [result], known_shapes)
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
