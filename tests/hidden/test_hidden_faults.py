"""Faults behind conditions that no draw meets: `run` finds a sample of them, and nothing in their twins.

`python tests/hidden run` and `python tests/hidden search` try all of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hidden_faults import ROWS
from rare_pairs import PAIRS

from gradcheck_cli.results import Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.case import Wanted
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
    "table",
    "empty-row",
    "near-each-other",
    "numpy-guards",
    "numpy-where",
    "numpy-choice",
)
# Of the other table; the rest is for `python tests/hidden`.
PAIRS_FOUND_BY_RUN = (
    *(
        "numpy-select-0",
        "numpy-piecewise-2",
        "numpy-digitize-1",
        "numpy-clip-1",
        "numpy-match-2",
        "numpy-except-2",
    ),
    *(
        "numpy-lambda-1",
        "numpy-comprehension-2",
        "numpy-dict-0",
        "numpy-helper-4",
        "numpy-loop-2",
        "scatter-0",
    ),
    *(
        "series-0",
        "flags-0",
        "code-0",
        "string-0",
        "probabilities-0",
        "variable-0",
        "draw-1",
    ),
    *("second-order-0", "complex-2", "nan-at-zero-0", "series-1"),
)
FOUND_BY_SEARCH = ("batch-of-one", "rounds-1", "largest-tied", "norm-at-zero")


def checked(name, *, wrong, seconds=0.0):
    (case,) = load_mapping((ROWS | PAIRS)[name].spec(wrong=wrong))
    result = run_case(replace(case, wanted=Wanted(search=seconds)))
    assert result.status is not Status.ERROR, result.error
    return result


def test_there_are_many():
    assert (len(ROWS), len(PAIRS), len(ROWS | PAIRS)) == (154, 180, 334)


@pytest.mark.on_change("gradient-function-max", "numpy-except-2", "probabilities-0", "second-order-0")
@pytest.mark.parametrize("name", FOUND_BY_RUN + PAIRS_FOUND_BY_RUN)
def test_a_run_finds_it_and_nothing_in_its_twin(name):
    # Far out, the spec is asked how far its inputs go.
    assert checked(name, wrong=True).status in {Status.MISMATCHED, Status.INCONCLUSIVE}
    assert checked(name, wrong=False).status is Status.PASSED


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
