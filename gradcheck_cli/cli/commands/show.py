"""`gradcheck show`: prints one pair's Jacobian, analytic beside numeric, whole or one row of it."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli import completing
from gradcheck_cli.cli.options.selection_options import one_of_several
from gradcheck_cli.cli.plotting import TERMINAL, plot, plot_option
from gradcheck_cli.errors import UsageError

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case


def _index(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Read `0,0`; brackets and blanks around it are fine."""
    if value is None:
        return None
    text = value.strip().strip("[]()").strip(" ,")
    if not text:
        return ()
    if not re.fullmatch(r"\d+(\s*,\s*\d+)*", text):
        raise click.BadParameter(f"must be whole numbers from 0, such as 0,0, but got '{value}'.")
    return tuple(int(part) for part in text.split(","))


@click.command("show", short_help="Print a pair's analytic and numeric Jacobian.")
@click.argument("spec", type=click.Path(), shell_complete=completing.spec_files)
@click.option(
    "--pair",
    "label",
    required=True,
    metavar="dOUT/dIN",
    shell_complete=completing.pairs,
    help="Which pair, such as dM1/dM0.",
)
@click.option(
    "--output",
    "index",
    metavar="INDEX",
    callback=_index,
    help="One element of the output, such as 0,0: its row, in the input's shape.",
)
@plot_option
@one_of_several
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to print."
)
@click.pass_context
def command(  # noqa: PLR0913 (one argument per option)
    ctx: click.Context,
    *,
    spec: str,
    label: str,
    index: tuple[int, ...] | None,
    target: str | None,
    ops: tuple[str, ...],
    names: tuple[str, ...],
    form: str,
) -> None:
    """Print the analytic and the numeric Jacobian of one pair of SPEC, and what `run` says of them.

    Row: element of the output. Column: element of the input. Both in C order. Of a complex output there is a
    row for an upstream of 1, and one for 1j. The case is checked as `run` checks it: values, what is allowed
    and verdicts are its own, at the sample point that tells most.

    \b
    Exit codes: 0 printed, whatever the verdict, 2 bad usage or a bad spec, 3 the
    case can't be checked, 5 no spec matched.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    # Late imports: `show --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import terminal_width
    from gradcheck_cli.cli.pick_case import cases_with, each_case, select_cases
    from gradcheck_cli.spec.load import load_cases

    cases = cases_with(select_cases(load_cases([spec]), names, ops), label)
    if target is not None:
        if target != TERMINAL and len(cases) > 1:
            raise UsageError("--plot: a file holds one picture; pick one by --op and --case.")
        ctx.exit(each_case(cases, lambda case: plot(case, label, target)))

    from gradcheck_cli.reporting.terminal.jacobian_text import jacobian_json, jacobian_text
    from gradcheck_cli.running.views.showing import pair_view

    def show(case: Case) -> int:
        with redirect_stdout(sys.stderr):  # what the forward prints is no part of the result
            view = pair_view(case, label)
        if index is not None:
            _check_index(index, view.output.name, view.output.shape)
        if form == "json":
            click.echo(jacobian_json(case, view, index), nl=False)
        else:
            click.echo(jacobian_text(case, view, index, width=terminal_width()), nl=False)
        return 0

    ctx.exit(each_case(cases, show))


def _check_index(index: tuple[int, ...], output: str, shape: tuple[int, ...]) -> None:
    if len(index) != len(shape):
        example = ",".join("0" for _ in shape)
        remedy = f"give {len(shape)} numbers, such as {example}" if shape else "leave --output out"
        raise UsageError(
            f"--output: {output} has shape {shape}, but the index has {len(index)} numbers; {remedy}"
        )
    if not all(position < size for position, size in zip(index, shape, strict=True)):
        raise UsageError(
            f"--output: {','.join(map(str, index))} is out of range: {output} has shape {shape}, "
            "and indices count from 0"
        )
