"""Which rows run on main alone: those whose lines of code other rows run too, at least twice for each truth.

`python tests/attacks/rows_on_main.py` runs each row under `coverage` (which must be installed), chooses the
rows that run on each change, and writes the names of the others. A row that is new runs on each change.

A row can only catch a change of code that it runs. So each step from one line to the next of what judges is
taken by at least `TIMES` rows that stay, right and wrong ones apart, or by all if there are no more. Of the
rows that take a step, those that take most new steps in a second stay.
"""

from __future__ import annotations

import heapq
import sys
import time
from pathlib import Path

import numpy as np

TIMES = 2
FILE = Path(__file__).with_suffix(".txt")
PACKAGE = Path(__file__).parents[2] / "gradcheck_cli"
JUDGING = ("checking", "numerics", "tensorflow_backend", "features/search")


def read_rows_on_main():
    """Return the names of the rows that only run on main."""
    return set(FILE.read_text(encoding="utf-8").splitlines())


def measure(attack, known):
    """Return how many seconds of processor time an attack takes, and the numbers of the steps that it takes.

    Args:
        attack: a row of a table.
        known: numbers of steps from line to line, by truth; extended.
    """
    import coverage

    measured = coverage.Coverage(data_file=None, source=[str(PACKAGE)], config_file=False, branch=True)
    began = time.process_time()
    with measured.collect():
        attack.report()
    seconds = time.process_time() - began
    data, steps = measured.get_data(), []
    for file in data.measured_files():
        if Path(file).relative_to(PACKAGE).as_posix().startswith(JUDGING):
            arcs = data.arcs(file) or ()
            steps += [known.setdefault((attack.truth, file, *arc), len(known)) for arc in arcs]
    return seconds, np.unique(np.array(steps, dtype=np.int64))


def choose(rows, count):
    """Return the names of the rows that stay.

    Args:
        rows: seconds and steps of each row, by name.
        count: of steps.
    """
    taken_by = np.bincount(np.concatenate([steps for _, steps in rows.values()]), minlength=count)
    missing, chosen = np.minimum(taken_by, TIMES), set()
    heap = [(-len(steps) / seconds, name) for name, (seconds, steps) in rows.items()]
    heapq.heapify(heap)
    while heap:
        _, name = heapq.heappop(heap)
        seconds, steps = rows[name]
        new = np.count_nonzero(missing[steps] > 0)
        if heap and (-new / seconds, name) > heap[0]:  # by what stays now, another row may bring more
            if new:
                heapq.heappush(heap, (-new / seconds, name))
        elif new:
            chosen.add(name)
            missing[steps] -= 1
    return chosen


def main():
    sys.path.insert(0, str(Path(__file__).parent))
    from test_attacks import ROWS

    known = {}
    rows = {name: measure(attack, known) for name, attack in ROWS.items()}
    stay = choose(rows, len(known))
    FILE.write_text("".join(f"{name}\n" for name in ROWS if name not in stay), encoding="utf-8")


if __name__ == "__main__":
    main()
