"""The library's entry points for notebooks and tests: specs or functions in, report out, in this process."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, cast

import numpy as np

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.cli.options.gate_options import GateOptions, configured_gate
from gradcheck_cli.errors import NoSpecsError, SpecError, suggest
from gradcheck_cli.hooks import OpenCase
from gradcheck_cli.reporting.exchange.findings import BAD, findings_of
from gradcheck_cli.reporting.report_text import render_report
from gradcheck_cli.results import NOT_JUDGED, PairResult, Report, Status, case_status, count_nothing_left
from gradcheck_cli.running.run_loop import run_in_workers
from gradcheck_cli.running.session import InProcess, start_tensorflow
from gradcheck_cli.serial import map_texts
from gradcheck_cli.spec.case import (
    Case,
    CodeUnderTest,
    FunctionRef,
    InputSpec,
    Origin,
    Reference,
    Wanted,
    in_each_mode,
)
from gradcheck_cli.spec.load import load_cases, load_mapping
from gradcheck_cli.spec.values.arrays import as_lists

__unittest = True  # unittest leaves this file's lines out of a failure, as `__tracebackhide__` does in pytest
_SPEC_KEY = re.compile(r"'[a-z_]+: [^']+'|binding:")
_IN_A_SPEC = "In Python, a spec is a mapping: gradcheck_cli.check({'forward': f, 'inputs': {'x': x}, ...})"
MODULE = "gradcheck_given"  # for functions that no module holds under a name
_NUMBERS_ARE_INPUTS = (
    "A Python number passed by position is differentiated, so the function gets a tensor. Pass it by keyword "
    "if it is a setting."
)
_A_LIST = (
    "The function gets a list as a list. Pass its parts one by one: assert_gradients(f, x), not (f, [x])."
)
_LIST_OF_NUMBERS = "A list is as many arguments as it has numbers. Pass np.array([...]) if it is one tensor."
_NUMBERS = itertools.count(1)
_MOST_KEPT = 2**22  # elements of a Jacobian that a report keeps: 32 MiB, and as much for the other one
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
    differentiate: str | Sequence[str] | None = None,
    expect: str | Mapping[str, str] | None = None,
    second_order: bool = False,
    modes: str | Sequence[str] = ("graph",),
    rtol: float | None = None,
    atol: float | None = None,
    nondeterminism: float | None = None,
    method: str = "auto",
    power: tuple[float, float] | None = None,
    budget: float | None = None,
    domain: tuple[float | None, float | None] | Mapping[str, tuple[float | None, float | None]] | None = None,
    freeze: bool | None = None,
    checks: Mapping[str, bool] | None = None,
    device: str | None = None,
    seed: int = 0,
    **kwargs: object,
) -> Report:
    """Check a function's gradients at the arguments given, in this process.

    The options say what the keys of these names say in a spec. Inputs are named by the function's parameters,
    with the path inside a nest: "x", "params.w", "xs[0]"; `*` stands for any text.

    Args:
        fn: what to check: a function, a method, a `tf.function`, a layer or a model.
        args: its arguments: any nest of arrays, tensors, variables and numbers. What is floating is
            differentiated, a Python number too; everything else is passed on as it is.
        reference: a function of the same arguments whose derivative the gradient should be, where that is
            another one on purpose. Of the keyword arguments it gets those that it takes.
        variables: whether trainable variables that the function uses are checked too, or a list of those to
            check; default: those of a Keras layer or model, those of custom gradients, and all where no
            argument is floating.
        differentiate: the inputs to differentiate by; the others are held. Default: all.
        expect: "zero", "disconnected" or "mismatch", where that is meant; or such a word by pair,
            {"dy/dx": "zero"}.
        second_order: whether the gradient's own gradient is checked, too.
        modes: how it is called: "graph", "dynamic" (shapes unknown), "eager", "xla".
        rtol: relative tolerance; default: by dtype.
        atol: absolute tolerance; default: by dtype and scale.
        nondeterminism: how far a repeated gradient may differ, absolute.
        method: how pairs are judged: "auto", "central", "ladder", "full" (each element),
            "probe".
        power: what random probes must see: a relative error in one element, and the chance to miss it.
        budget: seconds of processor time that it may take, about, before probes replace single elements.
        domain: the lowest and the highest value that an input may take, or these by input.
        freeze: whether a `stop_gradient` is meant, so that its value is held.
        checks: structural checks to turn off, or on: {"linearity": False, "batched": True}.
        device: where it runs, such as "GPU:0".
        seed: of random ops that the function uses.
        kwargs: the function's keyword arguments. Arrays and tensors among them are differentiated too;
            Python numbers, and `np.float64`, which is one, aren't.

    Returns:
        The report; `bool(report)` says whether everything is right, and `print(report)` prints the table.
        `report.cases[0].pairs[0].analytic` and `.numeric` are the Jacobians, as arrays.

    Raises:
        TypeError: the function can't be called, or no argument is floating.
        ValueError: an option has a value that it can't have.

    Example:
        >>> report = gradcheck_cli.check_function(log1pexp, np.linspace(-3, 3, 7))
        >>> assert report
    """
    values = dict(locals())
    defaults = inspect.signature(check_function).parameters
    options = {name: values[name] for name in defaults if name not in {"fn", "args", "kwargs"}}
    passed = [name for name, value in options.items() if value is not defaults[name].default]
    _require_functions(fn, reference)
    gate = configured_gate()
    start_tensorflow()
    # Late: it imports TensorFlow.
    from gradcheck_cli.features.library import given_call

    given_call.require_own_options(fn, args, passed)
    with _named(fn) as forward, _named(reference) as truth:
        case = _case_of(options)
        arguments, call = given_call.split_call(fn, args, kwargs, options)
        file, line = given_call.place_of(fn)
        inputs = [tensor for argument in arguments for tensor in argument.tensors]
        has_none = not inputs and (variables is None or variables is False)
        uses_variables = True if call.variables is not None or (has_none and variables is None) else variables
        settings = {name: value for name, value in kwargs.items() if isinstance(value, int | float)}
        case = replace(
            case,
            op=_op_name(fn),
            dtype=inputs[0].dtype if inputs else "float32",
            arguments=arguments,
            code=CodeUnderTest(
                forward, attrs=settings, variables=cast("bool | None", uses_variables), given=call
            ),
            reference=Reference(truth) if truth else None,
            origin=Origin(file, str(Path.cwd()), line),
            wanted=Wanted(records_fingerprint=False, keeps_jacobians=True),
        )
        report = _run([case], gate)
    report = _in_python(_add_unmovable(report, inputs))
    if has_none and report.cases[0].error is not None:
        raise TypeError(given_call.describe_no_input(fn, args, kwargs))
    if any(isinstance(arg, float | complex) for arg in args):
        return _advise(report, _NUMBERS_ARE_INPUTS)
    if any(map(_is_list_of_numbers, args)):
        return _advise(report, _LIST_OF_NUMBERS)
    return _advise(report, _A_LIST) if any(isinstance(arg, list | tuple) for arg in args) else report


# How a message names a key of a spec, and an option of the command line, that is an option here.
_KEY_HERE = re.compile(
    r"'(?P<key>[a-z_]+): (?P<value>[^']+)'(?: \(or --mode \w+\))?|\(--(?P<option>budget)\)"
)
_WORD = re.compile(r"[a-z_]+")


def _in_python(report: Report) -> Report:
    """Return a report whose messages name options of this call, where they named keys of a spec."""
    options = inspect.signature(check_function).parameters

    def name_here(match: re.Match[str]) -> str:
        key, value = match["key"] or match["option"], match["value"] or "60"
        if key not in options:
            return match[0]
        if key == "differentiate":
            return "differentiate=[...] without it"
        words = {"true": "True", "false": "False", "60": "60"}
        return f"{key}={_WORD.sub(lambda word: words.get(word[0], repr(word[0])), value)}"

    def change(value: Any) -> Any:
        return map_texts(value, lambda text: _KEY_HERE.sub(name_here, text))

    texts = ("pairs", "checks", "error", "warnings")
    cases = [replace(case, **{name: change(getattr(case, name)) for name in texts}) for case in report.cases]
    return replace(report, cases=tuple(cases))


def _add_unmovable(report: Report, inputs: Sequence[InputSpec]) -> Report:
    """Add the pairs of inputs that were held because they aren't finite, as undecided."""
    held = [tensor for tensor in inputs if tensor.keeps]
    cases = []
    for case in report.cases:
        outputs = dict.fromkeys(pair.output for pair in case.pairs if pair.order == 1)
        undecided = tuple(
            PairResult(
                f"d{output}/d{tensor.name}",
                output,
                tensor.name,
                Status.INCONCLUSIVE,
                message=f"{tensor.name} {tensor.keeps}; give it a finite value, or 'differentiate: ...'.",
                undecided="singular",
                judged_by=NOT_JUDGED,
            )
            for output in outputs
            for tensor in held
        )
        pairs = (*case.pairs, *undecided)
        cases.append(
            replace(case, pairs=pairs, status=case_status(pairs, case.checks)) if undecided else case
        )
    return replace(report, cases=tuple(cases))


