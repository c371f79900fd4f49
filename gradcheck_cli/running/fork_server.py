"""The fork server: a process that imports TensorFlow once, runs none of it, and forks one for each document.

It watches over the processes that it forks, ends those that take too long, and sends what happens to
`LocalWorkers`, which started it. A forked process checks the cases of one document, and sends each result
when it is ready. docs/decisions/0010 says why multiprocessing's isn't used.
"""

from __future__ import annotations

import faulthandler
import gc
import linecache
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import NamedTuple, TextIO

from gradcheck_cli.plain_files import GENERATED, is_users, short_path
from gradcheck_cli.results import GREEN, CaseError, CaseResult
from gradcheck_cli.running import limits
from gradcheck_cli.running.local_workers import ASK, TICK, Document
from gradcheck_cli.running.run_loop import (
    Ended,
    Event,
    Progressed,
    failed_case,
    is_about_memory,
)

_STARTING = 60.0  # seconds from a process's fork to its first case
_DUMPING = 0.3  # seconds for a process to write its stacks before it is killed
_LEAVING = 5.0  # seconds from a process's last result to its end
_TRIFLE = 0.05  # seconds by which a deadline isn't worth moving: a wake-up is late by a few milliseconds
_MOST_OUTPUT = 2**30  # bytes; other programs need the disk too


def serve(descriptor: int, scratch: str) -> None:
    """Import TensorFlow, then check documents as they come, until the connection's other end is closed.

    Temporary files of processes are in `scratch`, which is removed at the end.
    """
    limits.end_with_parent()  # nobody would notice the parent's death during the import
    parent = Connection(descriptor)
    try:
        version = _load()
    except BaseException as error:  # noqa: BLE001 (any error: the parent tells the user)
        parent.send(("", f"{type(error).__name__}: {error}"))
        return
    limits.end_with_parent(signal_number=0)
    limits.adopt_orphans()
    server = _Server(parent, Path(scratch))
    try:
        parent.send((version, ""))
        server.serve()
    except (EOFError, OSError):
        pass  # the parent has closed its end, or is gone
    finally:
        server.end()


def _load() -> str:
    """Import everything that a case needs. No op may run: a process that has run one can't fork any more."""
    from gradcheck_cli.tensorflow_backend import startup

    with startup.without_collections():
        from gradcheck_cli.running import files_read, session  # noqa: F401 (imported for the children)

        startup.load()
        startup.load_engine()
        gc.freeze()  # else a child's garbage collection would write to all that was imported, and so copy it
    return startup.version()


