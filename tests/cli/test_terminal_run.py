"""A run on a real terminal: the progress bar shares the screen with the results and leaves no trace."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

SCRIPT = """
import sys, types
sys.path.insert(0, {root!r})
from tests.cli import conftest
from gradcheck_cli.cli.main import main
engine = conftest.Engine()
load = types.ModuleType("load")
load.load_cases = engine.load_cases
sys.modules["gradcheck_cli.spec.load"] = load
from gradcheck_cli.cli.commands import run
run.start_workers = engine.start_workers
from gradcheck_cli.running import run_loop
run_loop.run_in_workers = engine.run_in_workers
sys.argv = ["gradcheck", "run"]
main()
"""


def run(**streams):
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(root=str(Path(__file__).parents[2]))],
        check=False,
        timeout=60,
        env={**environment, "TERM": "xterm", "COLUMNS": "80"},
        **streams,
    )


def read_all(descriptor):
    chunks = []
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # Linux's end of a pseudo-terminal
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(descriptor)
    return b"".join(chunks).decode()


@pytest.fixture
def terminal():
    reader, writer = pty.openpty()
    yield reader, writer
    for descriptor in (reader, writer):
        with suppress(OSError):  # a test that came to its end has closed them
            os.close(descriptor)


def test_the_bar_is_drawn_on_standard_error_only(terminal):
    reader, writer = terminal
    done = run(stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    bar = read_all(reader)
    assert done.returncode == 0
    assert "1/1" in bar
    out = done.stdout.decode()
    assert "\x1b" not in out
    assert out.splitlines()[0].endswith("0.10 s")
    assert out.splitlines()[-1].startswith("1 op · 1 case · 1 pair: 1 passed")


def test_results_on_a_terminal_have_colour(terminal):
    reader, writer = terminal
    done = run(stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.stderr == b""
    assert "\x1b[32mpass\x1b[0m" in read_all(reader)
