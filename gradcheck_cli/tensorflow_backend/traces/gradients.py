"""Calls `tf.gradients`, and explains in the user's words what went wrong in a gradient function."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError, OpPlace
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.binding import behaviour
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.registry import place_of

_COUNT_CLASH = "custom_gradient function expected to return"
# TensorFlow writes the whole node into its message, followed by the reason.
_COUNTS = re.compile(
    r"Num gradients (\d+) generated for op name: \"(?P<name>[^\"]+)\".* do not match num inputs (\d+)",
    re.DOTALL,
)
_SHAPE_CLASH = "Incompatible shapes between op input and calculated input gradient"
_SHAPES = re.compile(
    r"Forward operation: (?P<name>\S+)\. Input index: (?P<index>\d+)\. "
    r"Original input shape: (?P<expected>.+?)\. +Calculated input gradient shape: (?P<found>.+)",
    re.DOTALL,
)
_NO_GRADIENT = "No gradient defined for operation"


def gradients_of(
    outputs: list[Any], inputs: Sequence[Any], upstreams: list[Any], *, stops: Sequence[Any] = ()
) -> list[Any]:
    """Call `tf.gradients`, which goes no further than `stops`; say in the user's words what went wrong."""
    if not inputs:
        return []
    with in_users_words(inputs), private_gradients.accept_numbers(), behaviour.trace_with_switches():
        return list(
            tf.compat.v1.gradients(
                outputs, list(inputs), grad_ys=upstreams, stop_gradients=list(stops) or None
            )
        )


