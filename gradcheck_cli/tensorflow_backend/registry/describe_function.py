"""Describes a function for a draft of its spec: how its gradient is attached, and what it takes."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.spec.drafts.draft import Draft, DraftInput
from gradcheck_cli.spec.drafts.guesses import MADE_WITH, SETTINGS, is_setting
from gradcheck_cli.spec.dtype_names import DTYPES
from gradcheck_cli.tensorflow_backend.binding import loading
from gradcheck_cli.tensorflow_backend.private import private_variables
from gradcheck_cli.tensorflow_backend.registry import argument_structures, refusals
from gradcheck_cli.tensorflow_backend.registry.gradient_registry import has_custom_gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The usual names for the gradient of `name`, if it is defined beside it.
_BESIDE = ("{}_grad", "{}_gradient", "grad_{}", "d{}", "d_{}", "{}_backward", "{}_vjp", "_{}_grad")
_MOST = 32  # elements of a default value that a spec copies
_PLAIN = (bool, int, float, str)
_VARIADIC = 2  # tensors for `*args`


def describe(target: str) -> Draft:
    """Describe a function, layer or module.

    Args:
        target: `module:attribute`, importable.

    Returns:
        A draft whose inputs may have `None` as their shape, which is then found by trying.

    Raises:
        CaseFailedError: it can't be imported, isn't callable, or has arguments that are no inputs.
    """
    value = loading.load(target, "forward")
    name = target.rpartition(":")[2].rpartition(".")[2]
    refusals.refuse(target, value, list(_parameters(value)))
    keys: dict[str, Any] = {"forward": target}
    remarks: dict[str, str] = {}
    notes: list[str] = []
    called = value
    made = _made(value)
    if made is not None or inspect.isclass(value):
        keys["build"] = _built_with(value)
        if keys["build"]:
            remarks["build"] = "what it is made with: replace by yours"
    if made is not None:
        value = called = made
    if inspect.isclass(value):
        called = refusals.call_of(value)
        keys["variables"] = True
    elif isinstance(value, tf.Module) or private_variables.is_layer(value):
        called = getattr(value, "call", None) or value
        keys["variables"] = True
    elif made is None and not has_custom_gradient(value):
        _add_gradient(target, name, value, keys, remarks)
    inputs, attrs = _arguments(called, is_method=inspect.isclass(value))
    hints = _hints(called)
    inputs = [argument_structures.with_structure(called, one, hints.get(one.name)) for one in inputs]
    if attrs:
        keys["attrs"] = attrs
        remarks["attrs"] = "its defaults, and settings that it needs; never differentiated"
    if "binding" not in keys:
        notes += ["second_order: true   # is the gradient differentiated again, as by a gradient penalty?"]
        notes += ["modes: [graph, eager, dynamic, xla]"]
    if not keys.get("gradient") and "variables" not in keys:
        notes += ["reference: module:function   # of a deliberate surrogate: whose derivative is meant?"]
    return Draft(
        name.lower(), keys, tuple(inputs), remarks, tuple(notes), argument_structures.names_in(called)
    )


def _built_with(value: Any) -> dict[str, Any]:
    """Return the arguments that a factory or a class is called with; a layer computes in float64."""
    is_layer = inspect.isclass(value) and issubclass(value, _layers()) and _takes_dtype(value)
    return {**_required(value), **({"dtype": "float64"} if is_layer else {})}


def _takes_dtype(kind: type) -> bool:
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(one.name == "dtype" or one.kind is one.VAR_KEYWORD for one in parameters)


def _layers() -> tuple[type, ...]:
    """Return the classes of layers of the Kerases that are imported, which take a dtype."""
    kinds = (sys.modules.get("keras"), sys.modules.get("tf_keras"))
    return tuple(kind.layers.Layer for kind in kinds if kind is not None)


def _made(value: Any) -> Any:
    """Return what a factory makes: a plain function with another inside, that returns something callable."""
    code = getattr(value, "__code__", None)
    if not inspect.isfunction(value) or code is None or has_custom_gradient(value):
        return None
    if not any(inspect.iscode(one) for one in code.co_consts):
        return None
    try:
        made = value(**_required(value))
    except Exception:  # noqa: BLE001 (a function that takes no numbers is no factory of settings)
        return None
    return made if callable(made) and not isinstance(made, tf.Tensor | np.ndarray) else None


def _required(kind: Any) -> dict[str, Any]:
    """Return a value for each required argument of a constructor."""
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return {}
    wanted = {one.name: one.annotation for one in parameters if one.default is one.empty and _is_named(one)}
    return {
        name: MADE_WITH.get(name, 1.0 if annotation in (float, "float") else 2)
        for name, annotation in wanted.items()
    }


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _add_gradient(target: str, name: str, value: Any, keys: dict[str, Any], remarks: dict[str, str]) -> None:
    """Add how the gradient is attached: a function beside this one, under one of the usual names."""
    module = target.partition(":")[0]
    names = [pattern.format(name) for pattern in _BESIDE]
    beside = next((one for one in names if callable(getattr(sys.modules.get(module), one, None))), None)
    is_numpy = _is_numpy(value)
    if beside is not None:
        takes_op = next(iter(_parameters(getattr(sys.modules[module], beside))), "") == "op"
        keys["gradient"] = f"{module}:{beside}" if takes_op else {"numpy": f"{module}:{beside}"}
        remarks["gradient"] = (
            "takes (op, *upstream)" if takes_op else "taken to be of NumPy: (*upstream, *inputs) -> arrays"
        )
    if is_numpy:
        keys["binding"] = "py_func"
        keys["outputs"] = {"y": {"dtype": "float64"}}
        if beside is None:
            keys["gradient"] = f"{module}:{name}_grad"
            remarks["gradient"] = "isn't there yet: (op, *upstream) -> a gradient per input"


def _is_numpy(value: Any) -> bool:
    """Whether a function uses NumPy: a ufunc, or Python code that names NumPy and not TensorFlow."""
    if isinstance(value, np.ufunc):
        return True
    try:
        seen = inspect.getclosurevars(inspect.unwrap(value))
    except (TypeError, ValueError):
        return False
    modules = {
        str(getattr(one, "__name__", "")).partition(".")[0]
        for one in {**seen.globals, **seen.nonlocals}.values()
        if inspect.ismodule(one)
    }
    return "numpy" in modules and not modules & {"tensorflow", "keras", "tf_keras"}


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(getattr(function, "python_function", function)).parameters
    except (TypeError, ValueError):
        return {}


def _arguments(function: Any, *, is_method: bool) -> tuple[list[DraftInput], dict[str, Any]]:
    """Return the inputs that a function takes, and its plain keyword arguments with their defaults."""
    if isinstance(function, np.ufunc):
        names = ["x"] if function.nin == 1 else [f"x{number}" for number in range(function.nin)]
        return [DraftInput(name, None) for name in names], {}
    parameters = list(_parameters(function).values())[1 if is_method else 0 :]
    hints = _hints(function)
    known = list(getattr(function, "input_signature", None) or ())
    inputs: list[DraftInput] = []
    attrs: dict[str, Any] = {}
    names = [one.name for one in parameters]
    for place, one in enumerate(parameters):
        if one.kind is one.VAR_POSITIONAL:
            inputs += [DraftInput(f"{one.name}{number}", None) for number in range(_VARIADIC)]
        if not _is_named(one):
            continue
        spec = known[place] if place < len(known) else hints.get(one.name)
        is_default = one.default is not one.empty
        if is_default and isinstance(one.default, _PLAIN):
            attrs[one.name] = one.default
        elif is_default:
            # None, a function, a member of an enumeration: only an array is a tensor.
            says = None if callable(one.default) else _said_by_value(one.default)
            if says is not None:
                inputs.append(DraftInput(one.name, _said(spec, one.default)))
        elif (plain := _plain_value(one.name, spec)) is not None:
            attrs[one.name] = plain
        elif is_setting(one.name, names) and _said(spec, None) is None:
            attrs[one.name] = SETTINGS[one.name]
        else:
            inputs.append(DraftInput(one.name, _said(spec, None)))
    return inputs, attrs


def _plain_value(name: str, annotation: Any) -> bool | int | float | str | None:
    """Return a value for an argument that is annotated as a number or text of Python's; `None` for others."""
    if typing.get_origin(annotation) is typing.Literal:
        first = typing.get_args(annotation)[0]
        return first if isinstance(first, _PLAIN) else None
    if annotation is int:
        return int(SETTINGS.get(name, 2))
    if annotation is bool:
        return False
    return name if annotation is str else None


