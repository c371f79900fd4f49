import json
import os
import sys

import pytest

from gradcheck_cli.cli.commands.run import command as run_command
from gradcheck_cli.results import CheckResult, Status
from tests.support.flat_results import altered, make_pair


def test_a_run_prints_tables_and_a_summary(invoke, engine):
    result = invoke("run")
    assert result.err == ""
    assert result.out == (
        "specs/op.yaml · op · float64 · graph                                      0.10 s\n"
        "  pair               error   allowed     ratio  verdict\n"
        "  dy/dx          1.000e-12   1.0e-08   1.0e-04  pass\n"
        "1 op · 1 case · 1 pair: 1 passed                                           0.9 s\n"
    )


def test_quiet_shows_what_fails(invoke, engine, a_case, a_result):
    engine.cases = [a_case("good"), a_case("bad"), a_case("meant")]
    engine.results = [a_result("good"), a_result("bad", Status.MISMATCHED)]
    engine.results += [a_result("meant", Status.EXPECTED_MISMATCH)]
    out = invoke("run", "-q").out
    assert "specs/bad.yaml" in out
    assert "specs/good.yaml" not in out
    assert "specs/meant.yaml" not in out
    assert "3 ops · 3 cases · 3 pairs: 1 passed, 1 expected mismatch, 1 mismatched" in out


@pytest.mark.parametrize("flags", [[], ["-q"]])
def test_strict_fails_on_whatever_was_skipped(invoke, engine, a_result, flags):
    skipped = make_pair("dy/dz", "y", "z", Status.SKIPPED, note="no gradient here")
    engine.results = [a_result(pairs=(*a_result().pairs, skipped))]
    assert invoke("run", *flags).code == 0
    result = invoke("run", "--strict", *flags)
    assert result.code == 3
    assert "skip GC401  no gradient here" in result.out


def broken(*_):
    raise TypeError("no such column")


@pytest.fixture
def broken_junit(monkeypatch):
    monkeypatch.setattr("gradcheck_cli.features.exchange.junit.to_junit", broken)


@pytest.mark.usefixtures("broken_junit")
@pytest.mark.parametrize("right", [True, False])
def test_a_report_that_fails_costs_no_other(invoke, engine, a_result, tmp_path, right):
    engine.results = [a_result(status=Status.PASSED if right else Status.MISMATCHED)]
    files = [tmp_path / "a.json", tmp_path / "b.xml", tmp_path / "c.json"]
    reports = [f"--report={kind}={file}" for kind, file in zip(("json", "junit", "json"), files, strict=True)]
    result = invoke("run", "--format", "junit", *reports)
    assert (result.code, result.out) == (2 if right else 1, "")
    printed, written = result.err.splitlines()
    assert printed.startswith("can't write the junit report: TypeError: no such column (")
    assert written.startswith(f"can't write the report to '{files[1]}': TypeError: no such column (")
    assert [file.exists() for file in files] == [True, False, True]


def test_seeds_go_to_specs(invoke, engine):
    invoke("run", "--seed", "7", "a.yaml")
    assert (engine.asked["load_seed"], engine.asked["paths"]) == (7, ["a.yaml"])
    invoke("run", "a.yaml")
    assert engine.asked["load_seed"] is None


def test_a_case_that_is_not_there(invoke, engine, a_case):
    engine.cases = [a_case("a"), a_case("a", "wide")]
    result = invoke("run", "--case", "wide", "--case", "wid")
    assert (result.code, result.err) == (5, "no case is named 'wid'. Did you mean 'wide'?\n")
    result = invoke("run", "--case", "zzz")
    assert (result.code, result.err) == (5, "no case is named 'zzz'. There are: default, wide.\n")


def test_notices_go_to_standard_error(invoke, engine):
    engine.report = {"notices": ("no GPU here",)}
    assert invoke("run").err == "no GPU here\n"


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
    ],
)
def test_colour(invoke, engine, monkeypatch, variables, coloured):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in invoke("run").out) is coloured


