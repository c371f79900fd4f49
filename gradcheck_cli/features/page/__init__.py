"""Results as a page with pictures, and one Jacobian in a terminal: `--report html` and `show`."""

from __future__ import annotations

from gradcheck_cli.hooks import Format

COMMANDS = {"show": ("show_command", "Print a pair's analytic and numeric Jacobian.")}
FORMATS = {"html": Format("page", "to_html", is_rooted=True)}
HOOKS = {"draw_figures": "figure_data:draw_figures"}
