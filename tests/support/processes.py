"""Commands in processes of their own, whose output is kept."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(*command, cwd, **variables):
    """Start a command that imports the package of this tree, and return its process."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.Popen(
        [*map(str, command)],
        cwd=cwd,
        env={**outside, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*command, cwd, timeout=600, **variables):
    """Run such a command to its end; return its exit code and its texts."""
    with start(*command, cwd=cwd, **variables) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def gradcheck(*arguments, cwd, **variables):
    """Run `gradcheck` with arguments."""
    return run(sys.executable, "-m", "gradcheck_cli", *arguments, cwd=cwd, **variables)


def git(folder, *arguments):
    """Run git as somebody, whatever this machine's settings are; return what it prints."""
    somebody = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = run("git", *somebody, *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
