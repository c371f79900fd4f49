"""Workers of a Dask cluster: each document is a task there.

Dask sends code to each worker once, notices that a worker is gone, and repeats the tasks that ran there. This
module hands out documents, a few for each thread of the workers that are there at that time. It counts the
attempts, avoids workers that can't run a document for a reason of their own, and reports all of it in words.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from distributed import Client, Future
from distributed.versions import get_versions

from gradcheck_cli.features.cluster.dask_task import (
    TOPIC,
    Answer,
    CodeFolder,
    DocumentOrder,
    check_document,
    pack,
)
from gradcheck_cli.results import CaseError, CaseResult
from gradcheck_cli.running.limits import Limits
from gradcheck_cli.running.local_workers import CodePlace, Numbered, OutputFolder, group_cases
from gradcheck_cli.running.run_loop import (
    Ended,
    Event,
    Noted,
    Progressed,
    Waited,
    Workers,
    WorkersLostError,
    failed_case,
)
from gradcheck_cli.spec.case import Case

_ATTEMPTS = 3  # attempts at a document: if its worker is lost, it is tried twice more
_AHEAD = 2  # documents for each thread of a worker: one that runs, and one that can begin at once
_TICK = 0.5  # seconds between two checks of the time
_ANSWERS = 10.0  # seconds for a scheduler to answer
_JOINS = 30.0  # seconds for a worker to join, and to tell its versions
_LEFT = 60.0  # seconds to wait for a worker that can run what is left
_LOOKS = 2.0  # seconds between two looks at the workers
_LEAVES = 0.5  # seconds for the connection to close
_TOPICS = (TOPIC, "all")  # our tasks' events, and the scheduler's own


# The workers of a cluster: which may be used, for what, and why others aren't.

# What must be equal -> the names under which it is distributed.
_DISTRIBUTIONS = {
    "Python": ("python",),
    "gradcheck": ("gradcheck-cli",),
    "NumPy": ("numpy",),
    "TensorFlow": (
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-gpu",
        "tf-nightly",
        "tensorflow-rocm",
        "tensorflow-macos",
    ),
}
PACKAGES = [name for names in _DISTRIBUTIONS.values() for name in names if name != "python"]
_MISSING = "none"
_ASKED = "it hasn't told its versions"


def named_versions(told: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions that matter, of what Dask's `get_versions(PACKAGES)` tells.

    It reads metadata, and imports nothing. Of Python's version only the first two parts are returned: the
    rest never changes a result.
    """
    packages = told["packages"]
    versions = {
        name: next((packages[own] for own in names if packages.get(own)), _MISSING)
        for name, names in _DISTRIBUTIONS.items()
    }
    return versions | {"Python": ".".join(versions["Python"].split(".")[:2])}


@cache
def own_versions() -> dict[str, str]:
    """Return the versions on this machine."""
    return named_versions(get_versions(PACKAGES))


@dataclass
class Member:
    """A worker."""

    name: str  # its name and host, for messages
    threads: int  # how many tasks it runs at a time
    resources: frozenset[str]  # the names of the resources that it offers
    trouble: str = _ASKED  # why it isn't used; empty if it is


