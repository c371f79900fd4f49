"""Checks again when a file is saved, and joins the reports of shards: `run --watch`, `merge`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

_ROOM = "gradcheck_cli.features.watch"
COMMANDS = {"merge": Command(f"{_ROOM}.merge_command", "Merge the JSON reports of shards into one.")}
HOOKS = {"watch_cases": f"{_ROOM}.watching:watch_command"}
