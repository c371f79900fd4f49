import pytest

from gradcheck_cli.spec.case import PairRule, matches, stated_rule, unmatched_rules


@pytest.mark.parametrize(
    ("glob", "label", "expected"),
    [
        ("dy/dx", "dy/dx", True),
        ("dy/dx", "dy/dxx", False),
        ("dy/*", "dy/dvalues[0]", True),
        ("dy/dvalues[0]", "dy/dvalues[0]", True),
        ("dy/dvalues[01]", "dy/dvalues[0]", False),
        ("dy/dvalues[?]", "dy/dvalues[7]", True),
        ("*", "", True),
        ("d?/dx", "d/dx", False),
        ("dy.dx", "dy/dx", False),
        ("**" * 500 + "b", "a" * 500, False),
    ],
)
def test_globs(glob, label, expected):
    assert matches(glob, label) is expected


def test_the_last_match_wins():
    rules = [PairRule("*", "skip"), PairRule("dy/dx", "zero"), PairRule("dz/*", "mismatch")]
    assert stated_rule(rules, "dy/dx") is rules[1]
    assert stated_rule(rules, "dy/dw") is rules[0]
    assert stated_rule(rules[1:], "dy/dw") is None
    assert stated_rule(list(reversed(rules)), "dy/dx") is rules[0]


def test_unmatched_rules():
    rules = [PairRule("dy/*"), PairRule("dq/dx")]
    assert unmatched_rules(rules, ["dy/dx"]) == (rules[1],)
