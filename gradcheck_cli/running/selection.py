"""Selects cases: by `--op`, `--case`, `-k`, `--tag`, `--op-type` and `--pair`, by shard, by past failure.

The results and durations of past runs are kept in a folder that may be deleted at any time. Never imports the
code under test.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from gradcheck_cli import serial
from gradcheck_cli.errors import NoSpecsError, UsageError, suggest
from gradcheck_cli.gate import Selection, Shard
from gradcheck_cli.plain_files import MIB, read_plain, write_text
from gradcheck_cli.results import CaseResult, FilesRead, Report
from gradcheck_cli.running.files_read import Contents
from gradcheck_cli.serial import TypeFault
from gradcheck_cli.spec.case import Case, could_match

Matcher = Callable[[str], bool]

Key = tuple[str, str, str]  # op, case, dtype: a case may occur once per dtype

_LABEL = re.compile(r"d(?P<output>.+)/d(?P<input>.+)")
_SECOND = re.compile(r"d2(?P<output>.+)/d(?P<input>.+)\.d.+")
_SHOWN = 10  # names that a message lists; they fit a line


# The words of a case by which it is requested: their option, what is said of one that no case has, and what
# they are; by the name of `choose`'s argument.
WORDS: dict[str, tuple[str, str, Callable[[Case], Sequence[str]]]] = {
    "ops": ("--op", "no op is named '{}'.", lambda case: (case.op,)),
    "names": ("--case", "no case is named '{}'.", lambda case: (case.name,)),
    "tags": ("--tag", "no spec has the tag '{}'.", lambda case: case.origin.tags),
    "op_types": (
        "--op-type",
        "no spec has the op_type '{}'.",
        lambda case: (*filter(None, [case.code.op_type]), *case.code.covers),
    ),
}


def choose(
    cases: Sequence[Case], expression: str | None = None, **requested: Sequence[str]
) -> tuple[Case, ...]:
    """Return the cases for which an expression holds, and that have one of the requested words of each kind.

    Raises:
        NoSpecsError: there is none; or a requested name, tag or op type doesn't occur, even if others do.
        UsageError: the expression is malformed.
    """
    chosen, asked = tuple(cases), []
    for kind, (option, message, words_of) in WORDS.items():
        if words := requested.get(kind):
            # The names of cases are those of the requested ops.
            among = chosen if kind == "names" and requested.get("ops") else cases
            _require(words, message, words_of, among)
            chosen = tuple(case for case in chosen if not set(words).isdisjoint(words_of(case)))
            asked.append(f"{option} {' or '.join(words)}")
    if expression is not None:
        try:
            holds = compile_expression(expression)
        except ExpressionError as error:
            raise UsageError(f"-k '{expression}': {error}.") from error
        # They are separated by blanks, so that no word matches across two of them.
        chosen = tuple(case for case in chosen if holds(f"{case.origin.path} {case.op} {case.name}"))
        asked.insert(0, f"-k '{expression}'")
    if cases and not chosen:
        raise NoSpecsError(f"none of {len(cases)} cases matches {' and '.join(asked)}.")
    return chosen


def _require(
    requested: Sequence[str], message: str, names_of: Callable[[Case], Sequence[str]], cases: Sequence[Case]
) -> None:
    known_names = list(dict.fromkeys(name for case in cases for name in names_of(case)))
    missing = [name for name in requested if name not in known_names]
    if missing:
        raise NoSpecsError(
            "\n".join(message.format(name) + suggest_name(name, known_names) for name in missing)
        )


def suggest_name(name: str, known_names: Sequence[str]) -> str:
    """Return ` Did you mean 'x'?` or, if nothing is similar, the first known names."""
    if near := suggest(name, known_names):
        return f" {near}"
    shown = ", ".join(known_names[:_SHOWN]) + (", ..." if len(known_names) > _SHOWN else "")
    return f" There are: {shown}." if known_names else ""


def filter_by_pair(cases: Sequence[Case], label: str | None) -> list[Case]:
    """Return the cases that can have a pair, such as `dM1/dM0`; all of them without one.

    Raises:
        UsageError: no case can have such a pair.
    """
    fitting = [case for case in cases if label is None or _fits(case, label)]
    if not fitting:
        labels = list(dict.fromkeys(name for case in cases for name in case.labels))
        raise UsageError(f"no pair is labelled '{label}'.{suggest_name(str(label), labels)}")
    return fitting


def _fits(case: Case, label: str) -> bool:
    """Whether the case can have the pair. Names of variables and of parts of outputs show only in a trace."""
    second = _SECOND.fullmatch(label) if case.judging.second_order else None
    if second is not None:  # what follows the dot, perhaps an upstream, is known only after tracing
        label = f"d{second['output']}/d{second['input']}"
    if case.code.may_have_variables:
        return _LABEL.fullmatch(label) is not None
    if case.outputs:
        return any(label == known_label or could_match(label, known_label) for known_label in case.labels)
    inputs = {known_label.partition("/")[2] for known_label in case.labels}
    return _LABEL.fullmatch(label) is not None and any(label.endswith(f"/{name}") for name in inputs)


def shard_of(
    cases: Sequence[Case], index: int, count: int, history: Mapping[Key, Past]
) -> tuple[tuple[Case, ...], Shard]:
    """Return one part of the cases, of which the first has the index 1, and the record for merging the parts.

    The longest case goes first, and each goes to the part with the least work so far. A case without a past
    duration counts as average. The same cases and the same history give the same parts; `gradcheck merge`
    detects parts of different divisions.
    """
    durations = {key: past.duration_s for key, past in history.items() if past.duration_s is not None}
    usual = median(durations.values()) if durations else 1.0
    cost = [durations.get(past_key(case), usual) for case in cases]
    # Among equally loaded parts, the one with fewer cases is taken: otherwise cases that take no time would
    # pile up.
    parts = [(0.0, 0, part) for part in range(1, count + 1)]
    mine = set()
    for at in sorted(range(len(cases)), key=lambda at: (-cost[at], cases[at].key)):
        load, size, part = heapq.heappop(parts)
        heapq.heappush(parts, (load + cost[at], size + 1, part))
        mine |= {at} if part == index else set()
    return tuple(cases[at] for at in sorted(mine)), Shard(index, count, tuple(case.key for case in cases))


def selection_of(
    cases: Sequence[CaseResult],
    loaded: Sequence[Case],
    paths: Sequence[str],
    options: Sequence[str] = (),
    modes: Sequence[str] = (),
) -> Selection:
    """Record what was requested of a run, and which options, in words, selected among the loaded cases."""
    done = {case.key for case in cases if case.pairs}
    loaded_keys = dict.fromkeys(case.key for case in loaded)
    left_out = tuple(key for key in loaded_keys if key not in done)
    return Selection(tuple(map(str, paths)), tuple(options), tuple(modes), left_out)


_TOKEN = re.compile(r"[()]|[^\s()]+")
_NO_NAMES = ("", "(", ")", "and", "or", "not")
_DEEPEST = 50  # levels of `not` and brackets: no real expression has more, and Python's stack ends


class ExpressionError(ValueError):
    """A malformed expression; the text says where the fault is and what was expected."""


def compile_expression(text: str) -> Matcher:
    """Return a function that says whether an expression holds for a text.

    Args:
        text: such as `huber and not (wide or tall)`. A word holds if the text contains it, in upper or lower
            case.

    Raises:
        ExpressionError: the expression is malformed.
    """
    tokens = [(match[0], match.start() + 1) for match in _TOKEN.finditer(text)]
    source, depth, nots, wants_name = "", 0, 0, True
    for word, place in (*tokens, ("", 0)):
        end = ")" if depth else ""
        is_name = word not in _NO_NAMES
        if not (is_name or word in ("not", "(") if wants_name else word in ("and", "or", end)):
            joined = "'and', 'or' or " + ("')'" if depth else "the end")
            got = f"{word!r} (character {place})" if word else "the end"
            wanted = "a name, 'not' or '('" if wants_name else joined
            raise ExpressionError(f"expected {wanted}, but got {got}")
        depth += (word == "(") - (word == ")")
        nots = nots + 1 if word == "not" else 0
        if depth + nots > _DEEPEST:
            raise ExpressionError(f"must not go deeper than {_DEEPEST} levels of 'not' and brackets")
        wants_name = not is_name and word != ")"
        source += f" ({word.casefold()!r} in text)" if is_name else f" {word}"
    holds: Matcher = eval(f"lambda text: {source}")  # noqa: S307 (words in quotes, joined as above)
    return lambda target: holds(target.casefold())


VERSION = 3
_FILE = "history.json"
_LIMIT = 64 * MIB  # a case has some 100 bytes


@dataclass(frozen=True)
class Record:
    """What a case read in one mode when it last ran, by paths relative to the history's folder."""

    mode: str
    files: tuple[str, ...]
    folders: tuple[str, ...]
    digest: str  # of their contents then

    def read_in(self, folder: Path, contents: Contents) -> FilesRead | None:
        """Return what was read; `None` if it isn't as it was then, so that other files may be read now."""
        files, folders = (
            frozenset(os.path.realpath(folder / path) for path in paths)
            for paths in (self.files, self.folders)
        )
        read = FilesRead(files, folders)
        return read if contents.digest(read) == self.digest else None


