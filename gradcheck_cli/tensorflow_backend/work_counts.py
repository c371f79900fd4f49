"""Counts a case's machine-independent costs: traces, calls of traced functions, and evaluated points."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gradcheck_cli.results import Work

# For each case that is being checked, the innermost last.
_COUNTED: list[Work] = []


@contextlib.contextmanager
def count_work() -> Iterator[Work]:
    """Count what is done inside."""
    work = Work()
    _COUNTED.append(work)
    try:
        yield work
    finally:
        _COUNTED.pop()


def add(*, traces: int = 0, batch_traces: int = 0, calls: int = 0, points: int = 0) -> None:
    """Add to the counts."""
    for work in _COUNTED:
        work.traces += traces
        work.batch_traces += batch_traces
        work.calls += calls
        work.points += points
