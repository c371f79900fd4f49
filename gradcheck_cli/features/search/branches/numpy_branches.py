"""The sides of conditions in Python code that a graph calls.

For `if` and `while`, the line that follows the condition shows the side. For values, such as `np.where`, the
condition itself is evaluated just before its line runs.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tensorflow.python.ops import script_ops

from gradcheck_cli.covered import Branch
from gradcheck_cli.features.search.branches.python_conditions import (
    PythonCondition,
    condition_of,
    is_elementwise,
)
from gradcheck_cli.plain_files import MIB, read_plain, short_path
from gradcheck_cli.tensorflow_backend.frames import is_users

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A file, a line, and the line that ran next. The line before the first of a call is 0, and so is the one
# after its last. For a line with a value's condition, the last number may also come from `_side_of_value`.
Arcs = set[tuple[str, int, int]]

# The best margins of each condition, for being true and for being false, by file, line and column.
Place = tuple[str, int, int]
Margins = dict[Place, tuple[float, float]]

_LIMIT = 8 * MIB
_LONGEST = 40  # characters of a condition


@contextlib.contextmanager
def trace_lines(arcs: Arcs, margins: Margins | None = None) -> Iterator[None]:
    """Note which line follows which, in the user's functions that TensorFlow calls meanwhile.

    TensorFlow calls them in its own threads, so tracing begins with each call.

    Args:
        arcs: added to.
        margins: the margins of the conditions that are reached; added to.
    """
    call = script_ops.FuncRegistry.__call__

    def traced(self: Any, *arguments: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(lambda frame, _event, _arg: _trace_frame(frame, arcs, margins))
        try:
            return call(self, *arguments)
        finally:
            sys.settrace(before)

    script_ops.FuncRegistry.__call__ = traced
    try:
        yield
    finally:
        script_ops.FuncRegistry.__call__ = call


def _trace_frame(frame: Any, arcs: Arcs, margins: Margins | None) -> Any:
    """Return the trace function for a frame; `None` if the code isn't the user's."""
    file = frame.f_code.co_filename
    if not is_users(file):
        return None
    conditions = _conditions_of(file)
    last = frame.f_lineno
    arcs.add((file, 0, last))

    def note(frame: Any, event: str, _arg: Any) -> Any:
        nonlocal last
        if event == "line":
            arcs.add((file, last, frame.f_lineno))
            last = frame.f_lineno
            for line_condition in conditions.get(last, ()):
                if line_condition.is_value:
                    _note_truths(arcs, (file, last, line_condition.column), line_condition.condition, frame)
                if margins is not None:
                    _note_margins(
                        margins, (file, last, line_condition.column), line_condition.condition, frame
                    )
        elif event == "return":
            arcs.add((file, last, 0))
        return note

    return note


def _side_of_value(column: int, side: int) -> int:
    """Return a number that stands for a side of a value's condition; it is negative, so it is no line."""
    return -2 * column - 1 - side


def _note_truths(arcs: Arcs, place: Place, condition: PythonCondition, frame: Any) -> None:
    file, line, column = place
    with contextlib.suppress(Exception):  # it also raises when its line runs, or isn't a number
        for side, is_taken in enumerate(condition.truths(frame)):
            if is_taken:
                arcs.add((file, line, _side_of_value(column, side)))


def _note_margins(margins: Margins, place: Place, condition: PythonCondition, frame: Any) -> None:
    try:
        true, false = condition.margins(frame)
    except Exception:  # noqa: BLE001 (it raises when its line runs, too, or isn't a number: then no slope leads there)
        return
    before = margins.get(place, (-np.inf, -np.inf))
    margins[place] = (
        max(before[0], np.nan_to_num(true, nan=-np.inf)),
        max(before[1], np.nan_to_num(false, nan=-np.inf)),
    )


def constants_at(places: Iterable[Place]) -> list[float]:
    """Return the numbers that the conditions at some places compare with."""
    return [
        value
        for file, line, column in places
        for line_condition in _conditions_of(file).get(line, ())
        if line_condition.column == column
        for value in line_condition.condition.constants
    ]


@dataclass(frozen=True)
class _LineCondition:
    """A condition of a line."""

    column: int
    condition: PythonCondition
    is_value: bool


def _conditions_of(file: str) -> dict[int, list[_LineCondition]]:
    """Return the conditions of a file by their first line."""
    try:
        return _read_conditions(file, Path(file).stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError):
        return {}


