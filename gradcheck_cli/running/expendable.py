"""A process for code that may end it: by a crash, an exit or a kernel that aborts."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from typing import Any

from gradcheck_cli.running.limits import end_with_parent


class ExpendableProcess:
    """A process that answers one request after another, and is replaced once it has ended."""

    def __init__(self, function: str, output: int = 2) -> None:
        """Take what answers, and where its output goes.

        Args:
            function: `module:name`. It takes a function that tells something meanwhile, and a request.
            output: a descriptor, or `subprocess.DEVNULL`.
        """
        self._function, self._output = function, output
        self._started: tuple[Connection, subprocess.Popen[bytes]] | None = None

    def ask(self, *request: object) -> Iterator[Any]:
        """Yield what is told meanwhile, and then the answer.

        Raises:
            EOFError: the process has ended before.
        """
        try:
            connection = self._connection()
            connection.send(request)
            is_answer = False
            while not is_answer:
                is_answer, message = connection.recv()
                yield message
        except Exception as error:  # whatever the code has written there
            self.close(at_once=True)
            raise EOFError from error

    def _connection(self) -> Connection:
        if self._started is None:
            program = f"from {__name__} import serve; serve({{descriptor}}, {self._function!r})"
            self._started = start_process(program, stdout=self._output, stderr=self._output)
        return self._started[0]

    def close(self, *, at_once: bool = False) -> None:
        """End the process."""
        if self._started is not None:
            connection, process = self._started
            self._started = None
            connection.close()
            if at_once:
                process.kill()
            process.wait()


def start_process(program: str, **how: Any) -> tuple[Connection, subprocess.Popen[bytes]]:  # noqa: ANN401 (as `Popen`)
    """Start a Python program, in which `{descriptor}` is the other end of the connection that is returned.

    Not by multiprocessing: it imports the main module again, and a script may start the program there.
    """
    ours, theirs = Pipe()
    descriptor = theirs.fileno()
    with theirs:
        command = [sys.executable, "-c", program.replace("{descriptor}", str(descriptor))]
        return ours, subprocess.Popen(command, pass_fds=[descriptor], **how)  # noqa: S603 (this program)


def serve(descriptor: int, function: str) -> None:
    """Answer what is requested on a connection, until it is closed."""
    end_with_parent()
    connection = Connection(descriptor)
    module, _, name = function.partition(":")
    answer = getattr(import_module(module), name)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            gc.freeze()  # else Python, as it ends, searches all of TensorFlow for garbage: a second
            return
        told = answer(lambda message: connection.send((False, message)), *request)
        connection.send((True, told))
