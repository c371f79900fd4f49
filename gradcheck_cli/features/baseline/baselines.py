"""The options `--baseline` and `--update-baseline`: they read, compare and write the lock file."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gradcheck_cli.cli.options.configured import option
from gradcheck_cli.errors import UsageError
from gradcheck_cli.hooks import FeatureOptions, RunPart

if TYPE_CHECKING:
    from gradcheck_cli.features.baseline.lock import Key, LockedPair
    from gradcheck_cli.results import CaseResult, Report


@dataclass(frozen=True)
class BaselineOptions:
    """The lock file to compare with, and the one to write."""

    against: Path | None = option(
        "--baseline FILE",
        click.Path(dir_okay=False, path_type=Path),
        "Fail (exit 1) where a pair has changed since FILE was recorded: an error grown tenfold, a pair "
        "gone, a tolerance loosened, a gradient changed whose forward didn't.",
    )
    no_baseline: bool = option("--no-baseline", bool, "Compare with no baseline, whatever is configured.")
    update: Path | None = option(
        "--update-baseline FILE",
        click.Path(dir_okay=False, path_type=Path),
        "Record in FILE what each right pair is like: error, tolerance, and a fingerprint of gradient and "
        "forward.",
    )
    accept: bool = option(
        "--accept",
        bool,
        "With --update-baseline: also record what is wrong or undecided, with today's date and a reason to "
        "fill in. --baseline then lists it as known, until it is mended, and fails on what is new.",
    )


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock on the folder of `path`, so that no other process that takes it changes the file meanwhile.

    A lock on the file itself would apply to the old file once another has taken its name; a separate lock
    file would stay in the repository. It is held for milliseconds. On a file system without locks there is
    none.
    """
    folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # network file systems may raise this
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)  # this unlocks it


class Baseline(RunPart):
    """The baseline of a run: read before it, compared and written after it."""

    def __init__(self, ctx: click.Context, paths: Sequence[str], options: BaselineOptions) -> None:
        """Read the lock files before anything runs.

        Raises:
            UsageError: the options exclude each other, or a file can't be read, or couldn't be written later.
        """
        against, update = (None if options.no_baseline else options.against), options.update
        if against is not None and update is not None:
            sources = [ctx.get_parameter_source(name) for name in ("against", "update")]
            if [source is ParameterSource.COMMANDLINE for source in sources] != [False, True]:
                raise UsageError(
                    "--baseline and --update-baseline exclude each other: compare first, then update."
                )
            against = None  # it is configured, and the command line requests an update
        if options.accept and update is None:
            raise UsageError("--accept goes with --update-baseline FILE.")
        self._against, self._update, self._paths = against, update, paths
        self._day = time.strftime("%Y-%m-%d") if options.accept else ""
        self._old: dict[Key, LockedPair] = {}
        file = against or update
        self.needs_fingerprints, self.writes = file is not None, update is not None
        if file is None:
            return
        if ctx.params["seed"] is not None:
            raise UsageError("--seed draws other inputs than a baseline remembers; leave one of them out.")
        from gradcheck_cli.features.baseline.lock import read_lock

        if update is not None and not update.exists():
            if not update.absolute().parent.is_dir():
                raise UsageError(f"there is no folder '{update.parent}' to write '{update.name}' into.")
            return
        self._old = read_lock(file)  # faults are reported before the run

    def mark(self, case: CaseResult) -> CaseResult:
        """Return a case whose faults are known where the baseline holds them."""
        if self._against is None:
            return case
        from gradcheck_cli.features.baseline import lock

        of_name = [entry for entry in self._old.values() if entry.op == case.op]
        return lock.mark_known(case, lock.held_in(of_name, [case], self._paths))

    def add_to(self, report: Report) -> Report:
        """Return the report with the changes since the baseline."""
        if self._against is None:
            return report
        from gradcheck_cli.features.baseline import lock
        from gradcheck_cli.results import Status

        old = lock.held_in(self._old.values(), report.cases, self._paths)
        new = lock.entries_of(report.cases)
        # Those of cases that are for another version, or without what they need.
        skipped = {case.mode_key for case in report.cases if case.is_for_another_version}
        new |= {key: replace(old[key], status=Status.SKIPPED) for key in old if key[:4] in skipped}
        return replace(report, baseline=lock.compare(old, new, is_expected=lock.expected_in(report)))

    def write(self, report: Report) -> int:
        """Write the lock file, if requested, and print on standard error what has changed in it.

        It is read again first: another run may have added its pairs since this one began.
        """
        if self._update is None:
            return 0
        from gradcheck_cli.features.baseline import lock
        from gradcheck_cli.plain_files import write_text

        file = self._update
        try:
            with hold_lock(file):
                held = lock.read_lock(file).values() if file.exists() else ()
                old = lock.held_in(held, report.cases, self._paths)
                new, is_gone = lock.entries_of(report.cases), lock.expected_in(report)
                entries, update = lock.update_pairs(old, new, is_gone=is_gone, day=self._day)
                write_text(file, lock.lock_text(entries, file.absolute().parent))
        except UsageError as error:
            click.echo(str(error), err=True)
        except OSError as error:
            click.echo(f"can't write the baseline '{file}': {error.strerror or error}", err=True)
        else:
            click.echo(f"{file}: {update}", err=True)
            return 0
        return UsageError.exit_code


RUN_OPTIONS = FeatureOptions("What has changed", BaselineOptions, Baseline)
