"""`gradcheck blame`, which finds the op whose own gradient is wrong, and `gradcheck trace`, op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.case_options import PickedCases, picking_options, print_answers
from gradcheck_cli.cli.options.configured import takes_form

if TYPE_CHECKING:
    from rich.text import Text

    from gradcheck_cli.spec.case import Case


@click.command("blame")
@picking_options("Only the path of one pair, such as dM1/dM0. [default: each output, with all inputs]")
@takes_form("json")
@click.pass_context
def blame(ctx: click.Context, *, picked: PickedCases, form: str) -> None:
    """Find the op of SPEC's forward whose own gradient is wrong.

    Every op between an output and the inputs is compared with its own differences. The wrong op nearest to
    the output is named, with the place of its gradient function. A tf.custom_gradient, a loop and a branch
    each count as one op, with everything inside.

    \b
    Exit codes: 0 every op's gradient is right, 1 an op is named, 2 bad usage or a
    bad spec, 3 undecided, 5 no spec matched.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)

    def answer(case: Case, width: int) -> tuple[int, str | list[Text]]:
        from gradcheck_cli.features.blame.blame_text import blame_json, blame_lines
        from gradcheck_cli.features.blame.blaming import blame_case
        from gradcheck_cli.features.blame.path_blame import exit_code_of

        blames = blame_case(case, picked.label)
        code = exit_code_of(blames)
        if form == "json":
            return code, blame_json(case, blames, code)
        return code, blame_lines(case, blames, width=width)

    ctx.exit(print_answers(picked.load(), answer))


@click.command("trace")
@picking_options("Only the path of one pair, such as dM1/dM0. [default: all]")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="OPTYPE",
    help="Only ops of this type, such as Exp. [default: all but Identity]",
)
@takes_form("json")
@click.pass_context
def trace(ctx: click.Context, *, picked: PickedCases, types: tuple[str, ...], form: str) -> None:
    """Print one backward pass of SPEC, op by op, from each output to the inputs.

    The upstream at the output is all ones. For each op it prints the gradient function and its place, the
    upstreams and the gradients. It marks where NaN, infinity and None first appear.

    \b
    Exit codes: 0 printed, 2 bad usage or a bad spec, 3 forward or gradient could
    not be run, 5 no spec matched.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)

    def answer(case: Case, width: int) -> tuple[int, str | list[Text]]:
        from gradcheck_cli.features.blame.blame_text import trace_json, trace_lines
        from gradcheck_cli.features.blame.blaming import trace_case

        passes = trace_case(case, picked.label, types)
        return 0, trace_json(case, passes) if form == "json" else trace_lines(case, passes, width=width)

    ctx.exit(print_answers(picked.load(), answer))