class _Server:
    def __init__(self, parent: Connection, scratch: Path) -> None:
        self._parent, self._scratch = parent, scratch
        self._forks: dict[int, _Fork] = {}  # by process
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Serve until the parent closes its end.

        Raises:
            EOFError, OSError: it has.
        """
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        while True:
            began = time.monotonic()
            forks = list(self._forks.values())
            pause = max(0.0, min([TICK, *(fork.next_look - began for fork in forks)]))
            talking = [fork.connection for fork in forks if fork.is_open]
            ready = wait([self._parent, self._woken, *talking], pause)
            # If waiting took longer than requested, the machine was paused, and the processes with it. Its
            # clock went on, so the processes get that time back.
            stood_still = time.monotonic() - began - pause
            for fork in forks:
                if stood_still > 0:
                    fork.extend(stood_still)
                if fork.connection in ready:
                    self._listen(fork)
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            now = time.monotonic()
            for fork in self._forks.values():
                fork.enforce(now)
            if self._parent in ready:
                self._obey(self._parent.recv())

    def _obey(self, order: object) -> None:
        """Carry out an order; after `ASK`, the parent sends a document once nothing is sent to it."""
        if order == ASK:
            self._parent.send((0, ASK))
            self._obey(self._parent.recv())
        elif isinstance(order, Document):
            self._start(order)

    def _start(self, document: Document) -> None:
        """Fork a process for a document, or report that its cases can't have one."""
        for numbered in document.cases:
            try:
                self._fork(document)
            except OSError as error:
                fault = CaseError("crash", f"no process could be made for it: {error.strerror}")
                self._parent.send(
                    (document.number, Ended(numbered.index, failed_case(numbered.case, fault, 0.0)))
                )
                document = document.without_first()
            else:
                return
        self._parent.send((document.number, None))

    def _fork(self, document: Document) -> None:
        parent = os.getpid()
        folder = self._scratch / str(document.number)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fork = _Fork(document)
        with warnings.catch_warnings():
            # Python 3.12 warns about any thread; those of a TensorFlow that ran nothing hold no lock.
            warnings.simplefilter("ignore", DeprecationWarning)
            fork.pid = os.fork()
        if fork.pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                for other in self._forks.values():
                    other.close()
                for descriptor in (self._woken, self._wakes, self._parent.fileno(), fork.connection.fileno()):
                    os.close(descriptor)
                code = fork.run(parent, str(folder))
            except BaseException:  # noqa: BLE001 (goes into the file of the process's output)
                traceback.print_exc()
            finally:
                os._exit(code)  # the server's own frames and exit handlers don't concern the child
        fork.theirs.close()
        self._forks[fork.pid] = fork

    def _listen(self, fork: _Fork) -> None:
        while (message := fork.receive()) is not None:
            self._parent.send((fork.document.number, fork.hear(message)))

    def _reap(self) -> None:
        """Report the processes that have ended, and kill whatever they left running."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if ended is None:
                break
            if ended.si_pid in self._forks:
                limits.kill_group(ended.si_pid)  # before its number can be reused for another process
            _, status = os.waitpid(ended.si_pid, 0)
            fork = self._forks.pop(ended.si_pid, None)
            if not self._forks:
                self._kill_children()  # in other sessions; they can't belong to a running process
            if fork is not None:
                self._end_fork(fork, os.waitstatus_to_exitcode(status))

    def _end_fork(self, fork: _Fork, code: int) -> None:
        number = fork.document.number
        self._listen(fork)
        shutil.rmtree(self._scratch / str(number), ignore_errors=True)
        if (event := fork.on_exit(code)) is not None:
            self._parent.send((number, event))
        fork.close()
        self._start(fork.document)

    def _kill_children(self) -> None:
        for pid in limits.children():
            limits.kill_group(pid)

    def end(self) -> None:
        """Kill every descendant, and remove what they left in the scratch folder."""
        signal.set_wakeup_fd(-1)
        for pid in self._forks:
            limits.kill_group(pid)
        self._kill_children()
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
            self._kill_children()  # those that the ended process has left behind
        shutil.rmtree(self._scratch, ignore_errors=True)


class _Message(NamedTuple):
    """A case has started; with a result, it has ended; with a share, that part of it is done."""

    printed: int  # how many bytes of output there were by then
    result: CaseResult | None = None
    share: float | None = None


class _Fork:
    """A forked process, from its fork to its exit.

    Attributes:
        document: its cases that have not ended; the first of them is running.
        connection: the connection with its messages; `theirs` is the other end.
        is_open: whether more messages may come.
    """

    def __init__(self, document: Document) -> None:
        self.document, self.is_open, self.pid = document, True, 0
        self._output, self._stacks = Output(), Output()
        self.connection, self.theirs = Pipe(duplex=False)
        self._offset = 0  # where the output of the running case begins
        self._began = time.monotonic()
        self._seconds = _STARTING  # how long the deadline allowed
        self._deadline = self._began + _STARTING
        self._paused = 0.0  # seconds since then for which everything stood still
        self._times: limits.Times | None = None  # what the process had done when the running case began
        self._share = 0.0  # of the running case that is done
        self._given_up: CaseError | None = None
        self._is_killed = False
        self._kill_at: float | None = None
        self._kills = limits.times_memory_ran_out()

    def receive(self) -> _Message | None:
        """Return the next message, if one has arrived."""
        try:
            if self.is_open and self.connection.poll():
                message: _Message = self.connection.recv()
                return message
        except Exception:  # noqa: BLE001 (the end, or no pickle: the user's code may write there too)
            self.is_open = False
        return None

    def hear(self, message: _Message) -> Event:
        """Return what a message says of the running case; the next one runs when it has ended."""
        first = self.document.cases[0]
        if message.share is not None:
            self._share = max(self._share, message.share)
            return Progressed(first.index, message.share)
        self._given_up, self._kill_at, self._share = None, None, 0.0
        if message.result is not None:
            self._deadline, self._times = time.monotonic() + _LEAVING, None
            return self._end(message.result, message.printed, was_cut=False)
        self._offset = message.printed
        self._began, self._paused = time.monotonic(), 0.0
        timeout, own = self.document.limits.timeout, first.case.running.timeout
        self._seconds = (timeout if own is None else own) + first.case.wanted.search
        self._deadline = self._began + self._seconds
        self._times = limits.times_of(self.pid)
        return Progressed(first.index)

    def _end(self, result: CaseResult, printed: int, *, was_cut: bool) -> Ended:
        """Return the end of the running case, with what it has printed."""
        first, document = self.document.cases[0], self.document
        self.document = document.without_first()
        if result.error is not None:
            result = replace(result, error=with_limit(result.error, document.limits.memory))
        lines, is_all = self._output.tail(self._offset, printed)
        is_kept = printed > self._offset if was_cut else result.status not in GREEN and not is_all
        file = self._output.keep(document.outputs[first.index], self._offset, printed) if is_kept else ""
        return Ended(first.index, result.printed(lines, file))

    def extend(self, seconds: float) -> None:
        """Extend the deadline by the time for which the machine, or this process, stood still."""
        self._deadline += seconds
        self._paused += seconds
        if self._kill_at is not None:
            self._kill_at += seconds

    def enforce(self, now: float) -> None:
        """End the process if it has taken too long, or printed too much."""
        if self._is_killed:
            return
        if self._kill_at is not None:
            if now >= self._kill_at:
                self._is_killed = True
                limits.kill_group(self.pid)
        elif now >= self._deadline and not self._has_waited(now):
            with suppress(ProcessLookupError):
                os.kill(self.pid, limits.DUMP_SIGNAL)
            self._kill_at = now + _DUMPING
        elif self._output.size > _MOST_OUTPUT:
            most = limits.format_size(_MOST_OUTPUT)
            self._given_up = CaseError("crash", f"printed more than {most}, and was ended. Print less.")
            self._kill_at = now

    def _has_waited(self, now: float) -> bool:
        """Extend the deadline by the time in which other programs had the processors; return whether so."""
        if self._times is None:
            return False
        passed = now - self._began - self._paused
        own = limits.times_of(self.pid).own_seconds(self._times, passed)
        left = min(self._seconds - own, passed)
        self._deadline = max(self._deadline, now + left)
        return left > _TRIFLE

    @property
    def next_look(self) -> float:
        """When it must be looked at again, whatever it sends."""
        return self._deadline if self._kill_at is None else self._kill_at

    def on_exit(self, code: int) -> Ended | None:
        """Return the end of the case that the process's exit interrupted, if any."""
        if not self.document.cases or (self._is_killed and self._kill_at is None):
            return None  # the case that it was killed for ended just in time; the next isn't to blame
        size, stacks = self._output.size, self._stacks.text()
        lines, _ = self._output.tail(self._offset, size)
        for_memory = limits.times_memory_ran_out() > self._kills
        error = self._given_up or (
            error_of_exit(code, lines, stacks, for_memory=for_memory)
            if self._kill_at is None
            else error_of_timeout(self._seconds, stacks, is_beside=self._share == 1)
        )
        result = failed_case(self.document.cases[0].case, error, time.monotonic() - self._began)
        return self._end(result, size, was_cut=True)

    def close(self) -> None:
        """Close its files."""
        for own in (self.connection, self._output, self._stacks):
            own.close()

    # In the forked process.

    def run(self, parent: int, scratch: str) -> int:
        """Check the document in this process, which was forked for it; return the exit code.

        Args:
            parent: the process that forked this one.
        """
        os.setsid()  # a group of its own: it can be killed with everything it starts, and gets no Ctrl-C
        limits.end_with_parent()
        if os.getppid() != parent:
            return 1
        limits.prefer_as_oom_victim()
        limits.keep_freed_memory()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdout, sys.stderr = self._redirect(1), self._redirect(2)
        faulthandler.enable(file=self._stacks.fileno())
        faulthandler.register(limits.DUMP_SIGNAL, file=self._stacks.fileno(), all_threads=True)
        # AutoGraph's files are removed when Python exits, but this process ends by os._exit.
        # The process that forked it removes them.
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        self._check_cases()
        return 0

    def _redirect(self, descriptor: int) -> TextIO:
        """Redirect a descriptor to the file of the output, and return a text stream on it."""
        os.dup2(self._output.fileno(), descriptor)
        # Line-buffered: what a process printed before it crashed must be in the file.
        return os.fdopen(
            descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )

    def _check_cases(self) -> None:
        from gradcheck_cli.checking.sample_point import listen_to_progress
        from gradcheck_cli.running.files_read import FileLog
        from gradcheck_cli.running.session import list_pairs, run_case
        from gradcheck_cli.tensorflow_backend import startup

        document, self.pid = self.document, os.getpid()
        if document.place is not None:
            os.chdir(document.place.directory)
            sys.path.extend(document.place.path)
        log = FileLog()
        startup.run_first_op(threads=1)
        limits.limit_memory(document.limits.memory)
        for numbered in document.cases:
            case, began = numbered.case, time.perf_counter()
            self._send()
            try:
                with listen_to_progress(self._tell):
                    result = (list_pairs if document.listing else run_case)(case)
            except KeyboardInterrupt as interrupt:  # not Ctrl-C, which isn't sent to this process
                from gradcheck_cli.tensorflow_backend import frames

                raised = "the user's code raised KeyboardInterrupt."
                error = CaseError("forward", raised, frames.user_frames(interrupt))
                result = failed_case(case, error, time.perf_counter() - began)
            self._send(result.having_read(log.read(*case.origin.files)))

    def _tell(self, share: float) -> None:
        """Send the progress of the case, unless this process was forked by the user's code."""
        if os.getpid() == self.pid:
            self.theirs.send(_Message(0, share=share))

    def _send(self, result: CaseResult | None = None) -> None:
        if os.getpid() != self.pid:
            os._exit(0)  # forked by the user's code, which returned here as well: it must not send the result
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):  # whatever the user's code put there
                stream.flush()
        limits.flush_c()
        self.theirs.send(_Message(self._output.size, result))


