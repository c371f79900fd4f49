"""The options for the processes in which cases run: how many, and with which limits."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gradcheck_cli import hooks
from gradcheck_cli.cli.options.configured import option_group
from gradcheck_cli.running.limits import (
    DEFAULT_TIMEOUT,
    Limits,
    default_jobs,
    default_memory,
    hold_to_one_thread,
    size_of,
    usable_cores,
)

if TYPE_CHECKING:
    from gradcheck_cli.running.run_loop import Workers

_SCHEDULER = re.compile(r"dask://(?P<address>[^/\s]+:\d+)/?")
_LOCAL_CLUSTER = "dask"  # on this machine


@dataclass(frozen=True)
class WorkerOptions:
    """Where cases run, and what they may use there."""

    jobs: int | None  # how many processes at a time; 0 is in this process
    isolate: bool  # whether each case has its own process, instead of each document
    timeout: float | None  # seconds for a case
    memory: int | None  # bytes for a process
    cluster: str | None  # the Dask cluster; `None` for processes of this machine
    allow_version_skew: bool  # whether versions there may differ


def _size(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    size = size_of(value)
    if not size:
        raise click.BadParameter(f"must be a size such as 4GiB or 512MiB, but got '{value}'.")
    return size


def _cluster(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and value != _LOCAL_CLUSTER and _SCHEDULER.fullmatch(value) is None:
        raise click.BadParameter(f"must be dask://HOST:PORT, or dask, but got '{value}'.")
    return value


worker_options = option_group(
    "workers",
    WorkerOptions,
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=0),
        metavar="N",
        help="Check N documents at a time, each in its own process; 0: all in this process, "
        "for a debugger. [default: one per core]",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Give up a case after this long, unless its spec sets a timeout. "
        f"[default: {DEFAULT_TIMEOUT:g}]",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        callback=_size,
        help="Memory that a process may use, such as 4GiB. [default: half of the machine's]",
    ),
    click.option("--isolate", is_flag=True, help="Give each case its own process, instead of each document."),
    click.option(
        "--on",
        "cluster",
        metavar="CLUSTER",
        callback=_cluster,
        help="Run on a Dask cluster, with the scheduler at dask://HOST:PORT; dask: start one here.",
    ),
    click.option(
        "--allow-version-skew",
        is_flag=True,
        help="With --on: accept workers with other versions of TensorFlow, NumPy or Python, but not of "
        "gradcheck.",
    ),
)


def start_workers(
    ctx: click.Context,
    options: WorkerOptions,
    reports: Sequence[Path] = (),
    *,
    writes_bytecode: bool = True,
) -> Workers:
    """Start the workers, which are closed when the command ends. Another process imports TensorFlow.

    The output of failed cases is kept beside the first of the reports.
    """
    output = reports[0].with_suffix(".output") if reports else None
    workers: Workers
    if options.jobs == 0 or (options.jobs is None and options.cluster is None and default_jobs() == 0):
        workers = _start_in_process(ctx, options)
    elif options.cluster is None:
        from gradcheck_cli.running.local_workers import LocalWorkers

        workers = LocalWorkers(
            default_jobs() if options.jobs is None else options.jobs,
            _limits(options, default_memory()),
            isolate=options.isolate,
            output=output,
            writes_bytecode=writes_bytecode,
        )
    else:
        workers = _start_in_cluster(ctx, options, options.cluster, output)
    ctx.call_on_close(workers.close)
    return workers


def _limits(options: WorkerOptions, memory: int | None) -> Limits:
    """Return what a case may use; `memory` is the limit unless the options state one."""
    return Limits(
        DEFAULT_TIMEOUT if options.timeout is None else options.timeout,
        memory if options.memory is None else options.memory,
    )


def _start_in_process(ctx: click.Context, options: WorkerOptions) -> Workers:
    limits = (options.timeout, options.memory, options.cluster)
    if options.isolate or any(limit is not None for limit in limits):
        raise click.UsageError(
            "--isolate, --timeout, --memory and --on need processes: choose -j 1 or more.", ctx
        )
    # As in a worker, so that the last digits are the same. It must be done before NumPy is imported.
    hold_to_one_thread(os.environ)
    from gradcheck_cli.running.session import InProcess

    return InProcess(threads=1)


def _start_in_cluster(
    ctx: click.Context, options: WorkerOptions, address: str, output: Path | None
) -> Workers:
    scheduler = _SCHEDULER.fullmatch(address)
    asked_now = ctx.get_parameter_source("jobs") is ParameterSource.COMMANDLINE
    if scheduler is not None and asked_now:
        raise click.UsageError("--jobs is what a cluster has: its workers, with their --nthreads.", ctx)
    workers = hooks.start_in_cluster(
        "" if scheduler is None else scheduler["address"],
        usable_cores() if options.jobs is None else options.jobs,
        _limits(options, None),
        {"isolate": options.isolate, "allow_version_skew": options.allow_version_skew},
        output,
    )
    if workers is None:
        raise click.UsageError("--on: this installation has no clusters.", ctx)
    return workers
