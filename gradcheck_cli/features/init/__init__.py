"""Drafts of specs: `init`."""

from __future__ import annotations

COMMANDS = {"init": ("init_command", "Write a spec to start from.")}
