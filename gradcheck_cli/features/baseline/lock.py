"""The lock file: one line of JSON per pair, sorted, so that its diff can be reviewed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import relpath
from pathlib import Path
from typing import Any, ClassVar

from gradcheck_cli import serial
from gradcheck_cli.errors import UsageError
from gradcheck_cli.features.baseline.compare import Key, LockedPair, is_same
from gradcheck_cli.gate import Fingerprint, Projection, Tolerance
from gradcheck_cli.plain_files import MIB, read_plain
from gradcheck_cli.results import GREEN, Status
from gradcheck_cli.serial import TypeFault

Object = dict[str, Any]

VERSION = 1
HEADER = json.dumps({"gradcheck_baseline": VERSION})
_SHOWN = 10  # faults of one file
_LIMIT = 256 * MIB  # a line has some 500 bytes
_CONFLICT = ("<<<<<<< ", "||||||| ", ">>>>>>> ", "=======")


@dataclass(frozen=True)
class Update:
    """How many pairs writing a lock file added, changed, removed, kept, or left out as not right."""

    new: int
    changed: int
    removed: int
    kept: int
    left_out: int

    def __str__(self) -> str:
        counts = (
            (self.new, "new"),
            (self.changed, "changed"),
            (self.removed, "removed"),
            (self.kept, "as they were"),
            (self.left_out, "not right, so not taken up"),
        )
        return ", ".join(f"{amount} {what}" for amount, what in counts if amount) or "no pairs"


def read_lock(file: Path) -> dict[Key, LockedPair]:
    """Read a lock file; its specs are named relative to the working directory.

    Raises:
        UsageError: it can't be read, or has faults, of which the first ten are listed.
    """
    try:
        text = read_plain(file, _LIMIT).decode("utf-8")
    except OSError as error:
        hint = " Write it with --update-baseline." if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{file}: can't be read: {error.strerror or error}.{hint}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: isn't UTF-8: {error}") from error
    # Not splitlines: a name may contain what Unicode calls a line's end.
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    _require_merged(file, lines)
    if lines[0] != HEADER:
        raise UsageError(f"{file}:1: must be {HEADER}: is this a baseline, and of this gradcheck?")
    entries: dict[Key, LockedPair] = {}
    faults = []
    for line_number, line in enumerate(lines[1:], start=2):
        try:
            entry = _read_line(serial.parse(line), file.parent)
        except ValueError as error:
            faults.append(f"{file}:{line_number}: isn't a pair's line: {line[:40]!r} ({error})")
            continue
        if entry.key in entries:
            faults.append(
                f"{file}:{line_number}: {entry.op}, case {entry.case}, {entry.dtype}, {entry.pair} is there "
                "twice, as after a merge of two branches that changed it: delete one of the lines, and run "
                "--update-baseline"
            )
        entries[entry.key] = entry
    if faults:
        faults[_SHOWN:] = [f"... and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        raise UsageError("\n".join(faults))
    return entries


def update_pairs(
    old: Mapping[Key, LockedPair], new: Mapping[Key, LockedPair], *, is_gone: Callable[[LockedPair], bool]
) -> tuple[dict[Key, LockedPair], Update]:
    """Return the new content of a lock file after a run, and what changes.

    The line of a pair that hasn't changed stays the same to the last digit, so that a diff shows only
    changes. A pair that isn't right isn't added; its old line stays.

    Args:
        is_gone: whether a pair that isn't in the run is removed.
    """
    right = {key: entry for key, entry in new.items() if entry.status in GREEN}
    remaining = {key: entry for key, entry in old.items() if key in new or not is_gone(entry)}
    result = dict(remaining)
    changed = 0
    for key, entry in right.items():
        if key in old and is_same(old[key], entry):
            continue
        result[key] = entry
        changed += key in old
    added = len(right.keys() - old.keys())
    update = Update(
        new=added,
        changed=changed,
        removed=len(old) - len(remaining),
        kept=len(result) - added - changed,
        left_out=len(new) - len(right),
    )
    return result, update


def lock_text(entries: Mapping[Key, LockedPair], folder: Path) -> str:
    """Return a lock file's text, in which specs are named relative to its folder."""
    lines = [_write_line(entries[key], folder) for key in sorted(entries)]
    return "".join(f"{line}\n" for line in [HEADER, *lines])


