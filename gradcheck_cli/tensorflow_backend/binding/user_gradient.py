"""The user's gradient function, called as TensorFlow would call it; its results are checked first.

TensorFlow doesn't check a gradient: a wrong dtype passes, and a float or an ndarray ends in
`AttributeError: ... 'name'`. Here, each such mistake gets a clear message.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import dtypes, frames

Gradient = Any  # tf.Tensor, tf.IndexedSlices or None

# Called with the input of a malformed gradient and the fault, where the other gradients are still to be
# judged.
_note: contextvars.ContextVar[Callable[[Any, str], None] | None] = contextvars.ContextVar(
    "note", default=None
)


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
    note, well_formed = _note.get(), list(gradients)
    for input_index, name in enumerate(names):
        tensor = op.inputs[input_index]
        message = _fault(name, gradients[input_index], tensor)
        if message and note is None:
            raise GradientFormError((input_index,), message)
        if message and note is not None:
            note(tensor, message)
            well_formed[input_index] = tf.zeros_like(tensor)
    return well_formed


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
    return (
        f"the gradient for {name} must have shape {shape_text(tensor.shape)}, as its input has, but has "
        f"{shape_text(value.shape)}."
        + (" Sum it over the axes that broadcasting added." if _could_be_broadcast(value, tensor) else "")
    )


def _could_be_broadcast(value: Any, tensor: Any) -> bool:
    """Whether the input's shape broadcasts to the gradient's: then the sum over those axes is missing."""
    try:
        return bool(tf.broadcast_static_shape(value.shape, tensor.shape) == value.shape)
    except ValueError:
        return False


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
            note = _note.get()
            if note is None:
                raise GradientFormError((input_index,), message)
            note(op.inputs[input_index], message)
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