@pytest.mark.feature  # formats for other programs
def test_several_reports_of_several_kinds(invoke, engine, a_result, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("another step's\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", os.getcwd())  # noqa: PTH109 (as a job has it)
    engine.results = [a_result(status=Status.MISMATCHED)]
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "markdown", "sarif")}
    wanted = [f"--report={kind}={file}" for kind, file in files.items()]
    result = invoke("run", *wanted, "--report", "github")
    assert result.code == 1
    assert result.err == ""
    assert "MISMATCH" in result.out
    assert (
        "::error file=specs/op.yaml,line=1,title=gradcheck%3A op%3A dy/dx mismatched (GC101)::" in result.out
    )
    assert json.loads(files["json"].read_text())["exit_code"] == 1
    assert '<testsuites name="gradcheck">' in files["junit"].read_text()
    assert json.loads(files["sarif"].read_text())["version"] == "2.1.0"
    markdown = files["markdown"].read_text()
    assert markdown.startswith("### ❌ gradcheck: exit code 1\n")
    assert summary.read_text() == f"another step's\n{markdown}\n"


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("json", "{"),
        pytest.param("junit", "<?xml", marks=pytest.mark.feature),
        pytest.param("markdown", "### ✅ gradcheck", marks=pytest.mark.feature),
        pytest.param("sarif", '{\n  "$schema"', marks=pytest.mark.feature),
        pytest.param("github", "", marks=pytest.mark.feature),
    ],
)
def test_each_format_is_all_there_is_on_standard_output(invoke, engine, form, start):
    engine.during = lambda: sys.stdout.write("printed by a forward\n")
    result = invoke("run", "--format", form)
    assert result.out.startswith(start)
    assert "specs/op.yaml · op · float64" not in result.out
    assert result.err == "printed by a forward\n"


@pytest.mark.feature  # formats for other programs
def test_annotations_leave_another_programs_standard_output_alone(invoke, engine, a_result):
    engine.results = [a_result(status=Status.MISMATCHED)]
    result = invoke("run", "--format", "json", "--report", "github")
    assert json.loads(result.out)["exit_code"] == 1
    assert result.err.startswith("::error file=")
    assert invoke("run", "--format", "github", "--report", "github").out.count("::error") == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            ["pdf=a.pdf"],
            "must be json=FILE, junit=FILE, markdown=FILE, sarif=FILE, html=FILE or github, but got 'pdf",
            marks=pytest.mark.feature,
        ),
        (["json"], "must be json=FILE"),
        (["junit="], "must be json=FILE"),
        (["github=a"], "must be json=FILE"),
        (["json=no/such/a.json"], "there is no folder 'no/such' to write 'a.json' into."),
        (["json=."], "'.' is a folder; name a file in it."),
        pytest.param(
            ["json=a.x", "junit=./a.x"],
            "'./a.x' is to hold two reports, json and junit; name two files.",
            marks=pytest.mark.feature,
        ),
    ],
)
def test_reports_that_can_not_be(invoke, engine, values, message):
    result = invoke("run", *(f"--report={value}" for value in values))
    assert result.code == 2
    assert message in " ".join(result.err.split())


def test_the_end_lists_what_failed(invoke, engine, a_result):
    engine.results[:] = [
        a_result("good"),
        a_result("bad", Status.MISMATCHED),
        a_result("worse", Status.ERROR),
    ]
    end = invoke("run").out.partition("failed:\n")[2].splitlines()
    assert end[0].split() == ["GC101", "value", "specs/bad.yaml", "·", "bad", "·", "dy/dx"]
    assert end[1].startswith("  GC310 forward")
    assert end[2] == "  `gradcheck explain GC101` says what that means, and what to do"
    assert "failed:" not in invoke("run", "-q").out


def test_what_is_skipped_has_one_line_for_an_op_and_is_not_called_undecided(invoke, engine, a_result):
    skipped = CheckResult("device", Status.SKIPPED, "TensorFlow finds no GPU:0")
    engine.results[:] = [
        altered(a_result("far", Status.SKIPPED, case), pairs=(), checks=(skipped,)) for case in "abc"
    ]
    end = invoke("run").out.partition("failed:\n")[2].splitlines()
    assert " ".join(end[0].split()) == "GC403 device specs/far.yaml · far · a · check device and 2 more"
    assert end[1].startswith("  `gradcheck explain GC403`")


@pytest.mark.feature
def test_pictures_are_asked_for_by_a_page_alone(invoke, engine, tmp_path):
    assert invoke("run", "--report", f"json={tmp_path / 'a.json'}").code == 0
    assert {case.wanted.figures_of for case in engine.asked["cases"]} == {""}
    assert invoke("run", "--report", f"html={tmp_path / 'a.html'}").code == 0
    assert {case.wanted.figures_of for case in engine.asked["cases"]} == {"doubtful"}
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")


def test_the_options_stand_in_groups_and_none_is_lost(invoke):
    text = invoke("run", "--help").out
    for option in run_command.params[1:]:
        assert max(option.opts, key=len) in text
    assert text.index("Which cases:") < text.index("--tag") < text.index("How they are checked:")
