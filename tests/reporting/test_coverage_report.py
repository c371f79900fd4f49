"""Sides of branches and hand-written gradients, as each report shows them."""

from pathlib import Path

from gradcheck_cli.features.coverage.measure import branch_lines, coverage_lines
from gradcheck_cli.features.exchange.annotations import to_github
from gradcheck_cli.features.exchange.markdown import to_markdown
from gradcheck_cli.gate import Branch, CoverageStatus, GradientCoverage, WrittenGradient
from gradcheck_cli.reporting.report_text import case_lines
from gradcheck_cli.reporting.terminal import layout
from tests.support.flat_results import altered

WHERE = Branch("x > 3.5", "ops.py:14", "forward", ("true", "false"), ("false",))
LOOP = Branch("loop", "ops.py:20", "forward", ("no round", "one round", "more rounds"), ("more rounds",))
ALL = Branch("relu(x)", "ops.py:9", "gradient", ("> 0", "< 0"), ("> 0", "< 0"))
COVERAGE = GradientCoverage(
    ("pkg",),
    (
        WrittenGradient("pkg:f", "custom_gradient", "pkg.py", 4, CoverageStatus.COVERED, ("f", "f · wide")),
        WrittenGradient(
            "pkg:g", "custom_gradient", "pkg.py", 9, CoverageStatus.MISSING, (), "no case reaches it"
        ),
        WrittenGradient("pkg:h", "custom_gradient", "pkg.py", 14, CoverageStatus.EXCUSED, (), "gpu: none"),
    ),
)


def line(case, **options):
    found = [one.plain.strip() for one in case_lines(case, width=110, **options)]
    return [one for one in found if one.startswith("branches")]


def test_sides_that_were_never_seen_stand_under_the_table(passed):
    case = altered(passed, branches=(WHERE, LOOP, ALL))
    never = "x > 3.5 true (ops.py:14), loop no round (ops.py:20), loop one round (ops.py:20)"
    assert line(case) == [f"branches 4 of 7 · never: {never}"]
    chosen = altered(passed, branches=(WHERE,), chosen_points=2)
    told = "branches 1 of 2, with 2 points judged beside the samples · never: x > 3.5 true (ops.py:14)"
    assert line(chosen) == [told]


def test_a_share_of_sides_over_all_cases(report, passed):
    other = altered(WHERE, seen=("true",))
    cases = (altered(passed, branches=(WHERE, LOOP)), altered(passed, case="wide", branches=(other,)))
    both = altered(report, cases=cases)
    assert both.sides == (3, 5)
    assert [altered(both, branch_fail_under=least).exit_code for least in (None, 60, 60.1)] == [0, 0, 3]
    text = branch_lines(altered(both, branch_fail_under=90))[0].plain
    assert text == "sides of branches: 3 of 5 seen (60.0 %), --branch-fail-under 90 isn't reached"


def test_sides_that_nobody_looked_at(report, passed):
    eager = altered(passed, sides_unknown="not looked at in mode eager: add mode graph")
    assert line(eager) == ["branches not looked at in mode eager: add mode graph"]
    partly = altered(passed, branches=(ALL,), sides_unknown="not looked at inside while: why")
    assert line(partly) == ["branches 2 of 2, not looked at inside while: why"]
    alone, both = altered(report, cases=(eager,)), altered(report, cases=(eager, partly))
    assert [altered(alone, branch_fail_under=least).exit_code for least in (None, 0, 1)] == [0, 0, 3]
    assert altered(both, branch_fail_under=100).exit_code == 0
    text = "sides of branches: 2 of 2 seen (100.0 %), not all looked at in 2 cases"
    assert branch_lines(altered(both, branch_fail_under=100))[0].plain == text
    text = "sides of branches: 0 of 0 seen, not all looked at in 1 case, --branch-fail-under 1 isn't reached"
    assert branch_lines(altered(alone, branch_fail_under=1))[0].plain == text


def test_lines_name_what_is_not_covered():
    head = "hand-written gradients of pkg: 1 of 2 covered (50.0 %), 1 excused"
    missing = (
        "  missing  pkg:g  pkg.py:9\n    no case reaches it\n  excused  pkg:h  pkg.py:14\n    gpu: none\n"
    )
    assert layout.plain(coverage_lines(COVERAGE, 110)) == f"{missing}{head}\n"
    too_few = layout.plain(coverage_lines(altered(COVERAGE, fail_under=51), 110))
    assert too_few == f"{missing}{head}, --cov-fail-under 51 isn't reached\n"


def test_markdown_and_annotations(report, passed):
    case = altered(passed, branches=(WHERE,))
    whole = altered(report, cases=(case,), coverage=COVERAGE, branch_fail_under=90)
    text = to_markdown(whole, Path.cwd())
    assert "<details><summary>1 side of branches never seen</summary>" in text
    assert "pkg:g: not covered" in text.replace("\\", "")
    commands = to_github(whole, Path.cwd()).splitlines()
    assert any(one.startswith("::error file=ops.py,line=14") for one in commands)
    assert any(one.startswith("::warning file=pkg.py,line=9") for one in commands)