def _write_line(entry: LockedPair, folder: Path) -> str:
    content: Object = {
        "op": entry.op,
        "case": entry.case,
        "dtype": entry.dtype,
        "mode": entry.mode,
        "pair": entry.pair,
        "spec": Path(relpath(entry.spec, folder)).as_posix(),
        "status": str(entry.status),
        "connected": entry.connected,
        "samples": entry.samples,
        "checks_off": list(entry.checks_off),
        "error": _format_size(entry.error),
        "noise": _format_size(entry.noise),
        "allowed": _format_size(entry.allowed),
    }
    if entry.sides is not None:
        content["sides"] = list(entry.sides)
    if entry.tolerance is not None:
        tolerance = entry.tolerance
        # Not rounded: the next run would take a rounded tolerance as a loosened one.
        content |= {"rtol": tolerance.rtol, "scaled": tolerance.scaled, "atol": tolerance.atol}
    if entry.fingerprint is not None:
        content["analytic"] = [_format_projection(projection) for projection in entry.fingerprint.analytic]
        content["forward"] = [_format_projection(projection) for projection in entry.fingerprint.forward]
    return json.dumps(content, ensure_ascii=False)


def _format_size(value: float) -> str:
    return f"{value:.2e}"


def _format_projection(projection: Projection) -> str:
    return f"{projection.value:.8e} ± {projection.slack:.0e}"


def _require_merged(file: Path, lines: Sequence[str]) -> None:
    """Refuse a file with git's conflict markers, and say how to resolve the conflict."""
    for line_number, line in enumerate(lines, start=1):
        if line.startswith(_CONFLICT):
            raise UsageError(
                f"{file}:{line_number}: holds git's marks of a conflict. Keep the lines of both sides (where "
                "both have a pair, one of the two), delete the marks, and run --update-baseline. The line "
                f"'{file.name} merge=union' in .gitattributes has git do so from then on."
            )


def _read_line(content: object, folder: Path) -> LockedPair:
    """Read a line's content.

    Raises:
        ValueError: it isn't a pair's line.
    """
    if not isinstance(content, dict):
        raise TypeFault("it must be a mapping")
    line = serial.read(_Line, {**_Line.OPTIONAL, **content})
    entry = LockedPair(
        op=line.op,
        case=line.case,
        dtype=line.dtype,
        mode=line.mode,
        pair=line.pair,
        spec=Path(relpath(folder / line.spec)).as_posix(),
        status=line.status,
        connected=line.connected,
        error=_parse_size(line.error),
        noise=_parse_size(line.noise),
        allowed=_parse_size(line.allowed),
        checks_off=line.checks_off,
        samples=line.samples,
        sides=line.sides,
    )
    if line.rtol is not None and line.scaled is not None:
        entry = replace(entry, tolerance=Tolerance(line.rtol, line.scaled, line.atol))
    if line.analytic is not None and line.forward is not None:
        entry = replace(
            entry,
            fingerprint=Fingerprint(_parse_projections(line.analytic), _parse_projections(line.forward)),
        )
    return entry


@dataclass(frozen=True)
class _Line:
    """A line as it is written; a missing part of a pair is `None`."""

    op: str
    case: str
    dtype: str
    mode: str
    pair: str
    spec: str
    status: Status
    connected: bool
    samples: int
    checks_off: tuple[str, ...]
    error: str
    noise: str
    allowed: str
    rtol: float | None
    scaled: float | None
    atol: float | None
    analytic: tuple[str, ...] | None
    forward: tuple[str, ...] | None
    sides: tuple[int, int] | None
    OPTIONAL: ClassVar[dict[str, None]] = dict.fromkeys(
        ("rtol", "scaled", "atol", "analytic", "forward", "sides")
    )


def _parse_size(value: str) -> float:
    parsed = float(value)
    if math.isnan(parsed) or parsed < 0:
        raise ValueError(f"{value!r} is no size")
    return parsed


def _parse_projections(values: Sequence[str]) -> tuple[Projection, ...]:
    parts = [value.split(" ± ") for value in values]
    return tuple(Projection(float(value), float(slack)) for value, slack in parts)
