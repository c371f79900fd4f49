"""`gradcheck mutate`: corrupts gradients in known ways, and says which corruptions the specs would miss."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gradcheck_cli.cli import completing
from gradcheck_cli.cli.options import worker_options
from gradcheck_cli.cli.options.selection_options import naming_options
from gradcheck_cli.cli.options.worker_options import case_runner, process_options, told_by
from gradcheck_cli.spec.words import CORRUPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.spec.case import Case

UNCHECKED = 3


def _sizes(cases: Sequence[Case]) -> dict[tuple[str, str], set[tuple[tuple[int, ...], ...]]]:
    """Return the shapes that the cases of each op have: a size that is always the same hides its number."""
    found: dict[tuple[str, str], set[tuple[tuple[int, ...], ...]]] = {}
    for case in cases:
        shapes = tuple(tensor.shape for tensor in case.tensors)
        found.setdefault((case.path, case.op), set()).add(shapes)
    return found


@click.command("mutate", short_help="Say which wrong gradients specs would miss.")
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
@click.option("--seed", type=click.IntRange(min=0), help="Draw inputs from this seed, whatever specs say.")
@naming_options
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 3 where a smaller share of the corruptions is called a mismatch.",
)
@process_options
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", help="What to print."
)
@click.option("-v", "--verbose", is_flag=True, help="List what is caught, too.")
@click.pass_context
def command(  # noqa: PLR0913 (one argument per option)
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    kinds: tuple[str, ...],
    seed: int | None,
    fail_under: float | None,
    form: str,
    verbose: bool,
    ops: tuple[str, ...],
    names: tuple[str, ...],
    expression: str | None,
    tags: tuple[str, ...],
    op_types: tuple[str, ...],
    **options: Any,  # noqa: ANN401 (those of process_options)
) -> None:
    """Corrupt the gradients that the specs in PATHS describe, one way at a time, and check each again.

    A corruption that is called a mismatch is caught; one that leaves a pair undecided fails a run as well;
    one that passes is missed: the spec's points, or its tolerance, don't show it. Only gradients that are
    right as they are get corrupted, and only in ways that change them. What no point of a case could show is
    out of sight, and said so, with the place: a side of a branch that none is on, an axis of size one, a
    factor of ones, indices none of which repeats, a size that every case shares.

    \b
    Exit codes: 0 tried, 2 bad usage or a bad spec, 3 too few are caught
    (--fail-under), or a case couldn't be tried, 5 no spec matched, 130 interrupted.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    # Late imports: `mutate --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width
    from gradcheck_cli.cli.progress import progress_bar
    from gradcheck_cli.cli.project import default_paths
    from gradcheck_cli.running.selection.filters import CaseFilter, choose
    from gradcheck_cli.spec.load import load_cases

    wanted = CaseFilter(names, tags, op_types, expression, ops)
    cases = choose(load_cases(paths or default_paths(), seed=seed), wanted)
    varied = {key for key, sizes in _sizes(cases).items() if len(sizes) > 1}
    cases = tuple(
        replace(
            case,
            corruptions=tuple(
                kind for kind in kinds or CORRUPTIONS if kind != "size" or (case.path, case.op) not in varied
            ),
        )
        for case in cases
    )
    run = case_runner(ctx, (), **{name: options.pop(name) for name in worker_options.OPTIONS})
    from gradcheck_cli.reporting.terminal.closing import unchecked_lines
    from gradcheck_cli.reporting.terminal.mutants import (
        Tally,
        case_lines,
        mutants_csv,
        mutants_json,
        tally_lines,
    )

    console, width = console_for(sys.stdout), terminal_width()
    with redirect_stdout(sys.stderr), progress_bar(len(cases), told_by(run)) as bar:

        def on_case(result: CaseResult) -> None:
            bar.end_case()
            if form == "table" and (lines := case_lines(result, width=width, verbose=verbose)):
                with bar.paused():
                    print_lines(console, lines)

        report = run(cases, seed=seed, on_case=on_case, on_start=bar.start_case)
    tally = Tally.of(report)
    if form == "table":
        print_lines(console, [*unchecked_lines(report, width), *tally_lines(report, tally, width=width)])
    else:
        click.echo((mutants_json if form == "json" else mutants_csv)(report), nl=False)
        for text in report.unchecked:
            click.echo(f"NOT CHECKED  {text}", err=True)
    if report.interrupted:
        ctx.exit(report.exit_code)
    too_few = fail_under is not None and (tally.share is None or 100 * tally.share < fail_under)
    ctx.exit(UNCHECKED if tally.untried or too_few or report.unchecked else 0)
