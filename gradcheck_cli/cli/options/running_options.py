"""The options that say where cases run, with which limits, and which reports are written and printed."""

from __future__ import annotations

import os
import re
import stat
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gradcheck_cli import hooks
from gradcheck_cli.cli.console import OutputLostError, print_commands
from gradcheck_cli.cli.options.configured import SECONDS, form_option, option
from gradcheck_cli.errors import UsageError
from gradcheck_cli.hooks import REPORTS, extensions
from gradcheck_cli.reporting.formats import FORMATS, TO_FILES, render
from gradcheck_cli.running.limits import (
    DEFAULT_TIMEOUT,
    Limits,
    default_jobs,
    default_memory,
    hold_to_one_thread,
    size_of,
)

if TYPE_CHECKING:
    from gradcheck_cli.results import Report
    from gradcheck_cli.running.run_loop import Workers


_SCHEDULER = re.compile(r"dask://[^/\s]+:\d+/?")


def _size(value: str) -> int:
    size = size_of(value)
    if not size:
        raise click.BadParameter(f"must be a size such as 4GiB or 512MiB, but got '{value}'.")
    return size


def _cluster(value: str) -> str:
    if _SCHEDULER.fullmatch(value) is None:
        raise click.BadParameter(f"must be dask://HOST:PORT, but got '{value}'.")
    return value


