"""The fork server alone: TensorFlow is imported in it, and hasn't run when it forks."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gradcheck_cli.running.local_workers import LocalWorkers
from gradcheck_cli.running.run_loop import Waited

pytestmark = pytest.mark.once

PROBE = """
from gradcheck_cli.running.fork_server import _load
version = _load()
import threading
from tensorflow.python.eager import context
assert context.context_safe() is None or not context.context()._initialized, "TensorFlow has run"
assert threading.active_count() == 1
print(version)
"""

# What a case needs is loaded before the fork, once for all documents.
CASE = """
from gradcheck_cli.running.fork_server import _load
_load()
import sys
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.load import load_mapping
spec = {"op": "by_hand", "forward": "work_functions:tanh_by_hand", "inputs": {"x": {"shape": [4]}}}
(case,) = load_mapping(spec)
before = set(sys.modules)
print(run_case(case).status.value, *sorted(name for name in set(sys.modules) - before if "gradcheck" in name))
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Make a folder for temporary files, which a test can look into."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the server's
    return tmp_path


@pytest.fixture
def workers(temporary):
    workers = LocalWorkers(1)
    yield workers
    workers.close()


def test_nothing_has_run_when_it_forks():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2.")


def test_a_case_imports_nothing_that_could_be_loaded_before_the_fork():
    done = subprocess.run(
        [sys.executable, "-c", CASE], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr


def test_a_server_leaves_nothing_however_it_ends(workers, temporary):
    assert all(isinstance(event, Waited) for event in workers.run([]))
    assert workers.tensorflow_version.startswith("2.")
    assert list(temporary.iterdir()) == []  # a server that is killed from now on leaves nothing either
    workers.close()
    workers.close()
    assert list(temporary.iterdir()) == []


def test_nothing_is_left_of_a_server_that_is_killed_during_the_import(workers, temporary):
    workers.close()
    assert list(temporary.iterdir()) == []
