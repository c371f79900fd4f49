"""The messages between the parent, the fork server and the processes that it forks; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gradcheck_cli.results import CaseResult
from gradcheck_cli.spec.case import Case


@dataclass(frozen=True)
class CodePlace:
    """Where code from another machine runs: the working directory, and further folders of modules."""

    directory: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """What a process is to do."""

    cases: tuple[Case, ...]  # the cases, in the order in which they are checked
    memory: int | None = None  # the most bytes that the process may use; `None` sets no limit
    listing: bool = False  # only open the cases, and say which pairs they have
    place: CodePlace | None = None  # where to do that; `None` for the current directory


class Message(NamedTuple):
    """A case has started; with a result, it has ended; with a share, that part of it is done.

    `printed` is how many bytes of output there were by then, `pid` the number of the process that sends it.
    """

    printed: int
    result: CaseResult | None = None
    share: float | None = None
    pid: int = 0


class Exit(NamedTuple):
    """How a task's process ended. As in `subprocess`, a negative code is a signal."""

    task: int
    code: int
    message: str = ""
