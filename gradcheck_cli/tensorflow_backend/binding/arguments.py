"""Builds what a forward is called with from flat tensors: lists, dicts, objects and composite tensors."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.case import Argument, Case, Form
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.binding import loading

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_with(
    call: Callable[[list[Any], dict[str, Any]], Any],
    function: Callable[..., Any],
    case: Case,
    tensors: Sequence[Any],
) -> Any:
    """Call a function with a case's arguments, made of flat tensors, and its attrs.

    Args:
        call: takes positional and keyword arguments, and calls the function with them.
        function: its signature says what it takes only by keyword.

    Raises:
        CaseFailedError: of kind "inputs": an object can't be built from its fields.
    """
    if case.given is not None:
        return call(*case.given.pack(tensors))
    values = build_arguments(case, tensors)
    keyword_names = _keyword_names(function, list(values), case.attrs)
    positional = [value for name, value in values.items() if name not in keyword_names]
    positional, attrs = _place_attrs_before(function, positional, dict(case.attrs))
    return call(positional, {**{name: values[name] for name in keyword_names}, **attrs})


def _place_attrs_before(
    function: Callable[..., Any], tensors: list[Any], attrs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the tensors with the attrs whose parameters precede them, and the remaining attrs.

    So `tf.einsum(equation, *inputs)` can be called; an attr after the tensors is given by its name.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # not a Python function
        return tensors, attrs
    positional: list[Any] = []
    unplaced = iter(tensors)
    remaining = len(tensors)
    for name, parameter in parameters.items():
        if parameter.kind not in _POSITIONAL or not remaining:
            break
        if name in attrs:
            positional.append(attrs.pop(name))
        else:
            positional.append(next(unplaced))
            remaining -= 1
    return [*positional, *unplaced], attrs


def build_arguments(case: Case, tensors: Sequence[Any]) -> dict[str, Any]:
    """Build the arguments from flat tensors, by name, in forward's positional order.

    Raises:
        CaseFailedError: of kind "inputs": an object can't be built from its fields.
    """
    values = iter(tensors)
    return {
        argument.name: _build(argument.form, values, argument.name)
        for argument in case.arguments
        if not _is_variable(argument)
    }


def require_order(function: Callable[..., Any], case: Case, role: str) -> None:
    """Refuse inputs that have the names of a function's parameters in another order.

    Inputs are passed by position, but reported under the spec's names: each would be reported under another
    one's name. Parameters with other names, and `*args`, say nothing about the order.

    Raises:
        CaseFailedError: of kind "inputs".
    """
    if case.given is not None:
        return
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # not a Python function
        return
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameter_names = [name for name, parameter in parameters.items() if parameter.kind is either]
    argument_names = [argument.name for argument in case.arguments if not _is_variable(argument)]
    keyword_names = _keyword_names(function, argument_names, case.attrs)
    names = [name for name in argument_names if name not in keyword_names]
    if set(names) <= set(parameter_names) and names != [name for name in parameter_names if name in names]:
        order = ", ".join(name for name in parameter_names if name in names)
        raise CaseFailedError(
            "inputs",
            f"inputs are passed by position, in the order {', '.join(names)}, but the {role} "
            f"{getattr(function, '__name__', type(function).__name__)} takes them in the order {order}; "
            "write them in that order.",
        )


def attrs_of_reference(function: Callable[..., Any], case: Case) -> dict[str, Any]:
    """Return the keyword arguments that a reference takes: the forward's own, and those that build it."""
    keywords = {**(case.build or {}), **case.attrs}
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # not a Python function
        return dict(case.attrs)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(case.attrs)
    names = {argument.name for argument in case.arguments}
    return {name: value for name, value in keywords.items() if name in parameters and name not in names}


def takes_build_alone(function: Callable[..., Any], case: Case) -> bool:
    """Whether a function is a factory, as the forward is: it takes only what is in `build`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    build = case.build
    return build is not None and all(parameter.name in build for parameter in parameters)


def _is_variable(argument: Argument) -> bool:
    return bool(argument.tensors) and argument.tensors[0].is_variable


def _keyword_names(function: Callable[..., Any], names: Sequence[str], attrs: Any) -> list[str]:
    """Return the names of the arguments that a function can't take by position."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # not a Python function: by position, as always
        return []
    kinds = {parameter.kind for parameter in parameters.values()}
    keyword_names = [
        name
        for name in names
        if name in parameters and parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    ]
    if inspect.Parameter.VAR_KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        capacity = sum(
            parameter.kind in _POSITIONAL and name not in attrs for name, parameter in parameters.items()
        )
        keyword_names += [name for name in names if name not in keyword_names][capacity:]
    return keyword_names


def _build(form: Form, values: Iterator[Any], name: str) -> Any:
    """Build an argument from the next flat values."""
    if form.kind == "tensor":
        return next(values)
    if form.kind == "sparse":
        return _build_sparse(next(values), next(values), next(values), form.shape)
    if form.kind == "ragged":
        flat, splits = next(values), list(itertools.islice(values, form.splits))
        return tf.RaggedTensor.from_nested_row_splits(flat, splits, validate=False)
    if form.kind in ("dict", "object"):
        labels = [f"{name}.{key}" for key in form.keys]
    else:
        labels = [f"{name}[{index}]" for index in range(len(form.parts))]
    parts = [_build(part, values, label) for part, label in zip(form.parts, labels, strict=True)]
    if form.kind == "list":
        return parts
    if form.kind == "tuple":
        return tuple(parts)
    keyed = dict(zip(form.keys, parts, strict=True))
    return keyed if form.kind == "dict" else _build_object(form, keyed, name)


def _build_sparse(indices: Any, values: Any, dense_shape: Any, shape: tuple[int, ...]) -> tf.SparseTensor:
    # A trace knows its rank even if it knows nothing else, as if a SparseTensorSpec stated it.
    indices = tf.ensure_shape(indices, [None, len(shape)])
    tensor = tf.SparseTensor(indices, values, tf.ensure_shape(dense_shape, [len(shape)]))
    if values.shape[0] is not None:
        tensor.set_shape(shape)
    return tensor


def _build_object(form: Form, fields: dict[str, Any], name: str) -> Any:
    make = loading.load(form.target, f"inputs.{name}")
    try:
        return make(**fields)
    except (CaseFailedError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the user's code may raise anything
        raise CaseFailedError(
            "inputs",
            f"inputs.{name}: {form.target}({', '.join(f'{key}=...' for key in fields)}) raised "
            f"{frames.first_line(error)}; name the fields that it takes.",
            frames.user_frames(error),
        ) from error
