"""Errors that are planted into models are found, and where they are; the models as they are pass."""

import pytest

from gradcheck_cli.results import Status
from gradcheck_cli.running.session import start_tensorflow
from tests.benchmarks.group_models import check, draw_errors, look_for
from tests.benchmarks.planted_models import MISTAKES, MODELS, spec_of


@pytest.fixture(scope="module", autouse=True)
def tensorflow():
    start_tensorflow()


@pytest.mark.parametrize("name", MODELS)
def test_a_single_wrong_element_is_located_and_nothing_else_accused(name):
    place, size = next(draw_errors(name, 1))
    pairs = check(spec_of(name, place=list(place), size=size))
    wrong = {pair.input: pair.numbers.worst.input_index for pair in pairs if pair.status is Status.MISMATCHED}
    assert wrong == {MODELS[name][0]: place}


def test_a_model_as_it_is_passes_and_says_what_could_have_been_missed():
    pairs = check(spec_of("transformer"))
    assert {pair.status for pair in pairs} == {Status.PASSED}
    assert all(
        pair.judged_by.miss_probability is not None for pair in pairs if pair.judged_by.method == "probe"
    )


@pytest.mark.parametrize(
    ("mistake", "where"), [("dropped bias", {"b"}), ("forgotten mask", {"x", "query", "key"})]
)
def test_a_mistake_is_found_where_it_shows(mistake, where):
    name, found = look_for(mistake)
    assert name == MISTAKES[mistake]
    assert set(found.split(", ")) == where
