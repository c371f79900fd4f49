import json

import pytest

from gradcheck_cli.errors import UsageError
from gradcheck_cli.running.selection import filter_by_pair

pytestmark = pytest.mark.feature


@pytest.fixture
def matmul(engine, a_case, a_view):
    engine.cases = [a_case("matmul", outputs=["c"], inputs=["a", "b"])]
    engine.view = a_view
    return engine


def test_a_row_in_the_inputs_shape(invoke, matmul):
    result = invoke("show", "specs/matmul.yaml", "--pair", "dc/da", "--output", "0,0")
    assert (result.code, result.err) == (0, "")
    assert "analytic\n  a[0]  5  7\n  a[1]  0  0\n" in result.out
    assert matmul.asked["label"] == "dc/da"


def test_a_label_that_is_not_there_names_the_pairs(invoke, matmul):
    result = invoke("show", "a.yaml", "--pair", "dc/daa")
    assert (result.code, result.err) == (2, "no pair is labelled 'dc/daa'. Did you mean 'dc/da'?\n")
    result = invoke("show", "a.yaml", "--pair", "nonsense")
    assert result.err == "no pair is labelled 'nonsense'. There are: dc/da, dc/db.\n"


def test_outputs_that_only_tracing_names_are_left_to_the_engine(invoke, matmul, a_case):
    matmul.cases = [a_case("matmul", outputs=[], inputs=["a", "b"])]
    assert invoke("show", "a.yaml", "--pair", "dproduct/da").code == 0
    assert invoke("show", "a.yaml", "--pair", "dproduct/dz").code == 2


@pytest.mark.parametrize(
    ("index", "wording"),
    [
        ("2,0", "--output: 2,0 is out of range: c has shape (2, 2), and indices count from 0\n"),
        ("0", "--output: c has shape (2, 2), but the index has 1 numbers; give 2 numbers, such as 0,0\n"),
        ("", "--output: c has shape (2, 2), but the index has 0 numbers; give 2 numbers, such as 0,0\n"),
    ],
)
def test_an_index_that_is_not_there(invoke, matmul, index, wording):
    result = invoke("show", "a.yaml", "--pair", "dc/da", "--output", index)
    assert (result.code, result.out, result.err) == (2, "", wording)


def test_where_several_cases_have_the_pair_each_is_shown(invoke, matmul, a_case):
    wide = a_case("matmul", "wide", outputs=["c"], inputs=["a", "b"])
    other = a_case("other", outputs=["y"], inputs=["x"])
    matmul.cases = [other, *matmul.cases, wide]
    result = invoke("show", "a.yaml", "--pair", "dc/da")
    assert matmul.asked["case"].name == "wide"
    assert (result.code, result.err) == (0, "")
    assert result.out.count("specs/matmul.yaml · ") == 2
    lines = invoke("show", "a.yaml", "--pair", "dc/da", "--format", "json").out.splitlines()
    assert [json.loads(line)["case"] for line in lines] == ["default", "wide"]
    assert invoke("show", "a.yaml", "--pair", "dc/da", "--op", "other").code == 2
    result = invoke("show", "a.yaml", "--pair", "dc/da", "--case", "wide")
    assert matmul.asked["case"].name == "wide"
    assert result.err == ""


def test_a_pair_of_second_order_is_one_of_a_case_that_asks_for_it(a_case):
    plain = a_case("f", outputs=["c"], inputs=["a", "b"])
    twice = a_case("f", outputs=["c"], inputs=["a", "b"], second_order=("graph",))
    for label in ("d2c/da.db", "d2c/da.du"):
        assert filter_by_pair([plain, twice], label) == [twice]
        with pytest.raises(UsageError, match="no pair is labelled"):
            filter_by_pair([plain], label)
    with pytest.raises(UsageError, match=r"no pair is labelled 'd2c/dz\.da'"):
        filter_by_pair([twice], "d2c/dz.da")
