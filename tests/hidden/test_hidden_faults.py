"""Faults behind conditions that no draw meets, and a search for them.

`tests/rows/hidden.py` has those that a run finds.

`python -m tests.hidden run` and `python -m tests.hidden search` try all of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gradcheck_cli.results import Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.case import Wanted
from gradcheck_cli.spec.load import load_mapping
from tests.hidden.hidden_faults import ROWS
from tests.hidden.rare_pairs import PAIRS

FOUND_BY_SEARCH = ("rounds-1", "largest-tied", "norm-at-zero")


def checked(name, *, wrong, seconds=0.0):
    (case,) = load_mapping((ROWS | PAIRS)[name].spec(wrong=wrong))
    result = run_case(replace(case, wanted=Wanted(search=seconds)))
    assert result.status is not Status.ERROR, result.error
    return result


def test_there_are_many():
    assert (len(ROWS), len(PAIRS), len(ROWS | PAIRS)) == (154, 180, 334)


@pytest.mark.on_change("largest-tied", "norm-at-zero")
@pytest.mark.parametrize("name", FOUND_BY_SEARCH)
def test_a_search_finds_it(name):
    assert checked(name, wrong=True, seconds=4.0).status is Status.MISMATCHED


def test_what_is_found_is_small():
    result = checked("cond-max-5", wrong=True, seconds=2.0)
    assert result.status is Status.MISMATCHED


def test_a_search_that_finds_nothing_says_what_it_tried():
    result = checked("above-0", wrong=False, seconds=1.0)
    assert result.status is Status.PASSED
    assert result.search.found is None
    assert (result.search.seen, result.search.sides) == (2, 2)
    assert result.search.points > 200
    assert result.search.largest < 1e-4