@dataclass(frozen=True)
class Past:
    """How a case went when it last ran; `None` if its duration isn't known."""

    op: str
    case: str
    dtype: str
    failed: bool = False
    duration_s: float | None = 0.0
    records: tuple[Record, ...] = ()  # one of each mode
    spec: str = ""  # its file, relative to the history's folder

    @property
    def is_possible(self) -> bool:
        """Whether its duration is one."""
        return self.duration_s is None or 0 <= self.duration_s < math.inf


@dataclass(frozen=True)
class _History:
    version: int
    cases: tuple[Past, ...]


def past_key(case: Case | CaseResult) -> Key:
    """Return what identifies a case in the history: its file, too, since each run may be of other files."""
    return f"{os.path.realpath(case.file)}::{case.op}", *case.key[1:]


def read_history(folder: Path) -> dict[Key, Past]:
    """Return what is known about cases; nothing if there is no file, or it isn't ours."""
    try:
        content = serial.read(_History, serial.parse(read_plain(folder / _FILE, _LIMIT)))
    except (OSError, TypeFault):
        return {}
    if content.version != VERSION or not all(past.is_possible for past in content.cases):
        return {}
    return {
        (f"{os.path.realpath(folder / past.spec)}::{past.op}", past.case, past.dtype): past
        for past in content.cases
    }


