"""Says what a finding's code means, and what to do about it: `explain`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

COMMANDS = {
    "explain": Command("gradcheck_cli.features.explain.explain_command", "Explain a finding, and what to do.")
}
