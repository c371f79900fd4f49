"""What a process requests from the system: to end with its parent, a memory limit, an early OOM kill."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Makes a process write its stacks (faulthandler); hardly any other program uses this signal.
DUMP_SIGNAL = signal.SIGXCPU
_OOM_SCORE = "500"  # of 1000: half of the memory in addition to what the process really uses


def end_with_parent(*, signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel kill this process when its parent dies; signal 0 undoes that. Linux only."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies. Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def prefer_as_oom_victim() -> None:
    """Prefer this process as the kernel's victim when memory runs out, not the run or another program."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def limit_memory(size: int | None) -> None:
    """Let allocations fail beyond `size` bytes of a process's own memory: heap, stacks, private mappings.

    Mapped files and libraries don't count, and neither does reserved address space, of which CUDA and XLA
    take far more than they use.
    """
    if size is None or sys.platform != "linux":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    size = size if most == resource.RLIM_INFINITY else min(size, most)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (size, most))


def flush_c() -> None:
    """Write out what C code has printed but still holds in its buffers."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def times_memory_ran_out() -> int:
    """Return how often the kernel has killed a process for lack of memory since it started; 0 if unknown."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


class Times(NamedTuple):
    """What a process has done so far, in seconds, summed over its threads."""

    ran: float = 0.0  # how long it ran
    waited: float = 0.0  # how long it could have run, but other processes had the processors

    def own_seconds(self, since: Times, passed: float) -> float:
        """Return how many of the seconds that have passed since then were its own: it ran, or it slept.

        The others it spent waiting for a processor. Threads may wait at the same time, so that the sum of
        their waiting exceeds it: what it ran is its own in any case.
        """
        ran, waited = self.ran - since.ran, self.waited - since.waited
        return max(passed - waited, min(passed, ran))


def times_of(pid: int) -> Times:
    """Return what a process has done so far; zeros where the system doesn't tell. Linux only."""
    ran = waited = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # the thread has ended
            own_ran, own_waited, _ = map(int, file.read_text().split())
            ran, waited = ran + own_ran, waited + own_waited
    return Times(ran * 1e-9, waited * 1e-9)


def kill_group(leader: int) -> None:
    """Kill a process and the whole group that it leads."""
    for kill in (os.killpg, os.kill):  # both: a process that was just forked leads no group yet
        with suppress(ProcessLookupError, PermissionError):
            kill(leader, signal.SIGKILL)


def children() -> list[int]:
    """Return this process's children, adopted ones too; none where the system doesn't tell. Linux only."""
    pids: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            pids += map(int, file.read_text().split())
    return pids
