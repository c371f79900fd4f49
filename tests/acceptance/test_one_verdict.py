"""`run`, `show`, `blame`, `mutate`, `check()` and the pytest plugin say the same of every pair.

    ONE_VERDICT="specs/*/*.yaml" python -m pytest tests/acceptance/test_one_verdict.py -k this_repository

asks it of other specs than the few that are asked on each run of the tests.
"""

import json
import os

import pytest
import yaml

import gradcheck_cli
from gradcheck_cli.results import FAILING, UNDECIDED, Status
from tests.support.processes import ROOT

pytest_plugins = ["pytester"]

FAILS = {str(status) for status in FAILING | UNDECIDED}
PLANTED = """
- {op: conjugated, forward: verdict_functions:conjugated, inputs: {z: {shape: [2], dtype: complex128}}}
- {op: lossy, forward: verdict_functions:lossy, inputs: {x: {shape: [3], dtype: float32}}}
- {op: weighted, forward: verdict_functions:weighted, variables: true, inputs: {x: {shape: [2]}}}
- {op: of_wrong_shape, forward: verdict_functions:of_wrong_shape, inputs: {x: {shape: [2]}}}
- {op: deaf, forward: verdict_functions:deaf, inputs: {x: {shape: [2]}}}
- {op: unclipped, forward: verdict_functions:unclipped, inputs: {x: {shape: [2], value: [3.0, -1.5]}}}
- {op: tie, forward: "tensorflow:reduce_max", inputs: {x: {shape: [3], value: [1.0, 1.0, 0.0]}}}
- {op: kink, forward: "tensorflow.nn:relu", inputs: {x: {shape: [3], value: [0.0, 1.0, -1.0]}}}
- {op: right, forward: "tensorflow:tanh", dtypes: [float64, float32], inputs: {x: {shape: [3]}}}
- {op: flat, forward: "tensorflow:round", inputs: {x: {shape: [2]}}}
- {op: cut_off, forward: "tensorflow:stop_gradient", inputs: {x: {shape: [2]}}}
- op: only_at_another_draw
  forward: verdict_functions:remainder
  seed: 5
  inputs: {x: {shape: [4], uniform: {low: 1, high: 3}}, y: {shape: [4], uniform: {low: 0.3, high: 0.9}}}
- op: skipped
  forward: "tensorflow:exp"
  pairs: {"*": {expect: skip, reason: for show}}
  inputs: {x: {shape: [2]}}
- op: meant
  forward: verdict_functions:conjugated
  expect: mismatch
  inputs: {z: {shape: [1], dtype: complex128}}
"""


@pytest.fixture
def spec(tmp_path):
    ops = yaml.safe_load(PLANTED)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({"ops": ops}))
    source = ROOT / "tests" / "acceptance" / "verdict_functions.py"
    (tmp_path / "verdict_functions.py").write_text(source.read_text())
    return tmp_path / "spec.yaml"


SPECS = sorted(
    str(path.relative_to(ROOT))
    for pattern in os.environ.get(
        "ONE_VERDICT", "specs/seeds/chain* specs/seeds/*stop* specs/seeds/*cube*"
    ).split()
    for path in ROOT.glob(pattern)
)


def lines_of(done):
    """Return what a command printed as JSON, a case a line."""
    return [json.loads(line) for line in done.out.splitlines()]


