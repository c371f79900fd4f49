"""Whole commands, in this process where that will do: TensorFlow's import costs seconds."""

import contextlib
import fcntl
import io
import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradcheck_cli.cli.main import run_command
from tests.support import processes
from tests.support.processes import ROOT


def in_process(*arguments):
    """Run a command line; return its exit code, standard output and standard error.

    Cases run in this process too: a fork server would import TensorFlow for each command. Nothing is kept of
    a run: a history of all tests would be read and written by each.
    """
    if arguments[0] == "run":
        arguments = ("run", "-j", "0", "--cache-dir", os.devnull, *arguments[1:])
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command([str(argument) for argument in arguments])
    return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue())


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def command():
    return in_process


@pytest.fixture
def report():
    """Return a function that runs specs and returns the exit code, the table and the JSON report."""

    def run(*arguments, tmp=None):
        file = Path(tmp) / "report.json"
        done = in_process("run", *arguments, "--report", f"json={file}")
        done.report = json.loads(file.read_text()) if file.exists() else None
        return done

    return run


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Return a function that runs a command line in a process of its own."""
    for name in [name for name in os.environ if name.startswith("TF_")]:
        monkeypatch.delenv(name)
    return partial(processes.gradcheck, cwd=tmp_path)


@pytest.fixture(scope="session")
def seeds(tmp_path_factory):
    """What `gradcheck run specs/seeds` reports; run once, also where several workers share the tests."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    file = folder / "seeds.json"
    with (folder / "seeds.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(ROOT)
                done = in_process("run", "specs/seeds", "--format", "json")
            file.write_text(json.dumps({"code": done.code, "err": done.err, "report": json.loads(done.out)}))
    return SimpleNamespace(**json.loads(file.read_text()))
