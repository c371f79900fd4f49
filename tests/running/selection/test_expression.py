import pytest

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
