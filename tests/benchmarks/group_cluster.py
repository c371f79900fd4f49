"""cluster: what a Dask scheduler takes of the time for many small tasks, and how a run grows with workers."""

from __future__ import annotations

import resource
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gradcheck_cli.features.cluster import dask_workers
from gradcheck_cli.features.cluster.dask_workers import DaskWorkers
from gradcheck_cli.running.limits import Limits
from gradcheck_cli.running.run_loop import run_in_workers
from gradcheck_cli.spec.load import load_cases
from tests.acceptance.dask_cluster import Cluster
from tests.benchmarks.commands import GRADCHECK, seconds_of_command
from tests.benchmarks.measuring import seconds_of, shown_ratio, shown_seconds, table

SMALL = "op: small\nforward: waiting:wait\ninputs: {x: {shape: [2]}}\n"
WAITING = "import time\n\ndef wait(x):\n    time.sleep(0.5)\n    return x * x\n"
DOCUMENTS = 24  # that wait, for each number of workers


def run(options):
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder, "specs", "small.yaml")
        spec.parent.mkdir()
        spec.write_text(SMALL)
        spec.with_name("waiting.py").write_text(WAITING)
        (case,) = load_cases([str(spec)])
        many = [
            replace(case, op=f"small{number}", origin=replace(case.origin, line=number + 1))
            for number in range(options.tasks)
        ]
        yield f"## cluster: {options.tasks:,} tasks that do nothing, three workers\n"
        with Cluster(Path(folder, "tiny"), workers=3) as cluster:
            yield _scheduling(cluster, many)
        yield "\n## cluster: specs/seeds, processor time with TensorFlow's import\n"
        yield table(["by", "processor time"], _overhead(Cluster, folder))
        yield f"\n## cluster: {DOCUMENTS} documents that wait, by workers\n"
        yield table(
            ["workers", "time", "times as fast", "workers' processor time a document"],
            _growth(Cluster, folder, many[:DOCUMENTS]),
        )


def _overhead(kind, folder):
    """Return rows of the processor time for the same specs by `-j 2` and by two workers."""
    rows = []
    for number, where in enumerate(("-j 2", "two workers")):
        with kind(Path(folder, f"seeds{number}"), workers=2 * number) as cluster:
            before = cluster.seconds() + _children()
            options = ("-j", "2") if not number else ("--on", cluster.address)
            seconds_of_command(*GRADCHECK, "run", "specs/seeds", "-q", *options)
            spent = cluster.seconds() + _children() - before
        rows.append([where, shown_seconds(spent)])
    return rows


def _children():
    """Return the processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _workers(cluster):
    return DaskWorkers(cluster.address.removeprefix("dask://"), Limits(60, None))


def _scheduling(cluster, many):
    pid = cluster.scheduler.pid
    with _instead(dask_workers, "check_document"):
        run_in_workers(_workers(cluster), many[:100])  # what is done once
        began, here = cluster.seconds(pid), time.process_time()
        wall = seconds_of(lambda: run_in_workers(_workers(cluster), many))
    scheduler, client = cluster.seconds(pid) - began, time.process_time() - here
    rows = [
        [
            "scheduler",
            shown_seconds(scheduler),
            shown_seconds(scheduler / len(many)),
            shown_ratio(scheduler / wall),
        ],
        ["gradcheck", shown_seconds(client), shown_seconds(client / len(many)), shown_ratio(client / wall)],
        ["wall clock", shown_seconds(wall), shown_seconds(wall / len(many)), ""],
    ]
    return table(["", "in all", "a task", "share of the wall clock"], rows)


@contextmanager
def _instead(module, name):
    """Have tasks that do nothing sent in place of those that check."""
    from tests.benchmarks.cluster_tasks import tiny

    real = getattr(module, name)
    setattr(module, name, tiny)
    try:
        yield
    finally:
        setattr(module, name, real)


def _growth(kind, folder, cases):
    rows, one = [], 0.0
    for count in (1, 2, 3):
        with kind(Path(folder, f"by{count}"), workers=count) as cluster:
            run_in_workers(_workers(cluster), cases[: 2 * count])  # TensorFlow is imported
            before = cluster.seconds()
            seconds = seconds_of(lambda: run_in_workers(_workers(cluster), cases))
            spent = cluster.seconds() - before
        one = one or seconds
        rows.append(
            [
                str(count),
                shown_seconds(seconds),
                shown_ratio(one / seconds),
                shown_seconds(spent / len(cases)),
            ]
        )
    return rows
