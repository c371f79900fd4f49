"""Finds the hand-written gradients of a package, and says which a run has checked: `list`, `run --cov`."""

from __future__ import annotations

COMMANDS = {"list": ("list_command", "List registered gradients and where they are.")}
HOOKS = {
    "run_options": "coverage_options:RUN_OPTIONS",
    "closing_lines": "measure:closing_lines",
    "find_gradients": "gradients_in_text:finds_in",
}
