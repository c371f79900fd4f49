"""What work costs, not how long it takes: processor time, and counts that are the same on every machine.

Verdicts must not depend on what else the machine does. `--timeout` and `--max-time` alone are wall clock.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass


def now() -> float:
    """Return the seconds of processor time that this process has taken so far, in all of its threads.

    Call it as `clock.now()`: a test that replaces it stops all budgets, or drives them.
    """
    return time.process_time()


CHOSEN = "chosen points"  # the part of a check that is beside the sample points


@dataclass
class Work:
    """The cost of a case, in counts that are the same on every machine."""

    traces: int = 0  # how often the user's code, or a gradient of it, was traced
    calls: int = 0  # how often a traced graph was called, for one point or for many
    points: int = 0  # how many points these calls evaluated, of the forward or of a gradient


class OverWorkError(Exception):
    """A block has evaluated more points than it may."""


# For each block in which work is counted, the innermost last; and how many points it may evaluate.
_COUNTED: list[tuple[Work, float]] = []


@contextlib.contextmanager
def count_work(most_points: float = math.inf) -> Iterator[Work]:
    """Count what is done inside.

    Raises:
        OverWorkError: it evaluates too many points.
    """
    work = Work()
    _COUNTED.append((work, most_points))
    try:
        yield work
    finally:
        _COUNTED.pop()


class _Parts:
    """Splits processor time among the parts of a case's check: each moment belongs to one of them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.part, self._since = "rest", now()

    def enter(self, part: str) -> None:
        """Count for another part from now on."""
        time_now = now()
        self.seconds[self.part] = self.seconds.get(self.part, 0.0) + time_now - self._since
        self.part, self._since = part, time_now


_SPLIT: list[_Parts] = []  # for each case whose time is split, the innermost last


@contextlib.contextmanager
def split_time() -> Iterator[dict[str, float]]:
    """Measure what the parts of a check take inside, in seconds of processor time."""
    parts = _Parts()
    _SPLIT.append(parts)
    try:
        yield parts.seconds
    finally:
        parts.enter("rest")
        _SPLIT.pop()


@contextlib.contextmanager
def spend(part: str) -> Iterator[None]:
    """Count what is done inside as a part of a check, unless it belongs to points beside the samples."""
    parts = _SPLIT[-1] if _SPLIT else None
    if parts is None or parts.part == CHOSEN:
        yield
        return
    before = parts.part
    parts.enter(part)
    try:
        yield
    finally:
        parts.enter(before)


def add_work(*, traces: int = 0, calls: int = 0, points: int = 0) -> None:
    """Add to the counts.

    Raises:
        OverWorkError: that is more than a block may do.
    """
    for work, _ in _COUNTED:
        work.traces += traces
        work.calls += calls
        work.points += points
    if any(work.points > most_points for work, most_points in _COUNTED):
        raise OverWorkError
