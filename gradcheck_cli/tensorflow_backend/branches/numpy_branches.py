"""The sides of `if` and `while` in Python code that a graph calls, by which line follows a condition's."""

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
from gradcheck_cli.plain_files import MIB, read_plain
from gradcheck_cli.tensorflow_backend.branches.python_conditions import PythonCondition, condition_of
from gradcheck_cli.tensorflow_backend.frames import is_users, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A file, a line, and the one that came after it; 0 before the line that a call begins at, and after its end.
Arcs = set[tuple[str, int, int]]

# The best margins of conditions, of being true and of being false, by file and line.
Margins = dict[tuple[str, int], tuple[float, float]]

_LIMIT = 8 * MIB
_LONGEST = 40  # characters of a condition


@contextlib.contextmanager
def lines_traced(arcs: Arcs, margins: Margins | None = None) -> Iterator[None]:
    """Note which line follows which, in the user's functions that TensorFlow calls meanwhile.

    TensorFlow calls them in threads of its own, so that tracing begins as each is called.

    Args:
        arcs: added to.
        margins: of the conditions that are come to, added to.
    """
    call = script_ops.FuncRegistry.__call__

    def traced(self: Any, *arguments: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(lambda frame, _event, _arg: _local(frame, arcs, margins))
        try:
            return call(self, *arguments)
        finally:
            sys.settrace(before)

    script_ops.FuncRegistry.__call__ = traced
    try:
        yield
    finally:
        script_ops.FuncRegistry.__call__ = call


def _local(frame: Any, arcs: Arcs, margins: Margins | None) -> Any:
    """Return what is told of a frame's lines; `None` of code that isn't the user's."""
    file = frame.f_code.co_filename
    if not is_users(file):
        return None
    conditions = {} if margins is None else _conditions_of(file)
    last = frame.f_lineno
    arcs.add((file, 0, last))

    def note(frame: Any, event: str, _arg: Any) -> Any:
        nonlocal last
        if event == "line":
            arcs.add((file, last, frame.f_lineno))
            last = frame.f_lineno
            if margins is not None and last in conditions:
                _note_margins(margins, (file, last), conditions[last], frame)
        elif event == "return":
            arcs.add((file, last, 0))
        return note

    return note


def _note_margins(margins: Margins, key: tuple[str, int], condition: PythonCondition, frame: Any) -> None:
    try:
        true, false = condition.margins(frame)
    except Exception:  # noqa: BLE001 (it raises where it runs, or isn't a number: then nothing leads there)
        return
    before = margins.get(key, (-np.inf, -np.inf))
    margins[key] = (
        max(before[0], np.nan_to_num(true, nan=-np.inf)),
        max(before[1], np.nan_to_num(false, nan=-np.inf)),
    )


def constants_at(places: Iterable[tuple[str, int]]) -> list[float]:
    """Return the numbers that the conditions at some lines compare with."""
    found = [_conditions_of(file).get(line) for file, line in places]
    return [value for one in found if one is not None for value in one.constants]


def _conditions_of(file: str) -> dict[int, PythonCondition]:
    """Return the conditions of a file by their first line."""
    try:
        return _read_conditions(file, Path(file).stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError):
        return {}


@functools.lru_cache(maxsize=8)
def _parsed(file: str, _changed: int) -> ast.Module:
    return ast.parse(read_plain(Path(file), _LIMIT))


@functools.lru_cache(maxsize=64)
def _read_conditions(file: str, _changed: int) -> dict[int, PythonCondition]:
    tree = _parsed(file, _changed)
    found = {
        node.test.lineno: condition_of(node.test)
        for node in ast.walk(tree)
        if isinstance(node, ast.If | ast.While)
    }
    return {line: condition for line, condition in found.items() if condition is not None}


def python_branches(arcs: Arcs) -> list[PythonBranch]:
    """Return the conditions of the functions whose lines were traced."""
    called: defaultdict[str, set[int]] = defaultdict(set)
    for file, line, after in arcs:
        if not line:
            called[file].add(after)
    found = []
    for file, lines in sorted(called.items()):
        try:
            tree = _parsed(file, Path(file).stat().st_mtime_ns)
        except (OSError, SyntaxError, ValueError):
            continue
        found += [_branch(node, file) for node in _conditions(tree, lines)]
    return found


@dataclass(frozen=True)
class PythonBranch:
    """A condition of an `if` or a `while`.

    Attributes:
        branch: with no side seen.
        file: its file.
        first: the first line of the condition.
        last: its last line.
        body: the first line of what runs if it is true.
    """

    branch: Branch
    file: str
    first: int
    last: int
    body: int

    @property
    def place(self) -> tuple[str, int]:
        """Its file and first line."""
        return self.file, self.first

    def taken(self, arcs: Arcs) -> tuple[bool, bool]:
        """Return whether it was true, and whether it was false, by the lines that came after it."""
        after = {
            line
            for file, before, line in arcs
            if file == self.file and self.first <= before <= self.last and not self.first <= line <= self.last
        }
        return self.body in after, bool(after - {self.body})


def _conditions(tree: ast.Module, called: set[int]) -> Iterator[ast.If | ast.While]:
    """Yield the conditions of functions that ran, whose body stands on lines of its own."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not called & {function.lineno, *(one.lineno for one in function.decorator_list)}:
            continue
        for node in _own(function.body):
            end = node.test.end_lineno or node.test.lineno
            if node.body[0].lineno > end:
                yield node


def _own(body: Iterable[ast.AST]) -> Iterator[ast.If | ast.While]:
    """Yield the conditions of a function, not those of functions inside it."""
    for node in body:
        if isinstance(node, ast.If | ast.While):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own(ast.iter_child_nodes(node))


def _branch(node: ast.If | ast.While, file: str) -> PythonBranch:
    text = ast.unparse(node.test)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    first, last = node.test.lineno, node.test.end_lineno or node.test.lineno
    branch = Branch(text, f"{shown(file)}:{first}", "python", ("true", "false"), ())
    return PythonBranch(branch, file, first, last, node.body[0].lineno)
