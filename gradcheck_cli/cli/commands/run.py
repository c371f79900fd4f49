"""`gradcheck run`: checks cases and streams what it finds."""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gradcheck_cli.cli import completing
from gradcheck_cli.cli.options import worker_options
from gradcheck_cli.cli.options.baselines import Baseline, baseline_options
from gradcheck_cli.cli.options.configured import ConfiguredCommand, RunCommand
from gradcheck_cli.cli.options.coverage_options import OPTIONS as COVERAGE_OPTIONS
from gradcheck_cli.cli.options.coverage_options import Coverage, coverage_options
from gradcheck_cli.cli.options.probing_options import extent_options, with_extent
from gradcheck_cli.cli.options.report_options import (
    Wanted,
    files_of,
    print_report,
    report_options,
    write_reports,
)
from gradcheck_cli.cli.options.selection_options import (
    default_cache,
    list_cases,
    narrowing,
    select,
    selection_options,
)
from gradcheck_cli.cli.options.worker_options import case_runner, process_options, told_by
from gradcheck_cli.cli.outlet import go_on_without_output
from gradcheck_cli.spec.words import MODES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gradcheck_cli.results import CaseResult, Report
    from gradcheck_cli.spec.case import Case, Power


def _device(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from gradcheck_cli.spec.models.leaf_types import DEVICE

    if not DEVICE.fullmatch(value):
        raise click.BadParameter(f"must be a device with its number, such as GPU:0, but got '{value}'.")
    return value


@click.command("run", cls=RunCommand, short_help="Check the gradients that specs describe.")
@click.argument("paths", nargs=-1, type=click.Path(), shell_complete=completing.spec_files)
@click.option("--seed", type=click.IntRange(min=0), help="Draw inputs from this seed, whatever specs say.")
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(MODES),
    help="Check in this mode, whatever specs say; repeatable.",
)
@click.option(
    "--device",
    metavar="DEVICE",
    callback=_device,
    help="Run on this device, such as GPU:0; skipped where there is none.",
)
@selection_options
@report_options
@baseline_options
@coverage_options
@click.option("--strict", is_flag=True, help="Count whatever was skipped as a failure (exit 3).")
@click.option(
    "--strict-precision",
    is_flag=True,
    help="Count a precision warning (right in float64, too few digits as declared) as a failure (exit 1).",
)
@extent_options
@process_options
@click.option(
    "--durations", type=click.IntRange(min=0), default=0, metavar="N", help="List the N slowest cases."
)
@click.option(
    "--watch",
    "is_watching",
    is_flag=True,
    help="Go on: as files are saved, check again what they touch, with TensorFlow imported once.",
)
@click.option("--show-config", is_flag=True, help="Print every option's value and where it comes from.")
@click.option("-q", "--quiet", is_flag=True, help="Print failing tables and the summary only.")
@click.option("-v", "--verbose", is_flag=True, help="Add checks, methods, and what was traced and evaluated.")
@click.pass_context
def command(  # noqa: PLR0913, PLR0915 (one argument per option; the run, step by step)
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    seed: int | None,
    modes: tuple[str, ...],
    device: str | None,
    form: str,
    reports: tuple[Wanted, ...],
    against: Path | None,
    update: Path | None,
    strict: bool,
    strict_precision: bool,
    durations: int,
    show_config: bool,
    power: Power | None,
    budget: float | None,
    require: str | None,
    quiet: bool,
    verbose: bool,
    collect_only: bool,
    cache: Path | None,
    stop_first: bool,
    max_failures: int | None,
    max_time: float | None,
    is_watching: bool,
    **options: Any,  # noqa: ANN401 (those of process_options, and the selection's)
) -> None:
    """Check the gradients that the specs in PATHS describe.

    PATHS are spec files and folders of them; default: `specs` under [tool.gradcheck] in the nearest
    pyproject.toml, else specs/.

    Each option can also stand there under its long name, and in the environment as GRADCHECK_NAME: the
    command line comes before the environment, and that before the file.
    """
    began = time.monotonic()
    if show_config:
        _print_settings(ctx)
        return
    if quiet and verbose:
        raise click.UsageError("-q and -v exclude each other.", ctx)
    in_processes = {name: options.pop(name) for name in worker_options.OPTIONS}
    to_cover = {name: options.pop(name) for name in COVERAGE_OPTIONS}
    cache = cache or default_cache()
    asked_now = [
        ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ("against", "update")
    ]
    baseline = Baseline(against, update, seed=seed, is_configured=asked_now == [False, True])
    if reports or update is not None:
        go_on_without_output()
    from gradcheck_cli.cli.project import default_paths
    from gradcheck_cli.spec.load import load_cases

    folders = paths or default_paths()
    if is_watching:
        ctx.exit(_watch(ctx, folders, in_processes, options))
    if collect_only:
        list_cases(select(load_cases(folders, seed=seed), cache, **options).cases, form)
        return
    # First: TensorFlow is imported beside all that follows.
    run = case_runner(ctx, files_of(reports), **in_processes)
    # Late imports: `run --help` and a mistyped option shouldn't wait for them.
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width
    from gradcheck_cli.cli.progress import progress_bar
    from gradcheck_cli.reporting.terminal.report_text import case_lines
    from gradcheck_cli.results import Report, Status
    from gradcheck_cli.running.baseline.expected import selection_of
    from gradcheck_cli.running.selection.history import write_history
    from gradcheck_cli.running.selection.sources import gradient_source
    from gradcheck_cli.running.stopping import Stopper
    from gradcheck_cli.spec.cases.case_modes import in_each_mode

    loaded = load_cases(folders, seed=seed)
    coverage = Coverage.begin(ctx, folders, to_cover)
    selected = select(loaded, cache, **options)
    cases = with_extent(in_each_mode(selected.cases, modes, device), power, require, budget)
    cases = _as_asked(cases, {form, *(one.kind for one in reports)}, is_remembered=baseline.is_used)
    console = console_for(sys.stdout)
    width = terminal_width()
    # What a case's failure means to the run is the report's to say, before there is one too.
    rules = Report("", "", "", 0, (), strict=strict, strict_precision=strict_precision)
    stopper = Stopper(
        lambda case: (
            rules.is_fine(case) or (case.status is Status.SKIPPED and not strict)
        ),  # a mode it can't have
        max_failures=1 if stop_first else max_failures,
        max_time=max_time,
        began=began,
    )
    for notice in selected.notices:
        click.echo(notice, err=True)

    # A forward that prints would break the results' JSON, or stand between rows: it prints to stderr.
    with redirect_stdout(sys.stderr), progress_bar(len(cases), told_by(run)) as bar:

        def on_case(case: CaseResult) -> None:
            bar.end_case()
            if form == "table" and not (quiet and rules.is_fine(case)):
                with bar.paused():
                    print_lines(console, case_lines(case, width=width, verbose=verbose))

        report = _nothing(seed) if not cases else None
        report = report or run(
            cases,
            seed=seed,
            on_case=on_case,
            on_start=bar.start_case,
            on_progress=bar.show_share,
            stopper=stopper,
        )

    sources = {(case.op, case.name): gradient_source(case) for case in cases}
    report = replace(
        report,
        cases=tuple(replace(one, source=sources.get((one.op, one.case), "")) for one in report.cases),
        strict=strict,
        strict_precision=strict_precision,
        shard=selected.shard,
        selection=selection_of(
            report.cases,
            loaded,
            folders,
            narrowing(options, stop_first=stop_first, max_failures=max_failures, max_time=max_time),
            modes,
        ),
    )
    report = coverage.added_to(baseline.compared(report))
    write_history(cache, report)
    _print_end(
        report,
        form,
        width,
        is_quiet=quiet,
        verbose=verbose,
        durations=durations,
        missing=coverage.names_missing,
    )
    unwritten = max(baseline.write(report), coverage.write(report.coverage))
    ctx.exit(write_reports(reports, form, report) or unwritten)


