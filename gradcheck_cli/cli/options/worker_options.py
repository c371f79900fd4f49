"""The options that say in which processes cases run, and what these may take."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from click.core import ParameterSource

from gradcheck_cli.running.processes.limits import (
    DEFAULT_TIMEOUT,
    default_jobs,
    default_memory,
    hold_to_one_thread,
    size_of,
    usable_cores,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gradcheck_cli.results import CaseResult, Report
    from gradcheck_cli.running.processes.workers import Workers
    from gradcheck_cli.running.stopping import Stopper
    from gradcheck_cli.spec.case import Case

Function = TypeVar("Function", bound="Callable[..., Any]")


OPTIONS = ("jobs", "isolate", "timeout", "memory", "place", "allow_version_skew")
_SCHEDULER = re.compile(r"dask://(?P<address>[^/\s]+:\d+)/?")
_HERE = "dask"


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


class InWorkers:
    """Runs cases in workers.

    Attributes:
        told: what they say of their work, for whoever waits.
    """

    def __init__(self, workers: Workers) -> None:
        """Keep the workers."""
        self._workers = workers
        self.told = workers.told

    def __call__(self, cases: Sequence[Case], **options: Any) -> Report:  # noqa: ANN401 (a CaseRunner's)
        """Run cases; see `CaseRunner`."""
        from gradcheck_cli.running.processes.workers import run_in_workers

        return run_in_workers(self._workers, cases, **options)


def told_by(run: CaseRunner) -> Callable[[], str] | None:
    """Return what says how far a run is, where something does."""
    return run.told if isinstance(run, InWorkers) else None


def _size(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    size = size_of(value)
    if not size:
        raise click.BadParameter(f"must be a size such as 4GiB or 512MiB, but got '{value}'.")
    return size


def _cluster(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and value != _HERE and _SCHEDULER.fullmatch(value) is None:
        raise click.BadParameter(f"must be dask://HOST:PORT, or dask, but got '{value}'.")
    return value


def process_options(function: Function) -> Function:
    """Add the options, for `case_runner` to read."""
    for option in (
        click.option(
            "--allow-version-skew",
            is_flag=True,
            help="With --on: go on though the workers' versions of TensorFlow, NumPy, Python or gradcheck "
            "differ.",
        ),
        click.option(
            "--on",
            "place",
            metavar="CLUSTER",
            callback=_cluster,
            help="Run on a Dask cluster, with the scheduler at dask://HOST:PORT; dask: one made on this "
            "machine.",
        ),
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
    place: str | None = None,
    allow_version_skew: bool = False,
) -> CaseRunner:
    """Start what cases are to run in, and return what runs them.

    Args:
        ctx: the command's context; workers are closed as it ends, however that comes about.
        reports: files that reports go to; what failed cases have printed is kept beside the first.
        jobs: how many processes at a time; 0 is in this process.
        isolate: a process for each case.
        timeout: seconds for a case.
        memory: bytes for a process.
        place: the Dask cluster; `None` for this machine without one.
        allow_version_skew: whether versions there may differ.
    """
    if jobs == 0 or (jobs is None and place is None and default_jobs() == 0):
        if isolate or timeout is not None or memory is not None or place is not None:
            raise click.UsageError(
                "--isolate, --timeout, --memory and --on need processes: choose -j 1 or more.", ctx
            )
        # As in a worker, so that the last digits are the same: before NumPy is imported.
        hold_to_one_thread(os.environ)
        return _run_here
    workers = start_workers(
        ctx,
        reports,
        jobs=jobs,
        isolate=isolate,
        timeout=timeout,
        memory=memory,
        place=place,
        allow_version_skew=allow_version_skew,
    )
    return InWorkers(workers)


def start_workers(  # noqa: PLR0913 (one argument per option)
    ctx: click.Context,
    reports: Sequence[Path],
    *,
    jobs: int | None,
    isolate: bool,
    timeout: float | None,
    memory: int | None,
    place: str | None = None,
    allow_version_skew: bool = False,
    writes_bytecode: bool = True,
) -> Workers:
    """Start the processes that cases are to run in; see `case_runner`. TensorFlow is imported meanwhile."""
    timeout = DEFAULT_TIMEOUT if timeout is None else timeout
    output = reports[0].with_suffix(".output") if reports else None
    workers: Workers
    if place is None:
        from gradcheck_cli.running.processes.local_workers import LocalWorkers

        workers = LocalWorkers(
            default_jobs() if jobs is None else jobs,
            timeout=timeout,
            memory=default_memory() if memory is None else memory,
            isolate=isolate,
            output=output,
            writes_bytecode=writes_bytecode,
        )
    else:
        scheduler = _SCHEDULER.fullmatch(place)
        asked_now = ctx.get_parameter_source("jobs") is ParameterSource.COMMANDLINE
        if scheduler is not None and asked_now:
            raise click.UsageError("--jobs is what a cluster has: its workers, with their --nthreads.", ctx)
        from gradcheck_cli.running.cluster.dask_workers import DaskWorkers
        from gradcheck_cli.running.processes.running_task import Limits

        workers = DaskWorkers(
            "" if scheduler is None else scheduler["address"],
            Limits(timeout, memory),
            jobs=usable_cores() if jobs is None else jobs,
            isolate=isolate,
            output=output,
            allows_skew=allow_version_skew,
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
    from gradcheck_cli.running.session import run_cases

    return run_cases(cases, seed=seed, on_case=on_case, on_start=on_start, threads=1, stopper=stopper)
