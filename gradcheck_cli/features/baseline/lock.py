"""The lock file: what each pair was like when it was last accepted, and what has changed since.

It has one line of JSON per pair, sorted, so that its diff can be reviewed. A pair that is missing in a run
was deleted, not selected, or never requested: `expected_in` tells these apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import relpath
from pathlib import Path
from typing import Any, TypeVar

from gradcheck_cli import serial
from gradcheck_cli.errors import UsageError
from gradcheck_cli.gate import (
    BaselineFinding,
    Change,
    Fingerprint,
    Projection,
    Tolerance,
    side_counts,
    tell_apart,
)
from gradcheck_cli.plain_files import MIB, read_plain
from gradcheck_cli.results import (
    FAILING,
    GREEN,
    UNDECIDED,
    CaseResult,
    CheckResult,
    PairResult,
    Report,
    Status,
    case_status,
)

Object = dict[str, Any]
Key = tuple[str, str, str, str, str]  # op, case, dtype, mode, pair


@dataclass(frozen=True)
class Extent:
    """How much of its case was checked."""

    checks_off: tuple[str, ...] = ()  # structural checks that the spec turns off
    samples: int = 0  # points at which it is checked
    # how many sides of branches the case has seen, and how many there are; `None` for none
    sides: tuple[int, int] | None = None


@dataclass(frozen=True)
class LockedPair:
    """One pair of a lock file; a check or a case that fails has a line, too, and no numbers."""

    op: str
    case: str
    dtype: str  # the case's dtype; a case may occur with several
    mode: str  # graph, eager, ...
    pair: str  # the pair's label; "check NAME", or "case"
    spec: str
    status: Status
    connected: bool  # whether its gradient is a tensor
    error: float  # of the worst element, absolute
    noise: float  # the bound on the numeric value's own error there
    allowed: float  # the tolerance there
    tolerance: Tolerance | None = None  # the rule behind `allowed`
    fingerprint: Fingerprint | None = None  # projections of gradient and forward
    extent: Extent = Extent()
    fault: str = ""  # what is wrong with it, in a word; empty for what is right
    since: str = ""  # the day on which the fault was recorded as known; empty for what isn't known
    reason: str = ""  # why it is left as it is, as somebody wrote it
    full_op: str = ""  # as that of a `CaseResult`; a line has the op's name and its file

    @property
    def file(self) -> str:
        """The file of its spec."""
        return self.spec

    @property
    def is_beside_pairs(self) -> bool:
        """Whether it is of a check or a case that fails."""
        return self.pair == _WHOLE or self.pair.startswith("check ")

    @property
    def key(self) -> Key:
        """What identifies the pair; its file does only where two have the op, so that specs can be moved."""
        return self.full_op or self.op, self.case, self.dtype, self.mode, self.pair


_NOT_RIGHT = FAILING | UNDECIDED | {Status.KNOWN}
_WHOLE = "case"  # in the place of a pair's label: the whole case


def by_key(entries: Iterable[LockedPair]) -> dict[Key, LockedPair]:
    """Return pairs by their keys."""
    return {entry.key: entry for entry in entries}


def entries_of(cases: Iterable[CaseResult]) -> dict[Key, LockedPair]:
    """Return the pairs of a run, and its checks and cases that failed, by their keys."""
    return by_key(entry for case in cases for entry in _entries(case))


def _entries(case: CaseResult) -> Iterator[LockedPair]:
    yield from (_entry(case, pair) for pair in case.pairs)
    failed = [(f"check {check.name}", check.status, check.name) for check in case.checks]
    if case.error is not None:
        failed.append((_WHOLE, Status.ERROR, case.error.kind))
    for name, status, fault in failed:
        if status in _NOT_RIGHT:
            name = _WHOLE if fault == _WHOLE else name  # noqa: PLW2901 (a known error is a check of this name)
            where = case.op, case.case, case.dtype, case.mode, name, case.file
            yield LockedPair(*where, status, True, 0.0, 0.0, 0.0, fault=fault, full_op=case.full_op)  # noqa: FBT003 (as a pair's)


Named = TypeVar("Named", LockedPair, CaseResult)


def as_in_run(old: Iterable[Named], cases: Iterable[CaseResult], paths: Iterable[str]) -> list[Named]:
    """Return what a baseline holds, with its ops named as in a run of these cases, and of specs at `paths`.

    An op that the run has from another file has moved, unless the baseline has its name from several files,
    the run does, or its old file is still there and wasn't read.
    """
    entries = list(old)
    several = tell_apart((entry.op, entry.file) for entry in entries)
    homes: dict[str, dict[str, str]] = {}
    for case in cases:
        homes.setdefault(case.op, {})[relpath(case.file)] = case.full_op
    folders = [Path(path).resolve() for path in paths]

    def name(op: str, file: str) -> str:
        home = homes.get(op, {})
        if relpath(file) in home:
            return home[relpath(file)]
        is_unread = Path(file).exists() and not _is_below(file, folders)
        return f"{file}::{op}" if home and (any(home.values()) or is_unread) else several[op, file]

    names = {place: name(*place) for place in several}
    return [replace(entry, full_op=names[entry.op, entry.file]) for entry in entries]


def held_in(
    entries: Iterable[LockedPair], cases: Iterable[CaseResult], paths: Iterable[str]
) -> dict[Key, LockedPair]:
    """Return what a baseline holds by its keys in a run; see `as_in_run`."""
    return by_key(as_in_run(entries, cases, paths))


def _is_below(file: str, folders: Iterable[Path]) -> bool:
    path = Path(file).resolve()
    return any(folder in (path, *path.parents) for folder in folders)


def mark_known(case: CaseResult, old: Mapping[Key, LockedPair]) -> CaseResult:
    """Return a case in which what is wrong as the baseline holds it is `known`.

    The fault must be of the same kind, and its error no larger than ten times what it was.
    """
    known_labels = {
        entry.pair for entry in _entries(case) if entry.key in old and is_same_fault(old[entry.key], entry)
    }
    if not known_labels:
        return case
    pairs = tuple(
        replace(pair, status=Status.KNOWN) if pair.label in known_labels else pair for pair in case.pairs
    )
    checks = tuple(
        replace(check, status=Status.KNOWN) if f"check {check.name}" in known_labels else check
        for check in case.checks
    )
    if case.error is not None and _WHOLE in known_labels:
        error = CheckResult(_WHOLE, Status.KNOWN, f"{case.error.kind}: {case.error.message}")
        return replace(case, error=None, checks=(*checks, error), status=Status.KNOWN)
    return replace(case, pairs=pairs, checks=checks, status=case_status(pairs, checks))


def _entry(case: CaseResult, pair: PairResult) -> LockedPair:
    numbers, branches = pair.numbers, case.seen.branches
    return LockedPair(
        *(case.op, case.case, case.dtype, case.mode, pair.label, case.file, pair.status, pair.connected),
        error=_error(pair),
        noise=numbers.uncertainty,
        allowed=numbers.allowed,
        tolerance=numbers.tolerance,
        fingerprint=pair.fingerprint,
        extent=Extent(case.how.checks_off, case.how.samples, side_counts(branches) if branches else None),
        fault="" if pair.status in GREEN else pair.mismatch or pair.undecided or str(pair.status),
        full_op=case.full_op,
    )


def _error(pair: PairResult) -> float:
    """Return the error of the same element as `noise`; `max_abs_error` may belong to another one."""
    worst = pair.numbers.worst
    if worst is None:
        return pair.numbers.max_abs_error
    error = 0.0 if worst.analytic == worst.numeric else abs(worst.analytic - worst.numeric)
    return math.inf if math.isnan(error) else error


# The file.

VERSION = 1
HEADER = json.dumps({"gradcheck_baseline": VERSION})
_SHOWN = 10  # faults of one file
_LIMIT = 256 * MIB  # a line has some 500 bytes
_SIZES = ("error", "noise", "allowed")  # what is written with three digits
_CONFLICT = ("<<<<<<< ", "||||||| ", ">>>>>>> ", "=======")


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
    for line_number, line in enumerate(lines, start=1):
        if line.startswith(_CONFLICT):
            raise UsageError(
                f"{file}:{line_number}: holds git's marks of a conflict. Keep the lines of both sides (where "
                "both have a pair, one of the two), delete the marks, and run --update-baseline. The line "
                f"'{file.name} merge=union' in .gitattributes has git do so from then on."
            )
    if lines[0] != HEADER:
        raise UsageError(f"{file}:1: must be {HEADER}: is this a baseline, and of this gradcheck?")
    entries: list[LockedPair] = []
    places: set[tuple[str, ...]] = set()
    faults = []
    for line_number, line in enumerate(lines[1:], start=2):
        try:
            entry = serial.read(LockedPair, serial.parse(line), layouts=_LINES)
            entry = replace(entry, spec=Path(relpath(file.parent / entry.spec)).as_posix())
        except ValueError as error:
            faults.append(f"{file}:{line_number}: isn't a pair's line: {line[:40]!r} ({error})")
            continue
        if (place := (*entry.key, entry.spec)) in places:
            faults.append(
                f"{file}:{line_number}: {entry.op}, case {entry.case}, {entry.dtype}, {entry.pair} is there "
                "twice, as after a merge of two branches that changed it: delete one of the lines, and run "
                "--update-baseline"
            )
        places.add(place)
        entries.append(entry)
    if faults:
        faults[_SHOWN:] = [f"... and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        raise UsageError("\n".join(faults))
    return held_in(entries, (), ())


def _unfold(content: Object, _place: str) -> Object:
    """Return a line's content as a pair's: numbers in place of their texts, and what belongs together."""
    sizes = {}
    for name in _SIZES:
        text = serial.read(str, content.get(name), name)
        if not float(text) >= 0:
            raise ValueError(f"{text!r} is no size")
        sizes[name] = serial.plain(float(text))
    tolerance = fingerprint = None
    if content.get("rtol") is not None:
        tolerance = {name: content.get(name) for name in ("rtol", "scaled", "atol")}
    if content.get("analytic") is not None:
        fingerprint = {}
        for name in ("analytic", "forward"):
            texts = serial.read(tuple[str, ...], content.get(name), name)
            numbers = [[serial.plain(float(part)) for part in text.split(" ± ")] for text in texts]
            fingerprint[name] = [dict(zip(("value", "slack"), parts, strict=True)) for parts in numbers]
    no_fault = {"fault": "", "since": "", "reason": "", "full_op": ""}
    return {"sides": None, **no_fault, **content, **sizes, "tolerance": tolerance, "fingerprint": fingerprint}


_LINES: serial.Layouts = {LockedPair: serial.Layout(inline=frozenset({"extent"}), unfold=_unfold)}


def lock_text(entries: Mapping[Key, LockedPair], folder: Path) -> str:
    """Return a lock file's text, in which specs are named relative to its folder."""
    order = sorted(entries.values(), key=lambda entry: (entry.op, entry.key[1:], entry.spec))
    lines = [_write_line(entry, folder) for entry in order]
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
        "samples": entry.extent.samples,
        "checks_off": list(entry.extent.checks_off),
        **{name: f"{getattr(entry, name):.2e}" for name in _SIZES},
    }
    if entry.extent.sides is not None:
        content["sides"] = list(entry.extent.sides)
    if entry.tolerance is not None:
        tolerance = entry.tolerance
        # Not rounded: the next run would take a rounded tolerance as a loosened one.
        content |= {"rtol": tolerance.rtol, "scaled": tolerance.scaled, "atol": tolerance.atol}
    if entry.since:
        content |= {"fault": entry.fault, "since": entry.since, "reason": entry.reason}
    if entry.fingerprint is not None:
        content["analytic"] = [_format_projection(projection) for projection in entry.fingerprint.analytic]
        content["forward"] = [_format_projection(projection) for projection in entry.fingerprint.forward]
    return json.dumps(content, ensure_ascii=False)