def keep_jacobians(judged: OpenCase) -> None:
    """Add both Jacobians to the result of each pair of which every element was compared."""
    findings = judged.findings
    pairs = []
    for pair in findings.pairs:
        judged_pair = findings.judged.get(pair.label)
        samples = judged_pair.samples if judged_pair is not None else ()
        sample = next((each for each in samples if each.is_wrong), next(iter(samples), None))
        is_written_out = sample is not None and sample.probes is None and sample.rows is None
        if judged_pair is None or sample is None or not is_written_out or sample.elements > _MOST_KEPT:
            pairs.append(pair)
            continue
        whole, arrays_of = sample.whole(), partial(_shaped, judged_pair.output, judged_pair.input_info)
        pairs.append(replace(pair, analytic=arrays_of(whole.analytic), numeric=arrays_of(whole.numeric)))
    judged.findings = replace(findings, pairs=tuple(pairs))


def _shaped(output: TensorInfo, input_info: TensorInfo, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a packed Jacobian in the dimensions of its output and its input."""
    if input_info.is_complex:
        values = values[:, : input_info.size] + 1j * values[:, input_info.size :]
    return values.reshape([*((2,) if output.is_complex else ()), *output.shape, *input_info.shape])


def _case_of(options: Mapping[str, Any]) -> Case:
    """Return a case of some function that has these options, which a spec's reader checks.

    Raises:
        ValueError: an option has a value that it can't have; all of them are named.
    """
    keys = ("second_order", "modes", "method", "freeze", "checks", "device", "seed")
    tolerance = {name: options[name] for name in ("atol", "rtol") if options[name] is not None}
    expect, power, noise = options["expect"], options["power"], options["nondeterminism"]
    spec: dict[str, Any] = {name: options[name] for name in keys if options[name] is not None}
    spec |= {"op": "f", "forward": f"{MODULE}:f", "inputs": {"x": {"shape": []}}, "tolerance": tolerance}
    spec["pairs"] = {"*": expect} if isinstance(expect, str) else dict(expect or {})
    spec |= {} if power is None else {"power": dict(zip(("size", "miss"), power, strict=True))}
    spec |= {} if noise is None else {"nondeterminism": {"atol": noise}}
    try:
        (case,) = load_mapping(plain_spec({name: value for name, value in spec.items() if value != {}}))
    except SpecError as error:
        faults = [f"{fault.place}: {fault.message}" for fault in error.faults]
        raise ValueError("\n".join(faults)) from None
    budget = options["budget"]
    if budget is None:
        return case
    if not (isinstance(budget, int | float) and budget > 0):
        raise ValueError(f"budget: must be seconds, more than 0, but got {budget!r}")
    return replace(case, judging=replace(case.judging, budget=float(budget)))


_Arguments = ParamSpec("_Arguments")


def _asserting(check: Callable[_Arguments, Report]) -> Callable[_Arguments, None]:
    """Return a function of the same arguments that raises where the report isn't all right."""

    @wraps(check)
    def assert_gradients(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        __tracebackhide__ = True  # pytest shows the test's own line
        report = check(*args, **kwargs)
        if not report:
            raise AssertionError(describe_failure(report))

    assert_gradients.__name__ = assert_gradients.__qualname__ = "assert_gradients"
    assert_gradients.__doc__ = """Assert that a function's gradients are right at the arguments given.

    It takes what `check_function` takes.

    Raises:
        AssertionError: a gradient is wrong, or couldn't be checked; with the table of all pairs.
        TypeError: the function can't be called, or no argument is floating.
        ValueError: an option has a value that it can't have.

    Example:
        >>> def test_log1pexp():
        ...     assert_gradients(log1pexp, np.linspace(-3, 3, 7))
    """
    return assert_gradients


assert_gradients = _asserting(check_function)


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


def _require_functions(function: object, reference: object) -> None:
    """Refuse what can't be checked.

    Raises:
        TypeError: with what to pass instead.
    """
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
