"""Makes the trainable variables that a forward uses inputs of its case, under stable names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.case import Argument, Case, InputSpec, Source
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.binding.flat_outputs import NO_LABEL, unique
from gradcheck_cli.tensorflow_backend.private import private_state

_UNNAMED = "Variable"  # what TensorFlow calls a variable that was given no name


def with_variables(case: Case, variables: Sequence[Any], target: Any) -> Case:
    """Return the case with each variable as an additional argument, at its present value.

    Raises:
        CaseFailedError: there are none.
    """
    if not variables:
        raise CaseFailedError(
            "variables",
            "variables: true, but the forward uses no trainable variable of a floating dtype; leave it out.",
        )
    names = _unique_names(variables, names_in_target(target), {tensor.name for tensor in case.tensors})
    arguments = tuple(
        Argument(name, (_as_input(name, variable),)) for name, variable in zip(names, variables, strict=True)
    )
    return replace(case, arguments=(*case.arguments, *arguments), variables=True)


def plain_name(variable: Any) -> str:
    """Return a variable's name without its output number."""
    return str(variable.name).partition(":")[0]


def _as_input(name: str, variable: Any) -> InputSpec:
    value = dtypes.widen(variable.numpy())
    return InputSpec(name, variable.dtype.name, value.shape, Source("variable", {"value": value}))


def names_in_target(target: Any) -> Mapping[int, str]:
    """Return the names by which a layer, module or function reaches variables, by `id` of the variable."""
    owner = getattr(target, "__self__", target)
    names_by_id: dict[int, str] = {}
    for name, value in {**_names_in_scope(target), "": owner}.items():
        if isinstance(value, tf.Variable):
            names_by_id[id(value)] = name
        elif isinstance(value, tf.Module):
            names_by_id |= private_state.attribute_paths(value)
        else:
            names_by_id |= private_state.keras_paths(value)
    return names_by_id


def _names_in_scope(target: Any) -> dict[str, Any]:
    """Return the global and nonlocal values that a Python function uses, by name."""
    try:
        names = inspect.getclosurevars(inspect.unwrap(getattr(target, "python_function", target)))
    except (TypeError, ValueError):  # no Python function
        return {}
    return {**names.globals, **names.nonlocals}


def _path(plain: str, name_in_target: str | None) -> str:
    """Return a variable's name, with its parts separated by slashes.

    In Keras the name is the layer's path, to which TensorFlow may have added a number. A variable without a
    name is named by its place in a module or a function.
    """
    if name_in_target is None:
        return plain
    return name_in_target if "/" in name_in_target or re.fullmatch(rf"{_UNNAMED}(_\d+)?", plain) else plain


def _unique_names(variables: Sequence[Any], names_in_target: Mapping[int, str], used: set[str]) -> list[str]:
    paths = [_path(plain_name(variable), names_in_target.get(id(variable))) for variable in variables]
    parts = [path.split("/") for path in paths]
    # A shared first part is a layer's own name, numbered in the order of creation: it says nothing.
    while all(len(path) > 1 and path[0] == parts[0][0] for path in parts):
        parts = [path[1:] for path in parts]
    return unique([NO_LABEL.sub("_", ".".join(path)) for path in parts], used)
