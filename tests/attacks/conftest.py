"""What the tables of attacks share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # what the tables share; they are no package

from rows_on_main import read_rows_on_main


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what `-m` says
def pytest_collection_modifyitems(items):
    """Leave to main the rows whose code other rows run too."""
    left = read_rows_on_main()
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and item.path.name == "test_attacks.py" and call.params.get("name") in left:
            item.add_marker(pytest.mark.once)
