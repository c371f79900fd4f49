"""`gradcheck show`: prints one pair's Jacobian, analytic beside numeric, whole or one row of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradcheck_cli import optional
from gradcheck_cli.cli.options.case_options import PickedCases, picking_options, print_answers
from gradcheck_cli.cli.options.configured import takes_form
from gradcheck_cli.errors import CaseFailedError, UsageError

if TYPE_CHECKING:
    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.spec.case import Case


_DRAWN = (".png", ".svg")
_FORMS = (*_DRAWN, ".html")


def _target(value: str) -> str:
    if Path(value).suffix not in _FORMS:
        raise click.BadParameter(f"must end in {' or '.join(_FORMS)}, but got '{value}'.")
    return value


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
@click.option(
    "--plot",
    "target",
    metavar="FILE",
    type=_target,
    help="Draw the pair into FILE (.png, .svg or .html): heat maps of both Jacobians and of the "
    "error, and differences by step.",
)
@takes_form("json")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    picked: PickedCases,
    index: tuple[int, ...] | None,
    target: str | None,
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
    # Late imports: `show --help` shouldn't wait for them.
    from gradcheck_cli.features.page.page import PICTURES

    if target is not None and Path(target).suffix in _DRAWN:
        optional.load(*PICTURES)  # before the case is checked for nothing
    cases = picked.load()
    if target is not None:
        if len(cases) > 1:
            raise UsageError("--plot: a file holds one picture; pick one by --op and --case.")
        ctx.exit(print_answers(cases, lambda case, _: _plot(case, picked.label, target)))

    from gradcheck_cli.features.page.jacobian_text import jacobian_json, jacobian_text, pair_view

    def answer(case: Case, width: int) -> tuple[int, str]:
        view = pair_view(case, picked.label)
        if index is not None:
            _check_index(index, view.output.name, view.output.shape)
        if form == "json":
            return 0, jacobian_json(case, view, index)
        return 0, jacobian_text(case, view, index, width=width)

    ctx.exit(print_answers(cases, answer))


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


def _plot(case: Case, label: str | None, target: str) -> tuple[int, str]:
    """Check a case, and draw one of its pairs. Return 0 whatever the verdict: `run` reports that."""
    from gradcheck_cli.features.page.jacobian_text import draw_pair, pair_view

    label = label or pair_view(case, None).label
    result = draw_pair(case, label)
    figure = result.pairs[0].figure
    if figure is None:
        raise CaseFailedError("pairs", f"{label}: none of its elements was judged: there is nothing to draw.")
    from gradcheck_cli.features.page.page import PICTURES, needs_slopes

    if Path(target).suffix in _DRAWN:
        draw = optional.load(*PICTURES).file_of
        content = draw(figure, Path(target).suffix[1:], kinks=needs_slopes(result.pairs[0]))
    else:
        content = _page(result).encode("utf-8", "backslashreplace")
    try:
        Path(target).write_bytes(content)
    except OSError as error:
        raise UsageError(f"--plot: '{target}' can't be written: {error.strerror or error}") from error
    click.echo(target, err=True)
    return 0, ""


def _page(result: CaseResult) -> str:
    import platform

    from gradcheck_cli import __version__
    from gradcheck_cli.cli.options.running_options import root_folder
    from gradcheck_cli.features.page.page import to_html
    from gradcheck_cli.results import Report
    from gradcheck_cli.running.session import start_tensorflow

    versions = __version__, start_tensorflow(), platform.python_version()
    report = Report(*versions, 0, (result,), duration_s=result.ran.duration_s)
    return to_html(report, root_folder())
