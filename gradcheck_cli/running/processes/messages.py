"""What passes between the parent, the fork server and the processes that it forks; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.spec.case import Case


@dataclass(frozen=True)
class Place:
    """Where code runs that came from another machine: the working directory, and where modules are too."""

    directory: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """What a process is to do: check cases, in order, with at most so many bytes of memory.

    `listing`: only open them, and say which pairs they have. `place`: where; `None` for where it is.
    """

    cases: tuple[Case, ...]
    memory: int | None = None
    listing: bool = False
    place: Place | None = None


class Message(NamedTuple):
    """A case has started, or ended if there is a result; so many bytes of output stood there then.

    With a share, it only says that so much of the case is done.
    """

    printed: int
    result: CaseResult | None = None
    share: float | None = None


class Exit(NamedTuple):
    """How a task's process ended: as in `subprocess`, a code below 0 is a signal."""

    task: int
    code: int
    message: str = ""
