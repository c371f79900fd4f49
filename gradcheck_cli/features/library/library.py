"""The library's entry points for notebooks and tests: specs or functions in, report out, in this process.

The arguments of a call are split into the tensors to differentiate by, and everything else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import math
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, SupportsFloat, SupportsIndex, cast

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import NoSpecsError, suggest
from gradcheck_cli.plain_files import short_path
from gradcheck_cli.reporting.exchange.findings import BAD, findings_of
from gradcheck_cli.reporting.report_text import render_report
from gradcheck_cli.results import Report
from gradcheck_cli.running.run_loop import run_in_workers
from gradcheck_cli.running.session import InProcess, start_tensorflow
from gradcheck_cli.spec.case import (
    Argument,
    Case,
    FunctionRef,
    Given,
    InputSpec,
    Source,
    StatedTolerance,
    in_each_mode,
)
from gradcheck_cli.spec.load import load_cases, load_mapping
from gradcheck_cli.spec.values.arrays import as_lists
from gradcheck_cli.spec.words import MODES
from gradcheck_cli.tensorflow_backend import dtypes
from gradcheck_cli.tensorflow_backend.binding.flat_tensors import NO_LABEL, leaves_of, unique
from gradcheck_cli.tensorflow_backend.private import private_state

OPTIONS = ("reference", "variables", "modes", "rtol", "atol", "seed")  # those of `check_function`
_SHOWN = 4  # arguments that a message names
_PARAMETERS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def split_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    variables: bool | Sequence[Any] | None,
) -> tuple[tuple[Argument, ...], Given]:
    """Make an input of each floating array, tensor, variable and number in a call.

    A Python number that is passed by keyword isn't differentiated: it is a setting. A Python number that is
    passed by position gets the dtype of the first array, and float32 without one, as in TensorFlow.

    Args:
        function: the function, whose parameters name the inputs.
        args: its positional arguments: any nest of `tf.nest`.
        kwargs: its keyword arguments.
        variables: `None`, whether all trainable variables become inputs, or those that do.

    Returns:
        The inputs, and how the function is called with them.

    Raises:
        TypeError: the function doesn't take these arguments, or none is floating.
    """
    if args or kwargs:
        _require_callable_so(function, args, kwargs)
    names = _names(function, len(args))
    trees = [
        tf.nest.map_structure(partial(_value, name), tree) for name, tree in zip(names, args, strict=True)
    ]
    keyword_trees = {
        name: tf.nest.map_structure(partial(_value, name), tree) for name, tree in kwargs.items()
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
    if not chosen and not wanted and variables is not True:
        raise TypeError(_nothing_floating([*zip(names, args, strict=True), *kwargs.items()]))
    named = [*zip(names, trees, strict=True), *sorted(keyword_trees.items())]
    labels = _labels(named, len(flat))
    arguments = tuple(
        Argument(labels[index], (_input_of(labels[index], flat[index], kinds[index]),)) for index in chosen
    )

    def pack(tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        leaves = list(flat)
        for index, tensor in zip(chosen, tensors, strict=False):
            leaves[index] = tensor
        positional, keywords = tf.nest.pack_sequence_as(
            (trees, keyword_trees), leaves, expand_composites=True
        )
        return positional, keywords

    return arguments, Given(pack, wanted)


# What options of other gradient checkers are here.
_OF_OTHERS = {
    "order": "Second order is for a spec: check({'forward': f, 'second_order': True, ...}).",
    "eps": "Steps are chosen for each element. Options of gradcheck's are " + ", ".join(OPTIONS) + ".",
    "raise_exception": "check_function(f, x) returns a report and raises nothing.",
}


def place_of(function: Callable[..., Any]) -> tuple[str, int]:
    """Return the file and line of the Python code of a function; "<call>" if it has none."""
    code = getattr(inspect.unwrap(_code_owner(function)), "__code__", None)
    if code is None or code.co_filename.startswith("<"):
        return "<call>", 0
    return short_path(code.co_filename), int(code.co_firstlineno)


def _code_owner(function: Any) -> Any:
    """Return the function whose code runs and whose parameters count: a layer's `call`, for example."""
    if isinstance(function, tf.Module) or private_state.is_layer(function):
        return getattr(function, "call", function)
    return getattr(function, "python_function", function)


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(_code_owner(function))
    except (TypeError, ValueError):  # not a Python function
        return None


