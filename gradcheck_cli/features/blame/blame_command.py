"""`gradcheck blame`: finds the op of a forward whose own gradient is wrong."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.selection_options import PickedCases, picking_options

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case


@click.command("blame", short_help="Find the op whose own gradient is wrong.")
@picking_options("Only the path of one pair, such as dM1/dM0. [default: each output, with all inputs]")
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to print."
)
@click.pass_context
def command(ctx: click.Context, *, picked: PickedCases, form: str) -> None:
    """Find the op of SPEC's forward whose own gradient is wrong.

    Every op between an output and the inputs is compared with its own differences. The wrong op nearest to
    the output is named, with the place of its gradient function. A tf.custom_gradient, a loop and a branch
    each count as one op, with everything inside.

    \b
    Exit codes: 0 every op's gradient is right, 1 an op is named, 2 bad usage or a
    bad spec, 3 undecided, 5 no spec matched.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    # Late imports: `blame --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width
    from gradcheck_cli.cli.options.selection_options import handle_cases

    cases = picked.load()

    from gradcheck_cli.features.blame.blame_result import exit_code_of
    from gradcheck_cli.features.blame.blame_text import blame_json, blame_lines
    from gradcheck_cli.features.blame.blaming import blame_case

    def blame(case: Case) -> int:
        with redirect_stdout(sys.stderr):  # what the forward prints isn't part of the result
            path_blames = blame_case(case, picked.label)
        code = exit_code_of(path_blames)
        if form == "json":
            click.echo(blame_json(case, path_blames, code), nl=False)
        else:
            print_lines(console_for(sys.stdout), blame_lines(case, path_blames, width=terminal_width()))
        return code

    ctx.exit(handle_cases(cases, blame))
