"""Explains in the user's words what goes wrong when a function is traced, or when a traced one runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from gradcheck_cli.checking.ops.operation import GradientFormError, TensorInfo
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import frames, work_counts
from gradcheck_cli.tensorflow_backend.binding import behaviour
from gradcheck_cli.tensorflow_backend.private import private_graphs


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
        work_counts.add(traces=1)
        with behaviour.trace_with_switches():
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