@dataclass(frozen=True)
class WorkerOptions:
    """Where cases run, and what they may use there."""

    jobs: int | None = option(
        "-j --jobs N",
        click.IntRange(min=0),
        "Check N documents at a time, each in its own process; 0: all in this process, for a debugger. "
        "[default: one per core]",
    )
    timeout: float | None = option(
        "--timeout SECONDS",
        SECONDS,
        f"Give up a case after this long, unless its spec sets a timeout. [default: {DEFAULT_TIMEOUT:g}]",
    )
    memory: int | None = option(  # bytes
        "--memory SIZE",
        _size,
        "Memory that a process may use, such as 4GiB. [default: half of the machine's]",
    )
    isolate: bool = option("--isolate", bool, "Give each case its own process, instead of each document.")
    cluster: str | None = option(
        "--on CLUSTER", _cluster, "Run on a Dask cluster, with the scheduler at dask://HOST:PORT."
    )
    allow_version_skew: bool = option(
        "--allow-version-skew",
        bool,
        "With --on: accept workers with other versions of TensorFlow, NumPy or Python, but not of gradcheck.",
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
    if ctx.get_parameter_source("jobs") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--jobs is what a cluster has: its workers, with their --nthreads.", ctx)
    workers: Workers | None = hooks.ask(
        "start_in_cluster",
        address.removeprefix("dask://").rstrip("/"),
        _limits(options, None),
        {"isolate": options.isolate, "allow_version_skew": options.allow_version_skew},
        output,
    )
    if workers is None:
        raise click.UsageError("--on: this installation has no clusters.", ctx)
    return workers


FORMS = ", ".join(f"{kind}=FILE" for kind in TO_FILES) + (" or github" if "github" in FORMATS else "")


@dataclass(frozen=True)
class ReportTarget:
    """One `--report`: its kind, and its file; `None` for no file."""

    kind: str
    file: Path | None = None

    def __str__(self) -> str:
        return self.kind if self.file is None else f"{self.kind}={self.file}"


def _read_reports(
    _ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[ReportTarget, ...]:
    """Read `KIND=FILE`, and check before the run that FILE can be written after it."""
    targets: list[ReportTarget] = []
    for value in values:
        kind, separator, name = value.partition("=")
        if value == "github" and value in FORMATS:
            targets.append(ReportTarget("github"))
            continue
        if not separator or not name or (kind not in TO_FILES and kind not in extensions(REPORTS)):
            raise click.BadParameter(f"must be {FORMS}, but got '{value}'.")
        file = Path(name)
        _require_place(file)
        for target in targets:
            if target.file is not None and target.file.absolute() == file.absolute():
                raise click.BadParameter(
                    f"'{name}' is to hold two reports, {target.kind} and {kind}; name two files."
                )
        targets.append(ReportTarget(kind, file))
    return tuple(targets)


def _require_place(file: Path) -> None:
    try:
        if stat.S_ISDIR(file.stat().st_mode):
            raise click.BadParameter(f"'{file}' is a folder; name a file in it.")
    except FileNotFoundError:
        if not file.parent.is_dir():
            raise click.BadParameter(
                f"there is no folder '{file.parent}' to write '{file.name}' into."
            ) from None
    except OSError as error:  # a name that is too long, or a folder that is none
        raise click.BadParameter(f"'{file}' can't be written: {error.strerror or error}.") from error


@dataclass(frozen=True)
class ReportOptions:
    """In which form a report is printed, and which files are written."""

    form: str = form_option(*FORMATS)
    reports: tuple[ReportTarget, ...] = option(
        "--report KIND=FILE",
        None,
        f"Also write a report: {FORMS}; repeatable. github prints annotations, and appends the markdown to "
        "$GITHUB_STEP_SUMMARY.",
        multiple=True,
        callback=_read_reports,
    )


def root_folder() -> Path:
    """Return the folder relative to which reports name files: the repository's, as far as it is known.

    In GitHub's jobs that is $GITHUB_WORKSPACE; elsewhere the nearest parent folder with `.git`.
    """
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if workspace:
        return Path(workspace)
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def try_to_write(what: str, write: Callable[[], None]) -> int:
    """Write one report, and say on standard error why that fails: it costs no other report, and no verdict.

    Returns:
        0, or 2 if it failed.
    """
    try:
        write()
    except OutputLostError:
        raise
    except OSError as error:
        reason = f"can't write {what}: {error.strerror or error}"
    except Exception as error:  # noqa: BLE001 (another package's function may raise anything)
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"can't write {what}: {type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    else:
        return 0
    click.echo(reason, err=True)
    return UsageError.exit_code


def print_report(form: str, report: Report) -> int:
    """Print a report on standard output, in a format other than the table; return `try_to_write`'s code."""
    return try_to_write(f"the {form} report", lambda: _print_report(form, report))


def _print_report(form: str, report: Report) -> None:
    text = render(form, report, root_folder())
    if form == "github":
        print_commands(text, err=False)
        return
    if FORMATS[form].is_json:  # the same text in JSON, but no command for a CI service that reads it
        text = text.replace("##", "\\u0023#")
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # a terminal or pipe that can't show a character
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def write_reports(options: ReportOptions, report: Report) -> int:
    """Write the requested reports, and report those that can't be written.

    GitHub's annotations are printed on standard output beside a table, but otherwise on standard error, since
    another program then reads standard output.

    Returns:
        The report's own exit code; 2 instead of 0 if a file can't be written.
    """
    root = root_folder()
    failures = [
        write_file(target.file, partial(render, target.kind, report, root))
        for target in options.reports
        if target.file is not None
    ]
    is_beside = options.form != "github" and any(target.kind == "github" for target in options.reports)
    if is_beside:
        err = options.form != "table"
        annotate = partial(render, "github", report, root)
        failures.append(try_to_write("annotations", lambda: print_commands(annotate(), err=err)))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and (options.form == "github" or is_beside):

        def append() -> None:
            with Path(summary).open("a", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(render("markdown", report, root) + "\n")

        failures.append(try_to_write(f"to $GITHUB_STEP_SUMMARY '{summary}'", append))
    return report.exit_code or max(failures, default=0)


def write_file(file: Path, render_text: Callable[[], str]) -> int:
    """Render a report and write it to a file; return `try_to_write`'s code."""
    from gradcheck_cli.plain_files import write_text

    return try_to_write(f"the report to '{file}'", lambda: write_text(file, render_text()))
