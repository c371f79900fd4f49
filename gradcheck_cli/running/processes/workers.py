"""Where cases run, behind one small interface, and the run that puts in order what comes back from there.

`LocalWorkers` are processes of this machine, `DaskWorkers` those of a cluster; nothing here knows of either.
"""

from __future__ import annotations

import platform
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gradcheck_cli import __version__
from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.results import CaseResult, Report
from gradcheck_cli.running.stopping import Stopper
from gradcheck_cli.running.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gradcheck_cli.spec.case import Case


@dataclass(frozen=True)
class Started:
    """A case has begun; `number` is its place among the cases of the run."""

    number: int


@dataclass(frozen=True)
class Progressed:
    """About this share of a case's work is done; not every case tells."""

    number: int
    share: float


@dataclass(frozen=True)
class Ended:
    """A case has ended, well or not."""

    number: int
    result: CaseResult


@dataclass(frozen=True)
class Waited:
    """Nothing has happened for a while: time to look at the clock."""


Event = Started | Progressed | Ended | Waited


class WorkersLostError(GradcheckError):
    """The workers are gone, with cases left to run; what they had done by then is told, and exit 3."""

    exit_code = 3


class Workers(Protocol):
    """Runs cases somewhere else."""

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


def run_in_workers(  # noqa: PLR0913 (who is told of what)
    workers: Workers,
    cases: Sequence[Case],
    *,
    seed: int | None = None,
    on_case: Callable[[CaseResult], None] | None = None,
    on_start: Callable[[Case], None] | None = None,
    on_progress: Callable[[Case, float], None] | None = None,
    stopper: Stopper | None = None,
) -> Report:
    """Run cases in workers, which are closed afterwards.

    Args:
        workers: where.
        cases: what to run.
        seed: the seed that the command line gave, for the report.
        on_case: called with each result, in the order of the cases, as soon as those before it are there.
        on_start: called as a case begins, in whatever order they do.
        on_progress: called now and then with the share of a case's work that is done.
        stopper: asked after each event whether to end the run now; what runs then is given up.

    Returns:
        The report; `interrupted` if Ctrl-C ended it early, with every case that had ended by then.
    """
    began = time.perf_counter()
    stopper = stopper or Stopper.never()
    done: dict[int, CaseResult] = {}
    told: set[int] = set()
    cut: BaseException | None = None

    def tell(number: int) -> None:
        told.add(number)
        stopper.saw(done[number])
        if on_case is not None:
            on_case(done[number])

    try:
        for event in workers.run(cases):
            with _interrupts_held_back():
                if isinstance(event, Ended):
                    done[event.number] = event.result
                    while len(told) in done:
                        tell(len(told))
                elif isinstance(event, Started | Progressed):
                    _announce(event, cases[event.number], on_start, on_progress)
            if stopper.is_time():
                break
    except (KeyboardInterrupt, WorkersLostError) as error:
        cut = error
    finally:
        with _interrupts_held_back(for_good=True):
            workers.close()
    for number in sorted(done.keys() - told):
        tell(number)
    interrupted = isinstance(cut, KeyboardInterrupt)
    return Report(
        gradcheck_version=__version__,
        tensorflow_version=workers.tensorflow_version,
        python_version=platform.python_version(),
        seed=seed if seed is not None else next((case.seed for case in cases), 0),
        cases=tuple(done[number] for number in sorted(done)),
        duration_s=time.perf_counter() - began,
        interrupted=interrupted,
        unchecked=() if interrupted else stopper.unchecked(len(cases), len(done), str(cut or "")),
        **surroundings(),
    )


def _announce(
    event: Started | Progressed,
    case: Case,
    on_start: Callable[[Case], None] | None,
    on_progress: Callable[[Case, float], None] | None,
) -> None:
    if isinstance(event, Progressed):
        if on_progress is not None:
            on_progress(case, event.share)
    elif on_start is not None:
        on_start(case)


@contextmanager
def _interrupts_held_back(*, for_good: bool = False) -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended, lest a result be printed in part, or twice.

    Args:
        for_good: forget it then: who asks for an end once more gets no quicker one.
    """
    if threading.current_thread() is not threading.main_thread():  # only that one hears of signals
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and not for_good:
        raise KeyboardInterrupt
