"""Where cases run, behind one small interface: `Workers`, and the events that they send.

`InProcess` runs cases in this process, `LocalWorkers` in processes of this machine, `DaskWorkers` in those of
a cluster; nothing here knows of any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gradcheck_cli.errors import GradcheckError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.spec.case import Case


@dataclass(frozen=True)
class Started:
    """A case has begun; `index` is its place among the cases of the run."""

    index: int


@dataclass(frozen=True)
class Progressed:
    """About this share of a case's work is done; not every case tells."""

    index: int
    share: float


@dataclass(frozen=True)
class Ended:
    """A case has ended, well or not."""

    index: int
    result: CaseResult


@dataclass(frozen=True)
class Waited:
    """Nothing has happened for a while: time to look at the clock."""


Event = Started | Progressed | Ended | Waited


class WorkersLostError(GradcheckError):
    """The workers are gone, with cases left to run; what they had done by then is told, and exit 3."""

    exit_code = 3


class Workers(Protocol):
    """Runs cases somewhere."""

    @property
    def tensorflow_version(self) -> str:
        """The version of TensorFlow there; empty as long as it isn't known."""
        ...

    def run(self, cases: Sequence[Case]) -> Iterator[Event]:
        """Run cases, each to its end.

        Args:
            cases: what to run. Those of one document come one after another, and may share a process.

        Yields:
            Events, in whatever order they come: exactly one `Ended` for each case. A case that takes its
            process down, or takes too long, ends with a result of status `error`. `Waited`, every second
            or so in which nothing else comes.

        Raises:
            CaseFailedError: nothing can be run at all, such as where TensorFlow can't be imported.
            WorkersLostError: nothing more can be run.
        """
        ...

    def told(self) -> str:
        """Say in a few words who works, and what has run longest; empty if that needs no words."""
        ...

    def close(self) -> None:
        """End at once whatever still runs, and leave nothing behind; again does nothing."""
        ...
