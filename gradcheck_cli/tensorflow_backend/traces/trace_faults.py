"""Traces and differentiates functions, and explains in the user's words what goes wrong there or in a run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from gradcheck_cli import clock, hooks
from gradcheck_cli.checking.ops.operation import GradientFormError, OpPlace, TensorInfo
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.binding.binder import form_fault
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.registry import place_of


class ShapeChangesError(CaseFailedError):
    """At some points, an output hasn't the shape that it has at the base point."""

    def __init__(self) -> None:
        super().__init__(
            "outputs",
            "an output's shape changes as the inputs' values do (boolean_mask, unique and the like): there "
            "is no derivative across such a change; choose inputs away from it (away_from, domain), or check "
            "what comes before it.",
        )


def require_shapes(shapes: Iterable[Sequence[int]], outputs: Iterable[TensorInfo]) -> None:
    """Refuse outputs of other shapes than at the base point.

    Raises:
        ShapeChangesError: there are some.
    """
    if [tuple(shape) for shape in shapes] != [output.shape for output in outputs]:
        raise ShapeChangesError


def trace_function(function: Callable[..., Any], signature: Sequence[Any]) -> Any:
    """Trace a function with `wrap_function`.

    Raises:
        CaseFailedError: what it raised, with the user's own frames.
    """
    try:
        clock.add_work(traces=1)
        with hooks.behaviour().tracing():
            return tf.compat.v1.wrap_function(_name_variables(function), list(signature))
    except (CaseFailedError, GradientFormError):
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as raised:  # noqa: BLE001 (the user's code may raise anything)
        error = frames.original_error(raised)
        raise CaseFailedError(
            "forward", f"the forward raised {_describe_error(error)}", frames.user_frames(error)
        ) from error


def _name_variables(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give each variable that a function makes a name of its own.

    `wrap_function` refuses a second variable of the same name, and the layers of a model that has no `build`
    call all their weights `kernel`, in the model's name scope.
    """
    used_names: set[str] = set()

    def create(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        if tf.executing_eagerly():  # a graph numbers its names itself
            name = plain = arguments.get("name") or "Variable"
            suffix = 0
            while name in used_names:
                suffix += 1
                name = f"{plain}_{suffix}"
            used_names.add(name)
            arguments["name"] = name
        return next_creator(**arguments)

    def call(*tensors: Any) -> Any:
        with tf.variable_creator_scope(create):
            return function(*tensors)

    return call


# What to do about messages of TensorFlow's that don't say it.
_REMEDIES = {
    "supports keywords arguments only when eager": "A tf.custom_gradient takes keyword arguments in eager "
    "mode only: leave them at their defaults, or check in mode eager.",
    "'SymbolicTensor' object has no attribute 'numpy'": "In a graph, a tensor has no value: compute with "
    "TensorFlow's functions.",
}


def _describe_error(error: BaseException) -> str:
    line = frames.first_line(error)
    if isinstance(error, NotImplementedError) and "symbolic" in frames.text_of(error):
        return f"{line} It looks like a NumPy function: use binding: py_func."
    return next(
        (f"{line.rstrip('.')}. {remedy}" for words, remedy in _REMEDIES.items() if words in line), line
    )


# The messages of MapDefun, and of map_fn and its list of results, when rows differ in shape.
_SHAPE_CHANGED = (
    "Mismatch in function retval shape",
    "inconsistent shapes",
    "inconsistent element shape",
    "Incompatible shapes during merge",
)
# TensorFlow's C++ names of dtypes in its messages.
_C_NAMES = {"half": "float16", "float": "float32", "double": "float64"}
_WRONG_RETURN = re.compile(r"(\d+)-th value returned by pyfunc_\d+ is (\w+), but expects (\w+)")


def run_error(error: BaseException, what: str) -> CaseFailedError:
    """Describe an error of a running traced function: an op's, or that of a NumPy function."""
    message = str(getattr(error, "message", error))
    if any(words in message for words in _SHAPE_CHANGED):
        return ShapeChangesError()
    wrong_return = _WRONG_RETURN.search(message)
    if wrong_return is not None and what == "forward":
        output_index, actual, expected = (_C_NAMES.get(word, word) for word in wrong_return.groups())
        return CaseFailedError(
            "outputs",
            f"the NumPy forward's output {output_index} must be {expected} by the spec's 'outputs', but is "
            f"{actual}.",
        )
    return CaseFailedError(
        what, f"the {what} raised {frames.first_line(error)}", frames.runtime_frames(message)
    )


def require_no_leak(function: Any, what: str) -> None:
    """Refuse tensors of another graph: a function must not keep a tensor from one trace to the next.

    Raises:
        CaseFailedError: of the kind `what`.
    """
    for outer, _ in function.graph.captures:
        if not isinstance(outer, private_graphs.EAGER_TENSOR):
            raise CaseFailedError(
                what,
                f"the {what} uses the tensor {outer.name!r} of an earlier trace; don't keep tensors between "
                "calls: take them from op.inputs and op.outputs.",
            )


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
    with naming_user_errors(inputs), private_gradients.accept_numbers(), hooks.behaviour().tracing():
        return list(
            tf.compat.v1.gradients(
                outputs, list(inputs), grad_ys=upstreams, stop_gradients=list(stops) or None
            )
        )


@contextlib.contextmanager
def naming_user_errors(inputs: Sequence[Any]) -> Iterator[None]:
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
        f"{raised.rstrip('.')}. TensorFlow's own code raised it ({place}), not a gradient function: it "
        "can't differentiate some nests of branches and loops, not even in a tf.function. Say 'modes: "
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
        input_indices, where = _indices_of(op.inputs[op_input], inputs), _describe_input(op, op_input)
    return ShapeClashError(
        input_indices,
        where,
        form_fault(_parse_shape(clash["expected"]), _parse_shape(clash["found"])),
        None if op is None else place_of(op),
    )


def shape_fault(op: Any, input_index: int, gradient: Any, inputs: Sequence[Any]) -> str:
    """Describe a gradient whose shape isn't that of the op's input; `inputs` are those of the forward."""
    tensor = op.inputs[input_index]
    is_named = _indices_of(tensor, inputs)  # by the report
    where = "" if is_named else f" for {_describe_input(op, input_index)}"
    return f"the gradient{where} {form_fault(tensor.shape, gradient.shape)}"


def _describe_input(op: Any, input_index: int) -> str:
    unit = private_graphs.custom_gradient_of(op)
    if unit is not None:
        return f"argument {input_index - unit.results} of a custom gradient"
    return f"input {input_index} of op {op.name}"


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


def _parse_shape(text: str) -> tf.TensorShape:
    """Read a shape in one of TensorFlow's messages, such as `(2, None)` or `<unknown>`."""
    sizes = [None if size == "None" else int(size) for size in re.findall(r"\d+|None", text)]
    return tf.TensorShape(None if "unknown" in text else sizes)


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
