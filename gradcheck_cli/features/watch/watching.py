"""`gradcheck run --watch`: runs again what changed as files are saved, with TensorFlow imported once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from gradcheck_cli.cli.options.running_options import WorkerOptions, start_workers
from gradcheck_cli.errors import CaseFailedError, GradcheckError
from gradcheck_cli.results import CaseResult, Policy, has_empty_pairs, judge_empty_pairs
from gradcheck_cli.running.run_loop import Ended, Workers
from gradcheck_cli.spec.case import Case
from gradcheck_cli.visible import join_first

INTERRUPTED = 130
Key = tuple[str, str, str, str]  # op, case, dtype and mode
_LISTED = 3  # changed files that a line names


# Options of `run` that only make sense for a run that ends, by their parameters' names.
_EXCLUDED = {
    "reports": "--report",
    "against": "--baseline",
    "update": "--update-baseline",
    "collect_only": "--collect-only",
    "stop_first": "-x",
    "max_failures": "--max-failures",
    "max_time": "--max-time",
    "search": "--search",
}


def watch_command(
    ctx: click.Context,
    paths: Sequence[str],
    read: Callable[[], Sequence[Case]],
    options: WorkerOptions,
    mark: Callable[[CaseResult], CaseResult],
) -> int:
    """Watch files, with the options of `run`; return the exit code.

    Args:
        read: reads the cases again.
        mark: marks what doesn't count in a result.
    """
    params = ctx.params
    refused = [option for name, option in _EXCLUDED.items() if params[name]]
    refused += [f"--format {params['form']}"] if params["form"] != "table" else []
    refused += ["-j 0"] if options.jobs == 0 else []
    if refused:
        raise click.UsageError(f"--watch and {refused[0]} exclude each other.", ctx)
    # First, since TensorFlow is imported in the background. Without bytecode: a compiled file could hide a
    # second change within one second.
    workers = start_workers(ctx, options, writes_bytecode=False)
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width
    from gradcheck_cli.reporting.report_text import case_lines

    policy = Policy(params["strict"], params["strict_precision"])
    console = console_for(sys.stdout)

    def show(case: CaseResult) -> None:
        if not (params["quiet"] and policy.is_fine(case)):
            print_lines(case_lines(case, width=terminal_width(), verbose=params["verbose"]), console)

    return watch(paths, read, _LastResults(workers, show, policy, mark))


def watch(paths: Sequence[str], read: Callable[[], Sequence[Case]], last: _LastResults) -> int:
    """Check all cases, then those that each change affects, until Ctrl-C; return the last exit code."""
    watched = FileWatch(paths)
    changed: frozenset[Path] | None = None
    try:
        while True:
            began, started = time.perf_counter(), time.time()
            try:
                cases = read()
            except GradcheckError as error:
                click.echo(str(error))
            else:
                todo = cases if changed is None else watched.affected_cases(cases, changed)
                last.check(todo)
                # Of cases that no longer exist, nothing is left.
                last.results = {
                    case.mode_key: last.results[case.mode_key]
                    for case in cases
                    if case.mode_key in last.results
                }
                watched.follow(cases, last.results, started)
                took, total = time.perf_counter() - began, len(last.results)
                state = f"{last.wrong} of {total} not right" if last.wrong else f"all {total} right"
                files = f"watching {watched.count} files (Ctrl-C ends)"
                click.echo(f"{len(todo)} checked in {took:.1f} s, {state}; {files}")
            changed = watched.wait()
            names = join_first(sorted(file.name for file in changed), _LISTED)
            click.echo(f"\n-- {names} changed")
    except KeyboardInterrupt:
        return last.policy.exit_code(last.results.values()) if last.results else INTERRUPTED
    finally:
        last.workers.close()


@dataclass
class _LastResults:
    """The last result of each case."""

    workers: Workers  # where cases run
    show: Callable[[CaseResult], None]  # prints a case's result
    policy: Policy  # says what counts as a failure
    mark: Callable[[CaseResult], CaseResult]  # marks what doesn't count in a result
    results: dict[Key, CaseResult] = field(default_factory=dict)

    @property
    def wrong(self) -> int:
        """How many results aren't right."""
        return sum(not self.policy.is_fine(result) for result in self.results.values())

    def _keep(self, result: CaseResult) -> CaseResult:
        marked = self.results[result.mode_key] = self.mark(result)
        return marked

    def check(self, cases: Sequence[Case]) -> None:
        """Check cases."""
        empty: list[CaseResult] = []
        with redirect_stdout(sys.stderr):
            try:
                for event in self.workers.run(cases):
                    if isinstance(event, Ended) and has_empty_pairs(event.result):
                        empty.append(event.result)
                    elif isinstance(event, Ended):
                        self.show(self._keep(event.result))
            except CaseFailedError as error:
                click.echo(str(error), err=True)
            for result in empty:
                self.show(self._keep(judge_empty_pairs(result, self.results.values())))


