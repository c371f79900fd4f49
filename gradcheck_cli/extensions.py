"""Finds the checks, reports and generators of other packages by their entry points, when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from gradcheck_cli.errors import UsageError

CHECKS = "gradcheck.checks"
REPORTS = "gradcheck.reports"
GENERATORS = "gradcheck.generators"


@lru_cache(maxsize=3)
def extensions(group: str) -> Mapping[str, Callable[..., Any]]:
    """Return the functions that installed packages register under a group, by name.

    Raises:
        UsageError: two packages register the same name, or a function can't be imported.
    """
    from importlib.metadata import entry_points

    functions: dict[str, Callable[..., Any]] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if point.name in functions:
            raise UsageError(f"entry point '{point.name}' of {group} is there twice; uninstall one package.")
        try:
            functions[point.name] = point.load()
        except Exception as error:  # another package's module may raise anything
            raise UsageError(
                f"entry point '{point.name}' of {group}, {point.value}, can't be imported: {error}; fix or "
                "uninstall the package."
            ) from error
    return functions
