"""Completion in real shells, on a terminal: what a Tab writes."""

import fcntl
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(gradcheck completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit && compinit -u -D && eval "$(gradcheck completion zsh)"',
    ),
    "fish": (["fish", "--no-config", "-i"], "gradcheck completion fish | source"),
}
SPEC = """
op: huber
forward: huber:huber
tags: [quick]
covers: [Square]
inputs: {prediction: {shape: [3]}, target: {shape: [3]}}
cases: [{name: wide, inputs: {prediction: {shape: [9]}, target: {shape: [9]}}}]
"""


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, command, folder):
        self.master, theirs = pty.openpty()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={"PATH": path, "HOME": str(folder), "TERM": "dumb", "PS1": "$ "},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 (its own terminal)
        )
        os.close(theirs)

    def type(self, keys):
        os.write(self.master, keys.encode())

    def wait_for(self, pattern, seconds=120):
        """Return what was written, once it has the pattern in it."""
        written, end = "", time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.master], [], [], 0.2)[0]:
                written += os.read(self.master, 65536).decode(errors="replace")
                plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)
                if re.search(pattern, plain):
                    return plain
        raise AssertionError(f"{pattern!r} wasn't written, but {written!r}")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(tmp_path, request):
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "huber.yaml").write_text(SPEC)
    command, load = SHELLS[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    shell = Terminal(command, tmp_path)
    try:
        shell.type(load + "; echo rea''dy\n")
        shell.wait_for("ready")
        yield shell
    finally:
        shell.close()


@pytest.mark.parametrize("terminal", SHELLS, indirect=True)
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("gradcheck vali", "gradcheck validate "),
        ("gradcheck run specs/hu", r"specs/huber\.yaml"),
        ("gradcheck run --op-type Squ", "--op-type Square"),
        ("gradcheck run --tag qu", "--tag quick"),
        ("gradcheck run --case wi", "--case wide"),
        ("gradcheck show specs/huber.yaml --pair dy/dp", "dy/dprediction"),
        ("gradcheck run --isol", "--isolate"),
    ],
)
def test_what_a_tab_completes(terminal, typed, expected):
    terminal.type(typed + "\t")
    time.sleep(1)
    terminal.type("\t")
    terminal.wait_for(expected)