def _format_projection(projection: Projection) -> str:
    return f"{projection.value:.8e} ± {projection.slack:.0e}"


def update_pairs(
    old: Mapping[Key, LockedPair],
    new: Mapping[Key, LockedPair],
    *,
    is_gone: Callable[[LockedPair], bool],
    day: str = "",
) -> tuple[dict[Key, LockedPair], str]:
    """Return the new content of a lock file after a run, and how many pairs were added, changed and so on.

    The line of a pair that hasn't changed stays the same to the last digit, so that a diff shows only
    changes. A pair that isn't right isn't added; its old line stays.

    Args:
        is_gone: whether a pair that isn't in the run is removed.
        day: the day since which what isn't right is recorded as known; empty if it isn't recorded. A fault
            that is known stays as it was recorded.
    """
    right = {key: entry for key, entry in new.items() if entry.status in GREEN}
    if day:
        right |= {
            key: replace(entry, since=day)
            for key, entry in new.items()
            if entry.status in FAILING | UNDECIDED and not (key in old and is_same_fault(old[key], entry))
        }
    remaining = {key: entry for key, entry in old.items() if key in new or not is_gone(entry)}
    changed = {key: entry for key, entry in right.items() if key in old and not is_same(old[key], entry)}
    added = {key: entry for key, entry in right.items() if key not in old}
    known_count = sum(bool(entry.since) for entry in (added | changed).values())
    result = remaining | changed | added
    counts = (
        (len(added), "new"),
        (len(changed), "changed"),
        (known_count, "of them known faults: write the reason of each into its line"),
        (len(old) - len(remaining), "removed"),
        (len(result) - len(added) - len(changed), "as they were"),
        (
            sum(key not in right and not (key in old and old[key].since) for key in new),
            "not right, so not recorded (--accept records them as known)",
        ),
    )
    return result, ", ".join(f"{amount} {what}" for amount, what in counts if amount) or "no pairs"


