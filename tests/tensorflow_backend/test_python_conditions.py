"""How far an `if` in NumPy code is from either side; nothing is evaluated that might have an effect."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck_cli.features.search.branches.python_conditions import condition_of


def margins(text, **names):
    condition = condition_of(ast.parse(text, mode="eval").body)
    return condition.margins(SimpleNamespace(f_globals={"np": np}, f_locals=names))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 3", (-1.0, 1.0)),
        ("a <= 3", (1.0, -1.0)),
        ("not a > 3", (1.0, -1.0)),
        ("0 < a < 1", (-1.0, 1.0)),
        ("a > 3 and a > 4", (-3.0, 2.0)),
        ("a > 1 or a > 4", (1.0, -1.0)),
        ("a == 5", (-3.0, 3.0)),
        ("x.max() > 7", (-2.0, 2.0)),
        ("(x > 4).all()", (-5.0, 3.0)),
        ("np.any(x > 7)", (-2.0, 2.0)),
        ("a", (1.0, -1.0)),
        ("x > 7", (-2.0, 6.0)),
        ("(x > 2) & (x < 4)", (0.0, 1.0)),
        ("~(x > 7)", (6.0, -2.0)),
    ],
)
def test_margins(text, expected):
    assert margins(text, a=2.0, x=np.array([1.0, 5.0, 2.0])) == expected


@pytest.mark.parametrize(
    "text", ["draw() > 1", "(b := 3) > 1", "items.pop() > 1", "[c for c in x]", "f'{x}'"]
)
def test_what_may_have_an_effect_is_not_evaluated(text):
    assert condition_of(ast.parse(text, mode="eval").body) is None