def _as_asked(cases: Sequence[Case], kinds: set[str], *, is_remembered: bool) -> tuple[Case, ...]:
    """Return the cases with what the reports need of them, and no more: fingerprints, pictures.

    Args:
        cases: what is run.
        kinds: the kinds of reports that are written or printed.
        is_remembered: whether a baseline is compared or written.
    """
    # With a table alone nobody will ask whether a gradient has changed.
    remembered = is_remembered or kinds not in ({"table"}, {"concise"})
    drawn = "doubtful" if "html" in kinds else ""
    return tuple(replace(case, remembered=remembered, drawn=drawn) for case in cases)


def _print_end(  # noqa: PLR0913 (a report, and five options of how it is told)
    report: Report,
    form: str,
    width: int,
    *,
    is_quiet: bool,
    verbose: bool,
    durations: int,
    missing: bool,
) -> None:
    """Print what comes after the cases, or the whole report in another form than a table."""
    for notice in report.notices:
        click.echo(notice, err=True)
    if form != "table":
        print_report(form, report)
        return
    from gradcheck_cli.cli.console import console_for, print_lines
    from gradcheck_cli.reporting.terminal.closing import failed_lines

    lines = [] if is_quiet else failed_lines(report, width)
    lines += closing_lines(report, width, verbose=verbose, durations=durations, missing=missing)
    print_lines(console_for(sys.stdout), lines)


