"""Specs that are given in Python: with functions and arrays where a file has names and numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

MODULE = "gradcheck_given"  # where functions are found that no module holds under a name
_FUNCTIONS = ("forward", "gradient", "reference", "object", "numpy")


def written(spec: Mapping[str, object]) -> dict[str, object]:
    """Return a spec as a file would hold it: functions by their names, arrays as lists.

    Args:
        spec: the spec; `inputs` may hold arrays, or tensors, in place of what is said of an input.
    """
    named: dict[str, object] = _plain(spec)
    if "op" not in spec and callable(spec.get("forward")):
        name = str(getattr(spec["forward"], "__name__", type(spec["forward"]).__name__))
        named = {"op": name.strip("<>"), **named}
    return named


def _plain(part: Any, key: str = "") -> Any:  # noqa: ANN401 (whatever a mapping holds)
    if isinstance(part, Mapping):
        inside = {name: _plain(value, str(name)) for name, value in part.items()}
        if key == "inputs":
            inside = {name: _as_input(part[name], value) for name, value in inside.items()}
        return inside
    if isinstance(part, list | tuple):
        return [_plain(one) for one in part]
    if key in _FUNCTIONS and callable(part):
        return _name_of(part)
    array = _array(part)
    return part if array is None else _listed(array)


def _array(part: Any) -> np.ndarray[Any, Any] | None:  # noqa: ANN401 (whatever a mapping holds)
    """Return an array or a tensor as an array; `None` for anything else."""
    if isinstance(part, np.ndarray | np.generic):
        return np.asarray(part)
    return np.asarray(part.numpy()) if hasattr(part, "numpy") and hasattr(part, "dtype") else None


def _listed(array: np.ndarray[Any, Any]) -> object:
    if array.dtype.kind == "c":
        return np.array([str(one).strip("()") for one in array.ravel()], object).reshape(array.shape).tolist()
    if array.dtype.kind in "fV":  # also bfloat16
        return array.astype(np.float64).tolist()
    return array.tolist()


def _as_input(given: Any, value: Any) -> Any:  # noqa: ANN401 (whatever a mapping holds)
    """Return what a spec says of an input that was given as an array."""
    array = _array(given)
    if array is None:
        return value
    return {"value": value, "shape": list(array.shape), "dtype": array.dtype.name}


def _name_of(function: Any) -> str:  # noqa: ANN401 (a callable)
    """Return `module:name` under which a function is found, putting it where it is found if need be."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(str(module))
    for part in name.split(".") if name else ():
        found = getattr(found, part, None)
    if found is function:
        return f"{module}:{name}"
    kept = sys.modules.setdefault(MODULE, ModuleType(MODULE))
    own = f"function_{id(function)}"
    setattr(kept, own, function)
    return f"{MODULE}:{own}"
