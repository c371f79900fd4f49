"""specs: the whole of specs/ by two workers, against one."""

from __future__ import annotations

from functools import partial

from gradcheck_cli.running.limits import usable_cores
from tests.benchmarks.commands import GRADCHECK, seconds_of_command
from tests.benchmarks.measuring import in_turn, shown_ratio, shown_seconds, table

ROUNDS = 3


def run(options):
    rounds = options.rounds or ROUNDS
    yield f"## specs: median of {rounds} rounds in turn, {usable_cores()} cores\n"
    sides = {
        f"gradcheck run specs/ -q -j {jobs}": partial(
            seconds_of_command, *GRADCHECK, "run", "specs", "-q", "-j", str(jobs)
        )
        for jobs in (1, 2)
    }
    found = in_turn(sides, rounds, warm=False)
    one = next(iter(found.values()))
    rows = [[name, shown_seconds(seconds), shown_ratio(one / seconds)] for name, seconds in found.items()]
    yield table(["command", "time", "times as fast"], rows)
