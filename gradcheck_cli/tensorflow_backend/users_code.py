"""Imports the user's functions, `module:attribute`, which may lie beside the spec or in the working folder.

How TensorFlow behaves while their modules are imported and while they run, a feature may change: see
`hooks.Behaviour`.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import importlib
import importlib.util
import inspect
import os
import pkgutil
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli import hooks
from gradcheck_cli.errors import CaseFailedError, suggest
from gradcheck_cli.plain_files import is_installed, short_path
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.private import private_state


@contextlib.contextmanager
def seed_globals(seed: int) -> Iterator[None]:
    """Seed the global generators of Python (which Keras uses), NumPy and TensorFlow; restore them afterwards.

    Keras starts counting the names of its layers again, so that a variable has the same name in every mode.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the global one, as users use it)
    with private_state.restore_seed(), private_state.reset_keras_names():
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (as above)
        tf.random.set_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 (as above)


def import_module(name: str) -> ModuleType:
    """Import a module. Switches of TensorFlow's that it turns are for its own functions.

    What it tells `np.seterr` is for its import: a check computes with what isn't finite.

    Raises:
        Exception: whatever the module raises when it is imported.
    """
    with np.errstate():
        hooks.behaviour().import_module(name)
    return sys.modules[name]


# Never forgotten, even if the working directory is a checkout of it: otherwise two copies of it would run.
_OWN = __name__.partition(".")[0]


@contextmanager
def importable(folder: str) -> Iterator[None]:
    """Put the spec's folder and the working directory in front of the import path while the block runs.

    A module of the same name from another spec's folder is forgotten first, so each spec gets the code beside
    it, whatever ran before.
    """
    before = list(sys.path)
    front = [folder, str(Path.cwd())]
    sys.path[:0] = front
    _forget_namesakes(front)
    importlib.invalidate_caches()
    try:
        with hooks.behaviour().case():
            yield
    finally:
        sys.path[:] = before


def _forget_namesakes(front: list[str]) -> None:
    """Drop the top-level modules, with their submodules, that `front` would now find in another place."""
    # This runs for each case. The folders hold a few names, but hundreds of modules are imported.
    local_modules: dict[str, Path] = {}
    for folder in front:
        local_modules = {**_modules_in(folder), **local_modules}
    for name in local_modules.keys() & sys.modules.keys() - {_OWN}:
        file = getattr(sys.modules[name], "__file__", None)
        origin = Path(file).resolve() if isinstance(file, str) else None
        if origin is None or local_modules[name].resolve() == origin or is_installed(origin):
            continue
        for stale in [
            module_name
            for module_name in sys.modules
            if module_name == name or module_name.startswith(f"{name}.")
        ]:
            del sys.modules[stale]


def _modules_in(folder: str) -> dict[str, Path]:
    """Return the file of each top-level module in a folder, by name; a package comes before a module."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:  # it was deleted; the import will say so
        return {}
    modules = {name.removesuffix(".py"): Path(folder, name) for name in names if name.endswith(".py")}
    # Only modules that are already imported matter, and few of them are folders.
    for name in names:
        package = Path(folder, name, "__init__.py")
        if name in sys.modules and package.is_file():
            modules[name] = package
    return modules


def load(target: str, role: str) -> Any:
    """Import what `module:attribute` names.

    Raises:
        CaseFailedError: of kind "import" or "attribute".
    """
    module_name, _, attribute = target.partition(":")
    module = _import(module_name, role)
    value: Any = module
    for position, name in enumerate(attribute.split(".")):
        try:
            value = getattr(value, name)
        except AttributeError:
            holder = ".".join([module_name, *attribute.split(".")[:position]])
            hint = suggest(name, [other for other in dir(value) if not other.startswith("__")])
            if moved := _modules_with(module_name, attribute):
                hint = f"It is in {' and in '.join(moved)} now: write {moved[0]}:{attribute}."
            file = getattr(module, "__file__", None)
            where = short_path(file) if file else "a built-in module"
            raise CaseFailedError(
                "attribute", f"{role}: {holder!r} ({where}) has no attribute {name!r}. {hint}".rstrip()
            ) from None
    if not callable(value):
        raise CaseFailedError(
            "attribute", f"{role}: {target!r} must be callable, but is of type {type(value).__name__}."
        )
    return value


def owner_of_method(target: str, method: Any) -> str:
    """Return the class, `module:Class`, of a method that needs an object; empty for any other function."""
    owner, _, _ = target.rpartition(".")
    module, colon, names = owner.partition(":")
    # A module is an owner, too: `numpy:linalg.norm`.
    if not colon or not inspect.isclass(functools.reduce(getattr, names.split("."), sys.modules[module])):
        return ""
    try:
        return owner if next(iter(inspect.signature(method).parameters), "") == "self" else ""
    except (TypeError, ValueError):  # not a Python function
        return ""


def makes_callables(target: Any) -> bool:
    """Whether a function is a class whose objects are functions, such as a layer's."""
    return inspect.isclass(target) and any("__call__" in vars(base) for base in target.__mro__)


