"""growth: time and peak memory of a verdict against the number of elements, each in a fresh process.

What is timed is one verdict, at one sample, in a process that has TensorFlow with one thread, and a verdict
on a small op of the same kind, behind it. Memory is how far the resident size rises above what it was just
before; one copy is the inputs and the outputs in float64, and the budget of what is computed at once is
taken off first. The slope is that of log(time) over log(n): over all sizes, and from 1e4 on, where the
fixed part weighs less.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from tests.benchmarks.measuring import log_slope, shown_ratio, shown_seconds, table

OPS = ("tanh", "rows_matmul", "sort")
SIZES = tuple(10**power for power in range(2, 8))
BUDGET = 64 * 2**20  # bytes that a verdict may take whatever the size
LARGE = 10**4
ROUNDS = 1


def run(options):
    yield f"## growth: one TensorFlow thread, method {options.method or 'by default'}\n"
    chosen = [op for op in OPS if not options.only or op in options.only]
    if not chosen:
        raise RuntimeError(f"no function {', '.join(options.only)}; there are {', '.join(OPS)}")
    for op in chosen:
        yield _table_of(op, options) + "\n"


def _table_of(op, options):
    rows, times = [], {}
    for size in SIZES:
        if size > options.largest:
            break
        found, failure = _measured(op, size, options)
        if failure:
            rows.append([f"{size:.0e}", *[""] * 4, failure])
            break  # a larger one would take longer still
        times[size] = found["seconds"]
        copies = max(0, found["grown"] - BUDGET) / found["copy"]
        rows.append(
            [
                f"{size:.0e}",
                shown_seconds(found["seconds"]),
                shown_ratio(found["seconds"] / size * 1e6),
                f"{found['grown'] / 2**20:.0f}",
                f"{copies:.1f}",
                f"{found['status']}, {'/'.join(found['methods'])}",
            ]
        )
    heading = [op, "time", "us/element", "MiB", "copies", "verdict"]
    large = {size: seconds for size, seconds in times.items() if size >= LARGE}
    slopes = [
        f"{log_slope(list(some), list(some.values())):.2f} {which}"
        for some, which in ((times, "over all sizes"), (large, "from 1e4 on"))
        if len(some) > 1
    ]
    return "\n".join([table(heading, rows), "", f"Slope of the time: {', '.join(slopes) or 'too few sizes'}"])


def _measured(op, size, options):
    """Return the median of the rounds, or what went wrong."""
    found = []
    for _ in range(options.rounds or ROUNDS):
        command = [sys.executable, "-m", "tests.benchmarks.growth_child", op, str(size)]
        try:
            ended = subprocess.run(
                [*command, options.method or ""],
                capture_output=True,
                text=True,
                timeout=options.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, f"more than {options.timeout:.0f} s"
        if ended.returncode:
            said = ended.stderr.strip().splitlines() or ["nothing said"]
            return None, f"ended with {ended.returncode}: {said[-1][:60]}"
        one = json.loads(ended.stdout.splitlines()[-1])
        if one["status"] != "passed":
            return None, f"{one['status']}: {one['error'][:60]}"
        found.append(one)
    middle = sorted(found, key=lambda one: one["seconds"])[len(found) // 2]
    return {**middle, "grown": statistics.median(one["grown"] for one in found)}, ""
