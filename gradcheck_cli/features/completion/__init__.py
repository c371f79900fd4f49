"""What the shell offers after a Tab: `completion`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

_ROOM = "gradcheck_cli.features.completion.completing"
COMMANDS = {"completion": Command(_ROOM, "Print a shell's completion script.")}
HOOKS = {"completing": f"{_ROOM}:complete"}