_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)


def error_of_timeout(seconds: float, stacks: str, *, is_beside: bool) -> CaseError:
    """Return the error of a case that took too long, with its place from faulthandler's stacks.

    Args:
        is_beside: whether the sample points were done.
    """
    where = " at points beside the samples" if is_beside else ""
    remedy = "say how far inputs go (uniform), for a loop to end" if is_beside else "make the inputs smaller"
    return CaseError(
        "timeout",
        f"still running after {seconds:g} s{where}, and was ended. Allow it longer (timeout in the spec, or "
        f"--timeout), or {remedy}.",
        user_frames(stacks),
    )


def error_of_exit(code: int, output: Iterable[str], stacks: str, *, for_memory: bool) -> CaseError:
    """Return the error of a case whose process ended too early.

    Args:
        code: its exit code; as in `subprocess`, below 0 a signal.
        stacks: what faulthandler wrote.
        for_memory: whether the kernel killed a process for lack of memory in that time.
    """
    frames = user_frames(stacks)
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    if (code == -signal.SIGKILL and for_memory) or any(map(is_about_memory, output)):
        return CaseError("memory", f"ran out of memory: the process {how}.", frames)
    end = "." if code < 0 else ", as by os._exit, in the middle of the check."
    return CaseError("crash", f"the process {how}{end}", frames)


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


class Output:
    """The file that a process prints to. It has no name, so nothing is ever left behind."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed by its owner)
        self.fileno, self.close = self._file.fileno, self._file.close

    @property
    def size(self) -> int:
        """How many bytes have been printed."""
        return os.fstat(self.fileno()).st_size

    def tail(self, start: int, end: int) -> tuple[tuple[str, ...], bool]:
        """Return the last lines between two offsets in the file, and whether there are no others."""
        first = max(start, end - _TAIL)
        text = os.pread(self.fileno(), max(end - first, 0), first).decode(errors="replace")
        lines = text.rstrip().splitlines()
        is_all = first == start and len(lines) <= LINES
        return tuple(line.rstrip()[:_WIDEST] for line in lines[-LINES:]), is_all

    def text(self) -> str:
        """Return the file's content, up to the size of a chunk."""
        return os.pread(self.fileno(), _CHUNK, 0).decode(errors="replace")

    def keep(self, path: Path, start: int, end: int) -> str:
        """Write the part of the file between two offsets to `path`; return that, or nothing if it fails."""
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as target:
                while chunk := os.pread(self.fileno(), min(_CHUNK, end - start), start):
                    target.write(chunk)
                    start += len(chunk)
            return str(path)
        return ""
