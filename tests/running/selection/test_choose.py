from __future__ import annotations

import pytest

from gradcheck_cli.errors import NoSpecsError, UsageError
from gradcheck_cli.running.selection import choose


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
        ({}, ["huber/default", "huber/wide", "conv/default", "product/default"]),
        ({"names": ["wide"]}, ["huber/wide"]),
        ({"tags": ["slow"]}, ["conv/default"]),
        ({"tags": ["slow", "loss"]}, ["huber/default", "huber/wide", "conv/default"]),
        ({"op_types": ["MatMul"]}, ["product/default"]),
        ({"expression": "not huber"}, ["conv/default", "product/default"]),
        ({"expression": "wide"}, ["huber/wide"]),
        ({"tags": ["loss"], "expression": "not wide"}, ["huber/default"]),
    ],
)
def test_choices(cases, wanted, names):
    assert [f"{case.op}/{case.name}" for case in choose(cases, **wanted)] == names


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"tags": ["slow", "fsat"]}, "no spec has the tag 'fsat'. Did you mean 'fast'?"),
        ({"op_types": ["Matmul"]}, "no spec has the op_type 'Matmul'. Did you mean 'MatMul'?"),
        ({"names": ["zzz"]}, "no case is named 'zzz'. There are: default, wide."),
        (
            {"tags": ["slow"], "expression": "huber"},
            "none of 4 cases matches -k 'huber' and --tag slow.",
        ),
    ],
)
def test_what_is_asked_for_and_not_there(cases, wanted, message):
    with pytest.raises(NoSpecsError) as caught:
        choose(cases, **wanted)
    assert str(caught.value) == message


def test_a_bad_expression_is_bad_usage(cases):
    with pytest.raises(UsageError, match=r"-k 'a b': expected 'and', 'or' or the end"):
        choose(cases, "a b")
