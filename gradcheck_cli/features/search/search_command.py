"""`gradcheck search`: searches for an input at which a gradient is wrong, and shrinks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.case_options import NamedCases, naming_options, seed_option
from gradcheck_cli.cli.options.configured import option_group
from gradcheck_cli.cli.options.running_options import (
    WorkerOptions,
    print_report,
    start_workers,
    worker_options,
)
from gradcheck_cli.cli.options.typed_words import SpecPath

if TYPE_CHECKING:
    from rich.text import Text

    from gradcheck_cli.results import CaseResult

DEFAULT_SECONDS = 30.0


@dataclass(frozen=True)
class SearchOptions:
    """The options of `search`."""

    paths: tuple[str, ...]
    seconds: float
    seed: int | None
    named: NamedCases
    workers: WorkerOptions
    form: str


@click.command("search")
@click.argument(
    "paths",
    metavar="SPEC...",
    nargs=-1,
    required=True,
    type=SpecPath(),
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How much processor time to search each case for.",
)
@seed_option
@naming_options
@worker_options
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to print."
)
@option_group("options", SearchOptions)
@click.pass_context
def command(ctx: click.Context, /, *, options: SearchOptions) -> None:
    """Check the cases of SPEC, and search each for an input at which its gradient is wrong.

    Thousands of points are tried: as the spec draws them, from wider and narrower distributions, with zeros,
    ties and ends of ranges, and on and beside the numbers in the code. At each point, gradient and
    differences are compared along one random direction. A suspicious point is judged as `run` judges it,
    and then shrunk. Stated ranges are never left.

    \b
    Exit codes as in `run`: 0 nothing was found, 1 a gradient is wrong, 2 bad usage
    or a bad spec, 3 a case can't be decided, 5 no spec matched, 130 interrupted.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    # Late imports: `search --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import print_lines, run_and_print, terminal_width
    from gradcheck_cli.reporting.report_text import case_lines, closing_lines
    from gradcheck_cli.spec.case import Wanted, in_each_mode
    from gradcheck_cli.spec.load import load_cases

    cases = options.named.choose(load_cases(options.paths, seed=options.seed), options.paths)
    wanted = Wanted(search=options.seconds, records_fingerprint=False)
    cases = tuple(replace(case, wanted=wanted) for case in in_each_mode(cases))
    workers = start_workers(ctx, options.workers)
    width = terminal_width()

    def lines_of(result: CaseResult) -> Sequence[Text]:
        return case_lines(result, width=width) if options.form == "table" else []

    report = run_and_print(workers, cases, lines_of)
    unwritten = 0
    if options.form == "table":
        print_lines(closing_lines(report, width))
    else:
        unwritten = print_report(options.form, report)
    ctx.exit(report.exit_code or unwritten)
