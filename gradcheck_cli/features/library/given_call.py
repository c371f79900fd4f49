"""Splits the arguments of a Python call into the tensors to differentiate by, and everything else.

A file of its own, since it imports TensorFlow: `library` imports that quietly, and not before it is needed.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.plain_files import short_path
from gradcheck_cli.spec.case import UNBOUNDED, Argument, Given, InputSpec, Source, matches
from gradcheck_cli.spec.words import words_of_others
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.leaves import NO_LABEL, leaves_of, unique
from gradcheck_cli.tensorflow_backend.users_code import is_layer

_SHOWN = 4  # arguments that a message names
_PARAMETERS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def require_own_options(function: Callable[..., Any], args: Sequence[Any], options: Sequence[str]) -> None:
    """Refuse options that were passed if the function has parameters of these names, which it wouldn't get.

    Raises:
        TypeError: with how to pass them to the function.
    """
    signature = _signature(function)
    parameters = [] if signature is None else list(signature.parameters)[len(args) :]
    for option in options:
        if option in parameters:
            name = getattr(function, "__name__", type(function).__name__)
            raise TypeError(
                f"{name} has a parameter {option!r}, and so has this call: {name} would be checked without "
                f"it. Pass it inside of a function: assert_gradients(lambda x: {name}(x, {option}=...), x)."
            )


def split_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> tuple[tuple[Argument, ...], Given]:
    """Make an input of each floating array, tensor, variable and number in a call.

    A Python number that is passed by keyword isn't differentiated: it is a setting. A Python number that is
    passed by position gets the dtype of the first array, and float32 without one, as in TensorFlow. A NumPy
    scalar keeps its own; by keyword, `np.float64` is the Python number that it inherits from.

    Args:
        function: the function, whose parameters name the inputs.
        args: its positional arguments: any nest of `tf.nest`.
        kwargs: its keyword arguments.
        options: those of `check_function`, of which `variables`, `differentiate` and `domain` count here.

    Returns:
        The inputs, and how the function is called with them.

    Raises:
        TypeError: the function doesn't take these arguments.
        ValueError: an option names an input that isn't there.
    """
    if args or kwargs:
        _require_callable_so(function, args, kwargs, options)
    variables = options["variables"]
    if variables is not None and not isinstance(variables, bool | list | tuple):
        variables = [variables]
    names = _names(function, len(args))
    trees = [
        tf.nest.map_structure(partial(_value, name), tree) for name, tree in zip(names, args, strict=True)
    ]
    keyword_trees = {
        name: tf.nest.map_structure(
            lambda leaf, name=name: leaf if isinstance(leaf, float | complex) else _value(name, leaf), tree
        )
        for name, tree in kwargs.items()
    }
    flat = tf.nest.flatten((trees, keyword_trees), expand_composites=True)
    kinds = [_dtype(leaf) for leaf in flat]
    default = next((kind for kind in kinds if kind is not None), tf.float32)
    positional_count = len(tf.nest.flatten(trees, expand_composites=True))
    for index, leaf in enumerate(flat[:positional_count]):
        if isinstance(leaf, float | complex):
            is_fitting = isinstance(leaf, float) or default.is_complex
            kinds[index] = default if is_fitting else tf.complex64
    chosen = [index for index, kind in enumerate(kinds) if kind is not None]
    wanted = None if variables is None or isinstance(variables, bool) else tuple(map(_variable, variables))
    named = [*zip(names, trees, strict=True), *sorted(keyword_trees.items())]
    labels = _labels(named, len(flat))
    chosen_labels = [labels[index] for index in chosen]
    limits = _by_input(options["domain"], chosen_labels, "domain")
    asked = options["differentiate"]
    asked = dict.fromkeys([asked] if isinstance(asked, str) else asked, True) if asked is not None else True
    moving = _by_input(asked, chosen_labels, "differentiate")
    inputs = [
        _input_of(label, flat[index], kinds[index], moving[label], limits[label])
        for label, index in zip(chosen_labels, chosen, strict=True)
    ]
    if not any(tensor.differentiate for tensor in inputs):  # then that is an error
        inputs = [replace(tensor, differentiate=bool(tensor.keeps), keeps="") for tensor in inputs]

    def pack(tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        leaves = list(flat)
        for index, tensor in zip(chosen, tensors, strict=False):
            leaves[index] = tensor
        positional, keywords = tf.nest.pack_sequence_as(
            (trees, keyword_trees), leaves, expand_composites=True
        )
        return positional, keywords

    return tuple(Argument(tensor.name, (tensor,)) for tensor in inputs), Given(pack, wanted)


def _by_input(option: Any, labels: Sequence[str], name: str) -> dict[str, Any]:
    """Return what an option says of each input: one value for all, or a mapping by their names.

    Raises:
        ValueError: it names an input that isn't there.
    """
    if not isinstance(option, Mapping):
        return dict.fromkeys(labels, option)
    globs = {label: next((glob for glob in option if _names_input(glob, label)), None) for label in labels}
    unknown = [glob for glob in option if glob not in globs.values()]
    if unknown:
        raise ValueError(f"{name}: no input is named {unknown[0]!r}; there are {', '.join(labels)}.")
    return {label: None if glob is None else option[glob] for label, glob in globs.items()}


def _names_input(glob: str, label: str) -> bool:
    """Whether a name stands for an input: its own, or that of the argument that it is a part of."""
    return matches(glob, label) or label.startswith((f"{glob}.", f"{glob}["))


def place_of(function: Callable[..., Any]) -> tuple[str, int]:
    """Return the file and line of the Python code of a function; "<call>" if it has none."""
    code = getattr(inspect.unwrap(_code_owner(function)), "__code__", None)
    if code is None or code.co_filename.startswith("<"):
        return "<call>", 0
    return short_path(code.co_filename), int(code.co_firstlineno)


def _code_owner(function: Any) -> Any:
    """Return the function whose code runs and whose parameters count: a layer's `call`, for example."""
    if isinstance(function, tf.Module) or is_layer(function):
        return getattr(function, "call", function)
    return getattr(function, "python_function", function)


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(_code_owner(function))
    except (TypeError, ValueError):  # not a Python function
        return None


