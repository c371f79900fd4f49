"""The process that imports TensorFlow once, runs none of it, and forks a process for each task.

It is the program that `ForkServer` in `forking` starts; their messages are described there.
docs/decisions/0010 says why multiprocessing's isn't used.
"""

from __future__ import annotations

import gc
import os
import select
import shutil
import signal
import socket
import struct
import sys
import traceback
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection

from gradcheck_cli.running.processes import process
from gradcheck_cli.running.processes.messages import Exit

# An order says what to do, and for which task. FORK is sent with the task's descriptors.
ORDER = struct.Struct("<cq")
FORK, KILL, DUMP = b"f", b"k", b"d"
# The server's reports, with the task if they concern one.
READY, BROKEN, EXITED = "ready", "broken", "exited"
DESCRIPTORS = 3  # of a task: its connection, its output, its stacks


def serve(orders: int, reports: int, scratch: str) -> None:
    """Import TensorFlow, then fork whenever that is ordered, until the other end is closed.

    Args:
        orders: descriptor of the socket that orders come from.
        reports: descriptor of the connection that reports go to.
        scratch: folder for the temporary files of tasks; removed at the end.
    """
    process.end_with_parent()  # nobody would notice the parent's death during the import
    server = _Server(socket.socket(fileno=orders), Connection(reports), scratch)
    try:
        version = _load()
    except BaseException as error:  # noqa: BLE001 (any error: the parent tells the user)
        server.report((BROKEN, f"{type(error).__name__}: {error}"))
        return
    process.end_with_parent(signal_number=0)
    process.adopt_orphans()
    server.report((READY, version))
    try:
        server.serve()
    finally:
        server.end()


def _load() -> str:
    """Import everything that a case needs. No op may run: a process that has run one can't fork any more."""
    gc.disable()  # an import makes little garbage, and many objects that would be searched in vain
    from gradcheck_cli.running import session  # noqa: F401 (imported for the children)
    from gradcheck_cli.running.processes import task  # noqa: F401 (as above)
    from gradcheck_cli.tensorflow_backend import startup

    startup.load()
    startup.load_engine()
    gc.freeze()  # else a child's garbage collection would write to all that was imported, and so copy it
    gc.enable()
    return startup.version()


class _Server:
    def __init__(self, orders: socket.socket, reports: Connection, scratch: str) -> None:
        self._orders, self._reports, self._scratch = orders, reports, scratch
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
            order, descriptors, _, _ = socket.recv_fds(self._orders, ORDER.size, DESCRIPTORS)
        except OSError:
            return False
        if len(order) < ORDER.size:
            return False
        what, task = ORDER.unpack(order)
        if what == FORK:
            self._fork(task, descriptors, own_descriptors)
        for pid, running_task in self._tasks.items():
            if running_task == task and what == KILL:
                process.kill_group(pid)
            elif running_task == task and what == DUMP:
                os.kill(pid, process.DUMP_SIGNAL)
        return True

    def _fork(self, task: int, descriptors: list[int], own_descriptors: tuple[int, ...]) -> None:
        parent = os.getpid()
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns about any thread; those of a TensorFlow that ran nothing hold no lock.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as error:
            self.report((EXITED, Exit(task, 1, f"no process could be made for it: {error.strerror}")))
            pid = -1
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                for descriptor in (*own_descriptors, self._orders.detach(), self._reports.fileno()):
                    os.close(descriptor)
                from gradcheck_cli.running.processes.task import run_task

                code = run_task(descriptors, parent, f"{self._scratch}/{task}")
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
                process.kill_group(ended.si_pid)  # before its number can be reused for another process
            _, status = os.waitpid(ended.si_pid, 0)
            task = self._tasks.pop(ended.si_pid, None)
            if not self._tasks:
                self._kill_children()  # in other sessions; they can't belong to a running task
            if task is not None:
                self.report((EXITED, Exit(task, os.waitstatus_to_exitcode(status))))

    def _kill_children(self) -> None:
        for pid in process.children():
            process.kill_group(pid)

    def end(self) -> None:
        """Kill every descendant, and remove what they left in the scratch folder."""
        signal.set_wakeup_fd(-1)
        for pid in self._tasks:
            process.kill_group(pid)
        self._kill_children()
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
            self._kill_children()  # those that the ended process has left behind
        shutil.rmtree(self._scratch, ignore_errors=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