@contextlib.contextmanager
def in_users_words(inputs: Sequence[Any]) -> Iterator[None]:
    """Say in the user's words what goes wrong in a gradient function that is called in the block."""
    try:
        yield
    except (CaseFailedError, GradientFormError, CaseSkippedError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the user's code may raise anything
        raise _explain(error, inputs) from error


def _explain(error: BaseException, inputs: Sequence[Any]) -> CaseFailedError | GradientFormError:
    text, kind = frames.text_of(error), "gradient"
    if isinstance(error, ValueError):
        if _SHAPE_CLASH in text:
            return _shape_fault(error, inputs)
        counts = _COUNTS.search(text)
        if counts is not None:
            return CaseFailedError("gradient_count", _count_fault(counts))
        kind = "gradient_count" if _COUNT_CLASH in text else kind
    if isinstance(error, AttributeError) and any(name in text for name in ("'name'", "'op'", "'dtype'")):
        message = (
            "a gradient function returned something that is no tensor (an ndarray or a Python number): "
            f"{frames.first_line(error)}. Return a tensor, such as tf.constant(...), or None."
        )
    # The user's own IndexError or KeyError is a LookupError, too.
    elif type(error) is LookupError and _NO_GRADIENT in text:
        message = (
            f"{text.strip(chr(39))} Register one with tf.RegisterGradient, or give the spec a 'gradient'."
        )
    else:
        message = _describe(error)
    return CaseFailedError(kind, message, frames.user_frames(error))


def _describe(error: BaseException) -> str:
    """Say what was raised, and whether it was TensorFlow's own code that did so."""
    raised = f"building the gradient raised {frames.first_line(error)}"
    place = frames.place_in_tensorflow(error)
    if not place or frames.user_frames(error):
        return raised
    return (
        f"{raised.rstrip('.')}. TensorFlow's own code raised it ({place}), not a gradient function: there "
        "are nests of branches and loops that it can't differentiate, in a tf.function either. Say 'modes: "
        "[eager]' (or --mode eager) to check it there."
    )


def _shape_fault(error: ValueError, inputs: Sequence[Any]) -> GradientFormError:
    """Turn TensorFlow's shape clash into a finding; TensorFlow names the op and the index of its input."""
    text = frames.text_of(error)
    clash = _SHAPES.search(text)
    input_indices: tuple[int, ...] = (0,) if len(inputs) == 1 else ()
    if clash is None:
        detail = text[text.index(_SHAPE_CLASH) :]
        return GradientFormError(input_indices, f"a gradient has another shape than its input: {detail}")
    op, op_input = _op_named(clash["name"]), int(clash["index"])
    where = f"input {op_input} of op {clash['name']}"
    if op is not None:
        input_indices = _indices_of(op.inputs[op_input], inputs)
        unit = private_graphs.custom_gradient_of(op)
        where = where if unit is None else f"argument {op_input - unit.results} of a custom gradient"
    return ShapeClashError(
        input_indices,
        where,
        form_fault(clash["expected"], clash["found"]),
        None if op is None else place_of(op),
    )


def shape_fault(op: Any, input_index: int, gradient: Any, inputs: Sequence[Any]) -> str:
    """Describe a gradient whose shape isn't that of the op's input; `inputs` are those of the forward."""
    tensor = op.inputs[input_index]
    unit = private_graphs.custom_gradient_of(op)
    where = f" for input {input_index} of op {op.name}"
    if _indices_of(tensor, inputs):
        where = ""  # the report names the input
    elif unit is not None:
        where = f" for argument {input_index - unit.results} of a custom gradient"
    return f"the gradient{where} {form_fault(tensor.shape, gradient.shape)}"


def form_fault(input_shape: Any, gradient_shape: Any) -> str:
    """Say that a gradient hasn't its input's shape, and whether a sum may be missing."""
    expected, actual = (_shape_text(str(shape)) for shape in (input_shape, gradient_shape))
    missing = (
        " Sum it over the axes that broadcasting added." if _could_be_broadcast(expected, actual) else ""
    )
    return f"must have shape {expected}, as its input has, but has {actual}.{missing}"


class ShapeClashError(GradientFormError):
    """A gradient of another shape than its input, as TensorFlow's own backpropagation finds it.

    Args:
        inputs: the inputs that the gradient belongs to, as positions among the differentiated ones.
        where: what the gradient is for, in words.
    """

    def __init__(self, inputs: tuple[int, ...], where: str, fault: str, place: OpPlace | None) -> None:
        self.fault = fault
        super().__init__(inputs, f"the gradient for {where} {fault}", place)

    def name_inputs(self, named_inputs: Sequence[tuple[int, str]]) -> GradientFormError:
        """Return the error with indices and names of inputs; `named_inputs` has the differentiated ones."""
        if not self.inputs:
            return GradientFormError((), self.message, self.place)
        named = [named_inputs[position] for position in self.inputs]
        names = " and ".join(name for _, name in named)
        return GradientFormError(
            tuple(index for index, _ in named), f"the gradient for {names} {self.fault}", self.place
        )


def _shape_text(text: str) -> str:
    return "[" + ", ".join(re.findall(r"\d+|None", text)).replace("None", "?") + "]"


def _op_named(name: str) -> Any | None:
    try:
        return tf.compat.v1.get_default_graph().get_operation_by_name(name)
    except (KeyError, ValueError):
        return None


def _indices_of(tensor: Any, inputs: Sequence[Any]) -> tuple[int, ...]:
    """Return which of the inputs a tensor is, as far as inputs were passed on unchanged."""
    while all(tensor is not source for source in inputs) and tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tuple(index for index, source in enumerate(inputs) if source is tensor)


def _could_be_broadcast(expected: str, actual: str) -> bool:
    """Whether an input may have been broadcast to its gradient's shape."""
    if "?" in expected + actual:
        return False
    shapes = [tuple(int(size) for size in re.findall(r"\d+", text)) for text in (expected, actual)]
    try:
        return bool(np.broadcast_shapes(*shapes) == shapes[1])
    except ValueError:
        return False


def _count_fault(counts: re.Match[str]) -> str:
    """Say how many gradients there should be; a custom gradient's results don't count as arguments."""
    returned, expected = int(counts[1]), int(counts[3])
    op = _op_named(counts["name"])
    unit = None if op is None else private_graphs.custom_gradient_of(op)
    if unit is not None:
        returned, expected = returned - unit.results, expected - unit.results
    what = "a custom gradient" if unit is not None else f"the gradient function of op {counts['name']}"
    function = None if op is None else place_of(op)
    place = f" at {function.file}:{function.line}" if function is not None and function.file else ""
    return (
        f"{what}{place} must return {expected} gradient(s), one (or None) for each "
        f"argument, but returned {returned}."
    )


def dense(gradient: Any, tensor: Any) -> Any:
    """Add up IndexedSlices into the input's shape; their own `dense_shape` may be missing."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows = tf.shape(tensor)[0]
    dense = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)
    return tf.ensure_shape(dense, tensor.shape)


def in_claimed_shape(gradient: Any, tensor: Any) -> Any:
    """Add up IndexedSlices into their `dense_shape` where it can't be compared until the graph runs.

    TensorFlow takes only the number of rows from it, if anything, so that a wrong one would stay unseen.
    """
    is_known = gradient.shape.is_fully_defined() and tensor.shape.is_fully_defined()
    if gradient.dense_shape is None or is_known:
        return gradient
    shape = tf.shape(tensor)
    claimed = tf.cast(gradient.dense_shape, shape.dtype)
    missing = tf.maximum(claimed - shape, 0)
    padded = tf.pad(dense(gradient, tensor), tf.stack([tf.zeros_like(missing), missing], 1))
    return tf.slice(padded, tf.zeros_like(claimed), claimed)
