"""Finds inputs at which a gradient is wrong: sides of branches that no sample point takes; `search`."""

from __future__ import annotations

COMMANDS = {"search": ("search_command", "Search for an input at which a gradient is wrong.")}
HOOKS = {"choose_points": "other_points:choose_points"}
