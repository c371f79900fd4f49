"""Checks again when a file is saved, and joins the reports of shards: `run --watch`, `merge`."""

from __future__ import annotations

COMMANDS = {"merge": ("merge_command", "Merge the JSON reports of shards into one.")}
HOOKS = {"watch_cases": "watching:watch_command"}
