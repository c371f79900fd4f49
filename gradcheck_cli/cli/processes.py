"""The options that say in which processes cases run, and what these may take."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from gradcheck_cli.running.limits import (
    DEFAULT_TIMEOUT,
    default_jobs,
    default_memory,
    hold_to_one_thread,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gradcheck_cli.results import CaseResult, Report
    from gradcheck_cli.running.local_workers import LocalWorkers
    from gradcheck_cli.running.stopping import Stopper
    from gradcheck_cli.spec.case import Case

Function = TypeVar("Function", bound="Callable[..., Any]")


OPTIONS = ("jobs", "isolate", "timeout", "memory")


class CaseRunner(Protocol):
    """Runs cases and returns the report; `session.run_cases` says what the arguments mean."""

    def __call__(  # noqa: PLR0913 (who is told of what)
        self,
        cases: Sequence[Case],
        *,
        seed: int | None,
        on_case: Callable[[CaseResult], None],
        on_start: Callable[[Case], None],
        on_progress: Callable[[Case, float], None] | None = None,
        stopper: Stopper | None = None,
    ) -> Report:
        """Run cases."""
        ...


def _size(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    size = size_of(value)
    if not size:
        raise click.BadParameter(f"must be a size such as 4GiB or 512MiB, but got '{value}'.")
    return size


def process_options(function: Function) -> Function:
    """Add the options, for `case_runner` to read."""
    for option in (
        click.option(
            "--isolate", is_flag=True, help="Give each case a process of its own, not each document."
        ),
        click.option(
            "--memory",
            metavar="SIZE",
            callback=_size,
            help="Memory that a process may use, such as 4GiB. [default: half of the machine's]",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Give a case up after this long, unless its spec sets a timeout. "
            f"[default: {DEFAULT_TIMEOUT:g}]",
        ),
        click.option(
            "-j",
            "--jobs",
            type=click.IntRange(min=0),
            metavar="N",
            help="Check N documents at a time, each in a process of its own; 0: all in this process, "
            "for a debugger. [default: the cores there are]",
        ),
    ):
        function = option(function)
    return function


def case_runner(  # noqa: PLR0913 (one argument per option)
    ctx: click.Context,
    reports: Sequence[Path],
    *,
    jobs: int | None,
    isolate: bool,
    timeout: float | None,
    memory: int | None,
) -> CaseRunner:
    """Start what cases are to run in, and return what runs them.

    Args:
        ctx: the command's context; workers are closed as it ends, however that comes about.
        reports: files that reports go to; what failed cases have printed is kept beside the first.
        jobs: how many processes at a time; 0 is in this process.
        isolate: a process for each case.
        timeout: seconds for a case.
        memory: bytes for a process.
    """
    if jobs is None:
        jobs = default_jobs()
    if jobs == 0:
        if isolate or timeout is not None or memory is not None:
            raise click.UsageError(
                "--isolate, --timeout and --memory need processes: choose -j 1 or more.", ctx
            )
        # As in a worker, so that the last digits are the same: before NumPy is imported.
        hold_to_one_thread(os.environ)
        return _run_here
    from gradcheck_cli.running.workers import run_in_workers  # noqa: PLC0415 (`--help` does without)

    workers = start_workers(ctx, reports, jobs=jobs, isolate=isolate, timeout=timeout, memory=memory)
    return partial(run_in_workers, workers)


def start_workers(  # noqa: PLR0913 (one argument per option)
    ctx: click.Context,
    reports: Sequence[Path],
    *,
    jobs: int | None,
    isolate: bool,
    timeout: float | None,
    memory: int | None,
    writes_bytecode: bool = True,
) -> LocalWorkers:
    """Start the processes that cases are to run in; see `case_runner`. TensorFlow is imported meanwhile."""
    from gradcheck_cli.running.local_workers import LocalWorkers  # noqa: PLC0415 (`--help` does without)

    workers = LocalWorkers(
        default_jobs() if jobs is None else jobs,
        timeout=DEFAULT_TIMEOUT if timeout is None else timeout,
        memory=default_memory() if memory is None else memory,
        isolate=isolate,
        output=reports[0].with_suffix(".output") if reports else None,
        writes_bytecode=writes_bytecode,
    )
    ctx.call_on_close(workers.close)
    return workers


def _run_here(  # noqa: PLR0913 (who is told of what)
    cases: Sequence[Case],
    *,
    seed: int | None,
    on_case: Callable[[CaseResult], None],
    on_start: Callable[[Case], None],
    on_progress: Callable[[Case, float], None] | None = None,  # noqa: ARG001 (nobody draws while it works)
    stopper: Stopper | None = None,
) -> Report:
    from gradcheck_cli.running.session import run_cases  # noqa: PLC0415 (loads NumPy)

    return run_cases(cases, seed=seed, on_case=on_case, on_start=on_start, threads=1, stopper=stopper)
