"""Finds the op whose own gradient is wrong: `blame`, and `trace`, which prints a backward pass op by op."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

_ROOM = "gradcheck_cli.features.blame"
_COMMANDS = f"{_ROOM}.blame_commands"
COMMANDS = {
    "blame": Command(_COMMANDS, "Find the op whose own gradient is wrong.", "blame"),
    "trace": Command(_COMMANDS, "Print one backward pass, op by op.", "trace"),
}
HOOKS = {
    "explain_mismatches": f"{_ROOM}.blaming:explain_mismatches",
}
