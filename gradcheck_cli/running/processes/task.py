"""What a forked process does: it checks the cases of one document, and sends each result when it is ready."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TextIO

from gradcheck_cli.checking.check_case import listen_to_progress
from gradcheck_cli.results import CaseError, CaseResult
from gradcheck_cli.running.failed_case import failed_case
from gradcheck_cli.running.processes import process
from gradcheck_cli.running.processes.exit_errors import with_limit
from gradcheck_cli.running.processes.messages import Message, Task
from gradcheck_cli.running.session import list_pairs, run_case
from gradcheck_cli.spec.case import Case


def run_task(descriptors: Sequence[int], parent: int, scratch: str) -> int:
    """Run a task in this process, which was forked for it and ends with the exit code that this returns.

    Args:
        descriptors: the connection for the task and its results, and the files for output and for stacks.
        parent: the process that forked this one.
    """
    connection, output, stacks = descriptors
    os.setsid()  # a group of its own: it can be killed with everything it starts, and gets no Ctrl-C
    process.end_with_parent()
    if os.getppid() != parent:
        return 1
    process.prefer_as_oom_victim()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout, sys.stderr = _redirect(output, 1), _redirect(output, 2)
    faulthandler.enable(file=stacks)
    faulthandler.register(process.DUMP_SIGNAL, file=stacks, all_threads=True)
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
        from gradcheck_cli.tensorflow_backend import startup

        task: Task = self._connection.recv()
        if task.place is not None:
            os.chdir(task.place.directory)
            sys.path.extend(task.place.path)
        startup.run_first_op(threads=1)
        process.limit_memory(task.memory)
        for case in task.cases:
            self._send()
            with listen_to_progress(self._tell):
                result = _check(list_pairs if task.listing else run_case, case, task.memory)
            self._send(result)

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
        process.flush_c()
        self._connection.send(Message(os.fstat(self._output).st_size, result, pid=self._process))


def _check(what: Callable[[Case], CaseResult], case: Case, memory: int | None) -> CaseResult:
    began = time.perf_counter()
    try:
        result = what(case)
    except KeyboardInterrupt as interrupt:  # not Ctrl-C, which isn't sent to this process
        from gradcheck_cli.tensorflow_backend.frames import user_frames

        error = CaseError("forward", "the user's code raised KeyboardInterrupt.", user_frames(interrupt))
        return failed_case(case, error, time.perf_counter() - began)
    if result.error is None:
        return result
    return replace(result, error=with_limit(result.error, memory))
