"""`gradcheck trace`: prints one backward pass, op by op, from an output to the inputs."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.selection_options import PickedCases, picking_options

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case


@click.command("trace", short_help="Print one backward pass, op by op.")
@picking_options("Only the path of one pair, such as dM1/dM0. [default: all]")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="OPTYPE",
    help="Only ops of this type, such as Exp. [default: all but Identity]",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to print."
)
@click.pass_context
def command(ctx: click.Context, *, picked: PickedCases, types: tuple[str, ...], form: str) -> None:
    """Print one backward pass of SPEC, op by op, from each output to the inputs.

    The upstream at the output is all ones. For each op it prints the gradient function and its place, the
    upstreams and the gradients. It marks where NaN, infinity and None first appear.

    \b
    Exit codes: 0 printed, 2 bad usage or a bad spec, 3 forward or gradient could
    not be run, 5 no spec matched.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    # Late imports: `trace --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width
    from gradcheck_cli.cli.options.selection_options import handle_cases

    cases = picked.load()

    from gradcheck_cli.features.blame.blame_text import trace_json, trace_lines
    from gradcheck_cli.features.blame.blaming import trace_case

    def trace(case: Case) -> int:
        with redirect_stdout(sys.stderr):  # what the forward prints isn't part of the result
            passes = trace_case(case, picked.label, types)
        if form == "json":
            click.echo(trace_json(case, passes), nl=False)
        else:
            print_lines(console_for(sys.stdout), trace_lines(case, passes, width=terminal_width()))
        return 0

    ctx.exit(handle_cases(cases, trace))
