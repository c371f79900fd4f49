"""`gradcheck merge`: merges the JSON reports of shards into the one that a single run would have given."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gradcheck_cli.cli.options.configured import SharingCommand
from gradcheck_cli.cli.options.report_options import ReportTarget, print_report, report_options, write_reports
from gradcheck_cli.cli.options.selection_options import cache_option, default_cache
from gradcheck_cli.cli.stdout_guard import go_on_without_output


@click.command("merge", cls=SharingCommand, short_help="Merge the JSON reports of shards into one.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="REPORT...")
@report_options
@cache_option
@click.option("-q", "--quiet", is_flag=True, help="Print failing tables and the summary only.")
@click.pass_context
def command(  # noqa: PLR0913 (one argument per option)
    ctx: click.Context,
    /,
    *,
    files: tuple[Path, ...],
    form: str,
    reports: tuple[ReportTarget, ...],
    cache: Path | None,
    quiet: bool,
) -> None:
    """Merge the JSON reports of shards (`run --shard K/N --report json=FILE`), or of runs of different specs.

    It ends with the exit code of a single run. A missing shard, or one from another selection of cases,
    doesn't count as one without findings.
    """
    # Late imports: `merge --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width
    from gradcheck_cli.features.watch.merging import merge
    from gradcheck_cli.reporting.closing import closing_lines
    from gradcheck_cli.reporting.exchange.json_report import read_report
    from gradcheck_cli.reporting.terminal.report_text import case_lines
    from gradcheck_cli.running.selection import write_history

    if reports:
        go_on_without_output()
    report_by_file = {str(file): read_report(file) for file in files}
    if len(report_by_file) < len(files):
        raise click.UsageError("a report is named twice.", ctx)
    report = merge(report_by_file)
    width = terminal_width()
    if form == "table":
        console = console_for(sys.stdout)
        for case in report.cases:
            if not (quiet and report.is_fine(case)):
                print_lines(console, case_lines(case, width=width))
        print_lines(console, closing_lines(report, width))
    else:
        print_report(form, report)
    for notice in report.notices:
        click.echo(notice, err=True)
    # The next run's shards read there how long each case took.
    write_history(cache or default_cache(), report)
    ctx.exit(write_reports(reports, form, report))