# What has changed.

# An error has drifted if it is this many times larger than it was, and than its own random movements: the
# numeric value's uncertainty, and rounding in another order. Rounding is taken as 10^-4 of the tolerance: a
# tolerance of 1e-6 then shows a drift beyond 1e-9, which is more than any refactoring of float64 code causes.
GROWTH = 10.0
_ROUNDING = 1e-4
# A tolerance is computed from the spec's numbers and from data: equal ones may differ by rounding.
_SAME = 1e-6
_ROUNDED = 1.01  # the baseline keeps three digits
# For two rules that can't be compared, because one has an absolute tolerance and the other a scaled one: the
# allowed error depends on which element is the worst, so only a larger change counts.
_LOOSER = 10.0


def compare(
    old: Mapping[Key, LockedPair],
    new: Mapping[Key, LockedPair],
    *,
    is_expected: Callable[[LockedPair], bool] = lambda _: True,
    was_expected: Callable[[LockedPair], bool] | None = None,
) -> tuple[BaselineFinding, ...]:
    """Compare a run with a baseline, or with another run.

    Args:
        is_expected: whether a pair of the baseline that isn't in the run should be in it.
        was_expected: between two runs, whether what isn't in the earlier one could have been in it. What
            fails now, or is right again, is reported then, too; with a baseline, the run says it by itself.
    """
    breaks = was_expected is not None
    findings: list[BaselineFinding] = []
    reported: set[Key] = set()  # a finding about a whole case is reported with the first of its pairs
    for key, pair in old.items():
        if pair.since:
            findings += _find_change_of_known(pair, new.get(key), is_expected)
        elif key in new:
            case = (*key[:-1], "")
            if case not in reported and (less := _describe_less(pair.extent, new[key].extent)):
                reported.add(case)
                findings.append(_finding(new[key], Change.WEAKENED, less))
            changes = _find_changes(pair, new[key], breaks=breaks)
            findings += [_finding(new[key], change, message) for change, message in changes]
        elif is_expected(pair) and pair.is_beside_pairs:
            findings.append(_finding(pair, Change.MENDED, f"was {pair.status}, and no longer is"))
        elif is_expected(pair):
            findings.append(_finding(pair, Change.VANISHED, f"was checked in {pair.spec}, and no longer is"))
    for key, pair in new.items():
        if key in old or not (was_expected(pair) if was_expected else not pair.is_beside_pairs):
            continue
        if pair.is_beside_pairs:
            message = f"didn't fail, and is {pair.status} now ({pair.fault})"
            findings.append(_finding(pair, Change.BROKE, message))
        else:
            findings.append(_finding(pair, Change.NEW, "isn't in the baseline yet"))
    return tuple(sorted(findings))


