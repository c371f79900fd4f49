"""`gradcheck run --watch`: runs again what changed as files are saved, with TensorFlow imported once.

With `--search`, cases are checked without it, and searched while nothing changes.
"""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.worker_options import WorkerOptions, start_workers
from gradcheck_cli.errors import CaseFailedError, GradcheckError
from gradcheck_cli.features.watch.watch_files import FileWatch
from gradcheck_cli.results import Policy
from gradcheck_cli.running.workers import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.running.workers import Workers
    from gradcheck_cli.spec.case import Case

INTERRUPTED = 130
Key = tuple[str, str, str, str]  # op, case, mode and dtype
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
}


def watch_command(
    ctx: click.Context,
    paths: Sequence[str],
    read: Callable[[], Sequence[Case]],
    options: WorkerOptions,
) -> int:
    """Watch files, with the options of `run`.

    Args:
        ctx: the command's context, with the values of `run`'s options.
        paths: spec files and folders of them.
        read: reads the cases again.
        options: where cases run.

    Returns:
        The exit code.
    """
    params = ctx.params
    refused = [option for name, option in _EXCLUDED.items() if params[name]]
    refused += [f"--format {params['form']}"] if params["form"] != "table" else []
    refused += ["-j 0"] if options.jobs == 0 else []
    refused += ["--search with --on"] if params["search"] and options.cluster is not None else []
    if refused:
        raise click.UsageError(f"--watch and {refused[0]} exclude each other.", ctx)
    # First, since TensorFlow is imported in the background. Without bytecode: a compiled file could hide a
    # second change within one second.
    workers = start_workers(ctx, options, writes_bytecode=False)
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width
    from gradcheck_cli.reporting.terminal.report_text import case_lines

    policy = Policy(params["strict"], params["strict_precision"])
    console = console_for(sys.stdout)

    def show(case: CaseResult) -> None:
        if not (params["quiet"] and policy.is_fine(case)):
            print_lines(console, case_lines(case, width=terminal_width(), verbose=params["verbose"]))

    return watch(workers, paths, read, show, policy)


def watch(
    workers: Workers,
    paths: Sequence[str],
    read: Callable[[], Sequence[Case]],
    show: Callable[[CaseResult], None],
    policy: Policy,
) -> int:
    """Check all cases, then those that each change affects, until Ctrl-C.

    Args:
        workers: where cases run; they stay open in between.
        paths: spec files and folders of them.
        read: reads the cases again.
        show: prints a case's result.
        policy: says what counts as a failure.

    Returns:
        The exit code of the last results.
    """
    watched = FileWatch(paths)
    last = _LastResults(workers, show, policy)
    changed: frozenset[Path] | None = None
    try:
        while True:
            began = time.perf_counter()
            cases: Sequence[Case] = ()
            try:
                cases = read()
            except GradcheckError as error:
                click.echo(str(error))
            else:
                todo = cases if changed is None else watched.affected_cases(cases, changed)
                watched.follow(cases)
                last.check(todo)
                last.forget_gone(cases)
                took = time.perf_counter() - began
                click.echo(_summary(len(todo), len(last.results), last.wrong, watched.count, took))
            changed = last.search(cases, watched) or watched.wait()
            names = ", ".join(sorted(file.name for file in changed)[:_LISTED])
            more = f" and {len(changed) - _LISTED} more" if len(changed) > _LISTED else ""
            click.echo(f"\n-- {names}{more} changed")
    except KeyboardInterrupt:
        return policy.exit_code(last.results.values()) if last.results else INTERRUPTED
    finally:
        workers.close()


@dataclass
class _LastResults:
    """The last result of each case.

    Attributes:
        workers: where cases run.
        show: prints a case's result.
        policy: says what counts as a failure.
        results: the results, by case.
        searched: the cases that were searched since they changed.
    """

    workers: Workers
    show: Callable[[CaseResult], None]
    policy: Policy
    results: dict[Key, CaseResult] = field(default_factory=dict)
    searched: set[Key] = field(default_factory=set)

    @property
    def wrong(self) -> int:
        """How many results aren't right."""
        return sum(not self.policy.is_fine(result) for result in self.results.values())

    def check(self, cases: Sequence[Case]) -> None:
        """Check cases, without a search: whoever saved a file waits for it."""
        with redirect_stdout(sys.stderr):
            try:
                for event in self.workers.run([replace(case, search=0.0) for case in cases]):
                    if isinstance(event, Ended):
                        self.results[_key_of_result(event.result)] = event.result
                        self.show(event.result)
            except CaseFailedError as error:
                click.echo(str(error), err=True)
        self.searched -= {_key_of_case(case) for case in cases}

    def search(self, cases: Sequence[Case], watched: FileWatch) -> frozenset[Path]:
        """Search the cases with a search time until a file changes; return the files that have changed."""
        from gradcheck_cli.running.processes.local_workers import LocalWorkers

        todo = [case for case in cases if case.search and _key_of_case(case) not in self.searched]
        if not todo or not isinstance(self.workers, LocalWorkers):
            return frozenset()
        click.echo(f"searching {len(todo)} until a file changes")
        wrong_count = 0
        with redirect_stdout(sys.stderr):
            for event in self.workers.run(todo):
                if isinstance(event, Ended):
                    self.searched.add(_key_of_result(event.result))
                    self.results[_key_of_result(event.result)] = event.result
                    if not self.policy.is_fine(event.result):
                        wrong_count += 1
                        self.show(event.result)
                if changed := watched.changes():
                    self.workers.stop()
                    return changed
        click.echo(f"searched {len(todo)}: {wrong_count} not right")
        return frozenset()

    def forget_gone(self, cases: Sequence[Case]) -> None:
        """Drop the results of cases that no longer exist."""
        present = {_key_of_case(case) for case in cases}
        self.results = {key: result for key, result in self.results.items() if key in present}


def _key_of_result(result: CaseResult) -> Key:
    return result.op, result.case, result.mode, result.dtype


def _key_of_case(case: Case) -> Key:
    return case.op, case.name, case.mode, case.dtype


def _summary(done: int, total: int, wrong: int, files: int, took: float) -> str:
    state = f"{wrong} of {total} not right" if wrong else f"all {total} right"
    return f"{done} checked in {took:.1f} s, {state}; watching {files} files (Ctrl-C ends)"
