"""Workers of a Dask cluster: each document is a task there, and Dask decides where and when it runs.

Dask queues tasks, sends code to each worker once, notices that a worker is gone, and repeats the tasks that
ran there. This module counts the attempts, compares versions, and reports all of it in words.
"""

from __future__ import annotations

import json
import queue
import time
import uuid
import warnings
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.cluster import wire
from gradcheck_cli.features.cluster.code_folder import CodeFolder, pack
from gradcheck_cli.features.cluster.dask_connection import Cluster, Connection
from gradcheck_cli.features.cluster.dask_versions import versions
from gradcheck_cli.results import CaseError
from gradcheck_cli.running.failed_case import failed_case
from gradcheck_cli.running.processes.output import OutputFolder
from gradcheck_cli.running.processes.running_task import Numbered
from gradcheck_cli.running.workers import Ended, Started, Waited, WorkersLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client, Future

    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.running.processes.limits import Limits
    from gradcheck_cli.spec.case import Case

    Event = Started | Ended | Waited

_ATTEMPTS = 3  # attempts at a document: if its worker is lost, it is tried twice more
_TICK = 0.5  # seconds between two checks of the time


@dataclass
class _Document:
    """One document's cases, and the workers that have started it, in `begun`."""

    index: int
    cases: list[Numbered]
    future: Future[Any] | None = None
    begun: list[str] = field(default_factory=list)
    runs_on: str = ""  # the address of the last of them
    counted: int = 0  # how many of `begun` came before it was last submitted


