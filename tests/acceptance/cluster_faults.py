# ruff: noqa: T201 (a script: printing is what it is for)
"""Run specs on a real Dask cluster while its workers are killed, and compare each report with one from here.

`python -m tests.acceptance.cluster_faults specs/seeds --runs 10 --kills 2`. Nothing may be lost, nothing
doubled, and every verdict and figure be the same, else the exit code is 1. A document that was hit three
times is given up, as documented: its cases are errors that name the workers. `--runs 0` disturbs none.

`--ends 5` kills the client, then the scheduler, in five more runs each: nothing may be left running, and the
client of a dead scheduler ends with exit code 3 and a report of what was done.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.acceptance.dask_cluster import ROOT, Cluster, without_times

HITS = 3  # losses of its worker after which a document is given up
CASE = ("op", "case", "spec", "dtype", "mode")


def start(file, *arguments):
    """Start a run; its report goes to a file."""
    return subprocess.Popen(
        [sys.executable, "-m", "gradcheck_cli", "run", *arguments, "-q", "--report", f"json={file}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )


def found_in(file):
    """Return a report's cases, each by what it is, without times, hosts and names that code makes up.

    Counts of calls are left out too: some calls measure what others would cost, and are made again if they
    seem slow.
    """
    cases = json.loads(file.read_text())["cases"]
    names = [tuple(case[key] for key in CASE) for case in cases]
    plain = [
        {**without_times(case), "gradients_seen": len(case["gradients_seen"]), "work": None} for case in cases
    ]
    return names, dict(zip(names, plain, strict=True)), Counter(case["worker"] for case in cases)


def was_given_up(case):
    """Whether a case is an error because its workers were lost three times."""
    error = case["error"] or {"kind": ""}
    return error["kind"] == "worker" and f"lost, {HITS} times of {HITS}" in error["message"]


def disturbed(process, cluster, moments, chance):
    """Kill a worker at each of these moments of a run; return how many were."""
    began, killed = time.monotonic(), 0
    for moment in sorted(moments):
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, began + moment - time.monotonic()))
        workers = cluster.worker_pids()
        if process.poll() is None and workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
            killed += 1
    process.wait()
    return killed, time.monotonic() - began


def ended(who, folder, specs, chance, seconds):
    """Kill the client or the scheduler at a random moment; say what became of it, and if it is fine."""
    file = folder / "report.json"
    with Cluster(folder, workers=3) as cluster:
        process = start(file, *specs, "--on", cluster.address)
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, seconds))
        was_running = process.poll() is None
        (process if who == "client" else cluster.scheduler).kill()
        code = process.wait(300)
        left = cluster.wait_until_gone("fork_server", 120)  # an unused fork server ends after a minute
    has_report = file.exists()
    cases = json.loads(file.read_text())["cases"] if has_report else []
    codes = (0, -signal.SIGKILL) if who == "client" else (0, 3)
    is_fine = not left and (code in codes or not was_running) and (has_report or who == "client")
    return f"{who} killed: exit {code}, {len(cases)} cases reported, {len(left)} processes left", is_fine


def main():
    """Compare runs there with one here."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("specs", nargs="*", default=["specs/seeds"])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kills", type=int, default=2, help="in each run, at random moments")
    parser.add_argument("--ends", type=int, default=0, help="runs whose client or scheduler is killed")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options, more = parser.parse_known_args()  # what isn't known is for `gradcheck run`, as --tag smoke
    options.specs += more
    chance, is_fine = random.Random(options.seed), True  # noqa: S311 (no secret)
    folder = Path(tempfile.mkdtemp(prefix="gradcheck-cluster-"))
    start(folder / "here.json", *options.specs, "-j", "2").wait()
    names, here, _ = found_in(folder / "here.json")
    print(f"{len(names)} cases here; {options.workers} workers\n", flush=True)
    with Cluster(folder / "cluster", workers=options.workers) as cluster:
        seconds = cold = 0.0
        for number in range(-1, options.runs + 1):  # the first imports TensorFlow
            file = folder / f"{number}.json"
            moments = [chance.uniform(0, seconds) for _ in range(options.kills if number > 0 else 0)]
            killed, took = disturbed(
                start(file, *options.specs, "--on", cluster.address), cluster, moments, chance
            )
            seconds = took if number <= 0 else seconds
            cold = took if number < 0 else cold
            there_names, there, workers = found_in(file)
            lost, doubled = len(here.keys() - there.keys()), len(there_names) - len(there)
            differ = [name for name in here.keys() & there.keys() if here[name] != there[name]]
            given_up = [name for name in differ if was_given_up(there[name])]
            differ = [name for name in differ if name not in given_up]
            hits = HITS * len({there[name]["spec"] for name in given_up})
            is_fine &= not (lost or doubled or differ) and there_names == names and hits <= killed
            print(
                f"run {number}: {killed} workers killed, {took:.0f} s, {len(there)} cases by "
                f"{len(workers)} workers: "
                f"{lost} lost, {doubled} doubled, {len(given_up)} given up, {len(differ)} different",
                flush=True,
            )
            for name in differ:
                print(
                    "   ", *name, "\n   ", here[name]["status"], there[name]["status"], there[name]["error"]
                )
    for number in range(options.ends):
        for who in ("client", "scheduler"):
            told, was_fine = ended(who, folder / f"{who}{number}", options.specs, chance, cold)
            print(told, flush=True)
            is_fine &= was_fine
    sys.exit(0 if is_fine else 1)


if __name__ == "__main__":
    main()
