"""What may excuse an error is in one table, in the documentation too, and stays with each element."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import gradcheck_cli
from gradcheck_cli.checking.judging.ledger import ALLOWANCES, Stage, approximation_rtol
from gradcheck_cli.checking.pairs import rounding
from gradcheck_cli.checking.pairs.pair import Differencing, PairSample, Rule
from gradcheck_cli.numerics import BFLOAT16, FLOAT16, FLOAT32, Reason, Verdict, shared_limits
from tests.support.numpy_op import Numpy, check

PACKAGE = Path(gradcheck_cli.__file__).parent
VERDICTS = PACKAGE.parent / "docs" / "verdicts.md"


def as_table():
    return "\n".join(
        f"| {entry.rule.words} | {entry.effect} | {entry.protects} | {entry.limit} "
        f"| {'yes' if entry.at_elements else 'no'} |"
        for entry in ALLOWANCES
    )


def test_the_documentation_has_the_same_table():
    page = VERDICTS.read_text(encoding="utf-8")
    table = page[page.index("| elements are decided |") :].partition("\n\n")[0]
    rows = table.splitlines()[2:]  # below the heading and its line
    assert "\n".join(rows) == as_table(), f"docs/verdicts.md must have:\n{as_table()}"


def scientific(number):
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


NUMBERS = {
    Rule.ROUNDING: (
        f"at most {scientific(rounding._MOST)}",
        f"({shared_limits.OF_SOME_OPERATIONS:g} roundings in the half",
        f"up to {scientific(shared_limits.DIGITS)} of the element",
    ),
    Rule.APPROXIMATION: (
        f"{scientific(approximation_rtol(FLOAT32))} of the element",
        f"{scientific(approximation_rtol(FLOAT16))} in float16",
        f"{scientific(approximation_rtol(BFLOAT16))} in bfloat16",
    ),
}


@pytest.mark.parametrize("rule", NUMBERS)
def test_a_limit_states_the_numbers_of_the_code(rule):
    (entry,) = [entry for entry in ALLOWANCES if entry.rule is rule]
    assert [words for words in NUMBERS[rule] if words not in entry.limit] == []


def test_each_rule_is_one_entry():
    assert sorted(entry.rule for entry in ALLOWANCES) == sorted(set(Rule) - {Rule.PLAIN, Rule.KINK})
    assert len({rule.words for rule in Rule}) == len(Rule)


def test_entries_stand_in_the_order_of_their_stages():
    stages = [list(Stage).index(entry.stage) for entry in ALLOWANCES]
    assert stages == sorted(stages)


def test_nothing_else_changes_a_verdict():
    writing = re.compile(r"verdict=np\.|verdict\[.*\] = |\(verdict=")
    sources = {file: file.read_text(encoding="utf-8") for file in (PACKAGE / "checking").rglob("*.py")}
    assert [file.name for file, text in sources.items() if writing.search(text)] == []


def sample():
    one, codes = np.ones((2, 2)), np.full((2, 2), Verdict.MISMATCH, np.int8)
    how = Differencing("central", 4, "float64")
    return PairSample(one, 2 * one, 0 * one, 0 * one, codes, 0 * codes, is_connected=True, differencing=how)


def test_a_settled_element_keeps_what_decided_it():
    where = np.array([[True, False], [False, False]])
    first = sample().settle(where, Verdict.PASS, Rule.ROUNDING, allowed=3.0)
    second = first.settle(where[::-1], Verdict.INCONCLUSIVE, Rule.STOP, Reason.UNRESOLVED)
    assert second.verdict.tolist() == [[0, 2], [3, 2]]
    assert second.reason.tolist() == [[0, 0], [Reason.UNRESOLVED, 0]]
    assert second.allowed.tolist() == [[3, 0], [0, 0]]
    assert second.count_rules() == {Rule.PLAIN: 2, Rule.ROUNDING: 1, Rule.STOP: 1}
    assert second.take(1, 0).count_rules() == {Rule.STOP: 1}


def absolute(dtype, factor=1.0):
    points = {"x": [0.0, 1.0, -2.0]}
    return Numpy(np.abs, lambda u, x: (factor * np.sign(x)).astype(x.dtype) * u, points, dtypes={"x": dtype})


@pytest.mark.parametrize(
    ("dtype", "factor", "counts"),
    [
        ("float64", 1.0, {"plainly": 8, "at a kink": 1}),
        ("float32", 1.0001, {"plainly": 6, "at a kink": 1, "tuned to its dtype": 2}),
        ("float32", 1.01, {"plainly": 8, "at a kink": 1}),
    ],
)
def test_results_count_what_decided(dtype, factor, counts):
    (pair,) = check(absolute(dtype, factor)).pairs
    assert pair.numbers.decided_by == counts
