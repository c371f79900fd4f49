"""How much of the machine a run may use: cores, memory, threads."""

from __future__ import annotations

import os
import re
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
