"""The results and durations of past runs, kept in a folder that may be deleted at any time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gradcheck_cli import serial
from gradcheck_cli.plain_files import MIB, read_plain, write_text
from gradcheck_cli.results import Report
from gradcheck_cli.serial import TypeFault
from gradcheck_cli.spec.case import Case

VERSION = 1
_FILE = "history.json"
_LIMIT = 64 * MIB  # a case has some 100 bytes

Key = tuple[str, str, str]  # op, case, dtype: a case may occur once per dtype


class Past(NamedTuple):
    """How a case went when it last ran; `None` if its duration isn't known."""

    failed: bool
    duration_s: float | None


def key_of(case: Case) -> Key:
    """Return what identifies a case, in this run and the next."""
    return case.op, case.name, case.dtype


def read_history(folder: Path) -> dict[Key, Past]:
    """Return what is known about cases; nothing if there is no file, or it isn't ours."""
    try:
        content = serial.read(_History, serial.parse(read_plain(folder / _FILE, _LIMIT)))
    except (OSError, TypeFault):
        return {}
    if content.version != VERSION or any(not entry.is_possible for entry in content.cases):
        return {}
    return {
        (entry.op, entry.case, entry.dtype): Past(entry.failed, entry.duration_s) for entry in content.cases
    }


@dataclass(frozen=True)
class _CaseHistory:
    op: str
    case: str
    dtype: str
    failed: bool
    duration_s: float | None

    @property
    def is_possible(self) -> bool:
        return self.duration_s is None or 0 <= self.duration_s < math.inf


@dataclass(frozen=True)
class _History:
    version: int
    cases: tuple[_CaseHistory, ...]


def write_history(folder: Path, report: Report) -> None:
    """Add a run to the history; if the folder can't be written, nothing is recorded.

    Args:
        folder: the folder; created if necessary, with a .gitignore that covers all of it.
        report: the run; its results replace earlier ones. A shard's durations are left out: the next shard is
            computed from the history, and must use the same one as this shard.
    """
    past = read_history(folder)
    broken = {(finding.op, finding.case, finding.dtype) for finding in report.baseline if finding.is_failure}
    now: dict[Key, Past] = {}
    for case in report.cases:
        key = case.op, case.case, case.dtype
        earlier = now.get(key, Past(failed=False, duration_s=0.0))
        failed = earlier.failed or not report.is_fine(case) or key in broken
        now[key] = Past(failed, (earlier.duration_s or 0.0) + case.ran.duration_s)
    if report.shard is not None:
        now = {
            key: past_run._replace(duration_s=past[key].duration_s if key in past else None)
            for key, past_run in now.items()
        }
    history = _History(
        VERSION, tuple(_CaseHistory(*key, *past_run) for key, past_run in sorted({**past, **now}.items()))
    )
    with suppress(OSError):  # a read-only checkout has no history
        if not folder.is_dir():
            folder.mkdir(parents=True)
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        write_text(folder / _FILE, json.dumps(serial.plain(history)))


def failed_before(cases: Sequence[Case], history: Mapping[Key, Past]) -> tuple[Case, ...]:
    """Return the cases that failed when they last ran."""
    return tuple(case for case in cases if (past := history.get(key_of(case))) is not None and past.failed)
