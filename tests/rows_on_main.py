"""Which rows of tables run on main alone: those whose lines of code other rows run too.

A table is a test with many sets of parameters, its rows. `python tests/rows_on_main.py PATHS` runs the rows
of all tables in these files under `coverage` (which must be installed), chooses those that run on each
change, and adds the names of the others to `rows_on_main.txt`. Rows that are there already aren't measured:
to choose all of a table's anew, delete them first. A row that is new runs on each change.

A row can only catch a change of code that it runs. So the rows that stay take `SHARE` of all steps from one
line of the package to the next that the rows of their table take; rows of a table that are of several kinds
(of attacks: right gradients, wrong ones, ...) do so for each kind. Those that take most new steps in a second
stay, and so do all that take less than `CHEAP` seconds; of those that take more than `LONG`, none does if
there are others. The steps that are left are mostly single ones of a row that takes half a second.
"""

from __future__ import annotations

import heapq
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

SHARE = 0.95
CHEAP = 0.05
LONG = 3.0
FEWEST = 3  # rows of a table
SHORTEST = 2.0  # seconds that a table takes
FILE = Path(__file__).with_suffix(".txt")
PACKAGE = Path(__file__).parents[1] / "gradcheck_cli"


def read_rows_on_main():
    """Return the names of the rows that only run on main, by the test's name."""
    rows, row_names = defaultdict(set), set()
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            row_names.add(line.strip())
        else:
            row_names = rows[line]
    return rows


def table_of(item):
    """Return the names of the table and of the row that a test is; the latter is `None` if it is no row."""
    table, _, row = item.nodeid.partition("[")
    return table, row.removesuffix("]") if hasattr(item, "callspec") else None


def mark_rows(items):
    """Leave rows to main.

    Raises:
        pytest.UsageError: a row that is left to main doesn't exist any more.
    """
    left, every = read_rows_on_main(), defaultdict(set)
    for item in items:
        table, row = table_of(item)
        every[table].add(row)
        if row in left[table]:
            item.add_marker(pytest.mark.once)
    gone = [f"{table}[{row}]" for table in every for row in sorted(left[table] - every[table])]
    if gone and not any("::" in argument for argument in items[0].config.args):
        raise pytest.UsageError(f"{FILE.name}: no test is named {gone[0]}. Delete the line")


class Measuring:
    """A pytest plugin that notes how long each row takes, and its steps."""

    def __init__(self):
        self.seconds, self.steps, self.kinds = {}, {}, {}  # by (table, row)
        self._numbers = {}  # of steps

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Run one row."""
        import coverage

        table, row = table_of(item)
        if row is None:
            return (yield)
        measured = coverage.Coverage(data_file=None, source=[str(PACKAGE)], config_file=False, branch=True)
        began = time.process_time()
        with measured.collect():
            result = yield
        self.seconds[table, row] = time.process_time() - began
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rows that run nothing of the package
            data = measured.get_data()
        steps = [(file, *arc) for file in data.measured_files() for arc in data.arcs(file) or ()]
        numbers = [self._numbers.setdefault(step, len(self._numbers)) for step in steps]
        self.steps[table, row] = np.array(numbers, dtype=np.int64)
        self.kinds[table, row] = dict(item.user_properties).get("kind", "")
        return result

    def choose(self):
        """Return the rows to leave to main, by table."""
        sums, counts = defaultdict(float), defaultdict(int)
        for (table, _), seconds in self.seconds.items():
            sums[table] += seconds
            counts[table] += 1
        groups, left = defaultdict(dict), defaultdict(set)
        for (table, row), steps in self.steps.items():
            if counts[table] >= FEWEST and sums[table] >= SHORTEST and len(steps):
                groups[table, self.kinds[table, row]][row] = self.seconds[table, row], steps
        for (table, _), rows in groups.items():
            cheap = {row for row, (seconds, _) in rows.items() if seconds < CHEAP}
            quick = {row: taken for row, taken in rows.items() if taken[0] < LONG}
            left[table] |= rows.keys() - cheap - cover(quick or rows, len(self._numbers))
        return left


def cover(rows, count):
    """Return the rows that stay for the sake of what they run.

    Args:
        rows: seconds and steps of each row, by name.
        count: of steps.
    """
    is_taken, chosen = np.zeros(count, dtype=bool), set()
    most = SHARE * len(np.unique(np.concatenate([steps for _, steps in rows.values()])))
    heap = [(-len(steps) / seconds, name) for name, (seconds, steps) in rows.items()]
    heapq.heapify(heap)
    while heap and np.count_nonzero(is_taken) < most:
        _, name = heapq.heappop(heap)
        seconds, steps = rows[name]
        new = np.count_nonzero(~is_taken[steps])
        if heap and (-new / seconds, name) > heap[0]:  # by what is taken now, another row may bring more
            if new:
                heapq.heappush(heap, (-new / seconds, name))
        elif new:
            chosen.add(name)
            is_taken[steps] = True
    return chosen


def main():
    measuring = Measuring()
    pytest.main([*sys.argv[1:], "-q", "-m", "not once"], plugins=[measuring])  # a row that fails stays
    rows = read_rows_on_main()
    for table, left in measuring.choose().items():
        rows[table] |= left
    lines = (line for table in sorted(rows) for line in (table, *(f"  {row}" for row in sorted(rows[table]))))
    FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
