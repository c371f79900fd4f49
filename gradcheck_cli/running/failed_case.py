"""The parts that every result of a case has, and the command that runs the case again."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from gradcheck_cli.results import CaseError, CaseResult, Execution, HowChecked, Status
from gradcheck_cli.spec.case import Case, Power

# The messages of C++, NumPy and TensorFlow when memory runs out.
_NO_MEMORY = re.compile(r"std::bad_alloc|MemoryError|OOM when allocating|Cannot allocate memory")


def blank_result(case: Case, status: Status, duration_s: float) -> CaseResult:
    """Return a result without findings, which names its case and the command that runs it again."""
    return CaseResult(
        op=case.op,
        case=case.name,
        spec=case.spec,
        mode=case.mode,
        dtype=case.dtype,
        status=status,
        how=HowChecked(reason=case.reason),
        ran=Execution(duration_s, reproduce(case)),
    )


def is_about_memory(message: str) -> bool:
    """Whether a message, or a printed line, is about a lack of memory."""
    return _NO_MEMORY.search(message) is not None


def failed_case(case: Case, error: CaseError, duration_s: float) -> CaseResult:
    """Return the result of a case that ended with an error before it had findings."""
    return replace(blank_result(case, Status.ERROR, duration_s), error=error)


def reproduce(case: Case) -> str:
    """Return the command that runs only this case, or the call if the spec is no file.

    It is empty where a function was given in Python: only the caller knows the call.
    """
    if case.given is not None:
        return ""
    if case.path.startswith("<"):
        return f"gradcheck_cli.check(spec, case={case.name!r}, seed={case.seed})"
    command = (
        f"gradcheck run {shlex.quote(case.path)} --op {shlex.quote(case.op)} "
        f"--case {shlex.quote(case.name)} --seed {case.seed}"
    )
    # Earlier modes are included: the gradients of one mode are compared with those of another.
    modes = case.modes[: case.modes.index(case.mode) + 1]
    command += "".join(f" --mode {mode}" for mode in modes)
    if case.device:
        command += f" --device {case.device}"
    if case.full_only:
        command += " --require full"
    if case.power != Power():
        command += f" --power {case.power}"
    if case.budget != Case.budget:
        command += f" --budget {case.budget:g}"
    return command
