"""Results as a page with pictures, and one Jacobian in a terminal: `--report html` and `show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradcheck_cli.hooks import Command, Format, OpenCase

if TYPE_CHECKING:
    from gradcheck_cli.gate import BaselineFinding
    from gradcheck_cli.results import Report

COMMANDS = {
    "show": Command(
        "gradcheck_cli.features.page.show_command", "Print a pair's analytic and numeric Jacobian."
    ),
}
FORMATS = {"html": Format("gradcheck_cli.features.page.page", "to_html", is_rooted=True)}
FOR_CASES = ("gradcheck_cli.features.page.figure_data",)


def draw_figures(judged: OpenCase) -> None:
    """Draw the figures that the case asks for."""
    from gradcheck_cli.features.page.figure_data import add_figures

    if judged.opener.case.figures_of:
        judged.findings = add_figures(judged.findings, judged.opener)


def compare_on_page(
    old: tuple[str, Report], new: tuple[str, Report], findings: Sequence[BaselineFinding]
) -> str:
    """Render two reports side by side; see `hooks.compare_on_page`."""
    from gradcheck_cli.features.page.page import compare_to_html

    return compare_to_html(old, new, findings)
