"""The parent's end of the fork server: starts it, sends it orders, and ends it with everything it started."""

from __future__ import annotations

import array
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.running.processes.fork_server import BROKEN, DUMP, FORK, KILL, ORDER, READY
from gradcheck_cli.running.processes.limits import hold_to_one_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

# Modules are searched where this process searches them, not in the working directory first.
_PROGRAM = """
import sys
sys.path[:] = {path!r}
from gradcheck_cli.running.processes.fork_server import serve
serve({orders}, {reports}, {scratch!r})
"""
_LOOKING = 0.5  # seconds between two checks whether it was stopped
_STOPPED = ("T", "t")  # by a signal, by a debugger
_PATIENCE = 10.0  # seconds for processes that were sent SIGKILL to end


class ForkServer:
    """A fork server. It starts when this object is made, and imports TensorFlow in the background.

    Attributes:
        reports: the connection with its reports: `(READY, version)` or `(BROKEN, message)`, then one
            `(EXITED, Exit)` for each task.
    """

    def __init__(self, *, writes_bytecode: bool = True) -> None:
        """Start the process.

        Args:
            writes_bytecode: whether Python may write compiled modules. It compares a file's size and its time
                in seconds, so it can miss a change that is saved within the same second.
        """
        ours, theirs = socket.socketpair()
        receiving, sending = os.pipe()
        self._scratch = tempfile.mkdtemp(prefix="gradcheck-")
        environment = dict(os.environ)
        hold_to_one_thread(environment)
        # The processes of a server share a GPU; without this, the first one takes all of its memory.
        environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        if not writes_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        program = _PROGRAM.format(
            path=sys.path, orders=theirs.fileno(), reports=sending, scratch=self._scratch
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
            while not self.reports.poll(_LOOKING):
                self.wake()
            what, text = self.reports.recv()
        except EOFError:
            what, text = BROKEN, f"the process ended with code {self._process.wait()}"
        if what != READY:
            raise CaseFailedError("import", f"TensorFlow can't be imported: {text}.")
        self._is_ready = True
        return str(text)

    def fork(self, task: int, descriptors: Sequence[int]) -> None:
        """Order a fork for a task, with descriptors, which may then be closed here."""
        message = ORDER.pack(FORK, task)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        with suppress(OSError):  # as in `_order`
            self._orders.sendmsg([message], [rights])

    def dump(self, task: int) -> None:
        """Make a task's process write its stacks to its file."""
        self._order(DUMP, task)

    def kill(self, task: int) -> None:
        """Kill a task's process and everything that it has started; the report of its exit follows."""
        self._order(KILL, task)

    def wake(self) -> None:
        """Continue the server if somebody has stopped it, since everything waits for it."""
        with suppress(OSError, IndexError):
            state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state in _STOPPED and self._process.returncode is None:
                self._process.send_signal(signal.SIGCONT)

    def give_up(self) -> None:
        """Kill a server that doesn't follow orders. Its reports end, and another one takes its place."""
        self._process.kill()  # its children end with it

    def _order(self, what: bytes, task: int) -> None:
        with suppress(OSError):  # the server is gone, as the end of its reports says
            self._orders.sendall(ORDER.pack(what, task))

    def close(self) -> None:
        """End the server and everything that it has started."""
        if self.reports.closed:
            return
        self.wake()
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
