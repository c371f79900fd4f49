"""The branches of Python code that a graph calls, seen in the interpreter's own jumps.

`if`, `while`, `a if c else b`, `and`, `or`, `match`, `except`, in functions, lambdas and comprehensions,
all become conditional jumps of the byte code. While points are looked at, a trace function notes which way
each of them goes.
"""

from __future__ import annotations

import dis
import functools
import linecache
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from gradcheck_cli.features.search.branches.graph_branches import TRUTH, shorten
from gradcheck_cli.gate import Branch
from gradcheck_cli.plain_files import is_users, short_path
from gradcheck_cli.tensorflow_backend.private.private_graphs import around_python_calls

_DEEPEST = 4  # calls that tell one use of a helper from another
_RAISED = ("raised", "not raised")

# The code, and where it was called from: the code and the offset of each call, the innermost first.
Scope = tuple["CodeType", tuple[tuple["CodeType", int], ...]]
# A scope, a jump's offset, and whether it jumped; -1 for a scope that was entered.
Arc = tuple[Scope, int, bool]


@contextmanager
def trace_jumps(arcs: set[Arc]) -> Iterator[None]:
    """Note which way jumps go in the user's functions that TensorFlow calls meanwhile.

    TensorFlow calls them in its own threads, so tracing begins with each call.

    Args:
        arcs: added to.
    """

    @contextmanager
    def tracing() -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(lambda frame, _event, _arg: _trace_frame(frame, arcs))
        try:
            yield
        finally:
            sys.settrace(before)

    with around_python_calls(tracing):
        yield


