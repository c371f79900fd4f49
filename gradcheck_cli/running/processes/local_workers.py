"""Workers on this machine: each document in a process forked for it, several at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from gradcheck_cli.running.processes.fork_server import ForkServer
from gradcheck_cli.running.processes.limits import Limits
from gradcheck_cli.running.processes.messages import CodePlace, Exit
from gradcheck_cli.running.processes.output import OutputFolder
from gradcheck_cli.running.processes.running_task import Numbered, RunningTask, TaskOptions, group_cases
from gradcheck_cli.running.workers import Event, Progressed, Started, Waited
from gradcheck_cli.spec.case import Case

_TICK = 0.5  # seconds between two checks of how much is printed


class LocalWorkers:
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
        self._options = TaskOptions(limits or Limits())
        self._output_folder = OutputFolder(output)
        self._writes_bytecode = writes_bytecode
        self._server = ForkServer(writes_bytecode=writes_bytecode)
        self._waiting: deque[list[Numbered]] = deque()
        # Documents that were running when a fork server was killed.
        self._suspects: deque[list[Numbered]] = deque()
        self._is_alone = False  # whether a suspect is running, alone
        self._running: dict[int, RunningTask] = {}
        self._forked = 0
        self._version = ""

    @property
    def tensorflow_version(self) -> str:
        """The version of TensorFlow that cases run with; empty before any has run."""
        return self._version

    def run(
        self, cases: Sequence[Case], *, listing: bool = False, place: CodePlace | None = None
    ) -> Iterator[Event]:
        """Run cases, or only list their pairs, in `place` if that is given; see `Workers.run`."""
        self._options = self._options._replace(listing=listing, place=place)
        self._waiting.extend(group_cases(cases, isolate=self._isolate))
        while not self._version and not self._server.reports.poll(_TICK):
            self._server.wake()
            yield Waited()  # the import counts towards --max-time
        self._version = self._version or self._server.wait_until_ready()
        while self._waiting or self._suspects or self._running:
            self._fill()
            yield from self._poll()

    def status(self) -> str:
        """Say nothing: the progress bar shows which case began last; see `Workers.status`."""
        return ""

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
        self._running[self._forked] = RunningTask(self._server, self._forked, cases, self._options)

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
        self._server.wake()
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
