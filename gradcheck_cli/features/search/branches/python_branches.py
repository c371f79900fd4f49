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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from gradcheck_cli.features.search.branches.graph_branches import Key, Side, shorten
from gradcheck_cli.plain_files import is_users, short_path
from gradcheck_cli.tensorflow_backend.op_types import TRUTH

_RAISED = ("raised", "not raised")


def watch_python(
    codes: dict[CodeType, list[Any]], taken: set[Side]
) -> Callable[[], AbstractContextManager[None]]:
    """Return what notes, around a call of one of the user's functions, which way jumps go in it.

    TensorFlow calls them in its own threads, so tracing begins with each call.

    Args:
        codes: what runs is added, with the values of the names that it reads from outside.
        taken: the sides that it takes are added.
    """

    def trace(frame: FrameType, _event: str, _arg: Any) -> Any:
        code = frame.f_code
        if not is_users(code.co_filename):
            return None
        jumps = _jumps_of(code)
        if code not in codes:
            codes[code] = [frame.f_locals.get(name) for name in code.co_freevars]
            codes[code] += [frame.f_globals.get(name) for name in code.co_names]
        taken.update((jump.key, _RAISED[1]) for jump in jumps.values() if jump.sides == _RAISED)
        before: _Jump | None = None

        def note(frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal before
            if event == "opcode":
                if before is not None:
                    taken.add((before.key, before.sides[frame.f_lasti == before.target]))
                before = jumps.get(frame.f_lasti)
            return note

        if not jumps:
            return None
        frame.f_trace = note  # Python 3.13 sends opcodes to a frame that has its own function then
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return note

    @contextmanager
    def tracing() -> Iterator[None]:
        outer = sys.gettrace()
        # Python 3.12 sends opcodes if a frame wants them before it traces.
        sys._getframe().f_trace_opcodes = True  # noqa: SLF001 (there is no other way to this frame)
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(outer)

    return tracing


@dataclass(frozen=True)
class _Jump:
    """A conditional jump."""

    key: Key  # of the branch; a loop's condition is compiled to several jumps
    sides: tuple[str, str]  # the side that is taken without the jump, and with it
    target: int  # the offset to which it jumps


@functools.lru_cache(maxsize=256)
def _jumps_of(code: CodeType) -> dict[int, _Jump]:
    """Return the conditional jumps of a code by offset, also by the offset of what extends their argument."""
    jumps: dict[int, _Jump] = {}
    extended: list[int] = []
    previous, line = "", code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = getattr(instruction, "line_number", instruction.starts_line) or line  # newer, older Pythons
        name = instruction.opname
        if name == "EXTENDED_ARG":
            extended.append(instruction.offset)
            continue
        is_jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
        if is_jump and "IF" in name:
            text, first = _source_of(code, instruction, line)
            sides = TRUTH
            if "EXC_MATCH" in name or previous == "CHECK_EXC_MATCH":  # if it is another's handler, it jumps
                text, sides = f"except {text}", _RAISED
            elif "IF_TRUE" in name or name.endswith(("IF_NONE", "IF_NOT_NONE")):
                sides = TRUTH[1], TRUTH[0]
            key = text, f"{short_path(code.co_filename)}:{first}", "python"
            jump = _Jump(key, sides, instruction.argval)
            jumps |= dict.fromkeys([*extended, instruction.offset], jump)
        extended, previous = [], name
    return jumps


def _source_of(code: CodeType, instruction: Any, line: int) -> tuple[str, int]:
    """Return the condition of a jump, and its line."""
    at = getattr(instruction, "positions", None)  # from Python 3.11 on
    if at is None or None in at:
        return shorten(linecache.getline(code.co_filename, line).strip()), line
    text = linecache.getline(code.co_filename, at.lineno).encode()
    end = at.end_col_offset if at.end_lineno == at.lineno else None
    return shorten(text[at.col_offset : end].decode(errors="replace").strip()), at.lineno


def _in_order(codes: Collection[CodeType]) -> list[CodeType]:
    """Return codes in the order of their text: that of a set differs from run to run."""
    return sorted(codes, key=lambda code: (code.co_filename, code.co_firstlineno, code.co_name))


def python_sides(codes: Collection[CodeType]) -> Iterator[Side]:
    """Yield the sides of the branches in the code that ran."""
    for code in _in_order(codes):
        for jump in _jumps_of(code).values():
            yield from ((jump.key, side) for side in (_RAISED if jump.sides == _RAISED else TRUTH))


def constants_in(codes: Mapping[CodeType, Sequence[Any]]) -> list[float]:
    """Return the numbers that are written in the code that ran, or that it reads from outside."""
    waiting: list[Any] = [value for code in _in_order(codes) for value in (code, *codes[code])]
    numbers: dict[float, None] = {}
    while waiting:
        constant = waiting.pop()
        if isinstance(constant, int | float) and abs(constant) < 2.0**53:
            numbers[float(constant)] = None
        elif isinstance(constant, tuple):
            waiting += constant
        elif isinstance(constant, CodeType):
            waiting += constant.co_consts
    return list(numbers)