def _find_change_of_known(
    old: LockedPair, now: LockedPair | None, is_expected: Callable[[LockedPair], bool]
) -> Iterator[BaselineFinding]:
    """Yield that a known fault is still there, or isn't any more; what is worse, the run says by itself."""
    since = f"since {old.since}: {old.reason or 'no reason is written down yet'}"
    if now is None:
        if is_expected(old):
            yield _finding(old, Change.MENDED, f"it is gone, and was known {since}")
    elif now.status is Status.KNOWN:
        yield _finding(now, Change.KNOWN, since)
    elif now.status in GREEN:
        yield _finding(now, Change.MENDED, f"it is right, and was known {since}")


def is_same_fault(old: LockedPair, now: LockedPair) -> bool:
    """Whether a fault is the one that a baseline holds as known."""
    is_alike = bool(old.since) and (old.status, old.fault) == (now.status, now.fault)
    return is_alike and now.error <= GROWTH * max(old.error, old.noise)


def is_same(old: LockedPair, new: LockedPair) -> bool:
    """Whether a baseline may stay as it is: errors may move within their noise."""
    same_error = new.error <= _drift_limit(old, new) and old.error <= _drift_limit(new, old)
    tolerances = (old.tolerance, new.tolerance)
    return (
        same_error
        and not list(_find_changes(old, new, breaks=False))
        and not _describe_loosening(new, old)
        and (old.extent, old.status, old.connected) == (new.extent, new.status, new.connected)
        and old.spec == new.spec
        and all(tolerances) == any(tolerances)
        and (old.fingerprint is None) == (new.fingerprint is None)
    )


