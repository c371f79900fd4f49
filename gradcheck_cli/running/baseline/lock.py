"""The lock file: one line of JSON per pair, sorted, so that its diff can be reviewed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradcheck_cli.errors import UsageError
from gradcheck_cli.gate import Fingerprint, Projection, Tolerance
from gradcheck_cli.results import Status
from gradcheck_cli.running.baseline.compare import is_same
from gradcheck_cli.running.baseline.entry import GREEN, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.running.baseline.entry import Key

    Object = dict[str, Any]

VERSION = 1
HEADER = json.dumps({"gradcheck_baseline": VERSION})
_SHOWN = 10  # faults of one file


@dataclass(frozen=True)
class Update:
    """What writing a lock file did: how many pairs are new, changed, removed, as they were, or not right."""

    new: int
    changed: int
    removed: int
    kept: int
    left_out: int

    def __str__(self) -> str:
        """Say it in one line."""
        counts = (
            (self.new, "new"),
            (self.changed, "changed"),
            (self.removed, "removed"),
            (self.kept, "as they were"),
            (self.left_out, "not right, so not taken up"),
        )
        return ", ".join(f"{number} {what}" for number, what in counts if number) or "no pairs"


def read_lock(file: Path) -> dict[Key, Entry]:
    """Read a lock file; specs are named from the working directory.

    Raises:
        UsageError: it can't be read, or has faults: the first ten.
    """
    try:
        # Not splitlines: a name may hold what Unicode calls a line's end.
        lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except OSError as error:
        hint = " Write it with --update-baseline." if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{file}: can't be read: {error.strerror or error}.{hint}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: isn't UTF-8: {error}") from error
    if lines[0] != HEADER:
        raise UsageError(f"{file}:1: must be {HEADER}: is this a baseline, and of this gradcheck?")
    found: dict[Key, Entry] = {}
    faults = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            entry = _read(json.loads(line), file.parent)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            faults.append(f"{file}:{number}: isn't a pair's line: {line[:40]!r} ({error})")
            continue
        if entry.key in found:
            faults.append(
                f"{file}:{number}: {entry.op}, case {entry.case}, {entry.dtype}, {entry.pair} is there twice"
            )
        found[entry.key] = entry
    if faults:
        faults[_SHOWN:] = [f"... and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        raise UsageError("\n".join(faults))
    return found


def updated(
    old: Mapping[Key, Entry], new: Mapping[Key, Entry], *, is_gone: Callable[[Entry], bool]
) -> tuple[dict[Key, Entry], Update]:
    """Return what a lock file is to hold after a run, and what that changes.

    A line whose pair hasn't changed stays as it is to the last digit, so that a diff shows changes alone.
    A pair that isn't right isn't taken up; what is remembered of it stays.

    Args:
        old: what it holds.
        new: what the run found.
        is_gone: whether a pair that the run hasn't got is to be forgotten.
    """
    right = {key: entry for key, entry in new.items() if entry.status in GREEN}
    kept = {key: entry for key, entry in old.items() if key in new or not is_gone(entry)}
    result = dict(kept)
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
        removed=len(old) - len(kept),
        kept=len(result) - added - changed,
        left_out=len(new) - len(right),
    )
    return result, update


def lock_text(entries: Mapping[Key, Entry], folder: Path) -> str:
    """Return a lock file's text.

    Args:
        entries: what it shall hold.
        folder: where it lies: specs are named from there.
    """
    lines = [_line(entries[key], folder) for key in sorted(entries)]
    return "".join(f"{line}\n" for line in [HEADER, *lines])


def _line(entry: Entry, folder: Path) -> str:
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
        "error": _short(entry.error),
        "noise": _short(entry.noise),
        "allowed": _short(entry.allowed),
    }
    if entry.tolerance is not None:
        tolerance = entry.tolerance
        # As they are: a rounded one would read as loosened by the next run.
        content |= {"rtol": tolerance.rtol, "scaled": tolerance.scaled, "atol": tolerance.atol}
    if entry.fingerprint is not None:
        content["analytic"] = [_projection(one) for one in entry.fingerprint.analytic]
        content["forward"] = [_projection(one) for one in entry.fingerprint.forward]
    return json.dumps(content, ensure_ascii=False)


def _short(value: float) -> str:
    return f"{value:.2e}"


def _projection(projection: Projection) -> str:
    return f"{projection.value:.8e} ± {projection.slack:.0e}"


def _read(content: Object, folder: Path) -> Entry:
    status = Status(content["status"])
    entry = Entry(
        op=_text(content["op"]),
        case=_text(content["case"]),
        dtype=_text(content["dtype"]),
        mode=_text(content["mode"]),
        pair=_text(content["pair"]),
        spec=Path(relpath(folder / _text(content["spec"]))).as_posix(),
        status=status,
        connected=content["connected"] is True,
        error=_number(content["error"]),
        noise=_number(content["noise"]),
        allowed=_number(content["allowed"]),
        checks_off=tuple(_text(name) for name in content["checks_off"]),
        samples=int(content["samples"]),
    )
    if "rtol" in content:
        rtol, scaled, atol = (content[name] for name in ("rtol", "scaled", "atol"))
        tolerance = Tolerance(float(rtol), float(scaled), None if atol is None else float(atol))
        entry = replace(entry, tolerance=tolerance)
    if "analytic" in content:
        fingerprint = Fingerprint(_projections(content["analytic"]), _projections(content["forward"]))
        entry = replace(entry, fingerprint=fingerprint)
    return entry


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> float:
    number = float(_text(value))
    if math.isnan(number) or number < 0:
        raise ValueError(f"{value!r} is no size")
    return number


def _projections(values: Sequence[object]) -> tuple[Projection, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is no list")
    parts = [_text(value).split(" ± ") for value in values]
    return tuple(Projection(float(value), float(slack)) for value, slack in parts)
