"""Where a case's gradient function is defined, read from the text of modules: an annotation's place."""

from __future__ import annotations

import ast
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck_cli.running.selection.modules import file_of, find, is_installed, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradcheck_cli.spec.case import Case

_MAX_HOPS = 8  # a name that one module takes from another, which took it from a third, ...

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef


def gradient_source(case: Case) -> str:
    """Return `path:line` of the function that a case's gradient is written in.

    That is the spec's `gradient`; else the function that forward returns as its gradient, where
    `tf.custom_gradient` decorates forward or something inside it; else forward.

    Args:
        case: the case.

    Returns:
        The place, from the working directory where it lies below that; empty for an op type alone, and where
        the text of the modules doesn't tell.
    """
    reference = case.gradient or case.forward
    if reference is None:
        return ""
    module, _, attribute = reference.target.partition(":")
    found = _locate(module, attribute.split("."), [case.folder, str(Path.cwd())])
    if found is None:
        return ""
    file, node = found
    if case.gradient is None:
        node = _custom_gradient(node) or node
    return f"{_shown(file)}:{node.lineno}"


def _locate(
    module: str, path: Sequence[str], folders: list[str], hops: int = 0
) -> tuple[Path, ast.stmt] | None:
    """Find the statement that defines a module's attribute, also where another module does."""
    file = file_of(find(module, folders))
    if file is None or file.suffix != ".py" or is_installed(file) or hops > _MAX_HOPS:
        return None
    tree = parsed(file)
    if tree is None:
        return None
    scope: Scope = tree
    for position, name in enumerate(path):
        statement = _definition(scope, name)
        if statement is None:
            return None
        if isinstance(statement, ast.ImportFrom | ast.Import):
            return _followed(statement, module, file, [*path[position:]], folders, hops)
        if position == len(path) - 1 or not isinstance(statement, ast.ClassDef):
            return file, statement
        scope = statement
    return None


def _definition(scope: Scope, name: str) -> ast.stmt | None:
    """Return the last statement of a scope that binds a name: at run time that one holds."""
    return next((found for found in reversed(list(_statements(scope))) if name in _bound(found)), None)


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield a scope's statements, those under `if`, `try` and `with` too, but not a function's own."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            yield from _statements(node)


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, Function | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.ImportFrom):
        return {alias.asname or alias.name for alias in statement.names}
    if isinstance(statement, ast.Assign):
        return {target.id for target in statement.targets if isinstance(target, ast.Name)}
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return {statement.target.id}
    return set()


def _followed(  # noqa: PLR0913, PLR0917 (an import, where it stands, and what is looked for)
    statement: ast.ImportFrom | ast.Import,
    module: str,
    file: Path,
    path: list[str],
    folders: list[str],
    hops: int,
) -> tuple[Path, ast.stmt] | None:
    name, *rest = path
    if isinstance(statement, ast.Import):
        alias = next(one for one in statement.names if (one.asname or one.name.partition(".")[0]) == name)
        target = alias.name if alias.asname else name
        return _through(target, rest, folders, hops)
    alias = next(one for one in statement.names if (one.asname or one.name) == name)
    base = absolute(statement, module, is_package=file.name == "__init__.py")
    if base is None:
        return None
    return _locate(base, [alias.name, *rest], folders, hops + 1) or _through(
        f"{base}.{alias.name}", rest, folders, hops
    )


def _through(target: str, rest: list[str], folders: list[str], hops: int) -> tuple[Path, ast.stmt] | None:
    """Go on in a module, or in the submodule that the first of the names is."""
    if not rest:
        return None
    return _locate(target, rest, folders, hops + 1) or _through(
        f"{target}.{rest[0]}", rest[1:], folders, hops
    )


def absolute(statement: ast.ImportFrom, module: str, *, is_package: bool) -> str | None:
    """Return the module that a `from ... import` names; `None` where it leads out of the package."""
    if not statement.level:
        return statement.module
    parts = module.split(".")
    keep = len(parts) - statement.level + (1 if is_package else 0)
    if keep <= 0:
        return None
    return ".".join([*parts[:keep], *([statement.module] if statement.module else [])])


def _custom_gradient(node: ast.stmt) -> ast.stmt | None:
    """Return the function that a function under `tf.custom_gradient` returns as its gradient."""
    for inner in ast.walk(node):
        if isinstance(inner, Function) and any(_is_custom_gradient(one) for one in inner.decorator_list):
            return _returned(inner) or inner
    return None


def _is_custom_gradient(decorator: ast.expr) -> bool:
    name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
    return name == "custom_gradient"


def _returned(function: Function) -> ast.stmt | None:
    """Return the local function that is the second thing returned."""
    names = {
        node.value.elts[1].id
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
        and isinstance(node.value, ast.Tuple)
        and len(node.value.elts) == 2  # noqa: PLR2004 (outputs, gradient)
        and isinstance(node.value.elts[1], ast.Name)
    }
    local = [node for node in ast.walk(function) if isinstance(node, Function) and node.name in names]
    return local[-1] if local else None


def _shown(file: Path) -> str:
    with suppress(ValueError):
        return file.relative_to(Path.cwd().resolve()).as_posix()
    return os.path.relpath(file)