def _finding(pair: LockedPair, change: Change, message: str) -> BaselineFinding:
    return BaselineFinding(*pair.key, change, message, pair.spec)


def _find_changes(old: LockedPair, new: LockedPair, *, breaks: bool) -> Iterator[tuple[Change, str]]:
    if new.status not in GREEN:
        was_more = {Status.SKIPPED: old.status is not Status.SKIPPED, Status.IGNORED: old.status in GREEN}
        if was_more.get(new.status):
            yield Change.WEAKENED, f"was {old.status.words}, and is {new.status} now"
        elif breaks and (old.status in GREEN or (old.status in UNDECIDED and new.status in FAILING)):
            yield Change.BROKE, f"was {old.status.words}, and is {new.status.words} now"
        elif breaks and new.status in FAILING and new.error > _drift_limit(old, new):
            yield (
                Change.DRIFTED,
                f"error {old.error:.1e} -> {new.error:.1e}, and {new.status.words} as before",
            )
        return  # the run's own verdict says this
    if breaks and old.status not in GREEN:
        yield Change.MENDED, f"was {old.status.words}, and is {new.status.words} now"
    if old.status is Status.PASSED and new.status is Status.EXPECTED_MISMATCH:
        yield Change.WEAKENED, "was right, and the spec expects it to be wrong now"
    elif old.status in GREEN and old.connected and not new.connected:
        yield Change.WEAKENED, "had a gradient, and has None now"
    loosened = _describe_loosening(old, new)
    if loosened:
        yield Change.LOOSENED, loosened
    if old.status in GREEN:
        yield from _find_moves(old, new)


def _describe_less(old: Extent, new: Extent) -> str:
    """Say which parts of a case are no longer checked; empty if all are."""
    parts = [f"check {name} is turned off now" for name in new.checks_off if name not in old.checks_off]
    if new.samples < old.samples:
        parts.append(f"was checked at {old.samples} points, and is at {new.samples} now")
    if old.sides is not None and new.sides is not None:
        (old_seen, old_sides), (sees, now) = old.sides, new.sides
        # A branch that was removed from the code counts neither as seen nor as unseen.
        if sees < old_seen and now - sees > old_sides - old_seen:
            parts.append(f"saw {old_seen} of {old_sides} sides of branches, and sees {sees} of {now} now")
    return "; ".join(parts)


