"""Traces and differentiates functions, and explains in the user's words what goes wrong there or in a run."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from gradcheck_cli import clock, hooks
from gradcheck_cli.checking.ops.operation import GradientFormError, TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.binding.binder import form_fault
from gradcheck_cli.tensorflow_backend.leaves import unique
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs, private_settings
from gradcheck_cli.tensorflow_backend.registry import place_of
from gradcheck_cli.visible import count


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
        with clock.spend("traces"), hooks.behaviour().tracing(), private_graphs.take_values_of_other_graphs():
            return tf.compat.v1.wrap_function(_name_variables(function), list(signature))
    except frames.OWN_ERRORS:
        raise
    except BaseException as raised:  # noqa: BLE001 (the user's code may raise anything)
        error = frames.original_error(raised)
        raise CaseFailedError(
            "forward", f"the forward raised {frames.raised(error, 'forward')}", frames.user_frames(error)
        ) from error


def _name_variables(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give each variable that a function makes a name of its own.

    `wrap_function` refuses a second variable of the same name, and the layers of a model that has no `build`
    call all their weights `kernel`, in the model's name scope.
    """
    used_names: set[str] = set()

    def create(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        if tf.executing_eagerly():  # a graph numbers its names itself
            (arguments["name"],) = unique([arguments.get("name") or "Variable"], used_names)
            used_names.add(arguments["name"])
        return next_creator(**arguments)

    def call(*tensors: Any) -> Any:
        private_graphs.OWN_GRAPHS.add(tf.compat.v1.get_default_graph())
        with tf.variable_creator_scope(create):
            return function(*tensors)

    return call


# The messages of MapDefun, and of map_fn and its list of results, when rows differ in shape.
_SHAPE_CHANGED = (
    "Mismatch in function retval shape",
    "inconsistent shapes",
    "inconsistent element shape",
    "Incompatible shapes during merge",
)
# TensorFlow's C++ names of dtypes in its messages.
_C_NAMES = {"half": "float16", "float": "float32", "double": "float64"}
_NOT_ZERO = re.compile(rf"assertion failed: \[({private_settings.NOT_ZERO} .*\.)\]")
_WRONG_RETURN = re.compile(r"(\d+)-th value returned by pyfunc_\d+ is (\w+), but expects (\w+)")


def run_error(error: BaseException, what: str) -> CaseFailedError:
    """Describe an error of a running traced function: an op's, or that of a NumPy function."""
    message = str(getattr(error, "message", error))
    if any(words in message for words in _SHAPE_CHANGED):
        return ShapeChangesError()
    not_zero = _NOT_ZERO.search(message)
    if not_zero is not None:
        return CaseFailedError("gradient", not_zero[1])
    wrong_return = _WRONG_RETURN.search(message)
    if wrong_return is not None and what == "forward":
        output_index, actual, expected = (_C_NAMES.get(word, word) for word in wrong_return.groups())
        return CaseFailedError(
            "outputs",
            f"the NumPy forward's output {output_index} must be {expected} by the spec's 'outputs', but is "
            f"{actual}.",
        )
    return CaseFailedError(what, f"the {what} raised {frames.raised(error)}", frames.runtime_frames(message))


@contextlib.contextmanager
def naming_run_errors(what: str) -> Iterator[None]:
    """Describe an op's error in the block as that of the forward or the gradient; see `run_error`.

    Raises:
        CaseFailedError: a run of what is traced raised.
    """
    try:
        yield
    except tf.errors.OpError as error:
        raise run_error(error, what) from error


def require_no_leak(function: Any, forward_ops: Iterable[Any]) -> None:
    """Refuse tensors of another graph: a function must not keep what depends on its inputs.

    Args:
        forward_ops: those of the function's ops that belong to the forward.

    Raises:
        CaseFailedError: of the kind "forward" or "gradient", by what uses the tensor.
    """
    for outer, inner in function.graph.captures:
        if not isinstance(outer, private_graphs.EAGER_TENSOR):
            what = "gradient" if set(inner.consumers()).isdisjoint(forward_ops) else "forward"
            raise CaseFailedError(
                what,
                f"the {what} uses the tensor {outer.name!r} of an earlier trace; don't keep tensors between "
                "calls: take them from op.inputs and op.outputs.",
            )


# What TensorFlow says in eager mode.
_COUNT_CLASH = re.compile(r"custom_gradient function expected to return (\d+) gradients, but returned (\d+)")
# TensorFlow writes the whole node into its message, followed by the reason.
_COUNTS = re.compile(
    r"Num gradients (\d+) generated for op name: \"(?P<name>[^\"]+)\".* do not match num inputs (\d+)",
    re.DOTALL,
)
# Takes an op, the index of its input, and the gradient.
NoteShape = Callable[[Any, int, Any], None]
_COUNTS_SETTINGS = (
    " If it returns one for a setting that has a default, give that a value: 'attrs: {NAME: VALUE}' in a "
    "spec, NAME=VALUE in assert_gradients."
)
_NO_GRADIENT = re.compile(r"No gradient defined for operation ?'(.+?)'")


def gradients_of(
    outputs: list[Any],
    inputs: Sequence[Any],
    upstreams: list[Any],
    note_shape: NoteShape | None = None,
) -> list[Any]:
    """Call `tf.gradients`, and add up IndexedSlices; see `naming_user_errors`."""
    if not inputs:
        return []
    with naming_user_errors(note_shape), hooks.behaviour().tracing():
        pulled = tf.compat.v1.gradients(outputs, list(inputs), grad_ys=upstreams)
    return [*map(private_gradients.dense, pulled, inputs)]


@contextlib.contextmanager
def naming_user_errors(note_shape: NoteShape | None = None) -> Iterator[None]:
    """Say in the user's words what goes wrong in a gradient function that is called in the block.

    Args:
        note_shape: is called with an op, the index of its input, and a gradient of another shape than that
            input. Zeros take the gradient's place. By default, it is an error.

    Raises:
        GradientFormError: a gradient has another shape than its input.
        CaseFailedError: a gradient function raised, or returned what isn't a gradient for each input.
    """
    try:
        with private_gradients.note_shape_faults(note_shape or _refuse_shape, in_claimed_shape):
            yield
    except frames.OWN_ERRORS:
        raise
    except BaseException as error:  # the user's code may raise anything
        raise _explain(error) from error


def _refuse_shape(op: Any, input_index: int, gradient: Any) -> None:
    raise GradientFormError((), shape_fault(op, input_index, gradient))


def _explain(error: BaseException) -> CaseFailedError:
    text = frames.text_of(error)
    if isinstance(error, ValueError):
        counts, clash = _COUNTS.search(text), _COUNT_CLASH.search(text)
        if counts is not None:
            return CaseFailedError("gradient_count", _count_fault(counts))
        if clash is not None:
            inside = [frame.f_locals.get("grad_fn") for frame, _ in traceback.walk_tb(error.__traceback__)]
            place = private_gradients.place_of_gradient(inside[-1])
            return CaseFailedError(
                "gradient_count", _wrong_count(f"a custom gradient{place}", int(clash[1]), int(clash[2]))
            )
    if isinstance(error, AttributeError) and any(name in text for name in ("'name'", "'op'", "'dtype'")):
        message = (
            "a gradient function returned something that is no tensor (an ndarray or a Python number): "
            f"{frames.first_line(error)}. Return a tensor, such as tf.constant(...), or None."
        )
    # The user's own IndexError or KeyError is a LookupError, too.
    elif type(error) is LookupError and (undefined := _NO_GRADIENT.search(text)):
        message = _describe_undefined(undefined[1]) or (
            f"{text.strip(chr(39))} Register one with tf.RegisterGradient, or give the spec a 'gradient'."
        )
    else:
        message = _describe(error)
    return CaseFailedError("gradient", message, frames.user_frames(error))


def _describe_undefined(name: str) -> str:
    """Say that an op's gradient_override_map names what isn't registered; empty if it has none."""
    try:
        op = private_graphs.op_named(tf.compat.v1.get_default_graph(), name)
        wanted = op.get_attr("_gradient_op_type").decode()  # type: ignore[union-attr]
    except (AttributeError, ValueError):  # no such op in this graph, or no override
        return ""
    return (
        f"gradient_override_map names the gradient '{wanted}' for op {name}, and none is registered under "
        "that name. Register it with tf.RegisterGradient, or mend the name."
    )


def _describe(error: BaseException) -> str:
    """Say what was raised, and whether it was TensorFlow's own code that did so."""
    raised = f"building the gradient raised {frames.raised(error, 'custom_gradient')}"
    place = frames.place_in_tensorflow(error)
    if not place or frames.user_frames(error):
        return raised
    raised = f"{raised.rstrip('.')}. TensorFlow's own code raised it ({place}), not a gradient function"
    if tf.executing_eagerly():
        return f"{raised}."
    return (
        f"{raised}: it can't differentiate some nests of branches and loops, not even in a tf.function. Say "
        "'modes: [eager]' (or --mode eager) to check it there."
    )


def shape_fault(op: Any, input_index: int, gradient: Any, inputs: Sequence[Any] = ()) -> str:
    """Describe a gradient whose shape isn't that of the op's input.

    Args:
        inputs: the forward's own, which the report names: nothing is said of which input it is.
    """
    tensor = op.inputs[input_index]
    where = "" if _is_among(tensor, inputs) else f" for {_describe_input(op, input_index)}"
    return f"the gradient{where} {form_fault(tensor.shape, gradient.shape)}"


def _describe_input(op: Any, input_index: int) -> str:
    unit = private_graphs.custom_gradient_of(op)
    if unit is not None:
        return f"argument {input_index - unit.results} of a custom gradient"
    return f"input {input_index} of op {op.name}"


def _is_among(tensor: Any, inputs: Sequence[Any]) -> bool:
    """Whether a tensor is one of the inputs, passed on unchanged."""
    while not (is_input := any(tensor is source for source in inputs)) and tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return is_input


def _count_fault(counts: re.Match[str]) -> str:
    """Say how many gradients there should be; a custom gradient's results don't count as arguments."""
    returned, expected = int(counts[1]), int(counts[3])
    op = private_graphs.op_named(tf.compat.v1.get_default_graph(), counts["name"])
    unit = None if op is None else private_graphs.custom_gradient_of(op)
    if unit is not None:
        others = unit.results + len(unit.variables)
        returned, expected = returned - others, expected - others
    what = "a custom gradient" if unit is not None else f"the gradient function of op {counts['name']}"
    function = None if op is None else place_of(op)
    place = f" at {function.file}:{function.line}" if function is not None and function.file else ""
    return _wrong_count(what + place, expected, returned)


def _wrong_count(what: str, expected: int, returned: int) -> str:
    gradients = f"{count(expected, 'gradient')}, one (or None) for each argument"
    remedy = _COUNTS_SETTINGS if what.startswith("a custom gradient") and returned > expected else ""
    return f"{what} must return {gradients}, but returned {returned}.{remedy}"


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
    padded = tf.pad(private_gradients.dense(gradient, tensor), tf.stack([tf.zeros_like(missing), missing], 1))
    return tf.slice(padded, tf.zeros_like(claimed), claimed)
