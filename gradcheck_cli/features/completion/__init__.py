"""What the shell offers after a Tab: `completion`."""

from __future__ import annotations

COMMANDS = {"completion": ("completing", "Print a shell's completion script.")}
HOOKS = {"completing": "completing:complete"}
