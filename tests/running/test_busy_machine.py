"""What else the machine does changes no verdict and ends no case."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradcheck_cli import clock
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.running.limits import Times, times_of

PACKAGE = Path(clock.__file__).parent
# Wall clock is read by what shows durations or waits for other processes, and by nothing that decides.
MAY_READ_CLOCKS = {
    "clock.py",
    "cli/commands/run.py",  # --max-time
    "features/baseline/baselines.py",  # waits for a lock
    "features/cluster/dask_workers.py",
    "features/search/exploring.py",  # how long Python code waits for other programs, not for a processor
    "features/watch/watching.py",
    "running/fork_server.py",  # --timeout
    "running/run_loop.py",
    "running/session.py",  # shown as a case's duration
    "running/selection.py",  # which files have changed since a run began
}


def test_only_what_waits_or_shows_a_duration_reads_a_clock():
    reading = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if "import time\n" in file.read_text(encoding="utf-8")
    }
    assert reading == {name for name in MAY_READ_CLOCKS if (PACKAGE / name).exists()}


def test_waiting_costs_nothing_of_a_budget():
    budget = Budget(0.05)
    time.sleep(0.1)
    assert not budget.is_spent


@pytest.mark.parametrize(
    ("ran", "waited", "passed", "own"),
    [
        (0.0, 0.0, 60.0, 60.0),  # it sleeps: it hangs
        (60.0, 0.0, 60.0, 60.0),  # it computes
        (2.0, 58.0, 60.0, 2.0),  # it would compute, but others have the processors
        (2.0, 20.0, 60.0, 40.0),  # it sleeps most of the time
        (10.0, 200.0, 60.0, 10.0),  # four threads wait at the same time
        (200.0, 30.0, 60.0, 60.0),  # four threads compute
    ],
)
def test_only_waiting_for_a_processor_is_no_time_of_a_process(ran, waited, passed, own):
    since = Times(5.0, 7.0)
    assert Times(5.0 + ran, 7.0 + waited).own_seconds(since, passed) == pytest.approx(own)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux alone tells how long one waited")
def test_a_process_that_waits_for_its_turn_is_told_from_one_that_sleeps():
    # Two processes on one processor: each waits for about half of the time.
    program = f"import os; os.sched_setaffinity(0, [{min(os.sched_getaffinity(0))}])\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        end = time.monotonic() + 60
        while times_of(busy[0].pid).waited < 0.2 and time.monotonic() < end:
            time.sleep(0.05)
        assert times_of(busy[0].pid).waited >= 0.2
        before, began = times_of(asleep.pid), time.monotonic()
        time.sleep(0.2)
        assert times_of(asleep.pid).own_seconds(before, time.monotonic() - began) > 0.15
    finally:
        for process in (*busy, asleep):
            process.kill()
            process.wait()


def test_a_process_that_is_gone_has_done_nothing():
    assert times_of(2**22 + 1) == Times()
