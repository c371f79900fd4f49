"""The fork server: a process that imports TensorFlow once, runs none of it, and forks one for each task.

`ForkServer` is the parent's end. It starts a Python process that runs `serve`, and sends orders to it. A
forked process runs `run_task`: it checks the cases of one document, and sends each result when it is ready.
docs/decisions/0010 says why multiprocessing's isn't used. Nothing heavy is imported at the top: the parent
imports this file too.
"""

from __future__ import annotations

import array
import faulthandler
import gc
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, TextIO

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import CaseError, CaseResult
from gradcheck_cli.running import limits
from gradcheck_cli.running.run_loop import failed_case
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


# An order says what to do, and for which task. _FORK is sent with the task's descriptors.
_ORDER = struct.Struct("<cq")
_FORK, _KILL, _DUMP = b"f", b"k", b"d"
# The server's reports, with the task if they concern one.
_READY, _BROKEN, _EXITED = "ready", "broken", "exited"
_DESCRIPTORS = 3  # of a task: its connection, its output, its stacks

# Modules are searched where this process searches them, not in the working directory first.
_PROGRAM = """
import sys
sys.path[:] = {path!r}
from gradcheck_cli.running.fork_server import serve
serve({orders}, {reports}, {scratch!r})
"""
_PATIENCE = 10.0  # seconds for processes that were sent SIGKILL to end