@dataclass
class Fleet:
    """The workers of a cluster, and the rule for failures: whoever can't run a document isn't used again."""

    allows_skew: bool = False  # whether versions of packages other than gradcheck may differ from those here
    members: dict[str, Member] = field(default_factory=dict)  # those that are there now, by address
    # what has failed on workers, those that are gone too: name -> reason
    avoided: dict[str, str] = field(default_factory=dict)
    offered: frozenset[str] = frozenset()  # the resources that any worker has offered so far

    def update(self, workers: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[str]]:
        """Take over what the scheduler says about its workers; return the addresses of new and lost ones."""
        fresh = [address for address in workers if address not in self.members]
        lost = [address for address in self.members if address not in workers]
        for address in lost:
            del self.members[address]
        for address in fresh:
            facts = workers[address]
            resources = frozenset(facts.get("resources") or ())
            name = f"{facts.get('name', address)} on {facts.get('host', address)}"
            self.members[address] = Member(name, int(facts.get("nthreads", 1)), resources)
            self.offered |= resources
        return fresh, lost

    def learn(self, address: str, told: object) -> None:
        """Use a worker if it has the versions that are wanted."""
        if address not in self.members:
            return
        if not isinstance(told, dict):
            self.avoid(address, f"it can't be asked for its versions: {told}")
            return
        here, there = own_versions(), named_versions(told)
        # Cases are sent as Python objects, so gradcheck must be the same.
        differing = [
            f"no {name}" if there[name] == _MISSING else f"{name} {there[name]} instead of {here[name]}"
            for name in _DISTRIBUTIONS
            if there[name] != here[name]
            and not (self.allows_skew and name != "gradcheck" and there[name] != _MISSING)
        ]
        if differing:
            self.avoid(address, f"it has {', '.join(differing)}")
        else:
            self.members[address].trouble = ""

    @property
    def is_known(self) -> bool:
        """Whether there are workers, and each of them has told its versions or can't be used."""
        members = self.members.values()
        return bool(members) and all(member.trouble != _ASKED for member in members)

    def avoid(self, address: str, reason: str) -> None:
        """Don't use a worker any more."""
        if address in self.members and self.members[address].trouble in ("", _ASKED):
            self.members[address].trouble = reason
            self.avoided[self.members[address].name] = reason

    def able(self, needs: Iterable[str], without: Iterable[str] = ()) -> list[str]:
        """Return the addresses of the workers that may be used, without some.

        What a document needs counts only if any worker has ever offered it.
        """
        required = self.offered.intersection(needs)
        return [
            address
            for address, member in self.members.items()
            if not member.trouble and required <= member.resources and address not in without
        ]

    def why_nobody(self, needs: Iterable[str]) -> str:
        """Say why no worker can run something that needs resources."""
        lacking = self.offered.intersection(needs) - {
            name for member in self.members.values() for name in member.resources
        }
        if lacking:
            return f"no worker that offers {' and '.join(sorted(lacking))} is left"
        if not self.members:
            return "no worker is left"
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.avoided.items())
        return f"no worker can run them: {reasons or 'none answers'}"


# What they are given.


@dataclass
class _Document:
    """The cases of one task."""

    index: int  # its place in the run
    cases: list[Numbered]
    future: Future[Any] | None = None  # the task, if it is submitted
    token: str = ""  # identifies the submission
    allowed: list[str] = field(default_factory=list)  # the addresses of the workers that it was submitted to
    # the workers that have started it, as they are named in messages
    begun: list[str] = field(default_factory=list)
    counted: int = 0  # how many of them came before it was last submitted
    runs_on: str = ""  # the address of the last of them
    # address -> results, of workers where a module wasn't found: another worker may have it
    lacking: dict[str, Answer] = field(default_factory=dict)
    stuck_since: float | None = None  # since when nobody can run it

    @cached_property
    def needs(self) -> frozenset[str]:
        """The names of the resources that they need: GPU for `device: GPU:0`."""
        devices = (numbered_case.case.running.device for numbered_case in self.cases)
        return frozenset(device.partition(":")[0] for device in devices if device is not None)