def _find_moves(old: LockedPair, new: LockedPair) -> Iterator[tuple[Change, str]]:
    """Yield how a gradient that was right, and still is, has changed."""
    analytic = forward = ""
    if old.fingerprint is not None and new.fingerprint is not None:
        analytic = _describe_difference(old.fingerprint.analytic, new.fingerprint.analytic)
        forward = _describe_difference(old.fingerprint.forward, new.fingerprint.forward)
    if forward:  # errors and gradients then belong to another function
        what = "the forward and the gradient have changed" if analytic else "the forward has changed"
        errors = f" (error {old.error:.1e} -> {new.error:.1e})"
        yield (Change.BOTH if analytic else Change.FORWARD), what + errors
        return
    if analytic:
        yield Change.GRADIENT, f"the gradient has changed, its forward hasn't: {analytic}"
    if new.error > _drift_limit(old, new):
        yield (
            Change.DRIFTED,
            f"error {old.error:.1e} -> {new.error:.1e}, still within the tolerance of {new.allowed:.1e}",
        )


def _drift_limit(old: LockedPair, new: LockedPair) -> float:
    return GROWTH * max(old.error, old.noise, new.noise, _ROUNDING * min(old.allowed, new.allowed))


def _describe_loosening(old: LockedPair, new: LockedPair) -> str:
    """Say how a tolerance is wider than before; empty if it isn't."""
    before, after = old.tolerance, new.tolerance
    if before is None or after is None:
        return ""
    if after.rtol > before.rtol * (1 + _SAME):
        return f"rtol {before.rtol:.1e} -> {after.rtol:.1e}"
    if before.atol is not None and after.atol is not None:
        wider = after.atol > before.atol * (1 + _SAME)
        return f"atol {before.atol:.1e} -> {after.atol:.1e}" if wider else ""
    if after.atol is not None:
        # The scaled tolerance that it replaces was `allowed` at the worst element.
        wider = after.atol > old.allowed * _ROUNDED
        return f"atol scaled ({old.allowed:.1e} at the worst element) -> {after.atol:.1e}" if wider else ""
    if before.atol is not None:
        wider = new.allowed > _LOOSER * max(old.allowed, before.atol)
        return f"atol {before.atol:.1e} -> scaled ({new.allowed:.1e} at the worst element)" if wider else ""
    wider = after.scaled > before.scaled * (1 + _SAME)
    return f"scaled tolerance {before.scaled:.1e} -> {after.scaled:.1e} of the row" if wider else ""


def _describe_difference(before: Sequence[Projection], after: Sequence[Projection]) -> str:
    """Say how a gradient or a forward has changed, by its projections; empty if it hasn't."""
    if len(before) != len(after):
        return "its projections can't be compared"
    for old, new in zip(before, after, strict=True):
        values = old.value, new.value
        is_near = all(map(math.isfinite, values)) and abs(old.value - new.value) <= old.slack + new.slack
        if not (is_near or old.value == new.value or all(map(math.isnan, values))):
            return f"a projection of it was {old.value:.8e}, and is {new.value:.8e}"
    return ""


def expected_in(report: Report) -> Callable[[LockedPair], bool]:
    """Return what tells whether a pair that isn't in a report should have been in it.

    Everything should, if the report doesn't say what was requested of the run.
    """
    selection = report.selection
    if selection is None:
        return lambda _: True
    left_out, folders = set(selection.left_out), [Path(path).resolve() for path in selection.paths]
    done = {case.key for case in report.cases if case.pairs}

    def is_expected(entry: LockedPair) -> bool:
        if selection.modes and entry.mode not in selection.modes:
            return False
        key = entry.key[:3]
        if key in done:
            return True  # the case ran, and this pair wasn't in it
        names = entry.op, f"{entry.spec}::{entry.op}"  # either: none of these ops may have run
        if any((name, *key[1:]) in left_out for name in names):
            return False  # not selected, not done, or not checkable: said elsewhere
        # The case or its spec was deleted from a path that was to be checked.
        return _is_below(entry.spec, folders)

    return is_expected
