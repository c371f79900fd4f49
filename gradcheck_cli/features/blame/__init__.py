"""Finds the op whose own gradient is wrong: `blame`, and `trace`, which prints a backward pass op by op."""

from __future__ import annotations

COMMANDS = {
    "blame": ("blame_commands", "Find the op whose own gradient is wrong.", "blame"),
    "trace": ("blame_commands", "Print one backward pass, op by op.", "trace"),
}
HOOKS = {"explain_mismatches": "blaming:explain_mismatches"}
