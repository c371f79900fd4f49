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
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from gradcheck_cli.features.search.branches.graph_branches import TRUTH, shorten
from gradcheck_cli.gate import Branch
from gradcheck_cli.plain_files import is_users, short_path
from gradcheck_cli.tensorflow_backend.private.private_graphs import around_python_calls

_RAISED = ("raised", "not raised")

# A code, a jump's offset, and whether it jumped; -1 for a code that was entered.
Arc = tuple[CodeType, int, bool]


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
    jumps = _jumps_of(code)
    arcs.add((code, -1, False))
    if not jumps:
        return None
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    jump: _Jump | None = None

    def note(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal jump
        if event == "opcode":
            if jump is not None:
                arcs.add((code, jump.offset, frame.f_lasti == jump.target))
            jump = jumps.get(frame.f_lasti)
        return note

    return note


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
    """Return the branches of the code that ran."""
    codes = sorted(_codes_in(arcs), key=lambda code: (code.co_filename, code.co_firstlineno))
    return [branch for code in codes for branch in _branches_of(code)]


def _codes_in(arcs: set[Arc]) -> list[CodeType]:
    return [code for code, offset, _ in arcs if offset < 0]


def _branches_of(code: CodeType) -> Iterator[PythonBranch]:
    groups: defaultdict[tuple[tuple[int, int, int, int], int], list[_Jump]] = defaultdict(list)
    counts: Counter[tuple[tuple[int, int, int, int], bool]] = Counter()
    for jump in dict.fromkeys(_jumps_of(code).values()):
        # A loop's condition is compiled twice, with opposite jumps; a chain of comparisons has several.
        sense = jump.position, jump.is_if_true
        groups[jump.position, counts[sense]].append(jump)
        counts[sense] += 1
    for (position, turn), own in groups.items():
        text = _text_at(code.co_filename, position) + (f" ({turn + 1})" if turn else "")
        true, false = (
            frozenset((code, jump.offset, jump.is_if_true is way) for jump in own) for way in (True, False)
        )
        sides, taken = TRUTH, (true, false)
        if own[0].is_except:
            text, sides, taken = f"except {text}", _RAISED, (true, frozenset([(code, -1, False)]))
        place = f"{short_path(code.co_filename)}:{position[0]}"
        yield PythonBranch(Branch(text, place, "python", sides, ()), taken)


def _text_at(file: str, position: tuple[int, int, int, int]) -> str:
    first, start, last, end = position
    line = linecache.getline(file, first)
    text = line.encode()[start : end if last == first and end else None].decode(errors="replace")
    return shorten(text.strip())


def constants_in(arcs: set[Arc]) -> list[float]:
    """Return the numbers that are written in the code that ran."""
    waiting: list[Any] = [*_codes_in(arcs)]
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
