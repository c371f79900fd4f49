"""The run loop: sends cases to workers, puts their results in order, and makes the report.

Where cases run is behind one small interface: `Workers`, and the events that they send. `InProcess` runs
cases in this process, `LocalWorkers` in processes of this machine, `DaskWorkers` in those of a cluster; this
module doesn't know them. Here are also the parts that every result of a case has, and the command that runs
the case again.
"""

from __future__ import annotations

import platform
import re
import shlex
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import FrameType

from gradcheck_cli import __version__
from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.results import (
    CaseError,
    CaseResult,
    Execution,
    HowChecked,
    Machine,
    Report,
    Status,
    has_empty_pairs,
    judge_empty_pairs,
)
from gradcheck_cli.spec.case import Case, Judging, Power


@dataclass(frozen=True)
class Progressed:
    """About this share of a case's work is done; `None` as it begins. Not every case tells more.

    `index` is its place among the cases of the run.
    """

    index: int
    share: float | None = None


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


Event = Progressed | Ended | Waited | Noted


class WorkersLostError(GradcheckError):
    """The workers are gone, and cases are left. The run reports what was done, and exits with 3."""

    exit_code = 3


class Workers(ABC):
    """Runs cases somewhere."""

    tensorflow_version = ""  # the version of TensorFlow there; empty until it is known

    @abstractmethod
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

    def status(self) -> str:
        """Describe briefly how many workers there are and which case has run longest; empty for no words."""
        return ""

    def close(self) -> None:  # noqa: B027 (what needs no end has none)
        """End everything that still runs at once, and leave nothing behind. A second call does nothing."""


# The messages of C++, NumPy and TensorFlow when memory runs out.
_NO_MEMORY = re.compile(r"std::bad_alloc|MemoryError|OOM when allocating|Cannot allocate memory")


def _ignore(*_: object) -> None:
    pass


def blank_result(case: Case, status: Status, duration_s: float, *, differs: bool = False) -> CaseResult:
    """Return a result without findings, which names its case and the command that runs it again.

    Args:
        differs: whether its gradient differs from that of an earlier mode, which must run as well.
    """
    return CaseResult(
        *(case.op, case.name, case.spec, case.mode, case.dtype, status),
        how=HowChecked(reason=case.expected.reason),
        ran=Execution(duration_s, reproduce(case, differs=differs)),
        full_op=case.full_op,
    )


def is_about_memory(message: str) -> bool:
    """Whether a message, or a printed line, is about a lack of memory."""
    return _NO_MEMORY.search(message) is not None


def failed_case(case: Case, error: CaseError, duration_s: float) -> CaseResult:
    """Return the result of a case that ended with an error before it had findings."""
    return replace(blank_result(case, Status.ERROR, duration_s), error=error)


def reproduce(case: Case, *, differs: bool = False) -> str:
    """Return the command that runs only this case, or the call if the spec is no file.

    It is empty where a function was given in Python: only the caller knows the call.
    """
    if case.code.given is not None:
        return ""
    if case.origin.path.startswith("<"):
        return f"gradcheck_cli.check(spec, case={case.name!r}, seed={case.seed})"
    modes, judging = case.running.modes, case.judging
    at = modes.index(case.mode)
    words = ["gradcheck", "run", case.origin.path, "--op", case.op, "--case", case.name]
    words += ["--seed", str(case.seed)]
    for mode in modes[0 if differs else at : at + 1]:
        words += ["--mode", mode]
    values = {
        "--device": case.running.device,
        "--require": judging.full_only and "full",
        "--power": judging.power != Power() and str(judging.power),
        "--budget": judging.budget != Judging.budget and f"{judging.budget:g}",
        "--point": case.wanted.point,
    }
    words += [word for option, value in values.items() if value for word in (option, value)]
    return shlex.join(words)


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


