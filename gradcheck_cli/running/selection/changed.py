"""Finds what git says has changed since a revision, and the cases that this may affect."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gradcheck_cli.errors import UsageError
from gradcheck_cli.running.selection.imports import dependencies
from gradcheck_cli.spec.case import Case

_PATIENCE = 60  # seconds; git may wait for a lock or a network disk


def changed_cases(cases: Sequence[Case], revision: str) -> tuple[Case, ...]:
    """Return the cases whose spec has changed, or a module or data file that they depend on.

    Args:
        cases: what to choose from.
        revision: git compares the working tree with the commit where this revision's history and ours
            diverged. Untracked files count as changed, ignored ones don't.

    Returns:
        The cases, in order, including those for which it isn't known.

    Raises:
        UsageError: there is no git, no repository, or no such revision.
    """
    top, changed = _top(), changed_files(revision)
    return tuple(case for case in cases if _is_touched(case, changed, top.resolve()))


def _top() -> Path:
    return Path(_git("rev-parse", "--show-toplevel").rstrip("\n"))


def _is_touched(case: Case, changed: frozenset[Path], top: Path) -> bool:
    needed = dependencies(case)
    if needed.is_open or not Path(case.path).resolve().is_relative_to(top):
        return True
    # A changed submodule appears as its folder.
    return any(file in changed or not changed.isdisjoint(file.parents) for file in needed.files)


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