def write_history(folder: Path, report: Report) -> None:
    """Add a run to the history; if the folder can't be written, nothing is recorded.

    Args:
        folder: the folder; created if necessary, with a .gitignore that covers all of it.
        report: the run; its results replace earlier ones. A shard's durations are left out: the next shard is
            computed from the history, and must use the same one as this shard.
    """
    before = read_history(folder)
    records = _records_of(report, folder)
    broken = {finding.key[:3] for finding in report.baseline if finding.is_failure}
    now: dict[Key, Past] = {}
    for case in report.cases:
        if not case.file or "\0" in case.file:  # of a report that is damaged
            continue
        key = past_key(case)
        earlier = now.get(key, Past(case.op, *key[1:], spec=os.path.relpath(case.file, folder)))
        failed = earlier.failed or not report.is_fine(case) or case.key in broken
        duration = (earlier.duration_s or 0.0) + case.ran.duration_s
        # A record holds as long as the files are as they were, whatever later runs know of them.
        old = {record.mode: record for record in before.get(key, earlier).records}
        kept = tuple({**old, **records.get(key, {})}.values())
        now[key] = replace(earlier, failed=failed, duration_s=duration, records=kept)
    if report.shard is not None:
        now = {
            key: replace(past, duration_s=before[key].duration_s if key in before else None)
            for key, past in now.items()
        }
    history = _History(VERSION, tuple(past for _, past in sorted({**before, **now}.items())))
    with suppress(OSError):  # a read-only checkout has no history
        if not folder.is_dir():
            folder.mkdir(parents=True)
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        write_text(folder / _FILE, json.dumps(serial.plain(history)))


def _records_of(report: Report, folder: Path) -> dict[Key, dict[str, Record]]:
    """Return records of what a run's cases read, by mode."""
    contents, began = Contents(), time.time() - report.duration_s
    records: dict[Key, dict[str, Record]] = {}
    for case in report.cases:
        read = case.seen.read
        if read is not None and (digest := contents.digest(read, before=began)):
            files, folders = (
                tuple(os.path.relpath(path, folder) for path in sorted(paths))
                for paths in (read.files, read.folders)
            )
            records.setdefault(past_key(case), {})[case.mode] = Record(case.mode, files, folders, digest)
    return records


def failed_before(cases: Sequence[Case], history: Mapping[Key, Past]) -> tuple[Case, ...]:
    """Return the cases that failed when they last ran."""
    return tuple(case for case in cases if (past := history.get(past_key(case))) is not None and past.failed)
