"""The library's entry points for notebooks and tests: specs or functions in, report out, in this process."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, SupportsFloat, SupportsIndex, cast

import numpy as np

from gradcheck_cli.cli.options.gate_options import GateOptions, configured_gate
from gradcheck_cli.errors import NoSpecsError, suggest
from gradcheck_cli.reporting.exchange.findings import BAD, findings_of
from gradcheck_cli.reporting.report_text import render_report
from gradcheck_cli.results import Report, count_nothing_left
from gradcheck_cli.running.run_loop import run_in_workers
from gradcheck_cli.running.session import InProcess, start_tensorflow
from gradcheck_cli.spec.case import (
    Case,
    CodeUnderTest,
    FunctionRef,
    Judging,
    Origin,
    Reference,
    Running,
    StatedTolerance,
    Wanted,
    in_each_mode,
)
from gradcheck_cli.spec.load import load_cases, load_mapping
from gradcheck_cli.spec.values.arrays import as_lists
from gradcheck_cli.spec.words import MODES

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
        UsageError: `[tool.gradcheck]` of the nearest pyproject.toml has a fault.
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
    paths = [spec for spec in several if isinstance(spec, str | Path)]
    gate = configured_gate(paths)
    mappings = [plain_spec(spec) for spec in several if isinstance(spec, Mapping)]
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
    return _run(cases, gate)


def _run(cases: Sequence[Case], gate: GateOptions) -> Report:
    """Check cases in this process; what counts is what `gradcheck run` counts here without options."""
    report = run_in_workers(InProcess(), in_each_mode(cases), mark=gate.ignored.mark)
    return count_nothing_left(replace(report, policy=gate.policy))


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
            Python numbers, and `np.float64`, which is one, aren't.

    Returns:
        The report; `bool(report)` says whether everything is right.

    Raises:
        TypeError: the function can't be called, or no argument is floating.
        ValueError: a mode is unknown, or a tolerance is negative.

    Example:
        >>> report = gradcheck_cli.check_function(log1pexp, np.linspace(-3, 3, 7))
        >>> assert report
    """
    options = {
        "reference": reference,
        "variables": variables,
        "modes": modes,
        "rtol": rtol,
        "atol": atol,
        "seed": seed,
    }
    defaults = inspect.signature(check_function).parameters
    passed = [name for name, value in options.items() if value is not defaults[name].default]
    modes = _check_call(fn, reference, modes)
    _check_numbers({"rtol": rtol, "atol": atol}, seed)
    if variables is not None and not isinstance(variables, bool | list | tuple):
        variables = [variables]
    gate = configured_gate()
    start_tensorflow()
    # Late: it imports TensorFlow.
    from gradcheck_cli.features.library.given_call import place_of, require_own_options, split_call

    require_own_options(fn, args, passed)
    arguments, call = split_call(fn, args, kwargs, variables=variables)
    file, line = place_of(fn)
    inputs = [tensor for argument in arguments for tensor in argument.tensors]
    with _named(fn) as forward, _named(reference) as truth:
        case = Case(
            op=_op_name(fn),
            name="default",
            dtype=inputs[0].dtype if inputs else "float32",
            arguments=arguments,
            mode=modes[0],
            seed=seed,
            code=CodeUnderTest(
                forward,
                variables=True if call.variables is not None else cast("bool | None", variables),
                given=call,
            ),
            reference=Reference(truth) if truth else None,
            judging=Judging(tolerance=StatedTolerance(atol, rtol)),
            running=Running(modes=modes),
            origin=Origin(file, str(Path.cwd()), line),
            wanted=Wanted(records_fingerprint=False),
        )
        report = _run([case], gate)
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
