"""What tests of several folders share."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package

from rows_on_main import mark_rows
from warm_process import WarmProcess

import gradcheck_cli

FEATURES = Path(gradcheck_cli.__file__).parent / "features"

# A worker holds the graphs of thousands of cases. Python's own threshold, 700 new objects, makes the search
# for garbage take a tenth of the time.
gc.set_threshold(10_000)

if "PYTEST_XDIST_WORKER" in os.environ:
    # There is a process for each core already: TensorFlow's threads would only wait for each other.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")


def pytest_ignore_collect(collection_path):
    """Leave out tests of features where their folders were deleted, as `test_features.py` does."""
    if FEATURES.is_dir() or collection_path.suffix != ".py":
        return None
    return "gradcheck_cli.features" in collection_path.read_text(encoding="utf-8") or None


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what `-m` says
def pytest_collection_modifyitems(items):
    """Leave to main the rows of tables whose code other rows run too."""
    mark_rows(items)


@pytest.fixture(scope="session")
def warm():
    """Return a function that runs a command line in a process of its own that has imported TensorFlow."""
    process = WarmProcess()
    yield process
    process.close()


@pytest.fixture(autouse=True)
def _seed_of_its_own():
    """Give TensorFlow's seed back: under one that another test set, a function's draws repeat."""
    if "tensorflow" not in sys.modules:
        yield
        return
    from gradcheck_cli.tensorflow_backend.private.private_state import restore_seed

    with restore_seed():
        yield
