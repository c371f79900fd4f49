"""Watches the files that cases depend on, and says which cases a change affects."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck_cli.running.selection.imports import clear_cache, dependencies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck_cli.spec.case import Case

_PAUSE = 0.1  # seconds between two checks
_QUIET = 0.05  # seconds without a further change: an editor may write a file in several steps
Stamp = tuple[int, int, int]


class FileWatch:
    """The files of some cases, and of the folders that specs may be added to.

    They are polled: that takes a millisecond for a few dozen files, and works on every file system.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        """Watch spec files and folders of them. No cases are known yet."""
        self._paths = [Path(path) for path in paths]
        self._needed: dict[int, frozenset[Path]] = {}
        self._cases: tuple[Case, ...] = ()
        self._stamps: dict[Path, Stamp | None] = {}
        self._look()

    def follow(self, cases: Sequence[Case]) -> None:
        """Watch the files of these cases from now on. Changes since the last check count."""
        clear_cache()
        self._cases = tuple(cases)
        self._needed = {index: dependencies(case).files for index, case in enumerate(cases)}
        old_stamps = self._stamps
        self._look()
        # A file that was known keeps its old stamp: it may have changed while cases were running.
        self._stamps |= {file: old_stamps[file] for file in self._stamps.keys() & old_stamps.keys()}

    @property
    def count(self) -> int:
        """How many files there are to watch."""
        return sum(stamp is not None for stamp in self._stamps.values())

    def wait(self) -> frozenset[Path]:
        """Return the files that have changed, as soon as there are some."""
        while not (changed := self.changes()):
            time.sleep(_PAUSE)
        return changed

    def changes(self) -> frozenset[Path]:
        """Return the files that have changed since the last look."""
        changed = more = self._changes()
        while more:
            more = self._later_changes()
            changed |= more
        return changed

    def affected_cases(self, cases: Sequence[Case], changed: Iterable[Path]) -> tuple[Case, ...]:
        """Return the cases, read again, that a change affects, and those that are new or different."""
        clear_cache()
        files = set(changed)
        before = {_key(case): case for case in self._cases}
        return tuple(
            case for case in cases if before.get(_key(case)) != case or files & set(dependencies(case).files)
        )

    def _later_changes(self) -> frozenset[Path]:
        time.sleep(_QUIET)
        return self._changes()

    def _changes(self) -> frozenset[Path]:
        before = self._stamps
        self._look()
        files = before.keys() | self._stamps.keys()
        return frozenset(file for file in files if before.get(file) != self._stamps.get(file))

    def _look(self) -> None:
        files = set().union(*self._needed.values()) if self._needed else set()
        for path in self._paths:
            spec_files = [path] if not path.is_dir() else [*path.rglob("*.yaml"), *path.rglob("*.yml")]
            files |= {file.resolve() for file in spec_files}
        self._stamps = {file: _stamp(file) for file in files}


def _key(case: Case) -> tuple[str, str, str, str | None]:
    return case.op, case.name, case.mode, case.variant


def _stamp(file: Path) -> Stamp | None:
    with suppress(OSError):
        stat = file.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
    return None
