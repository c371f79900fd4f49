"""The options of `gradcheck run` that say which cases run, and when a run ends early."""

import json

import pytest

from gradcheck_cli.results import Status


@pytest.fixture
def several(engine, a_case, a_result):
    huber = [a_case("huber", name, tags=("loss",)) for name in ("default", "wide")]
    engine.cases = [*huber, a_case("conv", op_type="Conv2D")]
    engine.results = [a_result("huber"), a_result("huber", case="wide"), a_result("conv")]
    return engine


def asked(engine):
    return [f"{case.op}/{case.name}" for case in engine.asked["cases"]]


@pytest.mark.parametrize(
    ("options", "cases"),
    [
        (["-k", "huber and not wide"], ["huber/default"]),
        (["-k", "not huber"], ["conv/default"]),
        (["--tag", "loss"], ["huber/default", "huber/wide"]),
        (["--tag", "loss", "-k", "not wide"], ["huber/default"]),
        (["--op-type", "Conv2D"], ["conv/default"]),
        (["--case", "wide"], ["huber/wide"]),
        (["--shard", "1/2"], ["huber/wide", "conv/default"]),
        (["--shard", "2/2"], ["huber/default"]),
    ],
)
def test_cases_are_selected(invoke, several, options, cases):
    invoke("run", *options)
    assert sorted(asked(several)) == sorted(cases)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["-k", "a b"], 2, "-k 'a b': expected 'and', 'or' or the end, but got 'b' (character 3)."),
        (["--tag", "los"], 5, "no spec has the tag 'los'. Did you mean 'loss'?"),
        (["--tag", "loss", "--tag", "los"], 5, "no spec has the tag 'los'. Did you mean 'loss'?"),
        (["--op-type", "Conv2d"], 5, "no spec has the op_type 'Conv2d'. Did you mean 'Conv2D'?"),
        (["-k", "zzz"], 5, "none of 3 cases matches -k 'zzz'."),
        (["--tag", "loss", "-k", "conv"], 5, "none of 3 cases matches -k 'conv' and --tag loss."),
        (["--shard", "0/2"], 2, "must be K/N with K from 1 to N, such as 1/4, but got '0/2'."),
        (["--shard", "3/2"], 2, "but got '3/2'."),
        (["--shard", "half"], 2, "but got 'half'."),
        (["--max-failures", "0"], 2, "0 is not in the range x>=1"),
    ],
)
def test_what_selects_nothing_says_so(invoke, several, options, code, message):
    result = invoke("run", *options)
    assert result.code == code
    assert message in " ".join(result.err.split())
    assert "cases" not in several.asked


def test_an_empty_shard_is_fine_and_reported(invoke, several, tmp_path):
    file = tmp_path / "shard.json"
    result = invoke("run", "--shard", "5/5", f"--report=json={file}")
    assert result.code == 0
    assert "shard 5/5: 0 of 3 cases" in result.err
    assert several.asked["cases"] == []
    shard = json.loads(file.read_text())["shard"]
    assert (shard["index"], shard["count"], len(shard["plan"])) == (5, 5, 3)


def test_what_failed_last_runs_again(invoke, several, a_result):
    several.results[1] = a_result("huber", Status.MISMATCHED, case="wide")
    assert invoke("run").code == 1
    invoke("run", "--last-failed")
    assert asked(several) == ["huber/wide"]


def test_last_failed_checks_all_where_nothing_failed(invoke, several):
    invoke("run")
    result = invoke("run", "--last-failed")
    assert len(asked(several)) == 3
    assert result.err == "--last-failed: nothing is known to have failed; checking all\n"


def test_cases_are_listed_without_running(invoke, several):
    result = invoke("run", "--collect-only", "-k", "huber")
    assert result.out == (
        "specs/huber.yaml:1 · huber · default · float64\n"
        "specs/huber.yaml:1 · huber · wide · float64\n"
        "1 op · 2 cases\n"
    )
    assert "processes" not in several.asked  # nothing was started
    result = invoke("run", "--collect-only", "--format", "json")
    assert (result.code, result.out) == (2, "")
    assert "--collect-only and --format json exclude each other." in result.err


def test_the_slowest_are_listed(invoke, several, a_result):
    several.results[1] = a_result("huber", case="wide", duration_s=12.5)
    out = invoke("run", "--durations", "2").out
    assert "slowest 2 cases:\n     12.50 s  specs/huber.yaml · huber · wide\n      0.10 s  specs/" in out
