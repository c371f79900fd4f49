"""Corrupts gradients on purpose, to see what the checks notice: `mutate`."""

from __future__ import annotations

COMMANDS = {"mutate": ("mutate_command", "Say which wrong gradients specs would miss.")}
HOOKS = {"run_corrupted": "mutate_case:mutate"}
