"""Finds the hand-written gradients of a package, and says which a run has checked: `list`, `run --cov`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

_ROOM = "gradcheck_cli.features.coverage"
COMMANDS = {"list": Command(f"{_ROOM}.list_command", "List registered gradients and where they are.")}
HOOKS = {
    "run_options": f"{_ROOM}.coverage_options:RUN_OPTIONS",
    "closing_lines": f"{_ROOM}.measure:closing_lines",
    "find_gradients": f"{_ROOM}.gradients_in_text:finds_in",
}