_PAUSE = 0.1  # seconds between two checks
_QUIET = 0.05  # seconds without a further change: an editor may write a file in several steps
Stamp = tuple[float, int, int] | int


class FileWatch:
    """The files of some cases, and of the folders that specs may be added to.

    They are polled: that takes a millisecond for a few dozen files, and works on every file system.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        """Watch spec files and folders of them. No cases are known yet."""
        self._paths = [Path(path) for path in paths]
        self._needed: dict[Key, frozenset[Path]] = {}
        self._cases: tuple[Case, ...] = ()
        self._stamps: dict[Path, Stamp | None] = {}
        self._look()

    def follow(self, cases: Sequence[Case], results: Mapping[Key, CaseResult], since: float) -> None:
        """Watch the files of these cases from now on. Changes since the last check count.

        Args:
            results: what each of them has read.
            since: when their last run began: files that have changed since then count as changed.
        """
        self._cases = tuple(cases)
        self._needed = {case.mode_key: self._files_of(case, results) for case in cases}
        old_stamps = self._stamps
        self._look()
        # A file that was known keeps its old stamp: it may have changed while cases were running.
        for file, stamp in self._stamps.items():
            is_new = file not in old_stamps and isinstance(stamp, tuple) and stamp[0] > since
            self._stamps[file] = None if is_new else old_stamps.get(file, stamp)

    def _files_of(self, case: Case, results: Mapping[Key, CaseResult]) -> frozenset[Path]:
        """Return what a case has read; if that isn't known, as before, or all code beside it."""
        read = results[case.mode_key].seen.read if case.mode_key in results else None
        if read is not None:
            return frozenset(map(Path, (*read.files, *read.folders)))
        beside = (file for folder in (Path(case.origin.folder), Path.cwd()) for file in folder.glob("*.py"))
        return self._needed.get(case.mode_key) or frozenset(beside)

    @property
    def count(self) -> int:
        """How many files there are to watch."""
        return sum(stamp is not None for stamp in self._stamps.values())

    def wait(self) -> frozenset[Path]:
        """Return the files that have changed, as soon as there are some."""
        while not (changed := self._changes()):
            time.sleep(_PAUSE)
        more = changed
        while more:
            time.sleep(_QUIET)
            more = self._changes()
            changed |= more
        return changed

    def affected_cases(self, cases: Sequence[Case], changed: Iterable[Path]) -> tuple[Case, ...]:
        """Return the cases, read again, that a change affects, and those that are new or different."""
        files = set(changed)
        before = {case.mode_key: case for case in self._cases}
        return tuple(
            case
            for case in cases
            if before.get(case.mode_key) != case or files & self._needed.get(case.mode_key, frozenset())
        )

    def _changes(self) -> frozenset[Path]:
        before = self._stamps
        self._look()
        files = before.keys() | self._stamps.keys()
        return frozenset(file for file in files if before.get(file) != self._stamps.get(file))

    def _look(self) -> None:
        files = set().union(*self._needed.values())
        for path in self._paths:
            spec_files = [path] if not path.is_dir() else [*path.rglob("*.yaml"), *path.rglob("*.yml")]
            files |= {file.resolve() for file in spec_files}
        self._stamps = {file: _stamp(file) for file in files}


def _stamp(path: Path) -> Stamp | None:
    """Return what differs after a change: of a folder, the names in it."""
    with suppress(OSError):
        if path.is_dir():
            return hash(frozenset(os.listdir(path)))  # noqa: PTH208 (names alone)
        stat = path.stat()
        return stat.st_mtime, stat.st_size, stat.st_ino
    return None
