"""Workers on this machine: each document in a process forked for it, several at a time.

`RunningTask` is this process's view of one that checks cases: its messages, its output and its limits. Cases
whose process ended get an error that says how: by a crash, a time limit or a lack of memory.
"""

from __future__ import annotations

import linecache
import os
import re
import signal
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing.connection import Pipe, wait
from pathlib import Path

from gradcheck_cli.plain_files import GENERATED, is_users, short_path
from gradcheck_cli.results import GREEN, CaseError, CaseResult
from gradcheck_cli.running import limits
from gradcheck_cli.running.fork_server import CodePlace, Exit, ForkServer, Message, Task
from gradcheck_cli.running.limits import Limits
from gradcheck_cli.running.run_loop import (
    Ended,
    Event,
    Progressed,
    Started,
    Waited,
    Workers,
    failed_case,
    is_about_memory,
)
from gradcheck_cli.spec.case import Case

_TICK = 0.5  # seconds between two checks of how much is printed


class LocalWorkers(Workers):
    """Runs cases in processes of this machine.

    A crash, an endless loop, a changed working directory, seeds and modules affect only the process where
    they happen. Only the running case is lost; the rest of its document continues in a new process.
    """

    def __init__(
        self,
        jobs: int,
        limits: Limits | None = None,
        *,
        isolate: bool = False,
        output: Path | None = None,
        writes_bytecode: bool = True,
    ) -> None:
        """Start importing TensorFlow.

        Args:
            isolate: give each case a process, not each document.
            output: folder in which what failed cases have printed is kept; default a temporary one.
        """
        self._jobs, self._isolate = jobs, isolate
        self._limits = limits or Limits()
        self._task = Task((), self._limits.memory)  # what each process is to do, but for its cases
        self._output_folder = OutputFolder(output)
        self._writes_bytecode = writes_bytecode
        self._server = ForkServer(writes_bytecode=writes_bytecode)
        self._waiting: deque[list[Numbered]] = deque()
        # Documents that were running when a fork server was killed.
        self._suspects: deque[list[Numbered]] = deque()
        self._is_alone = False  # whether a suspect is running, alone
        self._running: dict[int, RunningTask] = {}
        self._forked = 0

    def run(
        self, cases: Sequence[Case], *, listing: bool = False, place: CodePlace | None = None
    ) -> Iterator[Event]:
        """Run cases, or only list their pairs, in `place` if that is given; see `Workers.run`."""
        self._task = replace(self._task, listing=listing, place=place)
        self._waiting.extend(group_cases(cases, isolate=self._isolate))
        while not self.tensorflow_version and not self._server.reports.poll(_TICK):
            yield Waited()  # the import counts towards --max-time
        self.tensorflow_version = self.tensorflow_version or self._server.wait_until_ready()
        while self._waiting or self._suspects or self._running:
            self._fill()
            yield from self._poll()

    def stop(self) -> None:
        """End what runs, and forget what waits. Other cases may run then."""
        for task in self._running.values():
            task.kill()
        while self._running:
            for _ in self._poll():
                pass
        self._waiting.clear()
        self._suspects.clear()

    def close(self) -> None:
        """End every process; see `Workers.close`."""
        self._server.close()
        for task in self._running.values():
            task.close()
        self._running.clear()

    def _fill(self) -> None:
        """Fork processes for waiting documents, as many as are allowed. Suspects run alone."""
        if self._running and (self._suspects or self._is_alone):
            return
        self._is_alone = bool(self._suspects)
        if self._suspects:
            self._fork(self._suspects.popleft())
        while self._waiting and not self._is_alone and len(self._running) < self._jobs:
            self._fork(self._waiting.popleft())

    def _fork(self, cases: list[Numbered]) -> None:
        self._forked += 1
        task = replace(self._task, cases=tuple(numbered_case.case for numbered_case in cases))
        self._running[self._forked] = RunningTask(self._server, self._forked, cases, task, self._limits)

    def _poll(self) -> Iterator[Event]:
        """Wait until something happens, and handle it."""
        now = time.monotonic()
        pause = min(_TICK, *(task.next_look - now for task in self._running.values()))
        talking = [task.connection for task in self._running.values() if task.is_open]
        ready = wait([self._server.reports, *talking], max(pause, 0.0))
        # If waiting took longer than requested, the machine was paused, and the processes with it. Its clock
        # went on, so the processes get that time back.
        stood_still = time.monotonic() - now - max(pause, 0.0)
        if stood_still > 0:
            for task in self._running.values():
                task.extend(stood_still)
        if not ready:
            yield Waited()
        for task in list(self._running.values()):
            if task.connection in ready:
                yield from self._listen(task)
        if self._server.reports in ready:
            yield from self._on_report()
        now = time.monotonic()
        for task in self._running.values():
            task.enforce(now)
        if any(task.outlives_its_end(now) for task in self._running.values()):
            self._server.give_up()

    def _listen(self, task: RunningTask) -> Iterator[Event]:
        while (message := task.receive()) is not None:
            if message.share is not None:
                yield Progressed(task.left[0].index, message.share)
            elif message.result is None:
                yield Started(task.start(message).index)
            else:
                yield task.finish(message, message.result, self._output_folder)

    def _on_report(self) -> Iterator[Event]:
        """Handle the end of a process, or of the server; the server's end also ends all processes."""
        try:
            _, exit_ = self._server.reports.recv()
        except (EOFError, OSError):
            yield from self._replace_server()
            return
        yield from self._on_exit(self._running.pop(exit_.task), exit_)

    def _on_exit(self, task: RunningTask, exit_: Exit) -> Iterator[Event]:
        yield from self._listen(task)
        ended = task.on_exit(exit_, self._output_folder)
        if ended is not None:
            yield ended
        if task.left:
            self._waiting.appendleft(task.left)
        task.close()

    def _replace_server(self) -> Iterator[Event]:
        """Start another server in place of one that was killed, by a process that it forked or from outside.

        A process that ran alone is to blame. If several ran, each of their documents runs again, alone, to
        find out which of them kills the server.
        """
        self._server.close()
        self._server = ForkServer(writes_bytecode=self._writes_bytecode)
        self._server.wait_until_ready()
        lost, self._running = self._running, {}
        if len(lost) == 1:
            ((task_id, task),) = lost.items()
            message = "the process that forked this one was killed, which ended this one as well."
            yield from self._on_exit(task, Exit(task_id, 1, message))
            return
        for task in lost.values():
            yield from self._listen(task)
            if task.left:
                self._suspects.append(task.left)
            task.close()


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


