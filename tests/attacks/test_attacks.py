"""Each table of attacks: what is said of a gradient is true of it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from attacking import require
from excused import without_blame

TABLES = sorted(path.stem for path in Path(__file__).parent.glob("attacks_*.py"))
ROWS = {
    f"{table.removeprefix('attacks_')}-{attack.name}": attack
    for table in TABLES
    for attack in import_module(table).ATTACKS
    if table != "attacks_diagnosis"  # which test_diagnosis.py runs, and reads the diagnosis of
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_said_is_true(name, record_property):
    record_property("kind", ROWS[name].truth)  # for rows_on_main.py
    with without_blame():
        require(ROWS[name])


@pytest.mark.parametrize("table", TABLES)
def test_names_are_unique_in_a_table(table):
    names = [attack.name for attack in import_module(table).ATTACKS]
    assert len(set(names)) == len(names)