class DaskWorkers:
    """Runs cases in the workers of a Dask cluster."""

    def __init__(
        self,
        cluster: Cluster,
        limits: Limits,
        *,
        isolate: bool = False,
        output: Path | None = None,
    ) -> None:
        """Keep the options; `run` connects.

        Args:
            cluster: the cluster to use.
            limits: what a case may take.
            isolate: give each case a process, not each document.
            output: folder in which what failed cases have printed is kept; default a temporary one.
        """
        self._cluster, self._limits = cluster, limits
        self._isolate = isolate
        self._output_folder = OutputFolder(output)
        self._connection: Connection | None = None
        self._run = ""
        self._version = ""
        self._news: queue.Queue[Callable[[], Iterator[Event]]] = queue.Queue()
        self._open: dict[int, _Document] = {}
        self._codes: dict[str, tuple[CodeFolder, Future[Any]]] = {}
        self._running: dict[int, tuple[float, str]] = {}  # document -> when its case began, and which case

    @property
    def tensorflow_version(self) -> str:
        """The version of TensorFlow that cases run with; empty before any has run."""
        return self._version

    def run(self, cases: Sequence[Case]) -> Iterator[Event]:
        """Run cases; see `Workers.run`."""
        client = self._connect().client
        self._run = uuid.uuid4().hex
        self._news = queue.Queue()
        self._codes = {}
        numbered = [Numbered(index, case) for index, case in enumerate(cases)]
        documents = groupby(
            numbered,
            key=lambda numbered_case: numbered_case.index if self._isolate else numbered_case.case.spec,
        )
        self._open = {index: _Document(index, list(group)) for index, (_, group) in enumerate(documents)}
        folders: dict[str, list[Case]] = {}
        for case in cases:
            folders.setdefault(case.folder, []).append(case)
        for folder, inside in folders.items():
            self._codes[folder] = self._send_code(client, pack(inside))
        for document in self._open.values():
            self._submit(client, document)
        while self._open:
            yield from self._next()()
        self._codes = {}

    def _next(self) -> Callable[[], Iterator[Event]]:
        """Return the handler of the next event, or of the lack of one for a while."""
        try:
            return self._news.get(timeout=_TICK)
        except queue.Empty:
            return self._idle

    def status(self) -> str:
        """Say how many workers there are, and which case has run longest; see `Workers.status`."""
        if self._connection is None:
            return ""
        workers, running = f"{self._connection.count} workers", list(self._running.values())
        if not running:
            return workers
        began, case = min(running)
        return f"{workers}, {len(running)} busy, longest {case} ({time.monotonic() - began:.0f} s)"

    def close(self) -> None:
        """Cancel whatever still runs, and leave the cluster; see `Workers.close`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            futures = [document.future for document in self._open.values() if document.future is not None]
            self._open, self._codes = {}, {}
            connection.close(futures)

    def _connect(self) -> Connection:
        """Return the connection, which is made when it is first needed."""
        if self._connection is None:
            self._connection = Connection(self._cluster)
            from gradcheck_cli.features.cluster.dask_task import TOPIC

            for topic in (TOPIC, "all"):
                self._connection.client.subscribe_topic(topic, self._on_event)
        return self._connection

    def _send_code(self, client: Client, code: CodeFolder) -> tuple[CodeFolder, Future[Any]]:
        """Make the cluster hold a code folder as a task's result, which Dask computes again if it is lost."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # it is sent once, and bounded
            future = client.submit(bytes, code.archive, key=f"gradcheck-code-{code.digest}")
        return code, future

    def _submit(self, client: Client, document: _Document) -> None:
        """Submit a document; those that were submitted earlier come first."""
        from gradcheck_cli.features.cluster.dask_task import Order, check_document

        cases = [numbered_case.case for numbered_case in document.cases]
        code, archive = self._codes[cases[0].folder]
        order = Order(
            run=self._run,
            document=document.index,
            cases=wire.dumps(cases),
            timeout=self._limits.timeout,
            memory=self._limits.memory,
            directory=str(Path.cwd()),
            path=code.path,
            digest=code.digest,
            versions={} if self._cluster.allows_skew else versions(),
        )
        document.counted = len(document.begun)
        future = client.submit(
            check_document,
            order.dumps(),
            archive,
            key=(f"gradcheck-{self._run}", document.index, document.counted),
            resources=dict.fromkeys(self._resources_for(cases), 1),
            pure=False,
        )
        document.future = future
        future.add_done_callback(partial(self._fetch, document))

    def _resources_for(self, cases: Sequence[Case]) -> frozenset[str]:
        """Return the resources that cases need: GPU for `device: GPU:0`.

        If no worker offers it, any worker will do: the case itself reports that there is no such device.
        """
        devices = {case.device.partition(":")[0] for case in cases if case.device is not None}
        return frozenset(devices & self._connect().resources)

    def _on_event(self, event: tuple[float, Any]) -> None:
        """Handle an event of this run, of another or of the scheduler; Dask's thread calls this."""
        _, message = event
        if message.get("action") == "remove-worker":
            self._news.put(partial(self._on_lost, message["worker"]))
        elif message.get("run") == self._run:
            self._news.put(partial(self._on_begun, message))

    def _fetch(self, document: _Document, future: Future[Any]) -> None:
        """Fetch the outcome of a task; one of Dask's threads calls this."""
        try:
            answer = future.result()
        except BaseException as error:  # noqa: BLE001 (whatever a worker, or the connection to it, raises)
            answer = error
        self._news.put(partial(self._on_answer, document, future, answer))

    def _idle(self) -> Iterator[Event]:
        """Check whether anybody is left who could finish the open tasks."""
        self._connect().require()
        yield Waited()

    def _on_begun(self, message: dict[str, Any]) -> Iterator[Event]:
        document = self._open.get(message["document"])
        if document is None:
            return
        if "case" in message:
            numbered_case = document.cases[message["case"]]
            self._running[document.index] = time.monotonic(), f"{numbered_case.case.op} on {message['name']}"
            yield Started(numbered_case.index)
            return
        document.begun.append(f"{message['name']} on {message['host']}")
        document.runs_on = message["worker"]
        if len(document.begun) > _ATTEMPTS:  # its loss went unnoticed
            yield from self._give_up(document)

    def _on_lost(self, address: str) -> Iterator[Event]:
        """Handle the loss of a worker: Dask repeats what ran there if it may be repeated."""
        for document in list(self._open.values()):
            if document.runs_on == address and len(document.begun) >= _ATTEMPTS:
                yield from self._give_up(document)

    def _on_answer(self, document: _Document, future: Future[Any], answer: object) -> Iterator[Event]:
        """Handle the end of a task: its results, or the loss of its worker."""
        if document.future is not future or document.index not in self._open:
            return
        connection = self._connect()
        if isinstance(answer, bytes):
            yield from self._results(document, json.loads(answer))
        elif isinstance(answer, CancelledError):
            raise WorkersLostError(
                f"the Dask scheduler at {connection.where} is gone, or has cancelled the run"
            )
        elif type(answer).__name__ == "KilledWorker":  # sooner than we would, or it was never begun
            if len(document.begun) == document.counted:
                document.begun.append(str(getattr(answer, "last_worker", "one that isn't known")))
            if len(document.begun) >= _ATTEMPTS:
                yield from self._give_up(document)
            else:
                self._submit(connection.client, document)
        else:
            message = f"the Dask worker couldn't run it: {type(answer).__name__}: {answer}"
            yield from self._failed(document, message)

    def _results(self, document: _Document, answer: dict[str, Any]) -> Iterator[Event]:
        if "failure" in answer:
            failure = f"Dask worker {answer['worker']} on {answer['host']}: {answer['failure']}"
            if not self._version:  # no case has run yet
                raise CaseFailedError("workers", failure)
            raise WorkersLostError(failure)
        self._version = self._version or answer["tensorflow"]
        self._end(document)
        results = wire.loads(answer["results"])
        for position, (numbered_case, result) in enumerate(zip(document.cases, results, strict=True)):
            printed = answer["printed"].get(str(position))
            file = "" if printed is None else self._output_folder.keep_text(numbered_case.case, printed)
            yield Ended(numbered_case.index, _name_worker(replace(result, output_file=file)))

    def _end(self, document: _Document) -> None:
        del self._open[document.index]
        self._running.pop(document.index, None)

    def _give_up(self, document: _Document) -> Iterator[Event]:
        names = ", ".join(document.begun[:_ATTEMPTS])
        message = (
            f"the Dask worker that ran it was lost, {_ATTEMPTS} times of {_ATTEMPTS}: {names}. The workers' "
            "logs may say why; one that takes too much memory is killed."
        )
        yield from self._failed(document, message)

    def _failed(self, document: _Document, message: str) -> Iterator[Event]:
        self._end(document)
        if document.future is not None:
            self._connect().client.cancel([document.future], force=True)
        for numbered_case in document.cases:
            yield Ended(
                numbered_case.index, failed_case(numbered_case.case, CaseError("worker", message), 0.0)
            )


def _name_worker(result: CaseResult) -> CaseResult:
    """For a module that wasn't found, say where: on another machine than the user's."""
    error = result.error
    if error is None or "ModuleNotFoundError" not in error.message:
        return result
    where = f"Dask worker {result.worker} on {result.host}, which has an environment of its own."
    message = f"{error.message} This was {where}"
    return replace(result, error=replace(error, message=message))
