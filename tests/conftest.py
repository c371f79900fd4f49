"""What tests of several folders share."""

import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import gradcheck_cli
from tests.support.warm_process import WarmProcess

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
    """Leave to main the rows of a test that its mark `on_change` doesn't name.

    Raises:
        pytest.UsageError: it names a row that isn't there.
    """
    rows, named = {}, {}
    for item in items:
        for mark in item.iter_markers("on_change"):
            table, _, row = item.nodeid.partition("[")
            rows.setdefault(table, set()).add(row.removesuffix("]"))
            named[table] = mark.args
            if row.removesuffix("]") not in mark.args:
                item.add_marker(pytest.mark.once)
    gone = [f"{table}[{row}]" for table in named for row in named[table] if row not in rows[table]]
    if gone and not any("::" in argument for argument in items[0].config.args):
        raise pytest.UsageError(f"no test is named {gone[0]}: its mark on_change names it")


@pytest.fixture(scope="session")
def warm():
    """Return a function that runs a command line in a process of its own that has imported TensorFlow."""
    process = WarmProcess()
    yield process
    process.close()


@pytest.fixture(autouse=True)
def _numpy_as_in_a_case():
    """Let NumPy neither warn nor raise, as `startup.settings` does while a case runs."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(autouse=True)
def _seed_of_its_own():
    """Give TensorFlow's seed back: under one that another test set, a function's draws repeat."""
    if "tensorflow" not in sys.modules:
        yield
        return
    from gradcheck_cli.tensorflow_backend.private.private_state import restore_seed

    with restore_seed():
        yield
