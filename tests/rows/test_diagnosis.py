"""The diagnosis names the cause of the mistakes that people make."""

from __future__ import annotations

import pytest

from tests.rows.diagnosis import ROWS, UNNAMED, said
from tests.support.row import said_of
from tests.support.rows import parameters


@pytest.mark.parametrize("row", parameters(ROWS))
def test_it_is_found_and_its_cause_is_named(row):
    report = row.report()
    assert not row.fault(said_of(report)), row.fault(said_of(report))
    told = said(report)
    assert row.name in UNNAMED or any(word in told for word in row.words), told


def test_most_are_named():
    assert len(UNNAMED) <= len(ROWS) // 20
