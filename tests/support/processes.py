"""Commands in processes of their own, whose output is kept."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command, cwd, timeout=600, **variables):
    """Run a command that imports the package of this tree; return its exit code and its texts."""
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
