"""`gradcheck run`: checks cases and prints the findings while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from gradcheck_cli import hooks
from gradcheck_cli.cli.console import go_on_without_output, print_lines, run_and_print, terminal_width
from gradcheck_cli.cli.options.case_options import (
    CaseOptions,
    SelectionOptions,
    list_cases,
)
from gradcheck_cli.cli.options.configured import (
    ConfiguredCommand,
    RunCommand,
    add_options,
    argument,
    default_paths,
    group,
    option,
    takes,
)
from gradcheck_cli.cli.options.gate_options import GateOptions
from gradcheck_cli.cli.options.running_options import (
    ReportOptions,
    WorkerOptions,
    print_report,
    start_workers,
    write_reports,
)
from gradcheck_cli.cli.options.typed_words import SpecPath

if TYPE_CHECKING:
    from rich.text import Text

    from gradcheck_cli.results import CaseResult, Policy, Report
    from gradcheck_cli.spec.case import Case


@dataclass(frozen=True)
class Verbosity:
    """How much of a run is printed."""

    durations: int = option("--durations N", click.IntRange(min=0), "List the N slowest cases.", default=0)
    quiet: bool = option("-q --quiet", bool, "Print failing tables and the summary only.")
    verbose: bool = option("-v --verbose", bool, "Add checks, methods, and what was traced and evaluated.")


@dataclass(frozen=True)
class RunOptions:
    """The options of a run."""

    paths: tuple[str, ...] = argument(nargs=-1, type=SpecPath())
    selection: SelectionOptions = group(SelectionOptions)
    changes: CaseOptions = group(CaseOptions)
    reporting: ReportOptions = group(ReportOptions)
    gate: GateOptions = group(GateOptions)
    workers: WorkerOptions = group(WorkerOptions)
    is_watching: bool = option(
        "--watch",
        bool,
        "Keep running: when files are saved, check the affected cases again, with TensorFlow imported once.",
    )
    show_config: bool = option("--show-config", bool, "Print every option's value and where it comes from.")
    verbosity: Verbosity = group(Verbosity)


def feature_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the features' options to a command."""
    for part in reversed(hooks.run_options()):
        function = add_options(part.kind, function)
    return function


@click.command("run", cls=RunCommand)
@takes(RunOptions)
@feature_options
@click.option(
    "--config",
    metavar="FILE",
    expose_value=False,
    help="Take options from FILE instead of the pyproject.toml nearest to PATHS.",
)
@click.pass_context
def command(ctx: click.Context, /, *, options: RunOptions, **_features: Any) -> None:  # noqa: ANN401 (click's own)
    """Check the gradients that the specs in PATHS describe.

    PATHS are spec files and folders of them; default: `specs` under [tool.gradcheck] in the nearest
    pyproject.toml, else specs/.

    Options can also be set under their long names in [tool.gradcheck] of the pyproject.toml nearest to
    PATHS, and in the environment as GRADCHECK_NAME. The command line overrides the environment, which
    overrides the file.
    """
    began = time.monotonic()
    if options.show_config:
        _print_settings(ctx)
        return
    if options.verbosity.quiet and options.verbosity.verbose:
        raise click.UsageError("-q and -v exclude each other.", ctx)
    # Late imports: `run --help` and a mistyped option shouldn't wait for them.

    ignored = options.gate.ignored
    folders = options.paths or default_paths(settings=ctx.obj)
    changes, selection = options.changes, options.selection

    def read() -> tuple[Case, ...]:
        return changes.apply_to(selection.select(changes.load(folders), folders).cases)

    if options.is_watching:
        code = hooks.ask("watch_cases", ctx, folders, read, options.workers, ignored.mark)
        if code is None:
            raise click.UsageError("--watch: this installation can't.", ctx)
        ctx.exit(code)
    if selection.collect_only:
        if options.reporting.form != "table":
            raise click.UsageError(
                f"--collect-only and --format {options.reporting.form} exclude each other.", ctx
            )
        list_cases(selection.select(changes.load(folders), folders).cases)
        return
    ctx.exit(_run(ctx, options, folders, began))


