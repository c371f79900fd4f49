"""Optional packages: the extra that brings each, and one sentence that names it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from gradcheck_cli.errors import UsageError

EXTRAS = {"matplotlib": "plot", "distributed": "dask", "tensorflow_probability": "probability"}


def describe_missing(what: str, package: str) -> str:
    """Say that something needs a package that isn't there, and what brings it if that is an extra."""
    remedy = f': pip install "gradcheck-cli[{EXTRAS[package]}]"' if package in EXTRAS else ""
    return f"{what} needs {package}, which isn't installed{remedy}"


def load(module: str, what: str, package: str) -> ModuleType:
    """Import a module of gradcheck's that is about an optional package.

    Raises:
        UsageError: the package isn't there, or can't be imported.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(describe_missing(what, package)) from error
    except ImportError as error:
        raise UsageError(f"{what} needs {package}, which can't be imported: {error}") from error
