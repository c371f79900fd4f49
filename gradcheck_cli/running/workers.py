"""Where cases run, behind one small interface: `Workers`, and the events that they send.

`InProcess` runs cases in this process, `LocalWorkers` in processes of this machine, `DaskWorkers` in those of
a cluster; this module doesn't know them. Here are also the parts that every result of a case has, and the
command that runs the case again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.results import CaseError, CaseResult, Execution, HowChecked, Status
from gradcheck_cli.spec.case import Case, Power


@dataclass(frozen=True)
class Started:
    """A case has begun; `index` is its place among the cases of the run."""

    index: int


@dataclass(frozen=True)
class Progressed:
    """About this share of a case's work is done. Not every case reports progress."""

    index: int
    share: float


@dataclass(frozen=True)
class Ended:
    """A case has ended, with any result."""

    index: int
    result: CaseResult


@dataclass(frozen=True)
class Waited:
    """Nothing has happened for a while; the run checks the clock."""


@dataclass(frozen=True)
class Noted:
    """Something that users should know of the run, though all cases ended."""

    text: str


Event = Started | Progressed | Ended | Waited | Noted


class WorkersLostError(GradcheckError):
    """The workers are gone, and cases are left. The run reports what was done, and exits with 3."""

    exit_code = 3


class Workers(Protocol):
    """Runs cases somewhere."""

    @property
    def tensorflow_version(self) -> str:
        """The version of TensorFlow there; empty until it is known."""
        ...

    def run(self, cases: Sequence[Case]) -> Iterator[Event]:
        """Run cases, each to its end; those of one document are consecutive, and may share a process.

        Yields:
            Events, in any order, with exactly one `Ended` for each case. A case that crashes its process, or
            takes too long, ends with a result of status `error`. `Waited` comes about every second in
            which nothing else happens.

        Raises:
            CaseFailedError: nothing can be run, for example because TensorFlow can't be imported.
            WorkersLostError: nothing more can be run.
        """
        ...

    def status(self) -> str:
        """Describe briefly how many workers there are and which case has run longest; may be empty."""
        ...

    def close(self) -> None:
        """End everything that still runs at once, and leave nothing behind. A second call does nothing."""
        ...


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
