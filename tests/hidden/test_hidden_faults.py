"""Faults behind conditions that no draw meets: `run` finds a sample of them, and nothing in their twins.

`python tests/hidden run` and `python tests/hidden search` try all of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hidden_faults import ROWS

from gradcheck_cli.results import Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.load import load_mapping

FOUND_BY_RUN = (
    "above-5",
    "band-5",
    "signs-20",
    "equal-two",
    "zero-first",
    "cond-max-4",
    "numpy-max-5",
    "loop-band",
    "gradient-function-max",
    "cond-against-cond",
    "where-in-where",
    "cond-in-map",
    "log-sigmoid",
    "table",
    "empty-row",
    "near-each-other",
    "numpy-guards",
    "numpy-where",
    "numpy-choice",
)
FOUND_BY_SEARCH = ("batch-of-one", "rounds-1", "largest-tied", "norm-at-zero")


def checked(name, *, wrong, seconds=0.0):
    (case,) = load_mapping(ROWS[name].spec(wrong=wrong))
    return run_case(replace(case, search=seconds))


def test_there_are_a_hundred_and_fifty_four():
    assert len(ROWS) == 154


@pytest.mark.parametrize("name", FOUND_BY_RUN)
def test_a_run_finds_it_and_nothing_in_its_twin(name):
    assert checked(name, wrong=True).status is Status.MISMATCHED
    assert checked(name, wrong=False).status is Status.PASSED


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
