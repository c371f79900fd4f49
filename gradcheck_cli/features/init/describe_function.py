"""Describes a function for a draft of its spec: how its gradient is attached, and what it takes."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.init.candidates import TABLES
from gradcheck_cli.features.init.draft import Draft, DraftInput
from gradcheck_cli.spec.words import DTYPES
from gradcheck_cli.tensorflow_backend import users_code
from gradcheck_cli.tensorflow_backend.registry import has_custom_gradient

# The usual names for the gradient of `name`, if it is defined beside it.
_BESIDE = ("{}_grad", "{}_gradient", "grad_{}", "d{}", "d_{}", "{}_backward", "{}_vjp", "_{}_grad")
_MOST_COPIED = 32  # elements of a default value that a spec copies
_PLAIN = (bool, int, float, str)
_VARIADIC = 2  # tensors for `*args`


def describe(target: str, *, is_numpy: bool = False) -> Draft:
    """Describe a function, method, layer or module.

    Args:
        target: `module:attribute`.
        is_numpy: whether it takes arrays, and no tensors.

    Returns:
        A draft whose inputs may have `None` as their shape, which is then found by trying.

    Raises:
        CaseFailedError: it can't be imported, isn't callable, or isn't a forward.
    """
    value = users_code.load(target, "forward")
    name = target.rpartition(":")[2].rpartition(".")[2]
    _refuse(target, value, list(_parameters_of(value)))
    keys: dict[str, Any] = {"forward": target}
    remarks: dict[str, str] = {}
    notes: list[str] = []
    called = value
    owner = users_code.owner_of_method(target, value)
    product = None if owner else _call_factory(value)
    maker = users_code.load(owner, "forward") if owner else value
    if owner or product is not None or inspect.isclass(value):
        is_layer = inspect.isclass(maker) and _is_layer(maker)
        keys["build"] = _required_arguments(maker) | ({"dtype": "float64"} if is_layer else {})
        if keys["build"]:
            remarks["build"] = "the arguments that make it: replace them with yours"
    if product is not None:
        value = called = product
    if inspect.isclass(value):
        called = _call_of(value)
        keys["variables"] = True
    elif isinstance(value, tf.Module) or users_code.is_layer(value):
        called = getattr(value, "call", None) or value
        keys["variables"] = True
    elif product is None and not owner and not has_custom_gradient(value):
        _add_gradient(target, name, keys, remarks, is_numpy=is_numpy)
    inputs, attrs = _arguments(called, is_method=bool(owner) or inspect.isclass(value))
    hints = _hints_of(called)
    inputs = [with_structure(called, draft_input, hints.get(draft_input.name)) for draft_input in inputs]
    if attrs:
        keys["attrs"] = attrs
        remarks["attrs"] = "its defaults, and settings that it needs; never differentiated"
    if "binding" not in keys:
        notes += ["second_order: true   # is the gradient differentiated again, as by a gradient penalty?"]
        notes += ["modes: [graph, eager, dynamic, xla]"]
    if not keys.get("gradient") and "variables" not in keys:
        notes += ["reference: module:function   # if the gradient isn't the derivative on purpose"]
    parameters = tuple(_parameters_of(called))
    return Draft(name.lower(), keys, tuple(inputs), remarks, tuple(notes), names_in(called), parameters)


def _refuse(target: str, value: Any, parameters: Sequence[str]) -> None:
    """Refuse what isn't a forward: its spec would test something other than its author means."""
    why = ""
    if inspect.isclass(value) and _call_of(value) is None:
        why = (
            f"has neither call nor __call__, so its objects can't be called: name a method, {target}.METHOD, "
            "or a function that makes one and calls it."
        )
    elif inspect.isfunction(value) and len(parameters) > 1 and parameters[0] == "op":
        why = (
            "is a gradient function, (op, *upstreams), and the function that it belongs to isn't beside it. "
            f"Write a spec with 'gradient: {target}' and that function as 'forward'; for the gradient of an "
            "op type, also 'op_type' and 'binding: override'."
        )
    if why:
        raise CaseFailedError("forward", f"{target} {why}")


def _call_of(kind: Any) -> Any:
    """Return the method that runs when an object of a class is called; `None` if there is none."""
    names = {name for owner in inspect.getmro(kind) for name in vars(owner)}
    return next((getattr(kind, name) for name in ("call", "__call__") if name in names), None)


def _is_layer(kind: Any) -> bool:
    """Whether this is a layer of Keras that takes a dtype."""
    parameters = _parameters_of(kind).values()
    takes_dtype = any(each.name == "dtype" or each.kind is each.VAR_KEYWORD for each in parameters)
    return takes_dtype and any(base.__name__ == "Layer" for base in inspect.getmro(kind))