def _trace_frame(frame: FrameType, arcs: set[Arc]) -> Any:
    """Return the trace function for a frame; `None` if the code isn't the user's."""
    code = frame.f_code
    if not is_users(code.co_filename):
        return None
    jumps, scope = _jumps_of(code), (code, _calls_before(frame))
    arcs.add((scope, -1, False))
    if not jumps:
        return None
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    jump: _Jump | None = None

    def note(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal jump
        if event == "opcode":
            if jump is not None:
                arcs.add((scope, jump.offset, frame.f_lasti == jump.target))
            jump = jumps.get(frame.f_lasti)
        return note

    return note


def _calls_before(frame: FrameType) -> tuple[tuple[CodeType, int], ...]:
    calls: list[tuple[CodeType, int]] = []
    caller = frame.f_back
    while caller is not None and len(calls) < _DEEPEST:
        if is_users(caller.f_code.co_filename):
            calls.append((caller.f_code, caller.f_lasti))
        caller = caller.f_back
    return tuple(calls)


@dataclass(frozen=True)
class _Jump:
    """A conditional jump."""

    offset: int  # its own
    target: int
    is_if_true: bool  # whether it jumps if its condition is true
    is_except: bool  # whether its condition is the class of an exception that was raised
    # first line and column, last line and column of the condition; 0 for what isn't known
    position: tuple[int, int, int, int]


@functools.lru_cache(maxsize=256)
def _jumps_of(code: CodeType) -> dict[int, _Jump]:
    """Return the conditional jumps of a code by offset, also by the offset of what extends their argument."""
    jumps: dict[int, _Jump] = {}
    before: list[int] = []
    previous, line = "", code.co_firstlineno
    for instruction in dis.get_instructions(code):
        starts = getattr(instruction, "line_number", instruction.starts_line)  # newer Pythons; older ones
        line = starts or line
        if instruction.opname == "EXTENDED_ARG":
            before.append(instruction.offset)
            continue
        is_jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
        if is_jump and "IF" in instruction.opname:
            jump = _Jump(
                instruction.offset,
                instruction.argval,
                "IF_TRUE" in instruction.opname or instruction.opname.endswith(("IF_NONE", "IF_NOT_NONE")),
                "EXC_MATCH" in instruction.opname or previous == "CHECK_EXC_MATCH",
                _position_of(instruction, line),
            )
            jumps |= dict.fromkeys([*before, instruction.offset], jump)
        before, previous = [], instruction.opname
    return jumps


def _position_of(instruction: Any, line: int) -> tuple[int, int, int, int]:
    positions = getattr(instruction, "positions", None)  # from Python 3.11 on
    if positions is None or None in positions:
        return line, 0, line, 0
    return positions.lineno, positions.col_offset, positions.end_lineno, positions.end_col_offset


@dataclass(frozen=True)
class PythonBranch:
    """A branch of Python code."""

    branch: Branch  # the branch, with no side seen
    arcs: tuple[frozenset[Arc], ...]  # for each side, what shows that it was taken


def python_branches(arcs: set[Arc]) -> list[PythonBranch]:
    """Return the branches of the code that ran; each call of a helper has its own."""
    scopes: defaultdict[CodeType, list[Scope]] = defaultdict(list)
    for scope in dict.fromkeys(scope for scope, offset, _ in arcs if offset < 0):
        scopes[scope[0]].append(scope)
    branches: list[PythonBranch] = []
    for code, own in sorted(scopes.items(), key=lambda item: (item[0].co_filename, item[0].co_firstlineno)):
        for scope in own:
            place = _place_of_call(scope) if len(own) > 1 else ""
            branches += _branches_of(code, scope, place)
    merged: dict[tuple[str, str, str], PythonBranch] = {}
    for branch in branches:  # calls on one line count as one
        before = merged.setdefault(branch.branch.key, branch).arcs
        both = tuple(first | second for first, second in zip(before, branch.arcs, strict=True))
        merged[branch.branch.key] = PythonBranch(branch.branch, both)
    return list(merged.values())


def _place_of_call(scope: Scope) -> str:
    if not scope[1]:
        return ""
    code, offset = scope[1][0]
    lines = [line for start, end, line in code.co_lines() if start <= offset < end and line]
    return f" called from {short_path(code.co_filename)}:{lines[0]}" if lines else ""


def _branches_of(code: CodeType, scope: Scope, called: str) -> Iterator[PythonBranch]:
    jumps = {jump.offset: jump for jump in _jumps_of(code).values()}
    groups: defaultdict[tuple[tuple[int, int, int, int], int], list[_Jump]] = defaultdict(list)
    counts: defaultdict[tuple[tuple[int, int, int, int], bool], int] = defaultdict(int)
    for jump in jumps.values():
        # A loop's condition is compiled twice, with opposite jumps; a chain of comparisons has several.
        sense = jump.position, jump.is_if_true
        groups[jump.position, counts[sense]].append(jump)
        counts[sense] += 1
    entered = (scope, -1, False)
    for (position, turn), own in groups.items():
        text = _text_at(code.co_filename, position) + (f" ({turn + 1})" if turn else "")
        true = frozenset((scope, jump.offset, jump.is_if_true) for jump in own)
        false = frozenset((scope, jump.offset, not jump.is_if_true) for jump in own)
        sides, taken = (TRUTH, (true, false))
        if own[0].is_except:
            text, sides, taken = f"except {text}", _RAISED, (true, frozenset([entered]))
        place = f"{short_path(code.co_filename)}:{position[0]}{called}"
        yield PythonBranch(Branch(text, place, "python", sides, ()), taken)


def _text_at(file: str, position: tuple[int, int, int, int]) -> str:
    first, start, last, end = position
    line = linecache.getline(file, first)
    text = line.encode()[start : end if last == first and end else None].decode(errors="replace")
    return shorten(text.strip())


def constants_in(arcs: set[Arc]) -> list[float]:
    """Return the numbers that are written in the code that ran."""
    waiting: list[Any] = [scope[0] for scope, offset, _ in arcs if offset < 0]
    numbers: dict[float, None] = {}
    while waiting:
        constant = waiting.pop()
        if isinstance(constant, int | float) and abs(constant) < 2.0**53:
            numbers[float(constant)] = None
        elif isinstance(constant, tuple):
            waiting += constant
        elif hasattr(constant, "co_consts"):
            waiting += constant.co_consts
    return list(numbers)
