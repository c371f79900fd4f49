"""Reads from a function's code which arguments are dicts or lists of tensors, and what the function calls."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import textwrap
import typing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

    from gradcheck_cli.features.init.draft import DraftInput

_LIST_LENGTH = 2  # tensors in a list
_SEQUENCES = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)
_TAKES_LISTS = frozenset({"add_n", "concat", "stack", "meshgrid", "dynamic_stitch"})


def with_structure(function: Any, draft_input: DraftInput, annotation: Any) -> DraftInput:
    """Return an input as a dict or list of tensors of unknown shapes if the code uses it as one."""
    if draft_input.says is not None:
        return draft_input
    tree = _tree(function)
    keys = list(dict.fromkeys(_keys(tree, draft_input.name)))
    if keys:
        return replace(draft_input, says={"dict": {key: {} for key in keys}})
    if _is_list(tree, draft_input.name) or (typing.get_origin(annotation) or annotation) in _SEQUENCES:
        return replace(draft_input, says=[{}] * _LIST_LENGTH)
    return draft_input


def names_in(function: Any) -> frozenset[str]:
    """Return the names that the code of a function, and of the functions inside it, uses."""
    code = getattr(_users_function(function), "__code__", None)
    return frozenset() if code is None else frozenset(_names(code))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if inspect.iscode(inner):
            yield from _names(inner)


def _users_function(function: Any) -> Any:
    return inspect.unwrap(getattr(function, "python_function", function))


def _tree(function: Any) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(_users_function(function))))
    except (OSError, TypeError, ValueError, SyntaxError):  # no text, or one that can't stand alone
        return ast.Module([], [])


def _keys(tree: ast.AST, name: str) -> Iterator[str]:
    """Yield the keys that an argument is subscripted with, in order."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and _is_name(node.value, name):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str):
                yield key


def _is_list(tree: ast.AST, name: str) -> bool:
    """Whether the code iterates over an argument, unpacks it, or passes it to a function of a list."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension) and _is_name(node.iter, name):
            return True
        if isinstance(node, ast.Starred) and _is_name(node.value, name):
            return True
        if isinstance(node, ast.Call) and node.args and _is_name(node.args[0], name):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if called in _TAKES_LISTS:
                return True
    return False


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
