"""Where a gradient is written: that of an op in a graph, and that of a case in the code that it imported."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gradcheck_cli.checking.ops.operation import OpPlace
from gradcheck_cli.plain_files import short_path
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend.binding.loading import is_installed
from gradcheck_cli.tensorflow_backend.paths import graph_path
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import CONVERTED
from gradcheck_cli.tensorflow_backend.registry import gradient_registry

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def place_of(op: Any) -> OpPlace:
    """Return an op's name and its gradient function's place; for an op with a body, also those inside."""
    functions = [private_gradients.overriding_function(name) for name in dict.fromkeys(_inner_overrides(op))]
    inside = tuple(dict.fromkeys(_where(function) for function in functions if function is not None))
    function = private_gradients.gradient_function(op)
    if function is None:
        return OpPlace(op.name, op.type, inside=inside)
    return OpPlace(op.name, op.type, *_where(function), inside=inside)


def _inner_overrides(op: Any) -> list[str]:
    """Return the names of the overrides in the body of a loop, branch or call, or in what is recomputed."""
    unit = private_graphs.custom_gradient_of(op)
    if unit is not None and not private_graphs.custom_gradient_results(op):  # tf.recompute_grad
        arguments = list(op.inputs)[unit.results :]
        inner = graph_path.ops_between(arguments, list(op.inputs)[: unit.results])
        nodes = [inner_op.node_def for inner_op in inner]
    elif private_gradients.has_own_gradient(op):  # it skips everything inside
        nodes = []
    else:
        nodes = list(graph_path.inner_nodes(op.graph, op))
    return [name for node in nodes if (name := private_graphs.override_of(node))]


def _where(function: Any) -> tuple[str, str, int]:
    """Return a gradient function's name, file and line; the file is empty if it isn't Python code."""
    function = private_graphs.users_function(function)
    name, file, line = gradient_registry.where(function)
    code = getattr(function, "__code__", None)
    generated = private_gradients.source_place(code.co_filename, line) if code is not None else None
    if generated is not None:
        file, line = short_path(generated[0]), generated[1]
    return CONVERTED.sub("", name.partition(":")[2]), file, line


def source_of(case: Case) -> str:
    """Return `path:line` of the function that contains a case's gradient.

    That is the spec's `gradient`; or the function that forward returns as its gradient, if
    `tf.custom_gradient` decorates forward or a function inside it; or else forward.

    It is relative to the working directory, and empty for an op type alone, for code of an installed package,
    and where the module wasn't imported, as nothing is imported here.
    """
    reference = case.gradient or case.forward
    module, _, attribute = (reference.target if reference else "").partition(":")
    value: Any = sys.modules.get(module)
    for name in attribute.split("."):
        value = getattr(value, name, None)
    if value is None:
        return ""
    value = gradient_registry.innermost(value)
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
    """Return the 1-based line of a definition, or of the gradient of a custom gradient inside it."""
    for node in ast.walk(_parse("".join(lines))):
        if isinstance(node, _Definition):
            begins = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if begins == first:
                return ((_gradient_in(node) if finds_gradient else None) or node).lineno
    return first  # a lambda


@lru_cache(maxsize=64)
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


def _gradient_in(node: _Definition) -> _Function | None:
    """Return the function that a function under `tf.custom_gradient` returns as its gradient."""
    for inner in ast.walk(node):
        if isinstance(inner, _Function) and any(
            _is_custom_gradient(decorator) for decorator in inner.decorator_list
        ):
            return _returned_gradient(inner) or inner
    return None


def _is_custom_gradient(decorator: ast.expr) -> bool:
    name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
    return name == "custom_gradient"


def _returned_gradient(function: _Function) -> _Function | None:
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