def _hints(function: Any) -> dict[str, Any]:
    try:
        inner = inspect.unwrap(getattr(function, "python_function", function))
        return typing.get_type_hints(inner, include_extras=True)
    except Exception:  # noqa: BLE001 (an annotation that can't be read says nothing)
        return {}


def _said(annotation: Any, default: Any) -> dict[str, Any] | None:
    """Return what an annotation or a default value says about an input; `None` if that is nothing."""
    for one in (annotation, *getattr(annotation, "__metadata__", ())):
        if isinstance(one, tf.TensorSpec) and one.shape.rank is not None:
            shape = [2 if size is None else int(size) for size in one.shape]
            return _with_dtype({"shape": shape}, one.dtype.name)
        if isinstance(one, tuple | list) and all(isinstance(size, int) for size in one):
            return {"shape": [int(size) for size in one]}
    fields = _fields(annotation)
    if fields:
        place = f"{annotation.__module__}:{annotation.__qualname__}"
        return {
            "object": place,
            "fields": {name: _said(kind, None) or {} for name, kind in fields.items()},
        }
    if annotation is float:
        return {"shape": []}
    return None if default is None else _said_by_value(default)


def _fields(annotation: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or named tuple, with their types; none for anything else."""
    if not inspect.isclass(annotation):
        return {}
    if dataclasses.is_dataclass(annotation):
        names = [one.name for one in dataclasses.fields(annotation) if one.init]
    elif issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
        names = list(annotation._fields)
    else:
        return {}
    hints = _hints(annotation)
    return {name: hints.get(name) for name in names}


def _said_by_value(default: Any) -> dict[str, Any] | None:
    try:
        array = np.asarray(default)
    except (TypeError, ValueError):
        return None
    if array.dtype.kind not in "fiub":
        return None
    says = {"value": array.tolist()} if array.size <= _MOST else {"shape": list(array.shape)}
    return _with_dtype(says, array.dtype.name)


def _with_dtype(says: dict[str, Any], dtype: str) -> dict[str, Any]:
    return says if dtype == "float64" or dtype not in DTYPES else {**says, "dtype": dtype}
