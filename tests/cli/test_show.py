import json

import pytest

pytestmark = pytest.mark.feature


@pytest.fixture
def matmul(engine, a_case, a_view):
    engine.cases = [a_case("matmul", outputs=["c"], inputs=["a", "b"])]
    engine.view = a_view
    return engine


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
