"""Results as a page with pictures, and one Jacobian in a terminal: `--report html` and `show`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command, Format

_ROOM = "gradcheck_cli.features.page"
COMMANDS = {"show": Command(f"{_ROOM}.show_command", "Print a pair's analytic and numeric Jacobian.")}
FORMATS = {"html": Format(f"{_ROOM}.page", "to_html", is_rooted=True)}
HOOKS = {"draw_figures": f"{_ROOM}.figure_data:draw_figures"}
