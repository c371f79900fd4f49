from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck_cli.running.selection import ExpressionError, compile_expression

TEXT = "specs/losses/huber.yaml huber_loss wide and tall"


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("huber", True),
        ("HUBER", True),
        ("losses/huber", True),
        ("tanh", False),
        ("not tanh", True),
        ("not not huber", True),
        ("huber and tanh", False),
        ("huber or tanh", True),
        ("tanh or huber and wide", True),
        ("(tanh or huber) and not wide", False),
        ("huber and not (tanh or small)", True),
        ("not tanh and not small", True),
        ("huber-loss", False),
        ("notable", False),  # a word of its own, no `not`
        ("  huber  ", True),
    ],
)
def test_expressions(expression, holds):
    assert compile_expression(expression)(TEXT) is holds


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "expected a name, 'not' or '(', but got the end"),
        ("a and", "expected a name, 'not' or '(', but got the end"),
        ("and a", "expected a name, 'not' or '(', but got 'and' (character 1)"),
        ("a b", "expected 'and', 'or' or the end, but got 'b' (character 3)"),
        ("(a", "expected 'and', 'or' or ')', but got the end"),
        ("a)", "expected 'and', 'or' or the end, but got ')' (character 2)"),
        ("()", "expected a name, 'not' or '(', but got ')' (character 2)"),
        ("not " * 200 + "a", "must not go deeper than 50 levels of 'not' and brackets"),
        ("(" * 100_000, "must not go deeper than 50 levels of 'not' and brackets"),
    ],
)
def test_what_is_no_expression(expression, message):
    with pytest.raises(ExpressionError) as caught:
        compile_expression(expression)
    assert str(caught.value) == message


WORDS = st.sampled_from(["huber", "tanh", "wide", "small"])
TREES = st.recursive(
    WORDS,
    lambda inner: st.tuples(st.just("not"), inner) | st.tuples(inner, st.sampled_from(["and", "or"]), inner),
    max_leaves=6,
)


def written(tree):
    return tree if isinstance(tree, str) else f"({' '.join(map(written, tree))})"


def meant(tree):
    if isinstance(tree, str):
        return tree in TEXT
    if tree[0] == "not":
        return not meant(tree[1])
    left, word, right = tree
    return (meant(left) and meant(right)) if word == "and" else (meant(left) or meant(right))


@given(TREES)
def test_any_expression_means_what_pythons_would(tree):
    assert compile_expression(written(tree))(TEXT) == meant(tree)


@given(st.text(alphabet="ab ()'\"andornot", max_size=30))
def test_any_text_is_an_expression_or_says_why_not(text):
    try:
        compile_expression(text)("anything")
    except ExpressionError as error:
        assert str(error)  # noqa: PT017 (either outcome is right)
