"""Workers on this machine: each document in a process forked for it, several at a time.

This process starts a fork server and gives it documents. Which of the user's code harms what it runs in, the
server finds out; here is what remains if the server itself is harmed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import CaseError
from gradcheck_cli.running.expendable import start_process
from gradcheck_cli.running.limits import Limits, hold_to_one_thread
from gradcheck_cli.running.run_loop import Ended, Event, Waited, Workers, failed_case
from gradcheck_cli.spec.case import Case

TICK = 0.5  # seconds between two looks at the clock
_ENDING = 10.0  # seconds for the server to end what it has started
_MOST_CASES = 100  # of a process: TensorFlow keeps the functions of each case, some 0.6 MiB, until it ends
ASK = "ask"  # the order beside a document: may one be sent? The server says the same when it reads it.


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


@dataclass(frozen=True)
class CodePlace:
    """Where code from another machine runs: the working directory, and further folders of modules."""

    directory: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """What a process is to do."""

    number: int = 0  # of the order
    cases: tuple[Numbered, ...] = ()  # in the order in which they are checked
    outputs: Mapping[int, Path] = field(default_factory=dict)  # where a case's output is kept, by its index
    limits: Limits = field(default_factory=Limits)
    listing: bool = False  # only open the cases, and say which pairs they have
    place: CodePlace | None = None  # where to do that; `None` for the current directory

    def without_first(self) -> Document:
        """Return what is left once the first of the cases has ended."""
        return replace(self, cases=self.cases[1:])


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
            writes_bytecode: whether Python may write compiled modules. It compares a file's size and its time
                in seconds, so it can miss a change that is saved within the same second.
        """
        self._jobs, self._isolate, self._writes_bytecode = jobs, isolate, writes_bytecode
        self._how = Document(limits=limits or Limits())  # what each process is to do, but for its cases
        self._output_folder = OutputFolder(output)
        self._server = _ForkServer(writes_bytecode=writes_bytecode)
        self._waiting: deque[tuple[Numbered, ...]] = deque()
        # Documents that were running when a fork server was killed. They run alone.
        self._suspects: deque[tuple[Numbered, ...]] = deque()
        self._is_alone = False  # whether a suspect is running
        self._unsent: deque[int] = deque()  # those for which the server was asked
        self._running: dict[int, Document] = {}
        self._begun = 0  # how many documents were begun

    def run(
        self, cases: Sequence[Case], *, listing: bool = False, place: CodePlace | None = None
    ) -> Iterator[Event]:
        """Run cases, or only list their pairs, in `place` if that is given; see `Workers.run`."""
        self._how = replace(self._how, listing=listing, place=place)
        self._waiting.extend(map(tuple, group_cases(cases, isolate=self._isolate)))
        while not self.tensorflow_version and not self._server.has_sent():
            yield Waited()  # the import counts towards --max-time
        self.tensorflow_version = self.tensorflow_version or self._server.wait_until_ready()
        while self._waiting or self._suspects or self._running:
            self._fill()
            yield from self._receive()

    def close(self) -> None:
        """End every process; see `Workers.close`."""
        self._server.close()
        self._running.clear()

    def _fill(self) -> None:
        """Begin waiting documents, as many as are allowed. Suspects run alone."""
        if self._running and (self._suspects or self._is_alone):
            return
        self._is_alone = bool(self._suspects)
        if self._suspects:
            self._begin(self._suspects.popleft())
        while self._waiting and not self._is_alone and len(self._running) < self._jobs:
            self._begin(self._waiting.popleft())

    def _begin(self, cases: tuple[Numbered, ...]) -> None:
        self._begun += 1
        outputs = {numbered.index: self._output_folder.file_of(numbered.case) for numbered in cases}
        self._running[self._begun] = replace(self._how, number=self._begun, cases=cases, outputs=outputs)
        self._unsent.append(self._begun)
        self._server.order(ASK)

    def _receive(self) -> Iterator[Event]:
        """Wait until the server sends something, and handle it; the server's end also ends all processes."""
        try:
            if not self._server.has_sent():
                yield Waited()
                return
            number, event = self._server.connection.recv()
        except (EOFError, OSError):
            yield from self._replace_server()
            return
        if event == ASK:
            self._server.order(self._running[self._unsent.popleft()])
        elif event is None:
            self._running.pop(number)
        else:
            if isinstance(event, Ended):
                self._running[number] = self._running[number].without_first()
            yield event

    def _replace_server(self) -> Iterator[Event]:
        """Start another server in place of one that was killed, by a process that it forked or from outside.

        A document that ran alone is to blame. If several ran, each of them runs again, alone, to find out
        which of them kills the server.
        """
        self._server.close()
        self._server = _ForkServer(writes_bytecode=self._writes_bytecode)
        self._server.wait_until_ready()
        unsent = [self._running.pop(number).cases for number in self._unsent]
        lost = [document.cases for document in self._running.values() if document.cases]
        self._unsent.clear()
        self._running.clear()
        self._waiting.extendleft(reversed(unsent))
        if len(lost) > 1:
            self._suspects.extend(lost)
        for first, *rest in lost if len(lost) == 1 else ():
            message = "the process that forked this one was killed, which ended this one as well."
            yield Ended(first.index, failed_case(first.case, CaseError("crash", message), 0.0))
            if rest:
                self._waiting.appendleft(tuple(rest))