def hold(command, path):
    """Ask every command of one file of specs, and hold what they say against `check`'s report."""
    report = gradcheck_cli.check(path)
    run = json.loads(command("run", path, "-j", "0", "--format", "json").out)
    told = [
        (case["op"], case["case"], case["dtype"], case["status"], [pair["status"] for pair in case["pairs"]])
        for case in run["cases"]
        if case["mode"] == "graph"
    ]
    cases = [case for case in report.cases if case.mode == "graph"]
    assert told == [
        (one.op, one.case, one.dtype, str(one.status), [str(pair.status) for pair in one.pairs])
        for one in cases
    ]
    assert run["exit_code"] == report.exit_code
    for case in cases:
        only = ("--op", case.op, "--case", case.case)
        alone = [one for one in cases if (one.op, one.case) == (case.op, case.case)]
        for pair in case.pairs[:2]:
            _hold_show(command("show", path, *only, "--pair", pair.label, "--format", "json"), case, pair)
        done = command("blame", path, *only, "--format", "json")
        if done.code == 0:
            assert not any(str(one.status) in FAILS for one in alone), case.op
    right = {
        (one.op, one.case, one.dtype, pair.label)
        for one in cases
        for pair in one.pairs
        if pair.status is Status.PASSED
    }
    mutants = json.loads(command("mutate", path, "-j", "0", "--kind", "sign", "--format", "json").out)
    corrupted = {(one["op"], one["case"], one["dtype"], one["pair"]) for one in mutants["mutants"]}
    assert corrupted <= right
    return cases


def _hold_show(done, case, pair):
    """Hold `show`'s status and its elements' verdicts against those of the run."""
    if done.code == 3:  # a gradient of wrong form has no Jacobian to show
        assert pair.mismatch == "form" or case.error is not None, (case.op, done.err)
        return
    (shown,) = [one for one in lines_of(done) if one["dtype"] == case.dtype]
    if pair.status is Status.SKIPPED or pair.cause.point:  # a chosen point, which `show` takes as `--point`
        return
    assert shown["status"] == str(pair.status), (case.op, pair.label)
    words = set(str(shown["verdict"]).replace("'", " ").replace("[", " ").replace("]", " ").split())
    words |= set(str((shown["imaginary"] or {}).get("verdict", "")).replace("'", " ").split())
    assert ("mismatch" in words) == bool(pair.numbers.wrong_elements and pair.mismatch), (case.op, pair.label)
    assert ("kink" in words) == bool(pair.numbers.kinks), (case.op, pair.label)


@pytest.mark.once  # fourteen cases by seven commands
def test_planted_faults(command, spec, monkeypatch):
    monkeypatch.chdir(spec.parent)
    cases = hold(command, spec)
    found = {case.op: str(case.status) for case in cases}
    right = {op for op, status in found.items() if status == "passed"}
    wrong = {op for op, status in found.items() if status == "mismatched"}
    assert right >= {"tie", "kink", "right"}
    assert wrong == {
        "conjugated", "lossy", "only_at_another_draw", "weighted", "of_wrong_shape", "deaf", "unclipped"
    }  # fmt: skip
    assert (found["skipped"], found["meant"]) == ("skipped", "expected_mismatch")
    assert found["cut_off"] in FAILS


@pytest.mark.on_change("specs/seeds/chain.yaml", "specs/seeds/stop_gradient.yaml")
@pytest.mark.parametrize("path", SPECS)
def test_specs_of_this_repository(command, monkeypatch, path):
    monkeypatch.chdir(ROOT)
    hold(command, path)


TRACED = {
    "stopped": ("x gets None", "^ cut off by StopGradient"),
    "counted": ("x gets None", "^ cut off by Cast to int32"),
    "infinity_less_infinity": (
        "x gets [nan, nan]",
        "^ NaN first appears here, where the gradients of several ops are added up",
    ),
}


@pytest.mark.parametrize("function", TRACED)
def test_trace_says_where_none_and_nan_come_from(command, spec, monkeypatch, function):
    arrives, told = TRACED[function]
    monkeypatch.chdir(spec.parent)
    text = f"forward: verdict_functions:{function}\ninputs: {{x: {{shape: [2], value: [1.5, 2.5]}}}}\n"
    (spec.parent / "traced.yaml").write_text(text)
    done = command("trace", "traced.yaml")
    assert (done.code, done.err) == (0, "")
    assert arrives in done.out
    assert told in " ".join(done.out.split())
    if function != "infinity_less_infinity":
        assert "verdict_functions.py:" in done.out
