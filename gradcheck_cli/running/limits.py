"""How much of the machine a run may use (cores, memory, threads), and what its processes ask of the system.

They end with their parent, have a memory limit, and are the first to be killed when memory runs out.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

DEFAULT_TIMEOUT = 60.0  # seconds, of `--timeout`
_CGROUP = Path("/sys/fs/cgroup")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kmgt]?)(i?b)?", re.IGNORECASE)
# NumPy's libraries read the number of their threads from here, once, when they are loaded.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class Limits(NamedTuple):
    """What a case may use: seconds, if its spec doesn't say, and bytes of memory; `None` for no limit."""

    timeout: float = DEFAULT_TIMEOUT
    memory: int | None = None


def usable_cores() -> int:
    """Return how many cores this process may use, by its affinity and by its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no such file, or "max"
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        cores = min(cores, max(1, round(int(quota) / int(period))))
    return cores


def default_jobs() -> int:
    """Return the default number of processes that check cases: one for each core.

    It is 0, which means in-process, on anything but Linux: TensorFlow isn't known to survive a fork there.
    """
    return usable_cores() if sys.platform == "linux" else 0


def default_memory() -> int | None:
    """Return half of the machine's or the container's memory, in bytes; `None` if that is unknown."""
    limits = []
    with suppress(OSError, ValueError, AttributeError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):  # no such file, or "max"
        limits.append(int((_CGROUP / "memory.max").read_text()))
    return min(limits) // 2 if limits else None


def size_of(text: str) -> int | None:
    """Read `4GiB`, `4G`, `512 MB` (all in powers of 1024) or a number of bytes; `None` for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    size = float(match["number"]) * _UNITS[match["unit"].lower()]
    return int(min(size, sys.maxsize))  # no computer has more


def format_size(size: float) -> str:
    """Return a number of bytes in a readable form: `4.0 GiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 2**10:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 2**10
    return f"{size:.1f} GiB"


def hold_to_one_thread(environment: MutableMapping[str, str]) -> None:
    """Make NumPy's libraries use one thread in a process that starts with this environment.

    One process runs on each core, which leaves none for further threads. This must be done wherever cases
    run: the last digits of sums depend on the number of threads, and results must not depend on where they
    were computed.
    """
    for name in _THREADS:
        environment.setdefault(name, "1")


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
        import ctypes  # late: `--help` reads the limits' defaults

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
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
_NEVER = 2**31 - 1  # bytes


def keep_freed_memory() -> None:
    """Have this process use freed memory again, however large, instead of giving it back. glibc only.

    The system clears what it gives out, and a whole network's weights are copied for each point: that was a
    sixth of ResNet50's processor time. At most it held 5.07 GB before, 5.16 now.
    """
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_MAX, 0)
        ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, _NEVER)


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