def _call_factory(value: Any) -> Any:
    """Return what a factory makes: a plain function with another inside that returns something callable."""
    code = getattr(value, "__code__", None)
    if not inspect.isfunction(value) or code is None or has_custom_gradient(value):
        return None
    if not any(inspect.iscode(constant) for constant in code.co_consts):
        return None
    try:
        product = value(**_required_arguments(value))
    except Exception:  # noqa: BLE001 (it takes no numbers, so it isn't a factory)
        return None
    return product if callable(product) and not isinstance(product, tf.Tensor | np.ndarray) else None


def _required_arguments(kind: Any) -> dict[str, Any]:
    """Return a value for each required argument of a constructor."""
    return {
        name: TABLES["made_with"].get(name)
        or (1.0 if parameter.annotation in (float, "float") else _setting(name))
        for name, parameter in _parameters_of(kind).items()
        if parameter.default is parameter.empty and _is_named(parameter)
    }


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _add_gradient(
    target: str, name: str, keys: dict[str, Any], remarks: dict[str, str], *, is_numpy: bool
) -> None:
    """Add the gradient: a function beside this one that has one of the usual names."""
    module = target.partition(":")[0]
    names = [pattern.format(name) for pattern in _BESIDE]
    beside = next((name for name in names if callable(getattr(sys.modules.get(module), name, None))), None)
    if beside is not None:
        takes_op = next(iter(_parameters_of(getattr(sys.modules[module], beside))), "") == "op"
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


def _parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function or a constructor; none if it has no signature."""
    try:
        return inspect.signature(getattr(function, "python_function", function)).parameters
    except (TypeError, ValueError):
        return {}


def _arguments(function: Any, *, is_method: bool) -> tuple[list[DraftInput], dict[str, Any]]:
    """Return the inputs that a function takes, and its settings."""
    if isinstance(function, np.ufunc):
        names = ["x"] if function.nin == 1 else [f"x{index}" for index in range(function.nin)]
        return [DraftInput(name, None) for name in names], {}
    parameters = list(_parameters_of(function).values())[1 if is_method else 0 :]
    names = [each.name for each in parameters]
    signature = getattr(function, "input_signature", None) or ()
    hints = {**_hints_of(function), **dict(zip(names, signature, strict=False))}
    is_custom = has_custom_gradient(function)
    inputs: list[DraftInput] = []
    attrs: dict[str, Any] = {}
    for each in parameters:
        hint = hints.get(each.name)
        if each.kind is each.VAR_POSITIONAL:
            inputs += [DraftInput(f"{each.name}{index}", None) for index in range(_VARIADIC)]
        elif _is_named(each):
            if (value := _setting_of(each, hint, names, is_custom=is_custom)) is not None:
                attrs[each.name] = value
            elif each.default is each.empty or _says_of_value(each.default) is not None:
                # None, a function, a member of an enumeration: only an array is a tensor.
                inputs.append(DraftInput(each.name, _says_of(hint, each.default)))
    if not inputs:  # tf.nn's losses have None for what they need
        inputs = [DraftInput(name, None) for name in names if name != "name"]
    return inputs, attrs


def _setting_of(parameter: inspect.Parameter, hint: Any, names: list[str], *, is_custom: bool) -> Any:
    """Return a value for an argument that is a setting; `None` for others.

    Args:
        parameter: the argument.
        hint: its annotation.
        names: those of all arguments.
        is_custom: whether it is a custom gradient's, of which a float is a setting, too, at first.
    """
    if parameter.default is not parameter.empty:
        return _to_lists(parameter.default) if _is_plain(parameter.default) else None
    if typing.get_origin(hint) is typing.Literal:
        return next(iter(typing.get_args(hint)))
    if hint is int:
        return int(_setting(parameter.name))
    if hint is float and is_custom:
        return 1.0
    if hint in (bool, str):
        return False if hint is bool else parameter.name
    is_named_so = _is_setting(parameter.name, names) and _says_of(hint, parameter.empty) is None
    return _setting(parameter.name) if is_named_so else None


def _is_setting(name: str, others: Sequence[str]) -> bool:
    """Whether an argument is a setting by its name; beside a query and a value, k is a key."""
    is_named = name in TABLES["settings"] or re.fullmatch(TABLES["counts"], name) is not None
    return is_named and not (name == "k" and {"q", "v"} & set(others))


def _setting(name: str) -> Any:
    """Return a value for an argument that is no tensor: 2 where nothing is known about it."""
    return TABLES["settings"].get(name, 2)


def _is_plain(default: Any) -> bool:
    """Whether a default is a setting: a number, a text, or a list of such, of which no tensor is made."""
    if isinstance(default, list | tuple):
        return bool(default) and all(map(_is_plain, default))
    return isinstance(default, _PLAIN)


def _to_lists(default: Any) -> Any:
    return list(map(_to_lists, default)) if isinstance(default, list | tuple) else default


def _hints_of(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_users_function(function), include_extras=True)
    except Exception:  # noqa: BLE001 (an annotation that can't be read says nothing)
        return {}


def _says_of(annotation: Any, default: Any) -> dict[str, Any] | None:
    """Return what an annotation or a default value says about an input; `None` if that is nothing."""
    for hint in (annotation, *getattr(annotation, "__metadata__", ())):
        if isinstance(hint, tf.TensorSpec) and hint.shape.rank is not None:
            shape = [2 if size is None else int(size) for size in hint.shape]
            return _with_dtype({"shape": shape}, hint.dtype.name)
        if isinstance(hint, tuple | list) and all(isinstance(size, int) for size in hint):
            return {"shape": [int(size) for size in hint]}
    fields = _fields_of(annotation)
    if fields:
        class_name = f"{annotation.__module__}:{annotation.__qualname__}"
        return {
            "object": class_name,
            "fields": {name: _says_of(kind, inspect.Parameter.empty) or {} for name, kind in fields.items()},
        }
    if annotation is float:
        return {"shape": []}
    if annotation is tf.SparseTensor:
        return {"shape": [3, 3], "sparse": {"nnz": 4}}
    return None if default is inspect.Parameter.empty else _says_of_value(default)


def _fields_of(annotation: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or named tuple, with their types; none for anything else."""
    if not inspect.isclass(annotation):
        return {}
    if dataclasses.is_dataclass(annotation):
        names = [field.name for field in dataclasses.fields(annotation) if field.init]
    elif issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
        names = list(annotation._fields)
    else:
        return {}
    hints = _hints_of(annotation)
    return {name: hints.get(name) for name in names}


