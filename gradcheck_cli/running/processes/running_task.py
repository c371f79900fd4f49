"""The parent's view of a process that checks cases: its messages, its output and its limits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Pipe
from typing import NamedTuple

from gradcheck_cli.results import GREEN, CaseError, CaseResult
from gradcheck_cli.running.failed_case import failed_case
from gradcheck_cli.running.processes import exit_errors, process
from gradcheck_cli.running.processes.fork_server import ForkServer
from gradcheck_cli.running.processes.limits import Limits
from gradcheck_cli.running.processes.messages import CodePlace, Exit, Message, Task
from gradcheck_cli.running.processes.output import Output, OutputFolder
from gradcheck_cli.running.workers import Ended
from gradcheck_cli.spec.case import Case

# TensorFlow keeps the functions of each case, some 0.6 MiB, until its process ends.
_MOST_CASES = 100
_STARTING = 60.0  # seconds from a process's fork to its first case
_DUMPING = 0.3  # seconds for a process to write its stacks before it is killed
_KILLING = 10.0  # seconds from the order to kill a process to the report of its exit
_LEAVING = 5.0  # seconds from a process's last result to its end
_TRIFLE = 0.05  # seconds by which a deadline isn't worth moving: a wake-up is late by a few milliseconds
_MOST_OUTPUT = 2**30  # bytes; other programs need the disk too


@dataclass(frozen=True)
class Numbered:
    """A case and its index in the run."""

    index: int
    case: Case


def group_cases(cases: Sequence[Case], *, isolate: bool) -> Iterator[list[Numbered]]:
    """Yield the cases that share a process: those of a document, which are consecutive, but not too many."""
    numbered = [Numbered(index, case) for index, case in enumerate(cases)]
    for _, document in groupby(numbered, key=lambda numbered_case: numbered_case.case.spec):
        whole = list(document)
        size = 1 if isolate else _MOST_CASES
        yield from (whole[start : start + size] for start in range(0, len(whole), size))


class TaskOptions(NamedTuple):
    """How a process works through its cases; see `Task`."""

    limits: Limits
    listing: bool = False
    place: CodePlace | None = None


class RunningTask:
    """One process, from its fork to its exit.

    Attributes:
        connection: the connection with its messages.
        is_open: whether more messages may come.
        left: the cases that have not ended; the first of them is running.
    """

    def __init__(
        self, server: ForkServer, task_id: int, cases: Sequence[Numbered], options: TaskOptions
    ) -> None:
        self.left = list(cases)
        self.is_open = True
        self._server, self._id, self._limits = server, task_id, options.limits
        self._output, self._stacks = Output(), Output()
        self._offset = 0  # where the output of the running case begins
        self._began = time.monotonic()
        self._deadline = self._began + _STARTING
        self._seconds = _STARTING  # how long the deadline allowed
        self._paused = 0.0  # seconds since then for which everything stood still
        self._pid, self._times = 0, process.Times()
        self._given_up: CaseError | None = None
        self._is_killed = False
        self._kill_at: float | None = None
        self._kills = process.times_memory_ran_out()
        self.connection, theirs = Pipe()
        with theirs:
            server.fork(task_id, (theirs.fileno(), self._output.fileno(), self._stacks.fileno()))
        with suppress(OSError):  # already dead: its exit will be reported
            work = tuple(numbered_case.case for numbered_case in cases)
            self.connection.send(Task(work, options.limits.memory, options.listing, options.place))

    def receive(self) -> Message | None:
        """Return the next message, if one has arrived."""
        try:
            if self.is_open and self.connection.poll():
                message: Message = self.connection.recv()
                return message
        except Exception:  # noqa: BLE001 (the end, or no pickle: the user's code may write there too)
            self.is_open = False
        return None

    def start(self, message: Message) -> Numbered:
        """Record that the next case has started; return it."""
        numbered = self.left[0]
        self._given_up = self._kill_at = None
        self._offset = message.printed
        self._began, self._paused = time.monotonic(), 0.0
        timeout = self._limits.timeout if numbered.case.timeout is None else numbered.case.timeout
        self._seconds = timeout + numbered.case.search
        self._deadline = self._began + self._seconds
        self._pid, self._times = message.pid, process.times_of(message.pid)
        return numbered

    def finish(self, message: Message, result: CaseResult, output_folder: OutputFolder) -> Ended:
        """Record that the running case has ended; return its `Ended`, with its output."""
        numbered = self.left.pop(0)
        self._given_up = self._kill_at = None
        self._deadline, self._pid = time.monotonic() + _LEAVING, 0
        lines, is_all = self._output.tail(self._offset, message.printed)
        file = ""
        if result.status not in GREEN and not is_all:
            file = output_folder.keep(numbered.case, self._output, self._offset, message.printed)
        return Ended(numbered.index, result.printed(lines, file))

    def extend(self, seconds: float) -> None:
        """Extend the deadline by the time for which the machine, or this process, stood still."""
        self._deadline += seconds
        self._paused += seconds
        if self._kill_at is not None:
            self._kill_at += seconds

    def enforce(self, now: float) -> None:
        """End the process if it has taken too long, or printed too much."""
        if self._kill_at is not None:
            if now >= self._kill_at and not self._is_killed:
                self._is_killed = True
                self._server.kill(self._id)
        elif now >= self._deadline and not self._has_waited(now):
            self._server.dump(self._id)
            self._kill_at = now + _DUMPING
        elif self._output.size > _MOST_OUTPUT:
            self._given_up = exit_errors.error_of_output(_MOST_OUTPUT)
            self._kill_at = now

    def _has_waited(self, now: float) -> bool:
        """Extend the deadline by the time in which other programs had the processors; return whether so."""
        if not self._pid:
            return False
        passed = now - self._began - self._paused
        own = process.times_of(self._pid).own_seconds(self._times, passed)
        left = min(self._seconds - own, passed)
        self._deadline = max(self._deadline, now + left)
        return left > _TRIFLE

    def kill(self) -> None:
        """Have the process killed, whatever it does."""
        self._kill_at = time.monotonic()
        self.enforce(self._kill_at)

    def outlives_its_end(self, now: float) -> bool:
        """Whether it should have ended by now: the fork server doesn't respond."""
        return self._is_killed and self._kill_at is not None and now >= self._kill_at + _KILLING

    @property
    def next_look(self) -> float:
        """When it must be checked again, whatever it sends."""
        if self._kill_at is None:
            return self._deadline
        return self._kill_at + _KILLING if self._is_killed else self._kill_at

    def on_exit(self, exit_: Exit, output_folder: OutputFolder) -> Ended | None:
        """Return the end of the case that the process's exit interrupted, if any; `left` holds the others."""
        if not self.left or (self._is_killed and self._kill_at is None):
            return None  # the case that it was killed for ended just in time; the next isn't to blame
        numbered = self.left.pop(0)
        size = self._output.size
        lines, _ = self._output.tail(self._offset, size)
        error = self._given_up or self._error(exit_, lines)
        result = failed_case(numbered.case, error, time.monotonic() - self._began)
        file = (
            output_folder.keep(numbered.case, self._output, self._offset, size) if size > self._offset else ""
        )
        return Ended(numbered.index, result.printed(lines, file))

    def _error(self, exit_: Exit, lines: Sequence[str]) -> CaseError:
        stacks = self._stacks.text()
        if self._kill_at is not None:
            return exit_errors.error_of_timeout(self._seconds, stacks)
        if exit_.message:
            return CaseError("crash", exit_.message)
        return exit_errors.error_of_exit(
            exit_.code,
            lines,
            stacks,
            self._limits.memory,
            for_memory=process.times_memory_ran_out() > self._kills,
        )

    def close(self) -> None:
        """Close its files."""
        self.connection.close()
        self._output.close()
        self._stacks.close()
