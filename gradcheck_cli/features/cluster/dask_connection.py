"""The connection to a Dask cluster, an existing or a temporary one: its workers and their versions."""

from __future__ import annotations

import logging
import queue
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gradcheck_cli.errors import CaseFailedError, UsageError
from gradcheck_cli.features.cluster.dask_versions import Fleet, describe
from gradcheck_cli.running.workers import WorkersLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distributed import Client, Future, LocalCluster

Value = TypeVar("Value")

_ANSWERS = 10.0  # seconds for a scheduler to answer
_JOINS = 30.0  # seconds for a worker to join
_LEFT = 60.0  # seconds to wait for another worker when none is left
_LOOKS = 2.0  # seconds between two counts of the workers
_LEAVES = 0.5  # seconds for the connection to close
_TTL = "30s"  # without a sign of life for this long, a worker of our own cluster counts as lost


class Cluster(NamedTuple):
    """Which Dask cluster to use.

    Attributes:
        address: of the scheduler, `HOST:PORT`; empty for a temporary cluster on this machine.
        jobs: how many workers a temporary cluster has.
        allows_skew: whether versions there may differ from those here.
    """

    address: str
    jobs: int = 1
    allows_skew: bool = False


class Connection:
    """A client of a cluster whose workers have what a case needs.

    Attributes:
        client: Dask's.
        where: the cluster, in words.
        count: how many workers there were, when they were counted last.
        resources: the names of the resources that some worker offers.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Connect, and compare versions.

        Raises:
            UsageError: Dask isn't installed.
            CaseFailedError: there is no scheduler or no worker, or some workers lack something.
        """
        try:
            from distributed import Client
        except ImportError as error:
            raise UsageError(
                f'--on needs Dask: pip install "distributed>=2026.1" ({error}). On every worker, too.'
            ) from error
        for name in logging.root.manager.loggerDict:
            if name.startswith("distributed"):
                logging.getLogger(name).setLevel(logging.CRITICAL)  # we report what it would
        self.where = cluster.address or "this machine"
        self._cluster = None if cluster.address else _start_cluster(cluster.jobs)
        try:
            self.client: Client = Client(
                cluster.address or self._cluster, timeout=_ANSWERS, set_as_default=False, name="gradcheck"
            )
        except (OSError, ValueError) as error:
            raise CaseFailedError(
                "workers",
                f"no Dask scheduler answers at {self.where}: {error}. Start one with `dask scheduler`, "
                "and workers with `dask worker HOST:PORT --nthreads 1`.",
            ) from error
        self._is_closed = threading.Event()
        try:
            fleet = self._fleet(allows_skew=cluster.allows_skew)
        except BaseException:
            self.close(())
            raise
        self.count, self.resources = len(fleet.versions), fleet.resources
        self._seen = self._answered = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def _fleet(self, *, allows_skew: bool) -> Fleet:
        """Return the workers' descriptions, after checking that all of them have what a case needs."""
        try:
            self.client.wait_for_workers(1, timeout=_JOINS)
            fleet = Fleet.of(_call_within(_JOINS, partial(self.client.run, describe, on_error="return")))
        except TimeoutError:
            raise CaseFailedError(
                "workers",
                f"the Dask scheduler at {self.where} has no worker that answers. Start some: "
                "`dask worker HOST:PORT --nthreads 1`.",
            ) from None
        complaint = fleet.complaint(allows_skew=allows_skew)
        if complaint:
            raise CaseFailedError("versions", complaint)
        return fleet

    def _watch(self) -> None:
        """Check repeatedly whether there is a scheduler, and whether it has workers."""
        while not self._is_closed.wait(_LOOKS):
            with suppress(Exception):  # no answer
                self.count = len(self.client.nthreads())
                self._answered = time.monotonic()
                if self.count:
                    self._seen = self._answered

    def require(self) -> None:
        """Raise `WorkersLostError` if nobody is left who could finish the open tasks."""
        now = time.monotonic()
        if now - self._answered > _LEFT:
            raise WorkersLostError(f"the Dask scheduler at {self.where} doesn't answer any more")
        if now - self._seen > _LEFT:
            raise WorkersLostError(
                f"no worker has been left at the Dask scheduler at {self.where} for {_LEFT:g} s"
            )

    def close(self, futures: Sequence[Future[Any]]) -> None:
        """Cancel what still runs, leave the cluster, and end it if it is temporary."""
        self._is_closed.set()
        for step in (
            partial(self.client.cancel, list(futures), force=True),
            partial(self.client.close, timeout=_LEAVES),
        ):
            with suppress(Exception):  # a dead scheduler can't be told, and needn't be
                _call_within(_ANSWERS, step)
        if self._cluster is not None:
            with suppress(Exception):  # likewise
                _call_within(_JOINS, self._cluster.close)


def _start_cluster(jobs: int) -> LocalCluster:
    import dask
    from distributed import LocalCluster

    with dask.config.set({"distributed.scheduler.worker-ttl": _TTL}):
        return LocalCluster(
            n_workers=jobs, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
        )


def _call_within(seconds: float, call: Callable[[], Value]) -> Value:
    """Call a Dask function that may wait for ever for an answer.

    Raises:
        TimeoutError: it took too long; it may still be running.
    """
    answers: queue.Queue[tuple[bool, Any]] = queue.Queue()

    def work() -> None:
        try:
            answers.put((True, call()))
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            answers.put((False, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        is_fine, answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if not is_fine:
        raise answer
    return answer  # type: ignore[no-any-return]
