"""Errors of cases whose process ended: by a crash, a time limit or a lack of memory."""

from __future__ import annotations

import linecache
import re
import signal
import sysconfig
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gradcheck_cli.plain_files import short_path
from gradcheck_cli.results import CaseError
from gradcheck_cli.running.failed_case import is_about_memory
from gradcheck_cli.running.processes.limits import format_size

_OWN = str(Path(__file__).resolve().parents[2])
_LIBRARIES = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_GENERATED = "__autograph_generated_file"


def error_of_timeout(seconds: float, stacks: str) -> CaseError:
    """Return the error of a case that took too long, with its place from faulthandler's stacks."""
    return CaseError(
        "timeout",
        f"still running after {seconds:g} s, and was ended. Allow it longer (timeout in the spec, or "
        "--timeout), or make the inputs smaller.",
        user_frames(stacks),
    )


def error_of_output(limit: int) -> CaseError:
    """Return the error of a case that printed too much."""
    return CaseError("crash", f"printed more than {format_size(limit)}, and was ended. Print less.")


def error_of_exit(
    code: int, output: Iterable[str], stacks: str, memory: int | None, *, for_memory: bool
) -> CaseError:
    """Return the error of a case whose process ended too early.

    Args:
        code: its exit code; below 0 a signal.
        stacks: what faulthandler wrote.
        memory: its limit, in bytes.
        for_memory: whether the kernel killed a process for lack of memory in that time.
    """
    frames = user_frames(stacks)
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    if (code == -signal.SIGKILL and for_memory) or any(map(is_about_memory, output)):
        return with_limit(CaseError("memory", f"ran out of memory: the process {how}.", frames), memory)
    if code < 0:
        return CaseError("crash", f"the process {how}.", frames)
    return CaseError("crash", f"the process {how}, as by os._exit, in the middle of the check.", frames)


def with_limit(error: CaseError, memory: int | None) -> CaseError:
    """Add the memory limit and a remedy to an error of kind "memory"; return others unchanged."""
    if error.kind != "memory" or memory is None:
        return error
    limit = f"The process may use {format_size(memory)} (--memory). Make the inputs smaller, or give it more."
    return replace(error, message=f"{error.message.rstrip('.')}. {limit}")


def signal_name(signal_number: int) -> str:
    """Return a signal as `signal 11 (SIGSEGV: Segmentation fault)`."""
    try:
        known_signal = signal.Signals(signal_number)
    except ValueError:
        return f"signal {signal_number}"
    return f"signal {signal_number} ({known_signal.name}: {signal.strsignal(signal_number)})"


def user_frames(stacks: str) -> tuple[str, ...]:
    """Return the user's own frames in faulthandler's stacks, outermost first, in the form of a traceback.

    For a function that AutoGraph rewrote, only its name and the line of its new form are known.
    """
    lines: list[str] = []
    for match in reversed(list(_FRAME.finditer(stacks))):
        file, line, function = match["file"], int(match["line"]), match["function"]
        code = linecache.getline(file, line).strip()
        if _GENERATED in file:
            frame = f"as rewritten by AutoGraph: in {function.removeprefix('tf__')}"
        elif file.startswith("<") or str(Path(file).resolve()).startswith((_OWN, *_LIBRARIES)):
            continue
        else:
            frame = f"{short_path(file)}:{line}: in {function}"
        lines += [frame, f"    {code}"] if code else [frame]
    return tuple(lines)
