"""Finds inputs at which a gradient is wrong: sides of branches that no sample point takes; `search`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

_ROOM = "gradcheck_cli.features.search"
COMMANDS = {"search": Command(f"{_ROOM}.search_command", "Search for an input at which a gradient is wrong.")}
HOOKS = {"choose_points": f"{_ROOM}.other_points:choose_points"}
