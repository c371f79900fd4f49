"""The diagnosis names the cause of the mistakes that people make."""

from __future__ import annotations

import pytest
from attacking import require
from attacks_diagnosis import ATTACKS, UNNAMED, said

ROWS = {one.name: one for one in ATTACKS}


@pytest.mark.parametrize("name", ROWS)
def test_it_is_found_and_its_cause_is_named(name):
    told = said(require(ROWS[name]))
    assert name in UNNAMED or any(word in told for word in ROWS[name].words), told


def test_most_are_named():
    assert len(UNNAMED) <= len(ATTACKS) // 20
