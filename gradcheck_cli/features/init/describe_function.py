"""Describes a function for a draft of its spec: how its gradient is attached, and what it takes."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import inspect
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.init.draft import MADE_WITH, SETTINGS, Draft, DraftInput, is_setting
from gradcheck_cli.spec.words import DTYPES
from gradcheck_cli.tensorflow_backend.binding import users_code
from gradcheck_cli.tensorflow_backend.private import private_state
from gradcheck_cli.tensorflow_backend.private.private_gradients import custom_gradient_under

# The usual names for the gradient of `name`, if it is defined beside it.
_BESIDE = ("{}_grad", "{}_gradient", "grad_{}", "d{}", "d_{}", "{}_backward", "{}_vjp", "_{}_grad")
_MOST_COPIED = 32  # elements of a default value that a spec copies
_PLAIN = (bool, int, float, str)
_VARIADIC = 2  # tensors for `*args`


def describe(target: str, *, passes_defaults: bool = False) -> Draft:
    """Describe a function, layer or module.

    Args:
        passes_defaults: whether a custom gradient's numbers with a default are inputs, too.

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
    product = _call_factory(value)
    if product is not None or inspect.isclass(value):
        is_layer = inspect.isclass(value) and issubclass(value, _layers()) and _takes_dtype(value)
        keys["build"] = {**_required_arguments(value), **({"dtype": "float64"} if is_layer else {})}
        if keys["build"]:
            remarks["build"] = "the arguments that make it: replace them with yours"
    if product is not None:
        value = called = product
    if inspect.isclass(value):
        called = _call_of(value)
        keys["variables"] = True
    elif isinstance(value, tf.Module) or private_state.is_layer(value):
        called = getattr(value, "call", None) or value
        keys["variables"] = True
    elif product is None and custom_gradient_under(value) is None:
        _add_gradient(target, name, value, keys, remarks)
    inputs, attrs = _arguments(called, is_method=inspect.isclass(value))
    inputs, attrs = _without_keywords(called, inputs, attrs, notes, passes_defaults=passes_defaults)
    hints = _hints_of(called)
    inputs = [with_structure(called, draft_input, hints.get(draft_input.name)) for draft_input in inputs]
    if attrs:
        keys["attrs"] = attrs
        remarks["attrs"] = "its defaults, and settings that it needs; never differentiated"
    if "binding" not in keys:
        notes += ["second_order: true   # is the gradient differentiated again, as by a gradient penalty?"]
        notes += ["modes: [graph, eager, dynamic, xla]"]
    if not keys.get("gradient") and "variables" not in keys:
        notes += ["reference: module:function   # of a deliberate surrogate: whose derivative is meant?"]
    return Draft(name.lower(), keys, tuple(inputs), remarks, tuple(notes), names_in(called))


def _refuse(target: str, value: Any, parameters: Sequence[str]) -> None:
    """Refuse what isn't a forward: its spec would test something other than its author means."""
    why = ""
    if "." in target.partition(":")[2] and parameters and parameters[0] == "self":
        owner, _, method = target.rpartition(".")
        is_called = _call_of(users_code.load(owner, "forward")) is not None
        by_class = f"the class, {owner}, whose call is checked, or " if is_called else ""
        called = f"{owner.rpartition(':')[2]}(...).{method}({', '.join(parameters[1:])})"
        why = (
            f"is a method, and self is no tensor: name {by_class}a function that makes an object and "
            f"returns {called}."
        )
    elif inspect.isclass(value) and _call_of(value) is None:
        why = (
            "has neither call nor __call__, so its objects can't be called: name a function that makes one "
            "and calls a method."
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


def _takes_dtype(kind: type) -> bool:
    return any(
        parameter.name == "dtype" or parameter.kind is parameter.VAR_KEYWORD
        for parameter in _parameters_of(kind).values()
    )


def _layers() -> tuple[type, ...]:
    """Return the layer class of each Keras that is imported: a layer takes a dtype."""
    kinds = (sys.modules.get("keras"), sys.modules.get("tf_keras"))
    return tuple(kind.layers.Layer for kind in kinds if kind is not None)


def _call_factory(value: Any) -> Any:
    """Return what a factory makes: a plain function with another inside that returns something callable."""
    code = getattr(value, "__code__", None)
    if not inspect.isfunction(value) or code is None or custom_gradient_under(value) is not None:
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
        name: MADE_WITH.get(name, 1.0 if parameter.annotation in (float, "float") else 2)
        for name, parameter in _parameters_of(kind).items()
        if parameter.default is parameter.empty and _is_named(parameter)
    }


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _add_gradient(target: str, name: str, value: Any, keys: dict[str, Any], remarks: dict[str, str]) -> None:
    """Add the gradient: a function beside this one that has one of the usual names."""
    module = target.partition(":")[0]
    names = [pattern.format(name) for pattern in _BESIDE]
    has = partial(getattr, sys.modules.get(module))
    beside = next((name for name in names if callable(has(name, None))), None)
    is_numpy = _is_numpy(value) and not _computes_in_tensors(value)
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