def _require_callable_so(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Refuse arguments that the function's signature doesn't take.

    Raises:
        TypeError: with what the likely mistake is.
    """
    signature = _signature(function)
    try:
        if signature is not None and not private_state.is_layer(function):  # Keras adds arguments
            signature.bind(*args, **kwargs)
    except TypeError as error:
        hint = f"Options of gradcheck's are {', '.join(OPTIONS)}; other keywords go to the function."
        if len(args) == 1 and isinstance(args[0], list | tuple):
            hint = "Arguments are passed one by one: f(x, y) is checked by assert_gradients(f, x, y)."
        elif next(iter(signature.parameters if signature is not None else ()), "") == "self":
            hint = "Pass the method of an object: assert_gradients(layer.f, x), not Layer.f."
        elif args and inspect.isroutine(args[0]):
            hint = "A function to compare with is reference=f; a gradient stands in a spec: check({...})."
        hint = next((text for name, text in _OF_OTHERS.items() if name in kwargs), hint)
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
    if hasattr(leaf, "__array__") and not isinstance(leaf, float | complex | type):
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


def _input_of(label: str, leaf: Any, dtype: Any) -> InputSpec:
    value = dtypes.widen(leaf.numpy() if hasattr(leaf, "numpy") else np.asarray(leaf))
    return InputSpec(label, dtype.name, value.shape, Source("value", {"value": value}))


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


def _nothing_floating(named: Sequence[tuple[str, Any]]) -> str:
    """Say that there is nothing to differentiate by, and what there is."""
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


__unittest = True  # unittest leaves this file's lines out of a failure, as `__tracebackhide__` does in pytest
_SPEC_KEY = re.compile(r"'[a-z_]+: [^']+'|binding:")
_IN_A_SPEC = "In Python, a spec is a mapping: gradcheck_cli.check({'forward': f, 'inputs': {'x': x}, ...})"
MODULE = "gradcheck_given"  # for functions that no module holds under a name
_NUMBERS_ARE_INPUTS = (
    "A Python number passed by position is differentiated, so the function gets a tensor. Pass it by keyword "
    "if it is a setting."
)
_LIST_OF_NUMBERS = "A list is as many arguments as it has numbers. Pass np.array([...]) if it is one tensor."
_NUMBERS = itertools.count(1)
_FUNCTIONS = ("forward", "gradient", "reference", "object", "numpy")

Spec = Mapping[str, object] | str | Path


def check(
    spec_or_path: Spec | Sequence[Spec], *others: object, case: str | None = None, seed: int | None = None
) -> Report:
    """Check the gradients that a spec describes, in this process.

    Args:
        spec_or_path: a spec as a mapping, with the content of a YAML file, where functions and arrays may
            replace names and numbers; or the path of a file or folder; or a list of these.
        others: must be empty: a function and its arguments are for `check_function`.
        case: check only the cases of this name.
        seed: overrides the specs' own seeds.

    Returns:
        The report: `exit_code`, `summary`, and `cases` with their pairs; `render_report` turns it into text.

    Raises:
        SpecError: the spec has faults: all of them at once.
        NoSpecsError: nothing matched.
        TypeError: it is neither a mapping nor a path, nor a list of them.

    Example:
        >>> report = gradcheck_cli.check({"forward": tf.square, "inputs": {"x": np.ones(3)}})
        >>> assert report.exit_code == 0, gradcheck_cli.render_report(report)
    """
    several = spec_or_path if isinstance(spec_or_path, list | tuple) else [spec_or_path]
    if others or callable(spec_or_path):
        raise TypeError(
            "check takes a spec or its file. To check a function at some arguments, call "
            "gradcheck_cli.check_function(f, x), or gradcheck_cli.assert_gradients(f, x) in a test."
        )
    strange = [spec for spec in several if not isinstance(spec, Mapping | str | Path)]
    if strange:
        kind = type(strange[0]).__name__
        raise TypeError(f"a spec must be a mapping or the path of a file, or a list of such, but is {kind}.")
    mappings = [plain_spec(spec) for spec in several if isinstance(spec, Mapping)]
    paths = [spec for spec in several if isinstance(spec, str | Path)]
    cases = load_cases(paths, seed=seed) if paths else ()
    if len(mappings) == 1:
        cases += load_mapping(mappings[0], seed=seed)
    elif mappings:
        cases += load_mapping({"ops": mappings}, seed=seed)
    if not cases:
        raise NoSpecsError("there is no spec to check: the list is empty.")
    if case is not None:
        names = sorted({loaded.name for loaded in cases})
        cases = tuple(loaded for loaded in cases if loaded.name == case)
        if not cases:
            near = suggest(case, names)
            raise NoSpecsError(
                f"no case is named {case!r}; there are {', '.join(names)}.{near and ' ' + near}"
            )
    return run_in_workers(InProcess(), in_each_mode(cases))


def check_function(  # noqa: PLR0913 (the options of one call)
    fn: Callable[..., Any],
    /,
    *args: object,
    reference: Callable[..., Any] | None = None,
    variables: bool | Sequence[Any] | None = None,
    modes: Sequence[str] = ("graph",),
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    **kwargs: object,
) -> Report:
    """Check a function's gradients at the arguments given, in this process.

    Args:
        fn: what to check: a function, a method, a `tf.function`, a layer or a model.
        args: its arguments: any nest of arrays, tensors, variables and numbers. What is floating is
            differentiated, a Python number too; everything else is passed on as it is.
        reference: a function of the same arguments whose derivative the gradient should be, where that is
            another one on purpose.
        variables: whether trainable variables that the function uses are checked too, or a list of those to
            check; default: those of a Keras layer or model, and those of custom gradients.
        modes: how it is called: "graph", "dynamic" (shapes unknown), "eager", "xla".
        rtol: relative tolerance; default: by dtype.
        atol: absolute tolerance; default: by dtype and scale.
        seed: of random ops that the function uses.
        kwargs: the function's keyword arguments. Arrays and tensors among them are differentiated too;
            Python numbers aren't.

    Returns:
        The report; `bool(report)` says whether everything is right.

    Raises:
        TypeError: the function can't be called, or no argument is floating.
        ValueError: a mode is unknown, or a tolerance is negative.

    Example:
        >>> report = gradcheck_cli.check_function(log1pexp, np.linspace(-3, 3, 7))
        >>> assert report
    """
    modes = _check_call(fn, reference, modes)
    _check_numbers({"rtol": rtol, "atol": atol}, seed)
    if variables is not None and not isinstance(variables, bool | list | tuple):
        variables = [variables]
    start_tensorflow()
    # Late: it imports TensorFlow.
    from gradcheck_cli.features.library.library import place_of, split_call

    arguments, call = split_call(fn, args, kwargs, variables=variables)
    file, line = place_of(fn)
    inputs = [tensor for argument in arguments for tensor in argument.tensors]
    with _named(fn) as forward, _named(reference) as truth:
        case = Case(
            op=_op_name(fn),
            name="default",
            path=file,
            folder=str(Path.cwd()),
            line=line,
            forward=forward,
            op_type=None,
            binding="autodiff",
            gradient=None,
            arguments=arguments,
            dtype=inputs[0].dtype if inputs else "float32",
            reference=truth,
            tolerance=StatedTolerance(atol, rtol),
            seed=seed,
            modes=modes,
            mode=modes[0],
            variables=True if call.variables is not None else cast("bool | None", variables),
            records_fingerprint=False,
            given=call,
        )
        report = run_in_workers(InProcess(), in_each_mode([case]))
    if any(isinstance(arg, float | complex) for arg in args):
        return _advise(report, _NUMBERS_ARE_INPUTS)
    return _advise(report, _LIST_OF_NUMBERS) if any(map(_is_list_of_numbers, args)) else report


def assert_gradients(  # noqa: PLR0913 (the options of one call)
    fn: Callable[..., Any],
    /,
    *args: object,
    reference: Callable[..., Any] | None = None,
    variables: bool | Sequence[Any] | None = None,
    modes: Sequence[str] = ("graph",),
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    **kwargs: object,
) -> None:
    """Assert that a function's gradients are right at the arguments given; see `check_function`.

    Args:
        args: its positional arguments.
        reference: a function whose derivative the gradient should be instead.
        variables: whether its trainable variables are checked too, or which.
        modes: how it is called: "graph", "dynamic", "eager", "xla".
        rtol: relative tolerance.
        atol: absolute tolerance.
        seed: of random ops that it uses.
        kwargs: its keyword arguments.

    Raises:
        AssertionError: a gradient is wrong, or couldn't be checked; with the table of all pairs.
        TypeError: the function can't be called, or no argument is floating.
        ValueError: a mode is unknown, or a tolerance is negative.

    Example:
        >>> def test_log1pexp():
        ...     assert_gradients(log1pexp, np.linspace(-3, 3, 7))
    """
    __tracebackhide__ = True  # pytest shows the test's own line
    report = check_function(
        fn,
        *args,
        reference=reference,
        variables=variables,
        modes=modes,
        rtol=rtol,
        atol=atol,
        seed=seed,
        **kwargs,
    )
    if not report:
        raise AssertionError(describe_failure(report))


def describe_failure(report: Report) -> str:
    """Return the table of a report that isn't all right, and what to do next."""
    lines = [f"{report!r}", render_report(report).rstrip()]
    codes = [finding.code for finding in findings_of(report) if finding.outcome in BAD and finding.code]
    if codes:
        lines.append(f"`gradcheck explain {codes[0].number}` says what that means, and what to do")
    if _SPEC_KEY.search(lines[1]):
        lines.append(_IN_A_SPEC)
    return "\n".join(lines)


def _is_list_of_numbers(arg: object) -> bool:
    if not isinstance(arg, list | tuple) or not arg:
        return False
    return all(isinstance(item, int | float) or _is_list_of_numbers(item) for item in arg)


def _advise(report: Report, advice: str) -> Report:
    """Say what may be the cause where a call failed: numbers that became tensors."""
    cases = [
        replace(case, error=replace(case.error, message=f"{case.error.message}\n{advice}"))
        if case.error is not None and case.error.kind in {"forward", "gradient_count"}
        else case
        for case in report.cases
    ]
    return replace(report, cases=tuple(cases))


def _check_call(function: object, reference: object, modes: Sequence[str]) -> tuple[str, ...]:
    """Refuse what can't be checked, and return the modes as a tuple."""
    if isinstance(function, str | Path | Mapping):
        raise TypeError(
            f"the first argument must be a function, but is of type {type(function).__name__}. A spec or "
            "its file is for gradcheck_cli.check(spec)."
        )
    for name, value in (("the first argument", function), ("reference", reference)):
        if value is not None and not callable(value):
            raise TypeError(
                f"{name} must be a function, but is of type {type(value).__name__}. Pass the function "
                "itself, then its arguments: assert_gradients(f, x), not assert_gradients(f(x))."
            )
    if function is None:
        raise TypeError("the first argument must be a function, but is None.")
    if isinstance(function, type) and any("__call__" in vars(owner) for owner in function.__mro__[:-1]):
        name = function.__name__
        raise TypeError(f"{name} is a class: pass an object of it, assert_gradients({name}(...), x).")
    several = (modes,) if isinstance(modes, str) else tuple(modes)
    for mode in several:
        if mode not in MODES:
            near = suggest(str(mode), MODES)
            raise ValueError(f"modes: must be of {', '.join(MODES)}, but got {mode!r}.{near and ' ' + near}")
    if not several:
        raise ValueError(f"modes: must name at least one of {', '.join(MODES)}.")
    return tuple(dict.fromkeys(several))


def _check_numbers(tolerances: Mapping[str, object], seed: object) -> None:
    """Refuse tolerances and seeds that are none."""
    for name, tolerance in tolerances.items():
        if tolerance is None or (isinstance(tolerance, SupportsFloat) and 0 <= float(tolerance) < math.inf):
            continue
        raise ValueError(f"{name}: must be a finite number, zero or more, but got {tolerance!r}.")
    if not isinstance(seed, SupportsIndex) or operator.index(seed) < 0:
        raise ValueError(f"seed: must be a whole number, zero or more, but got {seed!r}.")


def _op_name(function: object) -> str:
    name = getattr(function, "__name__", None) or getattr(function, "name", None)
    return re.sub(r"[\s,<>]+", "", str(name or type(function).__name__))


@contextlib.contextmanager
def _named(function: object) -> Iterator[FunctionRef | None]:
    """Give a function a name by which a case finds it, while the block runs."""
    if function is None:
        yield None
        return
    own_module = sys.modules.setdefault(MODULE, ModuleType(MODULE))
    name = f"function_{next(_NUMBERS)}"
    setattr(own_module, name, function)
    try:
        yield FunctionRef(f"{MODULE}:{name}")
    finally:
        delattr(own_module, name)


def plain_spec(spec: Mapping[str, object]) -> dict[str, object]:
    """Return a spec as a file would contain it: functions by their names, arrays as lists.

    Args:
        spec: the spec; `inputs` may contain arrays or tensors instead of descriptions.
    """
    named: dict[str, object] = _to_plain(spec)
    if "op" not in spec and callable(spec.get("forward")):
        name = str(getattr(spec["forward"], "__name__", type(spec["forward"]).__name__))
        named = {"op": name.strip("<>"), **named}
    return named


def _to_plain(content: Any, key: str = "") -> Any:
    if isinstance(content, Mapping):
        inside = {name: _to_plain(value, str(name)) for name, value in content.items()}
        if key == "inputs":
            inside = {name: _as_input(content[name], value) for name, value in inside.items()}
        return inside
    if isinstance(content, list | tuple):
        return [_to_plain(item) for item in content]
    if key in _FUNCTIONS and callable(content):
        return _name_of(content)
    array = _as_array(content)
    return content if array is None else as_lists(array)


def _as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return an array or a tensor as an array; `None` for anything else."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    return np.asarray(value.numpy()) if hasattr(value, "numpy") and hasattr(value, "dtype") else None


def _as_input(original: object, value: object) -> object:
    """Return what a spec says about an input that was given as an array."""
    array = _as_array(original)
    if array is None:
        return value
    return {"value": value, "shape": list(array.shape), "dtype": array.dtype.name}


def _name_of(function: Any) -> str:
    """Return a name `module:name` of a function; one without a name is put into the module `MODULE`."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    resolved: Any = sys.modules.get(str(module))
    for attribute in name.split(".") if name else ():
        resolved = getattr(resolved, attribute, None)
    if resolved is function:
        return f"{module}:{name}"
    own_module = sys.modules.setdefault(MODULE, ModuleType(MODULE))
    own_name = f"function_{id(function)}"
    setattr(own_module, own_name, function)
    return f"{MODULE}:{own_name}"