def is_layer(value: Any) -> bool:
    """Whether something is a layer or model of Keras, the installed one or the older `tf_keras`."""
    kinds = (sys.modules.get("keras"), sys.modules.get("tf_keras"))
    return any(kind is not None and isinstance(value, kind.layers.Layer) for kind in kinds)


def _modules_with(module_name: str, attribute: str) -> list[str]:
    """Return the imported modules of the same package that define a function or class of this name."""
    package = module_name.partition(".")[0]
    return [
        name
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] == package
        and name != module_name
        and getattr(vars(module).get(attribute), "__module__", None) == name
    ]


def _layout_hint(name: str) -> str:
    """Say what helps if a module lies in `src/`, another folder here, or above the spec; else empty."""
    top, here = name.partition(".")[0], Path.cwd()
    above = [folder for folder in Path(sys.path[0]).absolute().parents if here in folder.parents]
    below = sorted(file.parent for file in here.glob(f"*/{glob.escape(top)}.py"))
    for folder in (here / "src", *above, *(folder / "src" for folder in above), *below):
        if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
            path = short_path(str(folder))
            return f"{path}/ has {top}: install the project (pip install -e .), or set PYTHONPATH={path}."
    return ""


def _own_folders() -> list[Path]:
    """Return the user's own folders in which modules are looked for."""
    folders = [Path(entry or ".").absolute() for entry in sys.path]
    python = Path(sys.executable).parent
    return [
        folder
        for folder in folders
        if folder.is_dir() and not (is_installed(folder) or folder.is_relative_to(python))
    ]


def _describe_missing(name: str) -> str:
    """Say where a module was looked for, and what may have been meant."""
    package, _, last = name.rpartition(".")
    folders = _own_folders()
    inside = getattr(sys.modules.get(package), "__path__", ()) if package else map(str, folders)
    near = suggest(last, [module.name for module in pkgutil.iter_modules(inside)])
    looked = dict.fromkeys(short_path(str(folder)) for folder in folders)
    lines = ["Looked in:", *(f"  {place}" for place in looked), "  the installed packages"]
    remedy = (
        _layout_hint(name) or near or "Put the module beside the spec, run from its folder, or install it."
    )
    return "\n".join([f"no module named {name!r}.", *lines, remedy])


def _import(name: str, role: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CaseFailedError("import", f"{role}: {_describe_missing(error.name)}") from None
        is_part = (error.name or "").partition(".")[0] in sys.modules  # of a package that is installed
        remedy = _layout_hint(error.name or "") or ("" if is_part else "Install what it imports.")
        raise CaseFailedError(
            "import",
            f"{role}: importing {name!r} failed: {frames.first_line(error)}. {remedy}".rstrip(),
            frames.user_frames(error),
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (a module may raise anything when it is imported)
        raise CaseFailedError(
            "import",
            f"{role}: importing {name!r} failed: {frames.raised(error)}",
            frames.user_frames(error) or _syntax_place(error),
        ) from None


def _syntax_place(error: BaseException) -> tuple[str, ...]:
    if isinstance(error, SyntaxError) and error.filename:
        return (f"{short_path(error.filename)}:{error.lineno}: {(error.text or '').strip()}",)
    return ()
