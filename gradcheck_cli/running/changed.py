"""Finds what git says has changed since a revision, and the cases that this may affect.

What a case read when it last ran is in the history: see `files_read`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradcheck_cli.errors import UsageError
from gradcheck_cli.results import FilesRead
from gradcheck_cli.running.files_read import Contents
from gradcheck_cli.running.selection import Key, Past, past_key
from gradcheck_cli.spec.case import Case

_PATIENCE = 60  # seconds; git may wait for a lock or a network disk


def changed_cases(
    cases: Sequence[Case], revision: str, history: Mapping[Key, Past], cache: Path
) -> tuple[Case, ...]:
    """Return the cases whose spec has changed, or that may depend on another changed file.

    A case is left out only if a record says what it read, the files are still as they were then, and none
    of them has changed since the revision. The cases of one op are selected together.

    Args:
        revision: git compares the working tree with the commit where this revision's history and ours
            diverged. Untracked files count as changed, ignored ones don't.
        history: how cases went when they last ran.
        cache: the folder with this history.

    Raises:
        UsageError: there is no git, no repository, or no such revision.
    """
    changes = _Changes(_top().resolve(), changed_files(revision), cache, Contents())
    touched = {case.spec for case in cases if changes.may_touch(case, history.get(past_key(case)))}
    return tuple(case for case in cases if case.spec in touched)


@dataclass(frozen=True)
class _Changes:
    """The files of a repository that have changed."""

    top: Path
    files: frozenset[Path]
    cache: Path
    contents: Contents

    def may_touch(self, case: Case, past: Past | None) -> bool:
        if not Path(case.origin.path).resolve().is_relative_to(self.top):
            return True
        records = () if past is None else past.records
        reads = [record.read_in(self.cache, self.contents) for record in records if record.mode == case.mode]
        return not reads or any(read is None or self._any_in(read) for read in reads)

    def _any_in(self, read: FilesRead) -> bool:
        listed = {Path(folder) for folder in read.folders}
        # A changed submodule appears as its folder.
        return any(not self.files.isdisjoint((file, *file.parents)) for file in map(Path, read.files)) or any(
            not listed.isdisjoint(file.parents) for file in self.files
        )


def _top() -> Path:
    return Path(_git("rev-parse", "--show-toplevel").rstrip("\n"))


def changed_files(revision: str) -> frozenset[Path]:
    """Return the files that differ from where a revision's history and ours diverged, including new ones.

    Raises:
        UsageError: there is no git, no repository, or no such revision.
    """
    top, base = _top(), _base(revision)
    names = _git("diff", "--name-only", "--no-renames", "-z", base, "--", folder=top)
    names += _git("ls-files", "--others", "--exclude-standard", "-z", folder=top)
    return frozenset((top / name).resolve() for name in names.split("\0") if name)


def _base(revision: str) -> str:
    """Return the commit where the revision's history and ours diverged: its later changes aren't ours."""
    if revision.startswith("-"):
        raise UsageError(f"--changed: '{revision}' is no revision.")
    try:
        commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
    except UsageError:
        if revision == "HEAD" and not _git("rev-list", "--all", "--max-count=1"):
            return _git("hash-object", "-t", "tree", os.devnull).strip()  # no commit yet: everything is new
        hint = (
            f" To check what changed in it, write --changed=HEAD {revision}."
            if Path(revision).exists()
            else ""
        )
        raise UsageError(f"--changed: git knows no revision '{revision}'; is it fetched?{hint}") from None
    try:
        return _git("merge-base", commit, "HEAD").strip()
    except UsageError:  # a shallow clone, or unrelated histories: compare the two directly
        return commit


def _git(*arguments: str, folder: Path | None = None) -> str:
    command = ["git", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 (fixed commands; a revision is verified first)
            command, cwd=folder, capture_output=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--changed: git can't be run: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise UsageError(f"--changed: {said or 'git failed: ' + ' '.join(command)}")
    return done.stdout.decode(errors="surrogateescape")
