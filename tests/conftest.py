"""What tests of several folders share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package

from warm_process import WarmProcess


@pytest.fixture(scope="session")
def warm():
    """Return a function that runs a command line in a process of its own that has imported TensorFlow."""
    process = WarmProcess()
    yield process
    process.close()
