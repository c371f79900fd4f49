"""`gradcheck mutate`: corrupts gradients in known ways, and says which corruptions the specs would miss."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli import completing
from gradcheck_cli.cli.options.case_options import seed_option
from gradcheck_cli.cli.options.configured import SharingCommand, option_group
from gradcheck_cli.cli.options.selection_options import NamedCases, naming_options
from gradcheck_cli.cli.options.worker_options import WorkerOptions, start_workers, worker_options
from gradcheck_cli.spec.words import CORRUPTIONS

if TYPE_CHECKING:
    from rich.text import Text

    from gradcheck_cli.features.mutation.mutants import Tally
    from gradcheck_cli.results import CaseResult, Report
    from gradcheck_cli.spec.case import Case

UNCHECKED = 3


@dataclass(frozen=True)
class MutateOptions:
    """The options of `mutate`."""

    paths: tuple[str, ...]
    kinds: tuple[str, ...]
    seed: int | None
    named: NamedCases
    fail_under: float | None
    workers: WorkerOptions
    form: str
    verbose: bool


@click.command("mutate", cls=SharingCommand, short_help="Say which wrong gradients specs would miss.")
@click.argument("paths", nargs=-1, type=click.Path(), shell_complete=completing.spec_files)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(list(CORRUPTIONS)),
    help="Corrupt gradients in this way only; repeatable. factor: by 1 %. element: one element by 1 %. "
    "small: the smallest element by what the tolerance claims to see. upstream: the upstream ignored. none: "
    "None instead. swap: another input's gradient. mean: divided by a size. axis: along another axis. row: a "
    "part of the upstream left out. branch: a mask left out. [default: all]",
)
@seed_option
@naming_options
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 3 where a smaller share of the corruptions is called a mismatch.",
)
@worker_options
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", help="What to print."
)
@click.option("-v", "--verbose", is_flag=True, help="Also list what is caught.")
@option_group("options", MutateOptions)
@click.pass_context
def command(ctx: click.Context, /, *, options: MutateOptions) -> None:
    """Corrupt the gradients that the specs in PATHS describe, one way at a time, and check each again.

    A corruption that is called a mismatch is caught; one that leaves a pair undecided fails a run as well;
    one that passes is missed, because the spec's points or its tolerance don't show it. Only right gradients
    are corrupted, and only in ways that change them. What no point of a case could show is called out of
    sight and listed with its place: a side of a branch that no point takes, an axis of size one, a factor of
    ones, indices without repetition, a size that all cases share.

    \b
    Exit codes: 0 tried, 2 bad usage or a bad spec, 3 too few are caught
    (--fail-under), or a case couldn't be tried, 5 no spec matched, 130 interrupted.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    # Late imports: `mutate --help` shouldn't wait for them.
    from gradcheck_cli.project import default_paths
    from gradcheck_cli.spec.load import load_cases

    paths = options.paths or default_paths(settings=ctx.obj)
    cases = options.named.choose(load_cases(paths, seed=options.seed))
    cases = _add_corruptions(cases, options.kinds or tuple(CORRUPTIONS))
    workers = start_workers(ctx, options.workers)
    from gradcheck_cli.cli.console import run_and_print, terminal_width
    from gradcheck_cli.features.mutation.mutants import Tally, case_lines

    width = terminal_width()

    def lines_of(result: CaseResult) -> Sequence[Text]:
        return case_lines(result, width=width, verbose=options.verbose) if options.form == "table" else []

    report = run_and_print(workers, cases, lines_of)
    tally = Tally.of(report)
    _print(report, tally, options.form)
    if report.interrupted:
        ctx.exit(report.exit_code)
    least = options.fail_under
    too_few = least is not None and (tally.share is None or 100 * tally.share < least)
    ctx.exit(UNCHECKED if tally.untried or too_few or report.unchecked else 0)


def _add_corruptions(cases: Sequence[Case], kinds: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases with the corruptions to try on each.

    A factor that should be the size, but is a constant, shows as soon as an op has cases of several sizes, so
    it isn't tried there.
    """
    shapes_by_op: dict[tuple[str, str], set[tuple[tuple[int, ...], ...]]] = {}
    for case in cases:
        shapes = tuple(tensor.shape for tensor in case.tensors)
        shapes_by_op.setdefault((case.path, case.op), set()).add(shapes)
    varied = {key for key, shapes in shapes_by_op.items() if len(shapes) > 1}
    return tuple(
        replace(
            case,
            corruptions=tuple(kind for kind in kinds if kind != "size" or (case.path, case.op) not in varied),
        )
        for case in cases
    )


def _print(report: Report, tally: Tally, form: str) -> None:
    """Print the end of the output, or the whole report in another form than a table."""
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width
    from gradcheck_cli.features.mutation.mutants import mutants_csv, mutants_json, tally_lines
    from gradcheck_cli.reporting.closing import unchecked_lines

    if form == "table":
        width = terminal_width()
        lines = [*unchecked_lines(report, width), *tally_lines(report, tally, width=width)]
        print_lines(console_for(sys.stdout), lines)
        return
    click.echo((mutants_json if form == "json" else mutants_csv)(report), nl=False)
    for text in report.unchecked:
        click.echo(f"NOT CHECKED  {text}", err=True)
