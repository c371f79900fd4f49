"""The library's entry point for notebooks and tests: specs in, report out, in this process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli.errors import NoSpecsError
from gradcheck_cli.running.run_loop import run_in_workers
from gradcheck_cli.running.session import InProcess
from gradcheck_cli.spec.cases.case_modes import in_each_mode
from gradcheck_cli.spec.faults import suggest
from gradcheck_cli.spec.load import load_cases, load_mapping

if TYPE_CHECKING:
    from gradcheck_cli.results import Report


MODULE = "gradcheck_given"  # for functions that no module holds under a name
_FUNCTIONS = ("forward", "gradient", "reference", "object", "numpy")

Spec = Mapping[str, object] | str | Path


def check(spec_or_path: Spec | Sequence[Spec], *, case: str | None = None, seed: int | None = None) -> Report:
    """Check the gradients that a spec describes, in this process.

    Args:
        spec_or_path: a spec as a mapping, with the content of a YAML file, where functions and arrays may
            replace names and numbers; or the path of a file or folder; or a list of these.
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
    return run_in_workers(InProcess(), in_each_mode(cases), seed=seed)


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


def _to_plain(content: Any, key: str = "") -> Any:  # noqa: ANN401 (whatever a mapping holds)
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
    return content if array is None else _as_list(array)


def _as_array(value: Any) -> np.ndarray[Any, Any] | None:  # noqa: ANN401 (whatever a mapping holds)
    """Return an array or a tensor as an array; `None` for anything else."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    return np.asarray(value.numpy()) if hasattr(value, "numpy") and hasattr(value, "dtype") else None


def _as_list(array: np.ndarray[Any, Any]) -> object:
    if array.dtype.kind == "c":
        texts = np.array([str(element).strip("()") for element in array.ravel()], object)
        return texts.reshape(array.shape).tolist()
    if array.dtype.kind in "fV":  # also bfloat16
        return array.astype(np.float64).tolist()
    return array.tolist()


def _as_input(original: Any, value: Any) -> Any:  # noqa: ANN401 (whatever a mapping holds)
    """Return what a spec says about an input that was given as an array."""
    array = _as_array(original)
    if array is None:
        return value
    return {"value": value, "shape": list(array.shape), "dtype": array.dtype.name}


def _name_of(function: Any) -> str:  # noqa: ANN401 (a callable)
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
