"""startup: short commands, against `import tensorflow` alone in a fresh process."""

from __future__ import annotations

from functools import partial

from tests.benchmarks.commands import GRADCHECK, IMPORT, seconds_of_command
from tests.benchmarks.measuring import in_turn, shown_ratio, shown_seconds, table

ROUNDS = 5
COMMANDS = ("--help", "validate specs", "run specs/seeds/chain.yaml")


def run(options):
    rounds = options.rounds or ROUNDS
    yield f"## startup: median of {rounds} rounds in turn\n"
    sides = {"import tensorflow": partial(seconds_of_command, *IMPORT)}
    for command in COMMANDS:
        sides[f"gradcheck {command}"] = partial(seconds_of_command, *GRADCHECK, *command.split())
    found = in_turn(sides, rounds)
    bare = found["import tensorflow"]
    rows = [
        [name, shown_seconds(seconds), shown_ratio(seconds / bare), f"{seconds - bare:+.2f} s"]
        for name, seconds in found.items()
    ]
    yield table(["command", "time", "times the import", "beyond it"], rows)