def _watch(
    ctx: click.Context, paths: Sequence[str], in_processes: Mapping[str, Any], options: Mapping[str, Any]
) -> int:
    """Watch, with the options that the context holds; `options` are the selection's."""
    from gradcheck_cli.cli.commands.watching import watch_command
    from gradcheck_cli.spec.cases.case_modes import in_each_mode
    from gradcheck_cli.spec.load import load_cases

    given = ctx.params
    cache = given["cache"] or default_cache()

    def read() -> tuple[Case, ...]:
        found = select(load_cases(paths, seed=given["seed"]), cache, **options).cases
        return with_extent(
            in_each_mode(found, given["modes"], given["device"]),
            given["power"],
            given["require"],
            given["budget"],
        )

    return watch_command(ctx, paths, read, in_processes)


def _print_settings(ctx: click.Context) -> None:
    if not isinstance(ctx.command, ConfiguredCommand):
        return
    rows = list(ctx.command.settings(ctx))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, value, source in rows:
        click.echo(f"{key:{widths[0]}}  {value:{widths[1]}}  {source}")


def closing_lines(
    report: Report, width: int, *, verbose: bool = False, durations: int = 0, missing: bool = False
) -> list[Any]:
    """Lay out all that a table ends with: what was slow, what wasn't checked or covered, and the summary."""
    from gradcheck_cli.reporting.exchange.coverage_report import branch_lines, coverage_lines
    from gradcheck_cli.reporting.terminal.closing import (
        baseline_lines,
        duration_lines,
        unchecked_lines,
    )
    from gradcheck_cli.reporting.terminal.report_text import summary_lines

    return [
        *duration_lines(report, durations),
        *(baseline_lines(report.baseline, width) if report.baseline else ()),
        *unchecked_lines(report, width),
        *branch_lines(report),
        *(coverage_lines(report.coverage, width, missing=missing) if report.coverage else ()),
        *summary_lines(report, width=width, verbose=verbose),
    ]


def _nothing(seed: int | None) -> Report:
    """Return the report of a run of no case: of an empty shard, or where nothing has changed."""
    import platform

    from gradcheck_cli import __version__
    from gradcheck_cli.results import Report

    # No TensorFlow was asked for its version: it is what the shards that ran one say.
    return Report(__version__, "", platform.python_version(), seed or 0, ())