class RunningTask:
    """One process, from its fork to its exit.

    Attributes:
        connection: the connection with its messages.
        is_open: whether more messages may come.
        left: the cases that have not ended; the first of them is running.
    """

    def __init__(
        self, server: ForkServer, task_id: int, cases: Sequence[Numbered], task: Task, most: Limits
    ) -> None:
        self.left = list(cases)
        self.is_open = True
        self._server, self._id, self._limits = server, task_id, most
        self._output, self._stacks = Output(), Output()
        self._offset = 0  # where the output of the running case begins
        self._began = time.monotonic()
        self._deadline = self._began + _STARTING
        self._seconds = _STARTING  # how long the deadline allowed
        self._paused = 0.0  # seconds since then for which everything stood still
        self._pid, self._times = 0, limits.Times()
        self._given_up: CaseError | None = None
        self._is_killed = False
        self._kill_at: float | None = None
        self._kills = limits.times_memory_ran_out()
        self.connection, theirs = Pipe()
        with theirs:
            server.fork(task_id, (theirs.fileno(), self._output.fileno(), self._stacks.fileno()))
        with suppress(OSError):  # already dead: its exit will be reported
            self.connection.send(task)

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
        timeout = (
            self._limits.timeout if numbered.case.running.timeout is None else numbered.case.running.timeout
        )
        self._seconds = timeout + numbered.case.wanted.search
        self._deadline = self._began + self._seconds
        self._pid, self._times = message.pid, limits.times_of(message.pid)
        return numbered

    def finish(self, message: Message, result: CaseResult, output_folder: OutputFolder) -> Ended:
        """Record that the running case has ended; return its `Ended`, with its output."""
        if result.error is not None:
            result = replace(result, error=with_limit(result.error, self._limits.memory))
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
            self._given_up = error_of_output(_MOST_OUTPUT)
            self._kill_at = now

    def _has_waited(self, now: float) -> bool:
        """Extend the deadline by the time in which other programs had the processors; return whether so."""
        if not self._pid:
            return False
        passed = now - self._began - self._paused
        own = limits.times_of(self._pid).own_seconds(self._times, passed)
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
            return error_of_timeout(self._seconds, stacks)
        if exit_.message:
            return CaseError("crash", exit_.message)
        return error_of_exit(
            exit_.code,
            lines,
            stacks,
            self._limits.memory,
            for_memory=limits.times_memory_ran_out() > self._kills,
        )

    def close(self) -> None:
        """Close its files."""
        self.connection.close()
        self._output.close()
        self._stacks.close()


_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)


def error_of_timeout(seconds: float, stacks: str) -> CaseError:
    """Return the error of a case that took too long, with its place from faulthandler's stacks."""
    return CaseError(
        "timeout",
        f"still running after {seconds:g} s, and was ended. Allow it longer (timeout in the spec, or "
        "--timeout), or make the inputs smaller.",
        user_frames(stacks),
    )


def error_of_output(limit: int) -> CaseError:
    """Return the error of a case that printed too much."""
    return CaseError("crash", f"printed more than {limits.format_size(limit)}, and was ended. Print less.")


