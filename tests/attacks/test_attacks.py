"""Each table of attacks: what is said of a gradient is true of it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from attacking import require

from gradcheck_cli.features import blame

TABLES = sorted(path.stem for path in Path(__file__).parent.glob("attacks_*.py"))
ROWS = {
    f"{table.removeprefix('attacks_')}-{attack.name}": attack
    for table in TABLES
    for attack in import_module(table).ATTACKS
    if table != "attacks_diagnosis"  # which test_diagnosis.py runs, and reads the diagnosis of
}


@pytest.fixture
def without_blame(monkeypatch):
    """Leave out which op is to blame: it is said after the verdict, and takes a fifth of the time."""
    monkeypatch.setattr(blame, "explain_mismatches", lambda _judged: None)


@pytest.mark.usefixtures("without_blame")
@pytest.mark.parametrize("name", ROWS)
def test_what_is_said_is_true(name, record_property):
    record_property("kind", ROWS[name].truth)  # for rows_on_main.py
    require(ROWS[name])


@pytest.mark.parametrize("table", TABLES)
def test_names_are_unique_in_a_table(table):
    names = [attack.name for attack in import_module(table).ATTACKS]
    assert len(set(names)) == len(names)
