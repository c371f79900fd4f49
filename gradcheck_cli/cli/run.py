"""`gradcheck run`: checks cases and streams what it finds."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gradcheck_cli.cli.processes import case_runner, process_options
from gradcheck_cli.cli.reports import Wanted, files_of, print_report, report_options, write_reports

if TYPE_CHECKING:
    from gradcheck_cli.results import CaseResult


@click.command("run", short_help="Check the gradients that specs describe.")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--seed", type=click.IntRange(min=0), help="Draw inputs from this seed, whatever specs say.")
@click.option("--case", "names", multiple=True, metavar="NAME", help="Check this case only; repeatable.")
@report_options
@click.option("--strict", is_flag=True, help="Count whatever was skipped as a failure (exit 3).")
@click.option(
    "--strict-precision",
    is_flag=True,
    help="Count a precision warning (right in float64, too few digits as declared) as a failure (exit 1).",
)
@process_options
@click.option("-q", "--quiet", is_flag=True, help="Print failing tables and the summary only.")
@click.option("-v", "--verbose", is_flag=True, help="Add checks, methods and counts of evaluations.")
@click.pass_context
def command(  # noqa: PLR0913 (one argument per option)
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    seed: int | None,
    names: tuple[str, ...],
    form: str,
    reports: tuple[Wanted, ...],
    strict: bool,
    strict_precision: bool,
    quiet: bool,
    verbose: bool,
    **processes: Any,  # noqa: ANN401 (the options of process_options)
) -> None:
    """Check the gradients that the specs in PATHS describe.

    PATHS are spec files and folders of them; default: `specs` under [tool.gradcheck] in the nearest
    pyproject.toml, else specs/.
    """
    if quiet and verbose:
        raise click.UsageError("-q and -v exclude each other.", ctx)
    run = case_runner(
        ctx, files_of(reports), **processes
    )  # first: TensorFlow is imported beside all that follows
    # Late imports: `run --help` and a mistyped option shouldn't wait for them.
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width  # noqa: PLC0415
    from gradcheck_cli.cli.progress import progress_bar  # noqa: PLC0415
    from gradcheck_cli.cli.project import default_paths  # noqa: PLC0415
    from gradcheck_cli.cli.selection import select_cases  # noqa: PLC0415
    from gradcheck_cli.reporting.terminal import case_lines, summary_lines  # noqa: PLC0415
    from gradcheck_cli.results import Report  # noqa: PLC0415
    from gradcheck_cli.running.selection.sources import gradient_source  # noqa: PLC0415
    from gradcheck_cli.spec.load import load_cases  # noqa: PLC0415

    cases = select_cases(load_cases(paths or default_paths(), seed=seed), names)
    console = console_for(sys.stdout)
    width = terminal_width()
    # What a case's failure means to the run is the report's to say, before there is one too.
    rules = Report("", "", "", 0, (), strict=strict, strict_precision=strict_precision)

    # A forward that prints would break the results' JSON, or stand between rows: it prints to stderr.
    with redirect_stdout(sys.stderr), progress_bar(len(cases)) as bar:

        def on_case(case: CaseResult) -> None:
            bar.end_case()
            if form == "table" and not (quiet and rules.is_fine(case)):
                with bar.paused():
                    print_lines(console, case_lines(case, width=width, verbose=verbose))

        report = run(cases, seed=seed, on_case=on_case, on_start=bar.start_case)

    sources = {(case.op, case.name): gradient_source(case) for case in cases}
    report = replace(
        report,
        cases=tuple(replace(one, source=sources.get((one.op, one.case), "")) for one in report.cases),
        strict=strict,
        strict_precision=strict_precision,
    )
    for notice in report.notices:
        click.echo(notice, err=True)
    if form == "table":
        print_lines(console, summary_lines(report, width=width, verbose=verbose))
    else:
        print_report(form, report)
    write_reports(reports, form, report)
    ctx.exit(report.exit_code)
