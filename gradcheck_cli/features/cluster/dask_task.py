"""What a Dask worker does: it checks the cases of one document, in a process forked for them, as everywhere.

The worker's own process only waits. A fork server beside it has imported TensorFlow. It serves one document
after another, of this run and the next, until it has been idle for a while.
"""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distributed import Reschedule, get_worker

from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.features.cluster import wire
from gradcheck_cli.features.cluster.code_folder import lay_out, relocate, relocate_path
from gradcheck_cli.features.cluster.dask_versions import Fleet, versions
from gradcheck_cli.running.processes.limits import Limits, default_memory
from gradcheck_cli.running.processes.local_workers import LocalWorkers
from gradcheck_cli.running.processes.messages import Place
from gradcheck_cli.running.workers import Ended, Started

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from distributed import Worker

    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.spec.case import Case

TOPIC = "gradcheck"  # the topic of the events with which a worker reports what it has started
_IDLE = 60.0  # an unused fork server ends after this many seconds
_RUNNING = ("running", "paused", "closing_gracefully")  # states in which a worker's tasks go on
_MOST_PRINTED = 2**20  # bytes of a case's output that are sent back


@dataclass(frozen=True)
class Order:
    """A document to check, as it is sent: plain values only.

    Attributes:
        run: identifies this run.
        document: its index in the run.
        cases: as `wire` writes them.
        timeout: seconds for a case that sets no time of its own.
        memory: bytes for a process; `None` for half of the machine's.
        directory: the absolute working directory of the machine that sends this.
        path: further folders of modules, likewise.
        digest: of the code folder.
        versions: the versions that the worker must have; empty for any.
    """

    run: str
    document: int
    cases: str
    timeout: float
    memory: int | None
    directory: str
    path: tuple[str, ...]
    digest: str
    versions: dict[str, str] = field(default_factory=dict)

    def dumps(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(self.__dict__).encode()


def check_document(order: bytes, archive: bytes) -> bytes:
    """Check the cases of a document on the Dask worker that runs this.

    Args:
        order: an `Order`, as JSON.
        archive: the code folder.

    Returns:
        JSON: `worker`, `host`, and `results` with their `printed` output, by index; or a `failure`, which
            says why this worker can't check anything.

    Raises:
        Reschedule: the task was cancelled, or this worker must end.
    """
    document_order = Order(**json.loads(order))
    worker = get_worker()
    there = {"worker": str(worker.name), "host": platform.node()}
    report_start(worker, document_order, {"name": there["worker"], "host": there["host"]})
    try:
        outcome = _check(worker, document_order, archive)
    except GradcheckError as error:
        return json.dumps({**there, "failure": str(error)}).encode()
    results = [replace(result, worker=there["worker"], host=there["host"]) for result in outcome.results]
    answer = json.dumps(
        {
            **there,
            "tensorflow": outcome.tensorflow,
            "results": wire.dumps(results),
            "printed": outcome.printed,
        }
    )
    root = _root_of(worker, document_order)
    # Whoever reads the results knows the paths without this worker's root.
    for prefix in (relocate_path(root, document_order.directory) + "/", str(root)):
        answer = answer.replace(json.dumps(json.dumps(prefix)[1:-1])[1:-1], "")
    return answer.encode()


class _Outcome(NamedTuple):
    tensorflow: str
    results: Sequence[CaseResult]
    printed: dict[int, str]


def report_start(worker: Worker, document_order: Order, what: dict[str, Any]) -> None:
    """Tell the sender of the order that a document, or a case of it, has begun; Dask adds its `worker`."""
    worker.log_event(TOPIC, {"run": document_order.run, "document": document_order.document, **what})


def _root_of(worker: Worker, document_order: Order) -> Path:
    return _store(worker) / document_order.digest


def _store(worker: Worker) -> Path:
    return Path(worker.local_directory).resolve() / "gradcheck"


def _check(worker: Worker, document_order: Order, archive: bytes) -> _Outcome:
    if document_order.versions and document_order.versions != versions():
        fleet = Fleet({worker.address: versions()}, frozenset())
        raise wire.WireError(fleet.complaint())
    cases: list[Case] = wire.loads(document_order.cases)
    root = lay_out(document_order.digest, archive, _store(worker))
    place = Place(
        relocate_path(root, document_order.directory),
        tuple(relocate_path(root, folder) for folder in document_order.path),
    )
    Path(place.directory).mkdir(parents=True, exist_ok=True)
    key = worker.get_current_task()
    workers, output = _servers.take((document_order.timeout, document_order.memory, str(_store(worker))))
    results: dict[int, CaseResult] = {}
    is_done = False
    try:
        for event in workers.run([relocate(case, root) for case in cases], place=place):
            if isinstance(event, Started):
                report_start(worker, document_order, {"case": event.index, "name": str(worker.name)})
            elif isinstance(event, Ended):
                results[event.index] = event.result
            if not _is_wanted(worker, key):
                raise Reschedule  # another worker runs it, if it is still wanted
        is_done = True
        return _collect(workers.tensorflow_version, results)
    finally:
        _servers.give(workers, output, is_fit=is_done)


def _is_wanted(worker: Worker, key: Hashable) -> bool:
    """Whether somebody still waits for the task: it may have been cancelled, or its worker told to end."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state != "cancelled" and worker.status.name in _RUNNING


def _collect(tensorflow: str, results: dict[int, CaseResult]) -> _Outcome:
    """Return the results with what failed cases printed, read from the files that were kept here."""
    printed = {}
    for index, result in results.items():
        if result.output_file:
            with Path(result.output_file).open("rb") as stream:
                printed[index] = stream.read(_MOST_PRINTED).decode(errors="replace")
            Path(result.output_file).unlink()
            results[index] = replace(result, output_file="")
    return _Outcome(tensorflow, [results[index] for index in sorted(results)], printed)


_Key = tuple[float, "int | None", str]


class _Servers:
    """The fork servers of this process: those that its threads use, and idle ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[LocalWorkers, _Key] = {}
        self._idle: dict[LocalWorkers, tuple[Path, threading.Timer]] = {}

    def take(self, key: _Key) -> tuple[LocalWorkers, Path]:
        """Return workers with these limits, and the folder for their output."""
        timeout, memory, store = key
        with self._lock:
            for workers, (output, timer) in self._idle.items():
                if self._keys[workers] == key:
                    timer.cancel()
                    del self._idle[workers]
                    return workers, output
        Path(store).mkdir(parents=True, exist_ok=True)
        output = Path(tempfile.mkdtemp(dir=store, prefix="output-"))
        memory = default_memory() if memory is None else memory
        workers = LocalWorkers(1, Limits(timeout, memory), output=output)
        with self._lock:
            self._keys[workers] = key
        return workers, output

    def give(self, workers: LocalWorkers, output: Path, *, is_fit: bool) -> None:
        """Take workers back. If they are fit, they can be taken again before they are ended."""
        timer = threading.Timer(_IDLE if is_fit else 0.0, self._end, (workers,))
        timer.daemon = True
        with self._lock:
            self._idle[workers] = output, timer
        timer.start()

    def _end(self, workers: LocalWorkers) -> None:
        with self._lock:
            output, _ = self._idle.pop(workers, (None, None))
            if output is None:  # taken a moment ago
                return
            del self._keys[workers]
        workers.close()
        shutil.rmtree(output, ignore_errors=True)


_servers = _Servers()
