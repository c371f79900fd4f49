"""`gradcheck show`: prints one pair's Jacobian, analytic beside numeric, whole or one row of it."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from gradcheck_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.case import Case

LABEL = re.compile(r"d(?P<output>.+)/d(?P<input>.+)")


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
@click.argument("spec", type=click.Path())
@click.option("--pair", "label", required=True, metavar="dOUT/dIN", help="Which pair, such as dM1/dM0.")
@click.option(
    "--output",
    "index",
    metavar="INDEX",
    callback=_index,
    help="One element of the output, such as 0,0: its row, in the input's shape.",
)
@click.option(
    "--case", "names", multiple=True, metavar="NAME", help="Which case, where the spec has several."
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="What to print."
)
def command(
    *, spec: str, label: str, index: tuple[int, ...] | None, names: tuple[str, ...], form: str
) -> None:
    """Print the analytic and the numeric Jacobian of one pair of SPEC, and where they differ.

    Row: element of the output. Column: element of the input. Both in C order.
    """
    # Late imports: `show --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import terminal_width  # noqa: PLC0415
    from gradcheck_cli.cli.selection import select_cases  # noqa: PLC0415
    from gradcheck_cli.spec.load import load_cases  # noqa: PLC0415

    case = _choose(select_cases(load_cases([spec]), names), label)

    from gradcheck_cli.reporting.jacobian import jacobian_json, jacobian_text  # noqa: PLC0415
    from gradcheck_cli.running.session import pair_jacobian  # noqa: PLC0415

    with redirect_stdout(sys.stderr):  # what the forward prints is no part of the result
        view = pair_jacobian(case, label)
    if index is not None:
        _check_index(index, view.output, view.output_shape)
    if form == "json":
        click.echo(jacobian_json(case, view, index), nl=False)
        return
    click.echo(jacobian_text(case, view, index, width=terminal_width()), nl=False)


def _choose(cases: Sequence[Case], label: str) -> Case:
    """Return the first case that can have the pair, and say so where there are others."""
    from gradcheck_cli.cli.selection import meant  # noqa: PLC0415 (imported late with the rest)

    known = list(dict.fromkeys(name for case in cases for name in _labels(case)))
    fitting = [case for case in cases if _fits(case, label)]
    if not fitting:
        raise UsageError(f"no pair is labelled '{label}'.{meant(label, known)}")
    chosen = fitting[0]
    if len(fitting) > 1:
        others = dict.fromkeys(case.name for case in fitting if case.name != chosen.name)
        choice = f"; others: --case {', '.join(others)}" if others else ""
        click.echo(
            f"showing {chosen.op} · {chosen.dtype} · case {chosen.name}, "
            f"the first of {len(fitting)} with this pair{choice}",
            err=True,
        )
    return chosen


def _labels(case: Case) -> list[str]:
    """Return the labels of a case as far as its spec tells them; outputs without a name count as y."""
    outputs = [output.name for output in case.outputs] or ["y"]
    inputs = [tensor.name for tensor in case.tensors if tensor.is_differentiable]
    return [f"d{output}/d{name}" for output in outputs for name in inputs]


def _fits(case: Case, label: str) -> bool:
    """Whether the case can have the pair; tracing tells the names of variables, and of nameless outputs."""
    if case.variables:
        return LABEL.fullmatch(label) is not None
    if case.outputs:
        return label in _labels(case)
    parts = LABEL.fullmatch(label)
    inputs = [tensor.name for tensor in case.tensors if tensor.is_differentiable]
    return parts is not None and any(label.endswith(f"/d{name}") for name in inputs)


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
