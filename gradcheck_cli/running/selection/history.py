"""What past runs found and how long they took, kept in a folder that can be deleted at any time."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gradcheck_cli.results import Report
    from gradcheck_cli.spec.case import Case

VERSION = 1
_FILE = "history.json"

Key = tuple[str, str, str]  # op, case, dtype: a case may be there once per dtype


class Past(NamedTuple):
    """How a case went when it last ran; `None` where its duration isn't known."""

    failed: bool
    duration_s: float | None


def key_of(case: Case) -> Key:
    """Return what names a case, in this run and the next."""
    return case.op, case.name, case.dtype


def read_history(folder: Path) -> dict[Key, Past]:
    """Return what is known of cases; nothing where the file isn't there, or isn't ours."""
    try:
        content = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            return {}
        return {
            (str(one["op"]), str(one["case"]), str(one["dtype"])): Past(
                bool(one["failed"]), None if one["duration_s"] is None else float(one["duration_s"])
            )
            for one in content["cases"]
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def write_history(folder: Path, report: Report) -> None:
    """Add a run to what is known; where the folder can't be written, nothing is remembered.

    Args:
        folder: made if need be, with a .gitignore that covers all of it.
        report: the run; what it says of a case replaces what was known. A shard's durations are left out:
            the next shard is cut by what is known, and must be cut from the same as this one was.
    """
    past = read_history(folder)
    broken = {(finding.op, finding.case, finding.dtype) for finding in report.baseline if finding.is_failure}
    now: dict[Key, Past] = {}
    for case in report.cases:
        key = case.op, case.case, case.dtype
        earlier = now.get(key, Past(failed=False, duration_s=0.0))
        failed = earlier.failed or not report.is_fine(case) or key in broken
        now[key] = Past(failed, (earlier.duration_s or 0.0) + case.duration_s)
    if report.shard is not None:
        now = {
            key: one._replace(duration_s=past[key].duration_s if key in past else None)
            for key, one in now.items()
        }
    content = {
        "version": VERSION,
        "cases": [
            {"op": op, "case": case, "dtype": dtype, "failed": one.failed, "duration_s": one.duration_s}
            for (op, case, dtype), one in sorted({**past, **now}.items())
        ],
    }
    with suppress(OSError):  # a read-only checkout has no past
        if not folder.is_dir():
            folder.mkdir(parents=True)
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        temporary = folder / f"{_FILE}.{os.getpid()}"
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(folder / _FILE)


def failed_before(cases: Sequence[Case], history: Mapping[Key, Past]) -> tuple[Case, ...]:
    """Return the cases that failed when they last ran."""
    return tuple(case for case in cases if (past := history.get(key_of(case))) is not None and past.failed)
