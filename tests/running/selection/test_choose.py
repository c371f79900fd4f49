from __future__ import annotations

import pytest

from gradcheck_cli.errors import NoSpecsError, UsageError
from gradcheck_cli.running.selection import CaseFilter, choose


@pytest.fixture
def cases(a_case):
    return (
        a_case("huber", tags=["fast", "loss"]),
        a_case("huber", "wide", tags=["fast", "loss"]),
        a_case("conv", tags=["slow"]),
        a_case("product", op_type="MatMul", inputs={"a": {"shape": [2, 2]}, "b": {"shape": [2, 2]}}),
    )


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (CaseFilter(), ["huber/default", "huber/wide", "conv/default", "product/default"]),
        (CaseFilter(names=["wide"]), ["huber/wide"]),
        (CaseFilter(tags=["slow"]), ["conv/default"]),
        (CaseFilter(tags=["slow", "loss"]), ["huber/default", "huber/wide", "conv/default"]),
        (CaseFilter(op_types=["MatMul"]), ["product/default"]),
        (CaseFilter(expression="not huber"), ["conv/default", "product/default"]),
        (CaseFilter(expression="wide"), ["huber/wide"]),
        (CaseFilter(tags=["loss"], expression="not wide"), ["huber/default"]),
    ],
)
def test_choices(cases, wanted, names):
    assert [f"{case.op}/{case.name}" for case in choose(cases, wanted)] == names


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (CaseFilter(tags=["slow", "fsat"]), "no spec has the tag 'fsat'. Did you mean 'fast'?"),
        (CaseFilter(op_types=["Matmul"]), "no spec has the op_type 'Matmul'. Did you mean 'MatMul'?"),
        (CaseFilter(names=["zzz"]), "no case is named 'zzz'. There are: default, wide."),
        (
            CaseFilter(tags=["slow"], expression="huber"),
            "none of 4 cases matches -k 'huber' and --tag slow.",
        ),
    ],
)
def test_what_is_asked_for_and_not_there(cases, wanted, message):
    with pytest.raises(NoSpecsError) as caught:
        choose(cases, wanted)
    assert str(caught.value) == message


def test_a_bad_expression_is_bad_usage(cases):
    with pytest.raises(UsageError, match=r"-k 'a b': expected 'and', 'or' or the end"):
        choose(cases, CaseFilter(expression="a b"))
