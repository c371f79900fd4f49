"""`gradcheck mutate` by the command line: what specs would miss, exit codes, workers."""

from __future__ import annotations

import contextlib
import io
import json
from types import SimpleNamespace

import pytest
from acceptance_root import ROOT

from gradcheck_cli.cli.main import run_command

SPEC = """
defaults: {inputs: {x: {shape: [3, 3]}}}
ops:
  - {op: sharp, op_type: Tanh}
  - {op: blunt, op_type: Tanh, tolerance: {rtol: 0.1}, tags: [blunt]}
  - {op: raises, forward: "missing_module:f", tags: [raises]}
  - {op: later, op_type: Tanh, tensorflow: ">=99"}
"""


@pytest.fixture
def mutate(tmp_path, monkeypatch):
    """Return a function that mutates the specs above in this process."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command(["mutate", "spec.yaml", "-j", "0", *arguments])
        return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue())

    return call


def test_a_sharp_spec_misses_nothing(mutate):
    done = mutate("-k", "sharp", "--fail-under", "100")
    assert done.code == 0
    assert "1 case · 6 of 6 corruptions called a mismatch (100.0 %)" in done.out
    assert "missed (" not in done.out


def test_a_blunt_one_misses_what_its_tolerance_hides(mutate):
    done = mutate("--tag", "blunt")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "spec.yaml · blunt · float64 · graph"
    assert lines[1].startswith("  dy/dx  factor: missed (off by ")
    assert "1 case · 4 of 6 corruptions called a mismatch (66.6 %), 2 missed" in done.out
    assert mutate("--tag", "blunt", "--fail-under", "99").code == 3
    assert mutate("--tag", "blunt", "--kind", "sign", "--fail-under", "99").code == 0


def test_json_tells_each(mutate):
    done = mutate("--op-type", "Tanh", "--format", "json", "--kind", "sign", "--kind", "factor")
    assert done.code == 0
    content = json.loads(done.out)
    outcomes = {(one["op"], one["corruption"]): one["outcome"] for one in content["mutants"]}
    assert outcomes == {
        ("sharp", "sign"): "caught",
        ("sharp", "factor"): "caught",
        ("blunt", "sign"): "caught",
        ("blunt", "factor"): "missed",
    }
    assert [one["op"] for one in content["untried"]] == ["later"]  # not meant for this TensorFlow: no fault


def test_what_can_not_be_tried_is_no_success(mutate):
    done = mutate("--tag", "raises", "--fail-under", "0")
    assert done.code == 3
    assert "not tried: import: " in done.out
    assert "1 case not tried" in done.out


def test_in_workers(process):
    spec = ROOT / "specs" / "seeds" / "product.yaml"
    done = process("mutate", spec, "-j", "1", "--fail-under", "100", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "(100.0 %)" in done.stdout


def test_second_order_is_corrupted_too(tmp_path, mutate):
    text = "{op: s, op_type: Tanh, second_order: true, inputs: {x: {shape: [2]}}}"
    (tmp_path / "spec.yaml").write_text(text)
    done = mutate("--format", "json", "--kind", "factor")
    found = {one["pair"]: (one["order"], one["outcome"]) for one in json.loads(done.out)["mutants"]}
    assert found == {"dy/dx": (1, "caught"), "d2y/dx.dx": (2, "caught"), "d2y/dx.du": (2, "caught")}
