"""Where cases run, behind one small interface: `Workers`, and the events that they send.

`InProcess` runs cases in this process, `LocalWorkers` in processes of this machine, `DaskWorkers` in those of
a cluster; this module doesn't know them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.results import CaseResult
from gradcheck_cli.spec.case import Case


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
