"""Compares the gradients of a case's modes: `modes: [graph, eager]`."""

from __future__ import annotations

HOOKS = {"compare_modes": "gradcheck_cli.features.modes.compare_modes:compare_modes"}
