"""The diagnosis names the cause of the mistakes that people make."""

from __future__ import annotations

import pytest
from attacks_diagnosis import ATTACKS, UNNAMED, said

NAMED = {one.name: one for one in ATTACKS if one.name not in UNNAMED}


@pytest.mark.once
@pytest.mark.parametrize("name", NAMED)
def test_the_cause_is_named(name):
    told = said(NAMED[name].report())
    assert any(word in told for word in NAMED[name].words), told


def test_most_are_named():
    assert len(UNNAMED) <= len(ATTACKS) // 20