def _says_of_value(default: Any) -> dict[str, Any] | None:
    if callable(default):
        return None
    try:
        array = np.asarray(default)
    except (TypeError, ValueError):
        return None
    if array.dtype.kind not in "fiub":
        return None
    says = {"value": array.tolist()} if array.size <= _MOST_COPIED else {"shape": list(array.shape)}
    return _with_dtype(says, array.dtype.name)


def _with_dtype(says: dict[str, Any], dtype: str) -> dict[str, Any]:
    return says if dtype == "float64" or dtype not in DTYPES else {**says, "dtype": dtype}


_LIST_LENGTH = 2  # tensors in a list
_SEQUENCES = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)
_ITERATORS = frozenset({"enumerate", "zip", "reversed"})
_TAKES_LISTS = frozenset({"len", "add_n", "concat", "stack", "meshgrid", "dynamic_stitch"})


def with_structure(function: Any, draft_input: DraftInput, annotation: Any) -> DraftInput:
    """Return an input as a dict or list of tensors of unknown shapes if the code uses it as one."""
    if draft_input.says is not None:
        return draft_input
    says = _structure(_tree(function), draft_input.name)
    if says is None and (typing.get_origin(annotation) or annotation) in _SEQUENCES:
        says = [{}] * _LIST_LENGTH
    return replace(draft_input, says=says)


def _structure(tree: ast.AST, name: str) -> Any:
    """Return what the code uses an argument as: a dict by its keys, or a list; `None` for a tensor."""

    def is_it(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    keys: dict[str, Any] = {}
    length = 0
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))) if is_it(value):
                keys[key] = {}
            case ast.Assign(targets=[ast.Tuple(elts=parts) | ast.List(elts=parts)], value=value) if is_it(
                value
            ):
                length = len(parts)
            case ast.For(iter=source) | ast.comprehension(iter=source) | ast.Starred(value=source):
                walked = [source]
                if isinstance(source, ast.Call) and getattr(source.func, "id", "") in _ITERATORS:
                    walked = source.args
                if any(map(is_it, walked)):
                    length = length or _LIST_LENGTH
            case ast.Call(func=called, args=[first, *_]) if is_it(first):
                if {getattr(called, "attr", ""), getattr(called, "id", "")} & _TAKES_LISTS:
                    length = length or _LIST_LENGTH
    return {"dict": keys} if keys else [{}] * length if length else None


def names_in(function: Any) -> frozenset[str]:
    """Return the names that the code of a function uses."""
    nodes = ast.walk(_tree(function))
    return frozenset(getattr(node, "attr", "") or getattr(node, "id", "") for node in nodes)


def _users_function(function: Any) -> Any:
    return inspect.unwrap(getattr(function, "python_function", function))


def _tree(function: Any) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(_users_function(function))))
    except (OSError, TypeError, ValueError, SyntaxError):  # no text, or one that can't stand alone
        return ast.Module([], [])