def error_of_exit(
    code: int, output: Iterable[str], stacks: str, memory: int | None, *, for_memory: bool
) -> CaseError:
    """Return the error of a case whose process ended too early.

    Args:
        code: its exit code; below 0 a signal.
        stacks: what faulthandler wrote.
        memory: its limit, in bytes.
        for_memory: whether the kernel killed a process for lack of memory in that time.
    """
    frames = user_frames(stacks)
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    if (code == -signal.SIGKILL and for_memory) or any(map(is_about_memory, output)):
        return with_limit(CaseError("memory", f"ran out of memory: the process {how}.", frames), memory)
    if code < 0:
        return CaseError("crash", f"the process {how}.", frames)
    return CaseError("crash", f"the process {how}, as by os._exit, in the middle of the check.", frames)


def with_limit(error: CaseError, memory: int | None) -> CaseError:
    """Add the memory limit and a remedy to an error of kind "memory"; return others unchanged."""
    if error.kind != "memory" or memory is None:
        return error
    limit = f"The process may use {limits.format_size(memory)} (--memory)."
    message = f"{error.message.rstrip('.')}. {limit} Make the inputs smaller, or give it more."
    return replace(error, message=message)


def signal_name(signal_number: int) -> str:
    """Return a signal as `signal 11 (SIGSEGV: Segmentation fault)`."""
    try:
        known_signal = signal.Signals(signal_number)
    except ValueError:
        return f"signal {signal_number}"
    return f"signal {signal_number} ({known_signal.name}: {signal.strsignal(signal_number)})"


def user_frames(stacks: str) -> tuple[str, ...]:
    """Return the user's own frames in faulthandler's stacks, outermost first, in the form of a traceback.

    For a function that AutoGraph rewrote, only its name and the line of its new form are known.
    """
    lines: list[str] = []
    for match in reversed(list(_FRAME.finditer(stacks))):
        file, line, function = match["file"], int(match["line"]), match["function"]
        code = linecache.getline(file, line).strip()
        if GENERATED in file:
            frame = f"as rewritten by AutoGraph: in {function.removeprefix('tf__')}"
        elif not is_users(file):
            continue
        else:
            frame = f"{short_path(file)}:{line}: in {function}"
        lines += [frame, f"    {code}"] if code else [frame]
    return tuple(lines)


LINES = 10  # shown of a failed case's output
_WIDEST = 400  # characters per line
_TAIL = 4096  # bytes that are searched for these lines
_CHUNK = 2**20
_LONGEST_STEM = 180  # bytes; a file name may have 255


class Output:
    """The file that a process prints to. It has no name, so nothing is ever left behind."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed by its owner)

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self._file.fileno()

    @property
    def size(self) -> int:
        """How many bytes have been printed."""
        return os.fstat(self._file.fileno()).st_size

    def tail(self, start: int, end: int) -> tuple[tuple[str, ...], bool]:
        """Return the last lines between two offsets in the file, and whether there are no others."""
        first = max(start, end - _TAIL)
        text = os.pread(self._file.fileno(), max(end - first, 0), first).decode(errors="replace")
        lines = text.rstrip().splitlines()
        is_all = first == start and len(lines) <= LINES
        return tuple(line.rstrip()[:_WIDEST] for line in lines[-LINES:]), is_all

    def text(self) -> str:
        """Return the file's content, up to the size of a chunk."""
        return os.pread(self._file.fileno(), _CHUNK, 0).decode(errors="replace")

    def copy(self, path: Path, start: int, end: int) -> None:
        """Write the part of the file between two offsets to `path`."""
        with path.open("wb") as target:
            while start < end:
                chunk = os.pread(self._file.fileno(), min(_CHUNK, end - start), start)
                if not chunk:
                    break
                target.write(chunk)
                start += len(chunk)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


class OutputFolder:
    """The folder for the output of failed cases. It is created when there is something to keep."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use `folder`, or a new folder among the system's temporary files."""
        self._folder = folder
        self._owners: dict[str, tuple[str, ...]] = {}  # file name, in lower case -> the case it belongs to

    def keep(self, case: Case, output: Output, start: int, end: int) -> str:
        """Copy a case's output to its own file, and return its path; empty if the file can't be written."""
        with suppress(OSError):
            path = self._file_of(case)
            output.copy(path, start, end)
            return str(path)
        return ""

    def keep_text(self, case: Case, text: str) -> str:
        """Write a case's output from another machine to a file, and return its path; empty if that fails."""
        with suppress(OSError):
            path = self._file_of(case)
            path.write_text(text, encoding="utf-8")
            return str(path)
        return ""

    def _file_of(self, case: Case) -> Path:
        """Return a case's file: the same for each run of the case, and no other case's."""
        owner = *case.key, case.mode
        parts = owner if case.mode != "graph" else owner[:-1]
        stem = re.sub(r"[^\w.+-]", "_", ".".join(parts)).encode()[:_LONGEST_STEM].decode(errors="ignore")
        names = (
            f"{stem}{number}.txt" for number in ("", *map("-{}".format, range(2, len(self._owners) + 3)))
        )
        name = next(name for name in names if self._owners.setdefault(name.lower(), owner) == owner)
        return self._own() / name

    def _own(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gradcheck-output-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder
