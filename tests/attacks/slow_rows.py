"""The rows that take longest, which only main runs: which they are, and how they were measured.

`python tests/attacks/slow_rows.py [TABLE...]` writes those that take at least `LEAST` seconds of processor
time, as lines of slow_rows.txt.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

LEAST = 0.8  # seconds; of a random sample, 6 % of the rows, with 43 % of the time
FILE = Path(__file__).with_name("slow_rows.txt")


def read_slow_rows():
    """Return the names of the rows that are only run on main."""
    return {line.split("\t")[1] for line in FILE.read_text(encoding="utf-8").splitlines()}


def measure(tables):
    """Write the slow rows of these tables, or of all."""
    sys.path.insert(0, str(Path(__file__).parent))
    from test_attacks import ROWS

    for name in [name for name in ROWS if not tables or name.partition("-")[0] in tables]:
        began = time.process_time()
        ROWS[name].report()
        seconds = time.process_time() - began
        if seconds >= LEAST:
            sys.stdout.write(f"{seconds:.1f}\t{name}\n")


if __name__ == "__main__":
    measure(sys.argv[1:])
