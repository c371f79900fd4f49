"""`gradcheck run --watch`: runs changed cases again when files are saved, with TensorFlow imported once."""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.worker_options import WorkerOptions, start_workers
from gradcheck_cli.errors import CaseFailedError, GradcheckError
from gradcheck_cli.results import Policy
from gradcheck_cli.running.watch_files import FileWatch
from gradcheck_cli.running.workers import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.running.workers import Workers
    from gradcheck_cli.spec.case import Case

INTERRUPTED = 130
_LISTED = 3  # changed files that a line names


# Options of `run` that only make sense for a run that ends, by their parameters' names.
_ENDS = {
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
    """Watch files with the options of `run`.

    Args:
        ctx: the command's context, with the values of `run`'s options.
        paths: spec files and folders of them.
        read: reads the cases again.
        options: where cases run.

    Returns:
        The exit code.
    """
    params = ctx.params
    refused = [option for name, option in _ENDS.items() if params[name]]
    refused += [f"--format {params['form']}"] if params["form"] != "table" else []
    refused += ["-j 0"] if options.jobs == 0 else []
    if refused:
        raise click.UsageError(f"--watch and {refused[0]} exclude each other.", ctx)
    # First: TensorFlow is imported in the background. Compiled files could hide a second change within one
    # second.
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
    results: dict[tuple[str, str, str, str], CaseResult] = {}
    changed: frozenset[Path] | None = None
    try:
        while True:
            began = time.perf_counter()
            try:
                cases = read()
            except GradcheckError as error:
                click.echo(str(error))
            else:
                todo = cases if changed is None else watched.affected_cases(cases, changed)
                watched.follow(cases)
                _run(workers, todo, results, show)
                _drop_deleted(results, cases)
                wrong = sum(not policy.is_fine(result) for result in results.values())
                took = time.perf_counter() - began
                click.echo(_summary(len(todo), len(results), wrong, watched.count, took))
            changed = watched.wait()
            names = ", ".join(sorted(file.name for file in changed)[:_LISTED])
            more = f" and {len(changed) - _LISTED} more" if len(changed) > _LISTED else ""
            click.echo(f"\n-- {names}{more} changed")
    except KeyboardInterrupt:
        return policy.exit_code(results.values()) if results else INTERRUPTED
    finally:
        workers.close()


def _run(
    workers: Workers,
    cases: Sequence[Case],
    results: dict[tuple[str, str, str, str], CaseResult],
    show: Callable[[CaseResult], None],
) -> None:
    with redirect_stdout(sys.stderr):
        try:
            for event in workers.run(cases):
                if isinstance(event, Ended):
                    results[_place(event.result)] = event.result
                    show(event.result)
        except CaseFailedError as error:
            click.echo(str(error), err=True)


def _place(result: CaseResult) -> tuple[str, str, str, str]:
    return result.op, result.case, result.mode, result.dtype


def _drop_deleted(results: dict[tuple[str, str, str, str], CaseResult], cases: Sequence[Case]) -> None:
    """Drop the results of cases that no longer exist."""
    there = {(case.op, case.name, case.mode, case.dtype) for case in cases}
    for place in [place for place in results if place not in there]:
        del results[place]


def _summary(done: int, total: int, wrong: int, files: int, took: float) -> str:
    state = f"{wrong} of {total} not right" if wrong else f"all {total} right"
    return f"{done} checked in {took:.1f} s, {state}; watching {files} files (Ctrl-C ends)"
