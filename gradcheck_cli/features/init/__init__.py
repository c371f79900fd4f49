"""Drafts of specs: `init`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

COMMANDS = {"init": Command("gradcheck_cli.features.init.init_command", "Write a spec to start from.")}
