"""The run loop: sends cases to workers, puts their results in order, and makes the report."""

from __future__ import annotations

import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import FrameType

from gradcheck_cli import __version__
from gradcheck_cli.results import CaseResult, Machine, Report
from gradcheck_cli.running.workers import Ended, Event, Noted, Progressed, Started, Workers, WorkersLostError
from gradcheck_cli.spec.case import Case


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Listener:
    """Functions that are called during a run."""

    on_start: Callable[[Case], None] = _ignore  # called when a case begins. Cases may begin in any order.
    # called now and then with the share of a case's work that is done
    on_progress: Callable[[Case, float], None] = _ignore
    # called with each result, in the order of the cases, as soon as all earlier results are there
    on_case: Callable[[CaseResult], None] = _ignore

    def hear(self, event: Event, cases: Sequence[Case]) -> None:
        """Call the function for an event of a case that goes on."""
        if isinstance(event, Started):
            self.on_start(cases[event.index])
        elif isinstance(event, Progressed):
            self.on_progress(cases[event.index], event.share)


class Stopper:
    """Ends a run before all of its cases have run: after a number of failures, or after some time."""

    def __init__(
        self,
        is_failure: Callable[[CaseResult], bool] = lambda _: False,
        *,
        max_failures: int | None = None,
        max_time: float | None = None,
        began: float | None = None,
    ) -> None:
        """Start the clock.

        Args:
            max_failures: end the run with this many failed cases; `None` never does.
            max_time: seconds after which the run ends; `None` never does.
            began: when that time began, by `time.monotonic`; default: now.
        """
        self._is_failure = is_failure
        self._max_failures, self._max_time = max_failures, max_time
        self._failures = 0
        self._began = time.monotonic() if began is None else began
        self._reason = ""

    def count(self, result: CaseResult) -> None:
        """Count a result."""
        self._failures += self._is_failure(result)

    def is_time(self) -> bool:
        """Whether the run must end now."""
        if self._max_failures is not None and self._failures >= self._max_failures:
            self._reason = f"stopped after {self._failures} failed case{'s'[: self._failures > 1]}"
        elif self._max_time is not None and time.monotonic() - self._began >= self._max_time:
            self._reason = f"stopped after --max-time {self._max_time:g} s"
        return bool(self._reason)

    def describe_unchecked(self, cases: int, done: int, lost: str = "") -> tuple[str, ...]:
        """Say how many cases have no result, and why, such as lost workers; empty if all have one."""
        reason = lost or self._reason
        if not reason or done >= cases:
            return ()
        return (f"{reason}: {cases - done} of {cases} cases weren't checked",)


def run_in_workers(
    workers: Workers,
    cases: Sequence[Case],
    *,
    listener: Listener | None = None,
    stopper: Stopper | None = None,
    mark: Callable[[CaseResult], CaseResult] | None = None,
) -> Report:
    """Run cases in workers, which are closed afterwards.

    Args:
        stopper: is asked after each event whether to end the run; running cases are then abandoned.
        mark: marks what doesn't count in a result.
    """
    began = time.perf_counter()
    listener, stopper = listener or Listener(), stopper or Stopper()
    done: dict[int, CaseResult] = {}
    reported: set[int] = set()
    notices: list[str] = []
    cut: BaseException | None = None

    def tell(index: int) -> None:
        reported.add(index)
        stopper.count(done[index])
        listener.on_case(done[index])

    try:
        for event in _events(workers, cases):
            with _delay_interrupts():
                if isinstance(event, Ended):
                    done[event.index] = event.result if mark is None else mark(event.result)
                    while len(reported) in done:
                        tell(len(reported))
                elif isinstance(event, Noted):
                    notices.append(event.text)
                else:
                    listener.hear(event, cases)
            if stopper.is_time():
                break
    except (KeyboardInterrupt, WorkersLostError) as error:
        cut = error
    finally:
        with _delay_interrupts(for_good=True):
            workers.close()
    for index in sorted(done.keys() - reported):
        tell(index)
    interrupted = isinstance(cut, KeyboardInterrupt)
    return Report(
        gradcheck_version=__version__,
        tensorflow_version=workers.tensorflow_version,
        python_version=platform.python_version(),
        seed=next((case.seed for case in cases), 0),
        cases=tuple(done[index] for index in sorted(done)),
        duration_s=time.perf_counter() - began,
        interrupted=interrupted,
        unchecked=() if interrupted else stopper.describe_unchecked(len(cases), len(done), str(cut or "")),
        notices=tuple(notices),
        machine=Machine(
            _installed_version("keras"),
            _installed_version("numpy"),
            f"{platform.system()}-{platform.release()}-{platform.machine()}",
        ),
    )


def _installed_version(package: str) -> str:
    """Return an installed package's version without importing it; empty where it isn't installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _events(workers: Workers, cases: Sequence[Case]) -> Iterator[Event]:
    """Yield what workers send, and raise an interrupt that Python lost.

    Python prints and forgets an exception that is raised in a destructor or a callback of the garbage
    collector. So each Ctrl-C is recorded as well as raised.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield from workers.run(cases)
        return
    signals: list[int] = []

    def note(signal_number: int, frame: FrameType | None) -> None:
        signals.append(signal_number)
        before(signal_number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        for event in workers.run(cases):
            yield event
            if signals:
                raise KeyboardInterrupt
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _delay_interrupts(*, for_good: bool = False) -> Iterator[None]:
    """Delay Ctrl-C until the block has ended, so that no result is printed in part or twice.

    It is ignored for good if a second one must not interrupt the closing.
    """
    before = signal.getsignal(signal.SIGINT)
    # Only the main thread receives signals; a handler that isn't Python's can't be restored.
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    signals: list[int] = []
    signal.signal(signal.SIGINT, lambda signal_number, _frame: signals.append(signal_number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if signals and not for_good:
        raise KeyboardInterrupt