class ForkServer:
    """A fork server. It starts when this object is made, and imports TensorFlow in the background.

    Attributes:
        reports: the connection with its reports: `(_READY, version)` or `(_BROKEN, message)`, then one
            `(_EXITED, Exit)` for each task.
    """

    def __init__(self, *, writes_bytecode: bool = True) -> None:
        """Start the process.

        Args:
            writes_bytecode: whether Python may write compiled modules. It compares a file's size and its time
                in seconds, so it can miss a change that is saved within the same second.
        """
        ours, theirs = socket.socketpair()
        receiving, sending = os.pipe()
        # Made for the first task: whoever is killed during the import leaves nothing behind.
        self._scratch = Path(tempfile.gettempdir(), f"gradcheck-{secrets.token_hex(8)}")
        environment = dict(os.environ)
        limits.hold_to_one_thread(environment)
        # The processes of a server share a GPU; without this, the first one takes all of its memory.
        environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        if not writes_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        program = _PROGRAM.format(
            path=sys.path, orders=theirs.fileno(), reports=sending, scratch=str(self._scratch)
        )
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                stdout=None if sys.stderr is None else 2,  # it must not print to the results
                pass_fds=(theirs.fileno(), sending),
                env=environment,
                start_new_session=True,  # only this process handles Ctrl-C
            )
        os.close(sending)
        ours.settimeout(_PATIENCE)  # a server that reads no orders must not block this process
        self._orders = ours
        self._is_ready = False
        self.reports: Connection = Connection(receiving, writable=False)

    def wait_until_ready(self) -> str:
        """Return TensorFlow's version once it is imported there.

        Raises:
            CaseFailedError: it can't be imported.
        """
        try:
            what, text = self.reports.recv()
        except EOFError:
            what, text = _BROKEN, f"the process ended with code {self._process.wait()}"
        if what != _READY:
            raise CaseFailedError("import", f"TensorFlow can't be imported: {text}.")
        self._is_ready = True
        return str(text)

    def fork(self, task: int, descriptors: Sequence[int]) -> None:
        """Order a fork for a task, with descriptors, which may then be closed here."""
        message = _ORDER.pack(_FORK, task)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        with suppress(OSError):  # as in `_order`
            self._orders.sendmsg([message], [rights])

    def dump(self, task: int) -> None:
        """Make a task's process write its stacks to its file."""
        self._order(_DUMP, task)

    def kill(self, task: int) -> None:
        """Kill a task's process and everything that it has started; the report of its exit follows."""
        self._order(_KILL, task)

    def give_up(self) -> None:
        """Kill a server that doesn't follow orders, perhaps since somebody has stopped it.

        Its reports end, and another one takes its place.
        """
        self._process.kill()  # its children end with it

    def _order(self, what: bytes, task: int) -> None:
        with suppress(OSError):  # the server is gone, as the end of its reports says
            self._orders.sendall(_ORDER.pack(what, task))

    def close(self) -> None:
        """End the server and everything that it has started."""
        if self.reports.closed:
            return
        self._orders.close()
        with suppress(OSError):
            self._is_ready = self._is_ready or self.reports.poll()
        try:
            # While it still imports, it has no children, so there is nothing to wait for.
            self._process.wait(_PATIENCE if self._is_ready else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children end with it
            self._process.wait()
        self.reports.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def serve(orders: int, reports: int, scratch: str) -> None:
    """Import TensorFlow, then fork whenever that is ordered, until the other end is closed.

    Orders come from a socket and reports go to a connection, each given by its descriptor. Temporary files of
    tasks are in `scratch`, which is removed at the end.
    """
    limits.end_with_parent()  # nobody would notice the parent's death during the import
    server = _Server(socket.socket(fileno=orders), Connection(reports), scratch)
    try:
        version = _load()
    except BaseException as error:  # noqa: BLE001 (any error: the parent tells the user)
        server.report((_BROKEN, f"{type(error).__name__}: {error}"))
        return
    limits.end_with_parent(signal_number=0)
    limits.adopt_orphans()
    server.report((_READY, version))
    try:
        server.serve()
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
    def __init__(self, orders: socket.socket, reports: Connection, scratch: str) -> None:
        self._orders, self._reports, self._scratch = orders, reports, Path(scratch)
        self._tasks: dict[int, int] = {}  # pid -> task

    def report(self, message: tuple[object, ...]) -> None:
        with suppress(OSError):  # the parent is gone, as reading the next order will show
            self._reports.send(message)

    def serve(self) -> None:
        woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(wakes, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._orders.fileno(), woken], [], [])
            if woken in ready:
                os.read(woken, 4096)
                self._reap()
            if self._orders.fileno() in ready and not self._obey((woken, wakes)):
                return

    def _obey(self, own_descriptors: tuple[int, ...]) -> bool:
        """Carry out one order; return whether more may come."""
        try:
            order, descriptors, _, _ = socket.recv_fds(self._orders, _ORDER.size, _DESCRIPTORS)
        except OSError:
            return False
        if len(order) < _ORDER.size:
            return False
        what, task = _ORDER.unpack(order)
        if what == _FORK:
            self._fork(task, descriptors, own_descriptors)
        for pid, running_task in self._tasks.items():
            if running_task == task and what == _KILL:
                limits.kill_group(pid)
            elif running_task == task and what == _DUMP:
                os.kill(pid, limits.DUMP_SIGNAL)
        return True

    def _fork(self, task: int, descriptors: list[int], own_descriptors: tuple[int, ...]) -> None:
        parent = os.getpid()
        try:
            self._scratch.mkdir(mode=0o700, exist_ok=True)
            self._folder_of(task).mkdir()
            with warnings.catch_warnings():
                # Python 3.12 warns about any thread; those of a TensorFlow that ran nothing hold no lock.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as error:
            self.report((_EXITED, Exit(task, 1, f"no process could be made for it: {error.strerror}")))
            pid = -1
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                for descriptor in (*own_descriptors, self._orders.detach(), self._reports.fileno()):
                    os.close(descriptor)
                code = run_task(descriptors, parent, str(self._folder_of(task)))
            except BaseException:  # noqa: BLE001 (goes into the file of the process's output)
                traceback.print_exc()
            finally:
                os._exit(code)  # the server's own frames and exit handlers don't concern the child
        for descriptor in descriptors:
            os.close(descriptor)
        if pid > 0:
            self._tasks[pid] = task

    def _reap(self) -> None:
        """Report the tasks that have ended, and kill whatever they left running."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if ended is None:
                break
            if ended.si_pid in self._tasks:
                limits.kill_group(ended.si_pid)  # before its number can be reused for another process
            _, status = os.waitpid(ended.si_pid, 0)
            task = self._tasks.pop(ended.si_pid, None)
            if not self._tasks:
                self._kill_children()  # in other sessions; they can't belong to a running task
            if task is not None:
                shutil.rmtree(self._folder_of(task), ignore_errors=True)
                self.report((_EXITED, Exit(task, os.waitstatus_to_exitcode(status))))

    def _folder_of(self, task: int) -> Path:
        return self._scratch / str(task)

    def _kill_children(self) -> None:
        for pid in limits.children():
            limits.kill_group(pid)

    def end(self) -> None:
        """Kill every descendant, and remove what they left in the scratch folder."""
        signal.set_wakeup_fd(-1)
        for pid in self._tasks:
            limits.kill_group(pid)
        self._kill_children()
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
            self._kill_children()  # those that the ended process has left behind
        shutil.rmtree(self._scratch, ignore_errors=True)


def run_task(descriptors: Sequence[int], parent: int, scratch: str) -> int:
    """Run a task in this process, which was forked for it and ends with the exit code that this returns.

    Args:
        descriptors: the connection for the task and its results, and the files for output and for stacks.
        parent: the process that forked this one.
    """
    connection, output, stacks = descriptors
    os.setsid()  # a group of its own: it can be killed with everything it starts, and gets no Ctrl-C
    limits.end_with_parent()
    if os.getppid() != parent:
        return 1
    limits.prefer_as_oom_victim()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout, sys.stderr = _redirect(output, 1), _redirect(output, 2)
    faulthandler.enable(file=stacks)
    faulthandler.register(limits.DUMP_SIGNAL, file=stacks, all_threads=True)
    # AutoGraph's files are removed when Python exits, but this process ends by os._exit.
    # The process that forked it removes them.
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    _Runner(Connection(connection), output).run()
    return 0


def _redirect(output: int, descriptor: int) -> TextIO:
    """Redirect a descriptor to a file, and return a text stream on it."""
    os.dup2(output, descriptor)
    # Line-buffered: what a process printed before it crashed must be in the file.
    return os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


class _Runner:
    def __init__(self, connection: Connection, output: int) -> None:
        self._connection = connection
        self._output = output
        self._process = os.getpid()

    def run(self) -> None:
        from gradcheck_cli.checking.check_case import listen_to_progress
        from gradcheck_cli.running.files_read import FileLog
        from gradcheck_cli.running.session import list_pairs, run_case
        from gradcheck_cli.tensorflow_backend import startup

        task: Task = self._connection.recv()
        if task.place is not None:
            os.chdir(task.place.directory)
            sys.path.extend(task.place.path)
        log = FileLog()
        startup.run_first_op(threads=1)
        limits.limit_memory(task.memory)
        for case in task.cases:
            self._send()
            with listen_to_progress(self._tell):
                result = _check(list_pairs if task.listing else run_case, case)
            self._send(result.having_read(log.read(*case.origin.files)))

    def _tell(self, share: float) -> None:
        """Send the progress of the case, unless this process was forked by the user's code."""
        if os.getpid() == self._process:
            self._connection.send(Message(0, share=share))

    def _send(self, result: CaseResult | None = None) -> None:
        if os.getpid() != self._process:
            os._exit(0)  # forked by the user's code, which returned here as well: it must not send the result
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):  # whatever the user's code put there
                stream.flush()
        limits.flush_c()
        self._connection.send(Message(os.fstat(self._output).st_size, result, pid=self._process))


def _check(what: Callable[[Case], CaseResult], case: Case) -> CaseResult:
    began = time.perf_counter()
    try:
        return what(case)
    except KeyboardInterrupt as interrupt:  # not Ctrl-C, which isn't sent to this process
        from gradcheck_cli.tensorflow_backend.frames import user_frames

        error = CaseError("forward", "the user's code raised KeyboardInterrupt.", user_frames(interrupt))
        return failed_case(case, error, time.perf_counter() - began)