class DaskWorkers(Workers):
    """Runs cases in the workers of a Dask cluster."""

    def __init__(
        self,
        cluster: str,
        limits: Limits,
        *,
        allows_skew: bool = False,
        isolate: bool = False,
        output: Path | None = None,
    ) -> None:
        """Keep the options; `run` connects.

        Args:
            cluster: the scheduler, `HOST:PORT`.
            allows_skew: whether versions there may differ from those here.
            output: folder in which what failed cases have printed is kept; default a temporary one.
        """
        self._cluster, self._limits, self._isolate = cluster, limits, isolate
        self._where = f"the Dask scheduler at {cluster}"
        self._output_folder = OutputFolder(output)
        self._fleet = Fleet(allows_skew)
        self._client: Client | None = None
        self._is_closed = threading.Event()
        self._answered = 0.0  # when the scheduler answered last
        self._news: queue.Queue[Callable[[], Iterator[Event]]] = queue.Queue()
        self._waiting: dict[int, _Document] = {}
        self._submitted: dict[int, _Document] = {}
        self._codes: dict[str, tuple[CodeFolder, Future[Any]]] = {}
        self._running: dict[int, tuple[float, str]] = {}  # document -> when its case began, and which case
        self._unchecked = ""  # why some documents weren't checked

    def run(self, cases: Sequence[Case]) -> Iterator[Event]:
        """Run cases; see `Workers.run`."""
        folders: dict[str, list[Case]] = {}
        for case in cases:
            folders.setdefault(case.origin.folder, []).append(case)
        codes = {folder: pack(inside) for folder, inside in folders.items()}
        documents = enumerate(group_cases(cases, isolate=self._isolate))
        self._waiting = {index: _Document(index, group) for index, group in documents}
        kinds = {document.needs for document in self._waiting.values()}
        self._unchecked = ""
        client = self._connect()
        try:
            yield from self._wait_for_workers()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sending large graph")  # it is sent once, and bounded
                # As a task's result, which Dask computes again if it is lost.
                self._codes = {
                    folder: (code, client.submit(bytes, code.archive, key=f"gradcheck-code-{code.digest}"))
                    for folder, code in codes.items()
                }
            while self._waiting or self._submitted:
                self._submit_waiting(client, {needs: self._room_for(needs) for needs in kinds})
                yield from self._next()()
        except OSError as error:  # of a connection
            raise WorkersLostError(f"{self._where} is gone: {error}") from error
        finally:
            self._codes = {}
        if self._unchecked:
            raise WorkersLostError(self._unchecked)
        for name, reason in self._fleet.avoided.items():
            yield Noted(f"Dask worker {name} wasn't used any more: {reason}")

    def status(self) -> str:
        """Say how many workers there are, and which case has run longest; see `Workers.status`."""
        if self._client is None:
            return ""
        workers, running = f"{len(self._fleet.members)} workers", list(self._running.values())
        if not running:
            return workers
        began, case = min(running)
        return f"{workers}, {len(running)} busy, longest {case} ({time.monotonic() - began:.0f} s)"

    def close(self) -> None:
        """Cancel whatever still runs, and leave the cluster, or end it; see `Workers.close`."""
        client, self._client = self._client, None
        if client is None:
            return
        self._is_closed.set()
        futures = [document.future for document in self._submitted.values() if document.future is not None]
        self._waiting, self._submitted, self._codes = {}, {}, {}
        _try_within(_ANSWERS, partial(client.cancel, futures, force=True))
        for topic in _TOPICS:  # else the scheduler still writes to the connection that closes, and logs that
            _try_within(_ANSWERS, partial(client.unsubscribe_topic, topic))
        _try_within(_ANSWERS, partial(client.close, timeout=_LEAVES))

    def _connect(self) -> Client:
        """Return the connection, which is made when it is first needed.

        Raises:
            WorkersLostError: there is no scheduler.
        """
        if self._client is not None:
            return self._client
        for name in logging.root.manager.loggerDict:
            if name.startswith("distributed"):
                logging.getLogger(name).setLevel(logging.CRITICAL)  # we report what it would
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about versions of packages that cases may not need
                client = Client(self._cluster, timeout=_ANSWERS, set_as_default=False, name="gradcheck")
        except (OSError, ValueError, RuntimeError) as error:
            raise WorkersLostError(
                f"no Dask scheduler answers at {self._cluster}: {error}. Start one with `dask scheduler`, "
                "and workers with `dask worker HOST:PORT --nthreads 1`"
            ) from error
        self._client, self._answered = client, time.monotonic()
        for topic in _TOPICS:
            client.subscribe_topic(topic, self._on_event)
        threading.Thread(target=self._watch, args=(client,), daemon=True).start()
        return client

    def _watch(self, client: Client) -> None:
        while True:
            with suppress(Exception):  # no answer
                client.nthreads()  # raises if there is none, which `scheduler_info` doesn't
                self._news.put(partial(self._on_workers, client.scheduler_info(n_workers=-1)["workers"]))
                self._answered = time.monotonic()
            if self._is_closed.wait(_LOOKS):
                return

    def _wait_for_workers(self) -> Iterator[Event]:
        """Wait until all workers that are there have told their versions, or for some time.

        Raises:
            WorkersLostError: there is no worker that answers, or that has the right versions.
        """
        end = time.monotonic() + _JOINS
        fleet = self._fleet
        while time.monotonic() < end and not fleet.is_known:
            yield from self._next()()
        if fleet.avoided and not fleet.able(()):
            raise WorkersLostError(
                f"{fleet.why_nobody(())}. Install what this machine has, or say --allow-version-skew: then "
                "gradcheck alone must be the same"
            )
        if not fleet.able(()):
            is_there = self._connect().status == "running"
            advice = "has no worker that answers. Start some: `dask worker HOST:PORT --nthreads 1`"
            raise WorkersLostError(f"{self._where} {advice if is_there else 'is gone'}")

    def _next(self) -> Callable[[], Iterator[Event]]:
        """Return the handler of the next event, or of the lack of one for a while."""
        if time.monotonic() - self._answered > _LEFT:
            raise WorkersLostError(f"{self._where} doesn't answer any more")
        try:
            return self._news.get(timeout=_TICK)
        except queue.Empty:
            return lambda: iter([Waited()])

    def _submit_waiting(self, client: Client, room: dict[frozenset[str], int]) -> None:
        """Submit documents, the first ones first, to the workers that are there now and can run them."""
        for document in list(self._waiting.values()) if max(room.values()) > 0 else ():
            allowed = self._fleet.able(document.needs, document.lacking) if room[document.needs] > 0 else []
            if allowed:
                room[document.needs] -= 1
                self._submit(client, document, allowed)
            elif max(room.values()) <= 0:
                return

    def _room_for(self, needs: frozenset[str]) -> int:
        threads = sum(self._fleet.members[address].threads for address in self._fleet.able(needs))
        return _AHEAD * threads - sum(document.needs == needs for document in self._submitted.values())

    def _submit(self, client: Client, document: _Document, allowed: list[str]) -> None:
        cases = tuple(numbered_case.case for numbered_case in document.cases)
        code, archive = self._codes[cases[0].origin.folder]
        place = CodePlace(str(Path.cwd()), code.path)
        document.token = uuid.uuid4().hex
        order = DocumentOrder(document.token, document.index, cases, self._limits, place, code.digest)
        document.counted, document.allowed, document.runs_on = len(document.begun), allowed, ""
        document.stuck_since = None
        document.future = client.submit(
            check_document,
            order,
            archive,
            key=f"gradcheck-{document.token}",
            resources=dict.fromkeys(self._fleet.offered & document.needs, 1),
            workers=allowed,
            pure=False,
        )
        document.future.add_done_callback(partial(self._fetch, document))
        self._submitted[document.index] = self._waiting.pop(document.index)

    def _fetch(self, document: _Document, future: Future[Any]) -> None:
        """Fetch the outcome of a task; one of Dask's threads calls this."""
        try:
            answer = future.result()
        except BaseException as error:  # noqa: BLE001 (whatever a worker, or the connection to it, raises)
            answer = error
        self._news.put(partial(self._on_answer, document, future, answer))

    def _on_event(self, event: tuple[float, Any]) -> None:
        """Handle an event of this run, of another or of the scheduler; Dask's thread calls this."""
        _, message = event
        if message.get("action") == "remove-worker":
            self._news.put(partial(self._on_lost, message["worker"]))
        elif "token" in message:
            self._news.put(partial(self._on_begun, message))

    def _on_workers(self, workers: dict[str, Any]) -> Iterator[Event]:
        """Take over which workers there are, ask new ones for their versions, and see what nobody can run."""
        client = self._connect()
        fresh, lost = self._fleet.update(workers)
        for address in fresh:  # one that hangs must not keep others from answering
            threading.Thread(target=self._ask_for_versions, args=(client, address), daemon=True).start()
        for document in list(self._submitted.values()):
            if lost and not set(document.allowed) & set(workers):
                self._cancel(document)  # Dask would wait for those workers for ever
                self._take_back(document)
        for document in list(self._waiting.values()):
            yield from self._on_waiting(document)

    def _ask_for_versions(self, client: Client, address: str) -> None:
        with suppress(Exception):  # the connection is gone
            answer = client.run(get_versions, PACKAGES, workers=[address], on_error="return").get(address)
            self._news.put(partial(self._on_versions, address, answer))

    def _on_versions(self, address: str, answer: object) -> Iterator[Event]:
        self._fleet.learn(address, answer)
        yield Waited()

    def _on_waiting(self, document: _Document) -> Iterator[Event]:
        """See whether a document still waits for a worker that can run it, and for how long."""
        if self._fleet.able(document.needs, document.lacking):
            document.stuck_since = None
        elif document.lacking:  # nobody has the module: that is the case's own error
            yield from self._end(document, next(iter(document.lacking.values())))
        elif document.stuck_since is None:
            document.stuck_since = time.monotonic()
        elif time.monotonic() - document.stuck_since > _LEFT:
            reason = self._fleet.why_nobody(document.needs)
            self._unchecked = self._unchecked or f"{reason} ({self._where}, after {_LEFT:g} s)"
            self._forget(document)

    def _on_begun(self, message: dict[str, Any]) -> Iterator[Event]:
        document = self._submitted.get(message["document"])
        if document is None or document.token != message["token"]:
            return
        if "case" in message:
            numbered_case = document.cases[message["case"]]
            self._running[document.index] = time.monotonic(), f"{numbered_case.case.op} on {message['name']}"
            yield Progressed(numbered_case.index)
            return
        document.begun.append(f"{message['name']} on {message['host']}")
        document.runs_on = message["worker"]
        if len(document.begun) > _ATTEMPTS:  # its loss went unnoticed
            yield from self._give_up(document)

    def _on_lost(self, address: str) -> Iterator[Event]:
        """Handle the loss of a worker: Dask repeats what ran there if it may be repeated."""
        for document in list(self._submitted.values()):
            if document.runs_on == address and len(document.begun) >= _ATTEMPTS:
                yield from self._give_up(document)

    def _on_answer(self, document: _Document, future: Future[Any], answer: Any) -> Iterator[Event]:  # noqa: ANN401 (an `Answer`, or any exception)
        """Handle the end of a task: its results, its worker's failure, or the loss of its worker."""
        if document.future is not future:
            return
        if isinstance(answer, CancelledError):
            raise WorkersLostError(f"{self._where} is gone, or has cancelled the run")
        kind = type(answer).__name__
        if kind == "Answer" and not answer.failure:
            yield from self._on_results(document, answer)
        elif kind == "Answer":
            self._fail(document, answer.worker, answer.failure)
        elif kind == "NoValidWorkerError":
            self._take_back(document)
        elif kind != "KilledWorker" and document.runs_on:
            self._fail(document, document.runs_on, f"{kind}: {answer}")
        else:  # sooner than we would have noticed, or it was never begun
            if len(document.begun) == document.counted:
                document.begun.append(str(getattr(answer, "last_worker", "one that isn't known")))
            if len(document.begun) >= _ATTEMPTS:
                yield from self._give_up(document)
            else:
                self._take_back(document)

    def _fail(self, document: _Document, address: str, reason: str) -> None:
        """Have a document checked elsewhere, after a failure that isn't its own."""
        self._fleet.avoid(address, reason)
        if document.begun:
            document.begun.pop()  # only lost workers count
        self._take_back(document)

    def _take_back(self, document: _Document) -> None:
        """Have a document submitted again, when a worker can run it."""
        self._forget(document)
        self._waiting[document.index] = document

    def _cancel(self, document: _Document) -> None:
        if document.future is not None:
            self._connect().cancel([document.future], force=True)

    def _forget(self, document: _Document) -> None:
        document.future, document.token = None, ""
        for kept in (self._waiting, self._submitted, self._running):
            kept.pop(document.index, None)

    def _on_results(self, document: _Document, answer: Answer) -> Iterator[Event]:
        if any(map(_lacks_module, answer.results)):
            document.lacking[answer.worker] = answer
            if self._fleet.able(document.needs, document.lacking) and len(document.lacking) < _ATTEMPTS:
                self._take_back(document)
                return
        else:
            for address in document.lacking:  # this worker has what those lack
                self._fleet.avoid(address, "a module that specs import isn't installed there")
        yield from self._end(document, answer)

    def _end(self, document: _Document, answer: Answer) -> Iterator[Event]:
        """Return the results of a document."""
        self.tensorflow_version = self.tensorflow_version or answer.tensorflow
        self._forget(document)
        for position, (numbered_case, result) in enumerate(zip(document.cases, answer.results, strict=True)):
            printed = (answer.printed or {}).get(position)
            file = "" if printed is None else self._output_folder.keep_text(numbered_case.case, printed)
            named = _name_worker(result)
            lines = () if named.ran.output is None else named.ran.output.lines
            yield Ended(numbered_case.index, named.printed(lines, file))

    def _give_up(self, document: _Document) -> Iterator[Event]:
        names = ", ".join(document.begun[:_ATTEMPTS])
        message = (
            f"the Dask worker that ran it was lost, {_ATTEMPTS} times of {_ATTEMPTS}: {names}. The workers' "
            "logs may say why; one that takes too much memory is killed."
        )
        self._cancel(document)
        self._forget(document)
        for numbered_case in document.cases:
            error = CaseError("worker", message)
            yield Ended(numbered_case.index, failed_case(numbered_case.case, error, 0.0))


def _name_worker(result: CaseResult) -> CaseResult:
    """For a module that wasn't found, say where: on another machine than the user's."""
    if result.error is None or not _lacks_module(result):
        return result
    where = f"Dask worker {result.ran.worker} on {result.ran.host}, which has an environment of its own."
    message = f"{result.error.message} This was {where}"
    return replace(result, error=replace(result.error, message=message))


def _lacks_module(result: CaseResult) -> bool:
    """Whether a module wasn't found; on another machine it may be installed."""
    error = result.error
    return error is not None and (
        "ModuleNotFoundError" in error.message or "no module named" in error.message
    )


def _try_within(seconds: float, call: Callable[[], object]) -> None:
    """Call a Dask function, but don't wait for ever: a dead scheduler can't be told, and needn't be."""

    def work() -> None:
        with suppress(Exception):
            call()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
