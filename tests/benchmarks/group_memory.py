"""memory: how much a run of many small cases takes over time, in each of its processes.

Half of the cases are in one document, which takes one process after another; the others are in documents of
ten. A figure is the largest resident size within a tenth of the run. A process that was forked shares most of
its memory with the one that it was forked from.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.benchmarks.commands import GRADCHECK
from tests.benchmarks.measuring import table

LOOK = 0.25  # seconds between two looks
PARTS = 10
SMALL = 10  # cases of a small document
FUNCTION = """
import tensorflow as tf

@tf.custom_gradient
def square(x):
    return x * x, lambda upstream: upstream * 2 * x
"""


def run(options):
    yield f"## memory: a run of {options.cases:,} small cases, -j 2\n"
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), options.cases)
        report = Path(folder, "report.json")
        command = [*GRADCHECK, "run", folder, "-q", "-j", "2", "--report", f"json={report}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            looks = _watch(process)
        if process.returncode:
            raise RuntimeError(f"the run ended with {process.returncode}")
        cases = len(json.loads(report.read_text())["cases"])
    rows = []
    for part in range(PARTS):
        own = looks[len(looks) * part // PARTS : len(looks) * (part + 1) // PARTS]
        sizes = [f"{max(column) / 2**20:.0f}" for column in zip(*own, strict=True)]
        rows.append([f"{part + 1} of {PARTS}", *sizes])
    yield table(["tenth of the run", "gradcheck MiB", "fork server MiB", "largest case's process MiB"], rows)
    yield f"\n{cases:,} cases, {len(looks)} looks"


def _write(folder, cases):
    (folder / "squares.py").write_text(FUNCTION)
    half = cases // 2
    _write_document(folder / "large.yaml", "large", half)
    for number, start in enumerate(range(half, cases, SMALL)):
        _write_document(folder / f"small{number:04}.yaml", f"small{number}", min(SMALL, cases - start))


def _write_document(file, name, cases):
    """Write a document with so many cases, the default one among them."""
    lines = [f"op: {name}", "forward: squares:square", "inputs: {x: {shape: [2]}}", "cases:"]
    file.write_text("\n".join([*lines, *(f"  - {{name: c{number}}}" for number in range(1, cases))]) + "\n")


def _watch(process):
    """Return the sizes of the run's process, of its child and of the largest child of that, at each look."""
    looks = []
    while process.poll() is None:
        servers = _children(process.pid)
        tasks = [size for server in servers for size in map(_size, _children(server))]
        looks.append((_size(process.pid), max(map(_size, servers), default=0), max(tasks, default=0)))
        time.sleep(LOOK)
    return looks


def _children(pid):
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _size(pid):
    """Return the resident size in bytes; 0 if the process is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0