class _ForkServer:
    """The parent's end of a fork server, which begins to import TensorFlow when this object is made.

    Attributes:
        connection: the connection with what it sends: `(version, fault)` once, then the number of a document
            and an event of it; `None` once it has ended, and `ASK` for the next one to be sent.
    """

    def __init__(self, *, writes_bytecode: bool) -> None:
        # Made for the first process: whoever is killed during the import leaves nothing behind.
        self._scratch = str(Path(tempfile.gettempdir(), f"gradcheck-{secrets.token_hex(8)}"))
        environment = dict(os.environ)
        hold_to_one_thread(environment)
        # The processes of a server share a GPU; without this, the first one takes all of its memory.
        environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        if not writes_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self.connection, self._process = start_process(
            # Modules are searched where this process searches them, not in the working directory first.
            f"import sys; sys.path[:] = {sys.path!r}; from gradcheck_cli.running.fork_server import serve; "
            f"serve({{descriptor}}, {self._scratch!r})",
            stdin=subprocess.DEVNULL,
            stdout=None if sys.stderr is None else 2,  # it must not print to the results
            env=environment,
            start_new_session=True,  # only this process handles Ctrl-C
        )
        self._is_ready = False

    def wait_until_ready(self) -> str:
        """Return TensorFlow's version once it is imported there.

        Raises:
            CaseFailedError: it can't be imported.
        """
        try:
            version, fault = self.connection.recv()
        except (EOFError, OSError):
            version, fault = "", f"the process ended with code {self._process.wait()}"
        if not version:
            raise CaseFailedError("import", f"TensorFlow can't be imported: {fault}.")
        self._is_ready = True
        return str(version)

    def order(self, what: object) -> None:
        """Send an order."""
        with suppress(OSError):  # the server is gone, as reading from it will show
            self.connection.send(what)

    def has_sent(self) -> bool:
        """Whether it sends something in the next moment; if not, it goes on if somebody has stopped it."""
        is_there = self.connection.poll(TICK)
        if not is_there:
            self._process.send_signal(signal.SIGCONT)
        return is_there

    def close(self) -> None:
        """End the server and everything that it has started."""
        if self.connection.closed:
            return
        with suppress(OSError):
            self._is_ready = self._is_ready or self.connection.poll()
        self.connection.close()
        try:
            # While it still imports, it has no children, so there is nothing to wait for.
            self._process.wait(_ENDING if self._is_ready else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children end with it
            self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)


_LONGEST_STEM = 180  # bytes; a file name may have 255


class OutputFolder:
    """The folder for the output of failed cases. It is made when there is something to keep."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use `folder`, or a new folder among the system's temporary files."""
        self._folder = folder or Path(tempfile.gettempdir(), f"gradcheck-output-{secrets.token_hex(8)}")
        self._owners: dict[str, tuple[str, ...]] = {}  # file name, in lower case -> the case it belongs to

    def file_of(self, case: Case) -> Path:
        """Return a case's file: the same for each run of the case, and no other case's."""
        owner = case.mode_key
        parts = owner if case.mode != "graph" else owner[:-1]
        stem = re.sub(r"[^\w.+-]", "_", ".".join(parts)).encode()[:_LONGEST_STEM].decode(errors="ignore")
        names = (
            f"{stem}{number}.txt" for number in ("", *map("-{}".format, range(2, len(self._owners) + 3)))
        )
        name = next(name for name in names if self._owners.setdefault(name.lower(), owner) == owner)
        return self._folder / name

    def keep_text(self, case: Case, text: str) -> str:
        """Write a case's output from another machine to its file; return that, or nothing if it fails."""
        with suppress(OSError):
            path = self.file_of(case)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return str(path)
        return ""