def _run(ctx: click.Context, options: RunOptions, folders: Sequence[str], began: float) -> int:
    """Check the cases, print and write the findings, and return the exit code."""
    asked = [
        (part, part.kind(**{own.name: ctx.params[own.name] for own in fields(part.kind)}))
        for part in hooks.run_options()
    ]
    parts = [part.begin(ctx, folders, values) for part, values in asked if part.is_asked(values)]
    if options.reporting.reports or any(part.writes for part in parts):
        go_on_without_output()
    # First, since TensorFlow is imported in the background.
    files = [target.file for target in options.reporting.reports if target.file is not None]
    workers = start_workers(ctx, options.workers, files)
    from gradcheck_cli.results import count_nothing_left
    from gradcheck_cli.running.selection import selection_of, write_history

    policy, ignored = options.gate.policy, options.gate.ignored
    changes, selection = options.changes, options.selection
    loaded = changes.load(folders)
    selected = selection.select(loaded, folders)
    kinds = {options.reporting.form, *(target.kind for target in options.reporting.reports)}
    cases = _prepare_cases(
        changes.apply_to(selected.cases),
        kinds,
        needs_fingerprints=any(part.needs_fingerprints for part in parts),
    )
    for notice in selected.notices:
        click.echo(notice, err=True)

    def mark(case: CaseResult) -> CaseResult:
        return reduce(lambda marked, part: part.mark(marked), parts, ignored.mark(case))

    report = run_and_print(
        workers,
        cases,
        _lines_of(options.verbosity, policy) if options.reporting.form == "table" else lambda _: [],
        stopper=selection.stopper(policy, began),
        mark=mark,
        is_shard=selected.shard is not None,
    )
    report = replace(
        report,
        policy=policy,
        shard=selected.shard,
        selection=selection_of(
            report.cases, loaded, folders, selection.narrowing_words(folders), changes.modes
        ),
    )
    report = report if selected.shard is not None else count_nothing_left(report)
    for part in parts:
        report = part.add_to(report)
    write_history(selection.cache_folder, report)
    unwritten = _print_end(report, options.reporting.form, options.verbosity)
    unwritten = max(unwritten, *(part.write(report) for part in parts), 0)
    return write_reports(options.reporting, report) or unwritten


def _prepare_cases(cases: Sequence[Case], kinds: set[str], *, needs_fingerprints: bool) -> tuple[Case, ...]:
    """Return the cases with what the reports need, and no more: fingerprints, pictures."""
    # A table alone says nothing of changes since an earlier run, so it needs no fingerprints.
    needs_fingerprints = needs_fingerprints or kinds not in ({"table"}, {"concise"})
    figures_of = "doubtful" if "html" in kinds else ""
    return tuple(
        replace(
            case,
            wanted=replace(case.wanted, records_fingerprint=needs_fingerprints, figures_of=figures_of),
        )
        for case in cases
    )


def _lines_of(verbosity: Verbosity, policy: Policy) -> Callable[[CaseResult], Sequence[Text]]:
    """Return the function that lays out a case's table; with -q, only that of a failing case."""
    from gradcheck_cli.reporting.report_text import case_lines

    width = terminal_width()

    def lines_of(case: CaseResult) -> Sequence[Text]:
        if verbosity.quiet and policy.is_fine(case):
            return []
        return case_lines(case, width=width, verbose=verbosity.verbose)

    return lines_of


def _print_end(report: Report, form: str, verbosity: Verbosity) -> int:
    """Print the end of the output, or the whole report in another form than a table.

    Returns 0, or the exit code of a report that can't be printed.
    """
    for notice in report.notices:
        click.echo(notice, err=True)
    if form != "table":
        return print_report(form, report)
    from gradcheck_cli.reporting.report_text import closing_lines, failed_lines

    width = terminal_width()
    lines = [] if verbosity.quiet else failed_lines(report, width)
    lines += closing_lines(report, width, verbose=verbosity.verbose, durations=verbosity.durations)
    print_lines(lines)
    return 0


def _print_settings(ctx: click.Context) -> None:
    if not isinstance(ctx.command, ConfiguredCommand):
        return
    from gradcheck_cli.reporting.terminal import layout

    for line in layout.align(list(ctx.command.settings(ctx)), left=3):
        click.echo(line.rstrip())
