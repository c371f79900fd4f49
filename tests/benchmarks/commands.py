"""Time whole commands, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.benchmarks.measuring import seconds_of

ROOT = Path(__file__).parents[2]
GRADCHECK = (sys.executable, "-m", "gradcheck_cli")
IMPORT = (sys.executable, "-c", "import tensorflow")


def seconds_of_command(*command):
    """Return the seconds that a command takes, from the checkout's root.

    Raises:
        RuntimeError: its exit code isn't 0: what is timed must be what was meant.
    """
    ended = []
    run = partial(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = seconds_of(lambda: ended.append(run()))
    if ended[0].returncode:
        said = (ended[0].stderr or ended[0].stdout).strip()[-300:]
        raise RuntimeError(f"{' '.join(command[1:])}: exit code {ended[0].returncode}: {said}")
    return seconds
