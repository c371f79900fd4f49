"""Finds where a case's gradient is written, as `path:line`, from the function that the case imported."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradcheck_cli.tensorflow_backend.binding.loading import is_installed
from gradcheck_cli.tensorflow_backend.registry.gradient_registry import innermost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.case import Case

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def source_of(case: Case) -> str:
    """Return `path:line` of the function that contains a case's gradient.

    That is the spec's `gradient`; or the function that forward returns as its gradient, if
    `tf.custom_gradient` decorates forward or a function inside it; or else forward.

    Args:
        case: the case. Its modules must have been imported; nothing is imported here.

    Returns:
        The place, relative to the working directory. It is empty for an op type alone, for code of an
        installed package, and where the module couldn't be imported.
    """
    reference = case.gradient or case.forward
    module, _, attribute = (reference.target if reference else "").partition(":")
    value: Any = sys.modules.get(module)
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if value is None:
        return ""
    value = innermost(value)
    value = value if inspect.isclass(value) or inspect.isroutine(value) else type(value)
    try:
        file = Path(inspect.getsourcefile(value) or "")
        lines, index = inspect.findsource(value)
    except (OSError, TypeError):  # compiled code, or code without a file
        return ""
    if not file.is_file() or is_installed(file.resolve()):
        return ""
    return f"{os.path.relpath(file)}:{_line(lines, index + 1, finds_gradient=case.gradient is None)}"


def _line(lines: Sequence[str], first: int, *, finds_gradient: bool) -> int:
    """Return the line of a definition whose text, with its decorators, starts at line `first`.

    Args:
        lines: of the file.
        first: 1-based.
        finds_gradient: look inside for the gradient of a custom gradient.
    """
    for node in ast.walk(_parsed("".join(lines))):
        if isinstance(node, _Definition):
            begins = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if begins == first:
                return ((_custom_gradient(node) if finds_gradient else None) or node).lineno
    return first  # a lambda


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _custom_gradient(node: _Definition) -> _Function | None:
    """Return the function that a function under `tf.custom_gradient` returns as its gradient."""
    for inner in ast.walk(node):
        if isinstance(inner, _Function) and any(_is_custom_gradient(one) for one in inner.decorator_list):
            return _returned(inner) or inner
    return None


def _is_custom_gradient(decorator: ast.expr) -> bool:
    name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
    return name == "custom_gradient"


def _returned(function: _Function) -> _Function | None:
    """Return the local function that is returned second."""
    names = {
        node.value.elts[1].id
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
        and isinstance(node.value, ast.Tuple)
        and len(node.value.elts) == 2  # noqa: PLR2004 (outputs, gradient)
        and isinstance(node.value.elts[1], ast.Name)
    }
    local = [node for node in ast.walk(function) if isinstance(node, _Function) and node.name in names]
    return local[-1] if local else None
