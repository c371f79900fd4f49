"""`show --plot`: a pair's pictures into a file, or as blocks on the terminal."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gradcheck_cli.errors import CaseFailedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.spec.case import Case

Function = TypeVar("Function", bound="Callable[..., Any]")

TERMINAL = "-"
_DRAWN = (".png", ".svg")
_FORMS = (*_DRAWN, ".html")


def _target(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is None or value == TERMINAL:
        return value
    if Path(value).suffix not in _FORMS:
        raise click.BadParameter(
            f"must end in {', '.join(_FORMS)}, or be - for the terminal, but got '{value}'."
        )
    if Path(value).suffix in _DRAWN and find_spec("matplotlib") is None:
        raise click.BadParameter("pictures need matplotlib: pip install 'gradcheck-cli[plot]'")
    return value


def plot_option(function: Function) -> Function:
    """Add `--plot`, as `target`."""
    return click.option(
        "--plot",
        "target",
        metavar="FILE",
        callback=_target,
        help="Draw the pair into FILE (.png, .svg or .html): heat maps of both Jacobians and of the "
        "error, and differences by step. -: as blocks on the terminal.",
    )(function)


def plot(case: Case, label: str, target: str) -> int:
    """Check a case, and draw one pair of it.

    Returns:
        0: what the verdict is, is for `run` to say.

    Raises:
        UsageError: there is no such pair.
        CaseFailedError: the case can't be checked, or nothing of the pair can be drawn.
    """
    from gradcheck_cli.running.views.drawing import drawn_pair

    with redirect_stdout(sys.stderr):  # what the forward prints is no part of the result
        result = drawn_pair(case, label)
    figure = result.pairs[0].figure
    if figure is None:
        raise CaseFailedError("pairs", f"{label}: none of its elements was judged: there is nothing to draw.")
    if target == TERMINAL:
        _print(result)
        return 0
    from gradcheck_cli.reporting.html.page import needs_slopes

    if Path(target).suffix in _DRAWN:
        from gradcheck_cli.reporting.html.pictures import file_of

        content = file_of(figure, Path(target).suffix[1:], kinks=needs_slopes(result.pairs[0]))
    else:
        content = _page(result).encode("utf-8", "backslashreplace")
    try:
        Path(target).write_bytes(content)
    except OSError as error:
        raise UsageError(f"--plot: '{target}' can't be written: {error.strerror or error}") from error
    click.echo(target, err=True)
    return 0


def _page(result: CaseResult) -> str:
    import platform

    from gradcheck_cli import __version__
    from gradcheck_cli.cli.options.report_options import root_folder
    from gradcheck_cli.reporting.html.page import to_html
    from gradcheck_cli.results import Report
    from gradcheck_cli.running.session import start_tensorflow

    report = Report(
        __version__, start_tensorflow(), platform.python_version(), 0, (result,), duration_s=result.duration_s
    )
    return to_html(report, root_folder())


def _print(result: CaseResult) -> None:
    from gradcheck_cli.cli.console import console_for, print_lines, terminal_width, uses_colour
    from gradcheck_cli.reporting.terminal.half_blocks import heat_lines
    from gradcheck_cli.reporting.terminal.report_text import case_lines

    drawn = result.pairs[0].figure
    lines = case_lines(result, width=terminal_width())
    if drawn is not None and drawn.map is not None:
        lines += heat_lines(drawn.map, coloured=uses_colour(sys.stdout))
    print_lines(console_for(sys.stdout), lines)
