"""Results as a page with pictures, and one Jacobian in a terminal: `--report html` and `show`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command, Format, OpenCase

COMMANDS = {
    "show": Command(
        "gradcheck_cli.features.page.show_command", "Print a pair's analytic and numeric Jacobian."
    ),
}
FORMATS = {"html": Format("gradcheck_cli.features.page.html.page", "to_html", is_rooted=True)}


def draw_figures(judged: OpenCase) -> None:
    """Draw the figures that the case asks for."""
    from gradcheck_cli.features.page.drawing import add_figures

    if judged.opener.case.drawn:
        judged.findings = add_figures(judged.findings, judged.opener)
