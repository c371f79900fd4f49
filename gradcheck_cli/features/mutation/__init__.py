"""Corrupts gradients on purpose, to see what the checks notice: `mutate`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

_ROOM = "gradcheck_cli.features.mutation"
COMMANDS = {"mutate": Command(f"{_ROOM}.mutate_command", "Say which wrong gradients specs would miss.")}
HOOKS = {"run_corrupted": f"{_ROOM}.mutate_case:mutate"}