@functools.lru_cache(maxsize=8)
def _parse(file: str, _changed: int) -> ast.Module:
    return ast.parse(read_plain(Path(file), _LIMIT))


@functools.lru_cache(maxsize=64)
def _read_conditions(file: str, _changed: int) -> dict[int, list[_LineCondition]]:
    by_line: dict[int, list[_LineCondition]] = {}
    for node in ast.walk(_parse(file, _changed)):
        test = _condition_node(node)
        condition = None if test is None else condition_of(test)
        if test is not None and condition is not None:
            line_condition = _LineCondition(
                test.col_offset, condition, not isinstance(node, ast.If | ast.While)
            )
            by_line.setdefault(test.lineno, []).append(line_condition)
    return by_line


def _condition_node(node: ast.AST) -> ast.expr | None:
    """Return the condition of a node that has one."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return node.test
    if isinstance(node, ast.Call) and len(node.args) == 3:  # noqa: PLR2004 (a condition and two values)
        is_where = isinstance(node.func, ast.Attribute) and node.func.attr == "where"
        return node.args[0] if is_where and is_elementwise(node.args[0]) else None
    if isinstance(node, ast.Subscript) and is_elementwise(node.slice):
        return node.slice
    return None


def python_branches(arcs: Arcs) -> list[PythonBranch]:
    """Return the conditions of the functions whose lines were traced."""
    called: defaultdict[str, set[int]] = defaultdict(set)
    for file, line, after in arcs:
        if not line:
            called[file].add(after)
    branches = []
    for file, lines in sorted(called.items()):
        try:
            tree = _parse(file, Path(file).stat().st_mtime_ns)
        except (OSError, SyntaxError, ValueError):
            continue
        of_file = [_branch_at(node, test, file) for node, test in _conditions_that_ran(tree, lines)]
        branches += [branch for branch in of_file if branch.body or any(branch.sides_taken(arcs))]
    return branches


@dataclass(frozen=True)
class PythonBranch:
    """A condition.

    Attributes:
        branch: the branch, with no side seen.
        file: its file.
        first: the first line of the condition.
        last: its last line.
        column: the column at which it begins.
        body: for an `if` or a `while`, the first line of the code that runs if it is true; otherwise 0.
    """

    branch: Branch
    file: str
    first: int
    last: int
    column: int
    body: int

    @property
    def place(self) -> Place:
        """Its file, first line and column."""
        return self.file, self.first, self.column

    def sides_taken(self, arcs: Arcs) -> tuple[bool, bool]:
        """Return whether it was true, and whether it was false, by what came after it."""
        if not self.body:
            true, false = ((self.file, self.first, _side_of_value(self.column, side)) for side in range(2))
            return true in arcs, false in arcs
        after = {
            line
            for file, before, line in arcs
            if file == self.file
            and self.first <= before <= self.last
            and line >= 0
            and not self.first <= line <= self.last
        }
        return self.body in after, bool(after - {self.body})


def _conditions_that_ran(tree: ast.Module, called: set[int]) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield the conditions of functions that ran.

    The condition of an `if` or a `while` is left out if its body begins on the same line.
    """
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not called & {function.lineno, *(decorator.lineno for decorator in function.decorator_list)}:
            continue
        for node in _nodes_outside_scopes(function.body):
            test = _condition_node(node)
            if test is None:
                continue
            end = test.end_lineno or test.lineno
            if not isinstance(node, ast.If | ast.While) or node.body[0].lineno > end:
                yield node, test


# Nodes with their own names, which aren't in the frame of their line.
_SCOPES = (
    *(ast.FunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def _nodes_outside_scopes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a function, except those with their own names."""
    for node in body:
        if not isinstance(node, _SCOPES):
            yield node
            yield from _nodes_outside_scopes(ast.iter_child_nodes(node))


def _branch_at(node: ast.AST, test: ast.expr, file: str) -> PythonBranch:
    text = ast.unparse(test)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    first, last = test.lineno, test.end_lineno or test.lineno
    body = node.body[0].lineno if isinstance(node, ast.If | ast.While) else 0
    branch = Branch(text, f"{short_path(file)}:{first}", "python", ("true", "false"), ())
    return PythonBranch(branch, file, first, last, test.col_offset, body)