def _require_callable_so(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Refuse arguments that the function's signature doesn't take.

    Raises:
        TypeError: with what the likely mistake is.
    """
    signature = _signature(function)
    try:
        if signature is not None and not is_layer(function):  # Keras adds arguments
            signature.bind(*args, **kwargs)
    except TypeError as error:
        hint = f"Options of gradcheck's are {', '.join(options)}; other keywords go to the function."
        if len(args) == 1 and isinstance(args[0], list | tuple):
            hint = "Arguments are passed one by one: f(x, y) is checked by assert_gradients(f, x, y)."
        elif next(iter(signature.parameters if signature is not None else ()), "") == "self":
            hint = "Pass the method of an object: assert_gradients(layer.f, x), not Layer.f."
        elif args and inspect.isroutine(args[0]):
            hint = "A function to compare with is reference=f; a gradient stands in a spec: check({...})."
        hint = next((text for name in kwargs for text in words_of_others("arguments", name)), hint)
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"{name} can't be called like this: {error}. It takes {signature}. {hint}") from None


def _names(function: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the parameters that the first `count` positional arguments are for."""
    signature = _signature(function)
    parameters = [] if signature is None else list(signature.parameters.values())
    names = [parameter.name for parameter in parameters if parameter.kind in _PARAMETERS][:count]
    rest = next(
        (parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.VAR_POSITIONAL),
        "x",
    )
    return names + unique([f"{rest}{index}" for index in range(count - len(names))], names)


def _value(name: str, leaf: Any) -> Any:
    """Return a leaf as it is split: a variable by its value, and what is like an array as an array."""
    if isinstance(leaf, tf.Variable) or type(leaf).__module__.startswith("keras."):
        leaf = getattr(leaf, "value", leaf)
        leaf = leaf() if callable(leaf) else leaf
        return tf.convert_to_tensor(leaf) if isinstance(leaf, tf.Variable) else leaf
    if tf.is_tensor(leaf):
        tensors = tf.nest.flatten(leaf, expand_composites=True)
        if not all(hasattr(tensor, "numpy") for tensor in tensors if tf.is_tensor(tensor)):
            raise TypeError(
                f"{name} holds a symbolic tensor, which has no value: call this outside of tf.function and "
                "of graphs, with arrays or eager tensors."
            )
        return leaf
    if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
        inner = [field for field in leaves_of(leaf) if _dtype(_value(name, field.value)) is not None]
        if inner:
            raise TypeError(
                f"{name} holds a {type(leaf).__name__}, and tf.nest doesn't look inside it: its "
                f"{inner[0].path.lstrip('.')} would stay unchecked. Pass a dict of its fields, to a function "
                "that builds it."
            )
    if hasattr(leaf, "__array__") and not isinstance(leaf, type):
        return np.asarray(leaf)
    return leaf


def _variable(variable: Any) -> Any:
    """Return TensorFlow's variable; Keras 3 has its own around one."""
    inner = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", None)
    if not isinstance(inner, tf.Variable):
        raise TypeError(
            "variables must be None, True, False or a list of tf.Variable, but holds "
            f"{type(variable).__name__}."
        )
    return inner


def _dtype(leaf: Any) -> Any:
    """Return the dtype of an array or a tensor that is floating or complex; `None` for anything else."""
    if not (isinstance(leaf, np.ndarray) or tf.is_tensor(leaf)):
        return None
    try:
        dtype = tf.as_dtype(leaf.dtype)
    except TypeError:  # a dtype that TensorFlow doesn't have
        if leaf.dtype.kind in "fc":
            raise TypeError(
                f"TensorFlow has no dtype {leaf.dtype}; cast the array, for example with .astype('float64')."
            ) from None
        return None
    return dtype if dtypes.is_differentiable(dtype) else None


def _input_of(label: str, leaf: Any, dtype: Any, moves: Any, limits: Any) -> InputSpec:
    """Return an input at the value given. One that isn't finite is held: no difference can be taken there."""
    value = dtypes.widen(leaf)
    spoilt = np.argwhere(~np.isfinite(value)) if moves else np.zeros((0, 0), int)
    where = [int(index) for index in spoilt[0]] if len(spoilt) else []
    low, high = limits or (None, None)
    domain = (-np.inf if low is None else low, np.inf if high is None else high)
    if domain != UNBOUNDED and ((value < domain[0]) | (value > domain[1])).any():
        raise ValueError(f"domain: {label} has values outside of {low} to {high}.")
    return InputSpec(
        label,
        dtype.name,
        value.shape,
        Source("value", {"value": value}),
        differentiate=bool(moves) and not len(spoilt),
        domain=domain,
        keeps=f"is {value[tuple(where)]} at {where}: there is no difference to take there"
        if len(spoilt)
        else "",
    )


def _labels(named: Sequence[tuple[str, Any]], count: int) -> list[str]:
    """Name each leaf by its path: `x`, `params.w`, `xs[0]`."""
    labels = []
    for name, tree in named:
        # A `None` is a leaf for tf.nest, and nothing for `leaves_of`.
        filled = tf.nest.map_structure(
            lambda leaf: leaf if isinstance(leaf, np.ndarray) or tf.is_tensor(leaf) else "", tree
        )
        labels += [leaf.path for leaf in leaves_of(filled, NO_LABEL.sub("_", name))]
    return unique(labels if len(labels) == count else [f"x{index}" for index in range(count)])


def describe_no_input(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Say that there is nothing to differentiate by, and what there is."""
    named = [*zip(_names(function, len(args)), args, strict=True), *kwargs.items()]
    if not named:
        return (
            "there is nothing to differentiate by: pass the function's arguments after it, or "
            "variables=True for its trainable variables."
        )
    kinds = [f"{name} is of type {_describe(value)}" for name, value in named[:_SHOWN]]
    return (
        f"there is nothing to differentiate by, as no argument is floating: {', '.join(kinds)}. "
        "Pass floating arrays or tensors, such as np.array(x, 'float64')."
    )


def _describe(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    name = getattr(dtype, "name", dtype)
    if isinstance(value, list | tuple) and value:
        return f"{type(value).__name__} of {_describe(value[0])}"
    return type(value).__name__ + (f" of {name}" if isinstance(name, str) else "")