def _is_numpy(value: Any) -> bool:
    """Whether a function uses NumPy: a ufunc, or Python code that names NumPy and not TensorFlow."""
    if isinstance(value, np.ufunc):
        return True
    try:
        closure = inspect.getclosurevars(inspect.unwrap(value))
    except (TypeError, ValueError):
        return False
    modules = {
        str(getattr(variable, "__name__", "")).partition(".")[0]
        for variable in {**closure.globals, **closure.nonlocals}.values()
        if inspect.ismodule(variable)
    }
    return "numpy" in modules and not modules & {"tensorflow", "keras", "tf_keras"}


def _computes_in_tensors(value: Any) -> bool:
    """Whether a function of a tensor returns a tensor: one that uses NumPy for its settings does."""
    inputs, attrs = _arguments(value, is_method=False)
    try:
        with tf.Graph().as_default():
            tensors = {made.name: tf.compat.v1.placeholder(tf.float64) for made in inputs}
            return isinstance(value(**tensors, **attrs), tf.Tensor)
    except Exception:  # noqa: BLE001 (NumPy refuses a tensor without a value, with errors of all kinds)
        return False


def _parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function or a constructor; none if it has no signature."""
    try:
        return inspect.signature(getattr(function, "python_function", function)).parameters
    except (TypeError, ValueError):
        return {}


def _arguments(function: Any, *, is_method: bool) -> tuple[list[DraftInput], dict[str, Any]]:
    """Return the inputs that a function takes, and its plain keyword arguments with their defaults."""
    if isinstance(function, np.ufunc):
        names = ["x"] if function.nin == 1 else [f"x{index}" for index in range(function.nin)]
        return [DraftInput(name, None) for name in names], {}
    parameters = list(_parameters_of(function).values())[1 if is_method else 0 :]
    hints = _hints_of(function)
    signature = list(getattr(function, "input_signature", None) or ())
    inputs: list[DraftInput] = []
    attrs: dict[str, Any] = {}
    names = [parameter.name for parameter in parameters]
    for position, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            inputs += [DraftInput(f"{parameter.name}{index}", None) for index in range(_VARIADIC)]
        if not _is_named(parameter):
            continue
        spec = signature[position] if position < len(signature) else hints.get(parameter.name)
        is_default = parameter.default is not parameter.empty
        if is_default and _is_plain(parameter.default):
            attrs[parameter.name] = _to_lists(parameter.default)
        elif is_default:
            # None, a function, a member of an enumeration: only an array is a tensor.
            says = None if callable(parameter.default) else _says_of_value(parameter.default)
            if says is not None:
                inputs.append(DraftInput(parameter.name, _says_of(spec, parameter.default)))
        elif (plain := _plain_value(parameter.name, spec)) is not None:
            attrs[parameter.name] = plain
        elif is_setting(parameter.name, names) and _says_of(spec, None) is None:
            attrs[parameter.name] = SETTINGS[parameter.name]
        else:
            inputs.append(DraftInput(parameter.name, _says_of(spec, None)))
    return inputs, attrs


def _is_plain(default: Any) -> bool:
    """Whether a default is a setting: a number, a text, or a list of such, of which no tensor is made."""
    if isinstance(default, list | tuple):
        return bool(default) and all(map(_is_plain, default))
    return isinstance(default, _PLAIN)


def _to_lists(default: Any) -> Any:
    return list(map(_to_lists, default)) if isinstance(default, list | tuple) else default


def _without_keywords(
    function: Any,
    inputs: list[DraftInput],
    attrs: dict[str, Any],
    notes: list[str],
    *,
    passes_defaults: bool,
) -> tuple[list[DraftInput], dict[str, Any]]:
    """Return inputs and attrs; no attrs for a custom gradient, which takes no keywords in a graph."""
    if custom_gradient_under(function) is None:
        return inputs, attrs
    parameters = _parameters_of(function)
    required = [
        name
        for name in attrs
        if parameters[name].default is inspect.Parameter.empty
        or (passes_defaults and _says_of_value(attrs[name]) is not None)
    ]
    left = [f"{name}={value!r}" for name, value in attrs.items() if name not in required]
    if left:
        notes.append(f"stays as it is: {', '.join(left)}; a tf.custom_gradient takes no keywords in a graph")
    inputs = [*inputs, *(DraftInput(name, _says_of_value(attrs[name])) for name in required)]
    return _in_order(inputs, list(parameters)), {}


def _in_order(inputs: list[DraftInput], names: list[str]) -> list[DraftInput]:
    """Return inputs in the order of the parameters; those of `*args` come last."""
    return sorted(
        inputs,
        key=lambda draft_input: names.index(draft_input.name) if draft_input.name in names else len(names),
    )


def _plain_value(name: str, annotation: Any) -> bool | int | float | str | None:
    """Return a value for an argument that is annotated as a Python number or text; `None` for others."""
    if typing.get_origin(annotation) is typing.Literal:
        first = typing.get_args(annotation)[0]
        return first if isinstance(first, _PLAIN) else None
    if annotation is int:
        return int(SETTINGS.get(name, 2))
    if annotation is bool:
        return False
    return name if annotation is str else None


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
            "fields": {name: _says_of(kind, None) or {} for name, kind in fields.items()},
        }
    if annotation is float:
        return {"shape": []}
    return None if default is None else _says_of_value(default)


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
    tree = _tree(function)
    keys = list(dict.fromkeys(_keys(tree, draft_input.name)))
    if keys:
        return replace(draft_input, says={"dict": {key: {} for key in keys}})
    length = _unpacked_count(tree, draft_input.name)
    is_list = _is_list(tree, draft_input.name) or (typing.get_origin(annotation) or annotation) in _SEQUENCES
    if length or is_list:
        return replace(draft_input, says=[{}] * (length or _LIST_LENGTH))
    return draft_input


def names_in(function: Any) -> frozenset[str]:
    """Return the names that the code of a function, and of the functions inside it, uses."""
    code = getattr(_users_function(function), "__code__", None)
    return frozenset() if code is None else frozenset(_names(code))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if inspect.iscode(inner):
            yield from _names(inner)


def _users_function(function: Any) -> Any:
    return inspect.unwrap(getattr(function, "python_function", function))


def _tree(function: Any) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(_users_function(function))))
    except (OSError, TypeError, ValueError, SyntaxError):  # no text, or one that can't stand alone
        return ast.Module([], [])


def _keys(tree: ast.AST, name: str) -> Iterator[str]:
    """Yield the keys that an argument is subscripted with, in order."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and _is_name(node.value, name):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str):
                yield key


def _is_list(tree: ast.AST, name: str) -> bool:
    """Whether the code iterates over an argument, unpacks it, or passes it to a function of a list."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension) and _is_iterated(node.iter, name):
            return True
        if isinstance(node, ast.Starred) and _is_name(node.value, name):
            return True
        if isinstance(node, ast.Call) and node.args and _is_name(node.args[0], name):
            called = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
            if called in _TAKES_LISTS:
                return True
    return False


def _is_iterated(node: ast.AST, name: str) -> bool:
    """Whether a loop over this goes through an argument, itself or with `enumerate`, `zip` or `reversed`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ITERATORS:
        return any(_is_name(argument, name) for argument in node.args)
    return _is_name(node, name)


def _unpacked_count(tree: ast.AST, name: str) -> int:
    """Return how many names the code unpacks an argument to, as `x, y = inputs` does; 0 if it doesn't."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_name(node.value, name):
            (target, *_) = node.targets
            if isinstance(target, ast.Tuple | ast.List):
                return len(target.elts)
    return 0


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