class _Results:
    """The results so far. Each is settled in turn, once its verdict is final."""

    def __init__(self, running: Counter[str], *, is_shard: bool) -> None:
        self._running = running  # how many cases of each op haven't ended
        self._is_shard = is_shard
        self._done: dict[int, CaseResult] = {}
        self._settled: set[int] = set()

    def add(self, index: int, result: CaseResult) -> None:
        """Add the result of a case that has ended."""
        self._done[index] = result
        self._running[result.spec] -= 1

    def settle(self, *, are_all: bool = False) -> Iterator[CaseResult]:
        """Yield those that are next in turn; pairs without elements wait for the op's other cases.

        Args:
            are_all: whether the last case has ended, so that nothing waits any more.
        """
        for index in sorted(self._done.keys() - self._settled):
            result = self._done[index]
            is_next = index == len(self._settled)
            if not are_all and (not is_next or (self._running[result.spec] and has_empty_pairs(result))):
                return
            self._settled.add(index)
            if not self._is_shard:
                self._done[index] = judge_empty_pairs(result, self._done.values())
            yield self._done[index]

    def in_order(self) -> list[CaseResult]:
        """Return all of them, in the order of the cases."""
        return [self._done[index] for index in sorted(self._done)]


def run_in_workers(  # noqa: PLR0913 (what runs, where, and what is made of it)
    workers: Workers,
    cases: Sequence[Case],
    *,
    on_progress: Callable[[Case, float | None], None] = _ignore,
    on_case: Callable[[CaseResult], None] = _ignore,
    stopper: Stopper | None = None,
    mark: Callable[[CaseResult], CaseResult] | None = None,
    is_shard: bool = False,
) -> Report:
    """Run cases in workers, which are closed afterwards.

    Args:
        on_progress: is called when a case begins, and with the share of its work that is done.
        on_case: is called with each result, in the order of the cases, as soon as all earlier ones are there.
        stopper: is asked after each event whether to end the run; running cases are then abandoned.
        mark: marks what doesn't count in a result.
        is_shard: whether other cases run elsewhere: `merge` will judge the pairs without elements.
    """
    began = time.perf_counter()
    stopper = stopper or Stopper()
    done = _Results(Counter(case.spec for case in cases), is_shard=is_shard)
    notices: list[str] = []
    cut: BaseException | None = None

    def tell(results: Iterable[CaseResult]) -> None:
        for result in results:
            stopper.count(result)
            on_case(result)

    # No worker is waited for in vain.
    with _interruptible(workers.run(cases) if cases else ()) as events:
        try:
            for event in events:
                if isinstance(event, Ended):
                    done.add(event.index, event.result if mark is None else mark(event.result))
                    tell(done.settle())
                elif isinstance(event, Noted):
                    notices.append(event.text)
                elif isinstance(event, Progressed):
                    on_progress(cases[event.index], event.share)
                if stopper.is_time():
                    break
        except (KeyboardInterrupt, WorkersLostError) as error:
            cut = error
        finally:
            workers.close()
        tell(done.settle(are_all=True))
    ended = done.in_order()
    interrupted = isinstance(cut, KeyboardInterrupt)
    return Report(
        gradcheck_version=__version__,
        tensorflow_version=workers.tensorflow_version,
        python_version=platform.python_version(),
        seed=next((case.seed for case in cases), 0),
        cases=tuple(ended),
        duration_s=time.perf_counter() - began,
        interrupted=interrupted,
        unchecked=() if interrupted else stopper.describe_unchecked(len(cases), len(ended), str(cut or "")),
        notices=tuple(notices),
        machine=Machine(
            _installed_version("keras"),
            _installed_version("numpy"),
            f"{platform.system()}-{platform.release()}-{platform.machine()}",
        ),
    )


@cache
def _installed_version(package: str) -> str:
    """Return an installed package's version without importing it; empty where it isn't installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@contextmanager
def _interruptible(events: Iterable[Event]) -> Iterator[Iterator[Event]]:
    """Let Ctrl-C interrupt the wait for events, and nothing else of what is done in the block.

    Until they are waited for again it is only noted, so that no result is printed in part or twice and the
    workers are closed. It is noted in any case: Python prints and forgets an exception that is raised in a
    destructor or a callback of the garbage collector.
    """
    before = signal.getsignal(signal.SIGINT)
    # Only the main thread receives signals; what ignores them goes on ignoring them.
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield iter(events)
        return
    is_noted = is_waiting = False

    def note(signal_number: int, frame: FrameType | None) -> None:
        nonlocal is_noted
        is_noted = True
        if is_waiting:
            before(signal_number, frame)

    def wait() -> Iterator[Event]:
        nonlocal is_waiting
        try:
            is_waiting = True
            for event in events:
                is_waiting = False
                yield event
                is_waiting = True
                if is_noted:
                    raise KeyboardInterrupt
        finally:
            is_waiting = False

    signal.signal(signal.SIGINT, note)
    try:
        yield wait()
    finally:
        signal.signal(signal.SIGINT, before)
