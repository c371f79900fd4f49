"""`gradcheck show`: prints one pair's Jacobian, analytic beside numeric, whole or one row of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.case_options import PickedCases, picking_options, print_answers
from gradcheck_cli.cli.options.configured import takes_form
from gradcheck_cli.errors import UsageError

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case


def _index(value: str) -> tuple[int, ...]:
    """Read `0,0`; brackets and blanks around it are fine."""
    text = value.strip().strip("[]()").strip(" ,")
    if not text:
        return ()
    if not re.fullmatch(r"\d+(\s*,\s*\d+)*", text):
        raise click.BadParameter(f"must be whole numbers from 0, such as 0,0, but got '{value}'.")
    return tuple(int(number) for number in text.split(","))


@click.command("show")
@picking_options("Which pair, such as dM1/dM0. [default: the only one]")
@click.option(
    "--output",
    "index",
    metavar="INDEX",
    type=_index,
    help="One element of the output, such as 0,0: its row, in the input's shape.",
)
@takes_form("json")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    picked: PickedCases,
    index: tuple[int, ...] | None,
    form: str,
) -> None:
    """Print the analytic and the numeric Jacobian of one pair of SPEC, and what `run` says about them.

    Row: element of the output. Column: element of the input. Both in C order. For a complex output there is a
    row for an upstream of 1, and one for 1j. The case is checked as `run` checks it: values, tolerances and
    verdicts are those of the run, at the sample point that shows most.

    \b
    Exit codes: 0 printed, whatever the verdict, 2 bad usage or a bad spec, 3 the
    case can't be checked, 5 no spec matched.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)
    # Late: `show --help` shouldn't wait for it.
    from gradcheck_cli.features.page.jacobian_text import jacobian_json, jacobian_text, pair_view

    def answer(case: Case, width: int) -> tuple[int, str]:
        view = pair_view(case, picked.label)
        if index is not None:
            _check_index(index, view.output.name, view.output.shape)
        if form == "json":
            return 0, jacobian_json(case, view, index)
        return 0, jacobian_text(case, view, index, width=width)

    ctx.exit(print_answers(picked.load(), answer))


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
