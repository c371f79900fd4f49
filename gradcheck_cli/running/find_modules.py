"""Finds the files of modules as a spec's code would, and imports nothing."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from collections.abc import Sequence
from contextlib import suppress
from importlib import machinery
from pathlib import Path

from gradcheck_cli.plain_files import MIB, read_plain

LIMIT = 64 * MIB  # nobody writes a longer module


def find(name: str, folders: Sequence[str]) -> machinery.ModuleSpec | None:
    """Find a module as a spec's code would, without importing it or its packages; `None` if there is none."""
    top, *rest = name.split(".")
    spec = machinery.PathFinder.find_spec(top, folders)
    if spec is None:
        with suppress(ImportError, ValueError):  # ValueError: the script that runs has no spec
            spec = importlib.util.find_spec(top)  # for a top-level name, this imports nothing
    for submodule in rest:
        places = spec and spec.submodule_search_locations
        # Under its last name: by the whole one, a folder without an __init__.py asks for its imported parent.
        spec = machinery.PathFinder.find_spec(submodule, [*places]) if places else None
    return spec


def file_of(spec: machinery.ModuleSpec | None) -> Path | None:
    """Return the file of a module, or `None` for a built-in one or a folder without an __init__.py."""
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    return Path(spec.origin).resolve()


def modules_below(package: str, folders: Sequence[str]) -> tuple[str, ...]:
    """Return the dotted names of a package's modules and subpackages, sorted, without its `__main__`."""
    spec = find(package, folders)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    modules = []
    for module in pkgutil.iter_modules(places):
        name = f"{package}.{module.name}"
        if module.name != "__main__":
            modules += [name, *(modules_below(name, folders) if module.ispkg else ())]
    return tuple(sorted(modules))


def parse_file(file: Path) -> ast.Module | None:
    """Return a Python file's syntax tree; `None` if it isn't valid Python."""
    try:
        return ast.parse(read_plain(file, LIMIT))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
