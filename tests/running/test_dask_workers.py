"""One rule for failures on a cluster, with a client that answers at once; test_cluster.py has real ones."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

pytest.importorskip("distributed", reason='it needs the extra dask: pip install "gradcheck-cli[dask]"')

from gradcheck_cli.features.cluster import dask_workers
from gradcheck_cli.features.cluster.dask_task import Answer
from gradcheck_cli.results import CaseError, Status
from gradcheck_cli.running.limits import Limits
from gradcheck_cli.running.run_loop import Ended, Noted, Waited, WorkersLostError, blank_result, failed_case
from gradcheck_cli.spec.load import load_cases

SPEC = "op: o{}\nforward: numpy:square\n{}inputs: {{x: {{shape: [2]}}}}\n"
MISSING = CaseError("import", "forward: no module named 'mpmath'.\nLooked in: ...")


class Done:
    def __init__(self, answer):
        self.answer = answer

    def result(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def add_done_callback(self, callback):
        callback(self)


class Silent:
    def add_done_callback(self, callback):
        """Never call it."""


class Cluster:
    """A cluster whose workers answer as told: address -> a failure, an error of the case, or nothing."""

    def __init__(self, **workers):
        self.behaviours = workers
        self.resources = {}
        self.asked = Counter()
        self.notices = []

    def info(self):
        return {
            address: {"name": address, "host": "h", "nthreads": 1, "resources": self.resources.get(address)}
            for address in self.behaviours
        }

    def submit(self, function, *arguments, workers=(), **_):
        if function is bytes:
            return Done(b"")
        address = min(workers, key=lambda one: (self.asked[one], one))
        self.asked[address] += 1
        if address not in self.behaviours:
            return Silent()
        behaviour, (order, _) = self.behaviours[address], arguments
        self.tell(
            (
                0.0,
                {
                    "token": order.token,
                    "document": order.document,
                    "worker": address,
                    "name": address,
                    "host": "h",
                },
            )
        )
        if isinstance(behaviour, BaseException):
            return Done(behaviour)
        if isinstance(behaviour, str) and behaviour:
            return Done(Answer(address, behaviour))
        results = (
            blank_result(case, Status.PASSED, 0.0) if not behaviour else failed_case(case, behaviour, 0.0)
            for case in order.cases
        )
        return Done(Answer(address, "", "2.21", tuple(results)))

    def run(self, function, *arguments, workers, on_error):
        return dict.fromkeys(workers, function(*arguments))

    def cancel(self, futures, **_):
        pass


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs documents on a cluster; it returns results, and why not all ran."""
    monkeypatch.setattr(dask_workers, "_TICK", 0.001)
    monkeypatch.setattr(dask_workers, "_LEFT", 0.05)

    def run(cluster, documents=8, device="", change=lambda: None):
        for number in range(documents):
            (tmp_path / f"{number}.yaml").write_text(SPEC.format(number, device))
        cases = load_cases([tmp_path])
        workers = dask_workers.DaskWorkers("h:1", Limits())
        monkeypatch.setattr(workers, "_connect", lambda: cluster)
        workers._answered, cluster.tell = float("inf"), workers._on_event

        def look():
            workers._news.put(partial(workers._on_workers, cluster.info()))

        look()
        ended, reason = {}, ""
        try:
            for event in workers.run(cases):
                if isinstance(event, Ended):
                    ended[event.index] = event.result
                    change()
                elif isinstance(event, Waited):
                    look()
                elif isinstance(event, Noted):
                    cluster.notices.append(event.text)
        except WorkersLostError as error:
            reason = str(error)
        return [ended[index] for index in sorted(ended)], reason

    return run


@pytest.mark.parametrize(
    "failure", ["OSError: [Errno 28] No space left on device", RuntimeError("can't be unpacked")]
)
def test_what_a_worker_cant_do_another_does_and_it_isnt_asked_again(run, failure):
    cluster = Cluster(a=failure, b=None)
    results, reason = run(cluster)
    assert ([result.status for result in results], reason) == ([Status.PASSED] * 8, "")
    assert cluster.asked["a"] <= 2  # documents were there before the first failure
    assert cluster.asked["b"] >= 8
    (notice,) = cluster.notices
    assert notice.startswith("Dask worker a on h wasn't used any more: ")
    assert notice.endswith(str(failure))


def test_a_module_that_one_worker_lacks_is_found_on_another(run):
    cluster = Cluster(a=MISSING, b=None)
    results, _ = run(cluster)
    assert [result.status for result in results] == [Status.PASSED] * 8
    assert cluster.asked["a"] <= 4  # until another worker has shown that it has the module


def test_a_module_that_all_workers_lack_is_the_cases_own_error_which_names_the_worker(run):
    results, reason = run(Cluster(a=MISSING, b=MISSING), documents=2)
    assert reason == ""
    assert [result.error.kind for result in results] == ["import", "import"]
    assert all("which has an environment of its own" in result.error.message for result in results)


def test_what_nobody_can_run_isnt_checked_and_each_worker_is_named(run):
    results, reason = run(Cluster(a="OSError: full", b="OSError: read-only"))
    assert results == []
    assert reason.startswith("no worker can run them: a on h: OSError: full; b on h: OSError: read-only")


def test_a_lost_resource_is_awaited_and_then_what_needs_it_isnt_checked(run):
    cluster = Cluster(a=None, b=None)
    cluster.resources = {"a": {"GPU": 1}}
    results, reason = run(
        cluster, documents=6, device="device: GPU:0\n", change=lambda: cluster.behaviours.pop("a", None)
    )
    assert 0 < len(results) < 6
    assert reason.startswith("no worker that offers GPU is left")


def test_a_worker_that_joins_gets_documents_that_waited(run):
    cluster = Cluster(a="OSError: full")
    before = dict(cluster.behaviours)
    info = cluster.info
    looks = iter(range(100))

    def info_with_a_late_joiner():
        if next(looks) == 3:
            cluster.behaviours["b"] = None
        return info()

    cluster.info = info_with_a_late_joiner
    results, reason = run(cluster)
    assert before == {"a": "OSError: full"}
    assert ([result.status for result in results], reason) == ([Status.PASSED] * 8, "")
