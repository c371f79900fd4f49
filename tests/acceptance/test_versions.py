"""Specs for some versions of TensorFlow, and specs that say what they cover, by the command line."""

import json

import pytest
import tensorflow as tf

SPECS = {
    "later": '{op: later, op_type: Tanh, tensorflow: ">=99", inputs: {x: {shape: [2]}}}',
    "now": '{op: now, op_type: Tanh, tensorflow: ">=2.16", inputs: {x: {shape: [2]}}}',
    "uncovered": "{op: uncovered, forward: 'tensorflow:identity', covers: [Tanh], inputs: {x: {shape: [2]}}}",
}


@pytest.fixture
def specs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in SPECS.items():
        (tmp_path / f"{name}.yaml").write_text(text)


@pytest.mark.usefixtures("specs")
def test_a_case_for_other_versions_is_skipped_and_fails_a_run_that_is_strict_or_has_nothing_else(command):
    done = command("run", "later.yaml")
    assert done.code == 3
    assert "  check tensorflow  skip GC404\n" in done.out
    assert f"it is for TensorFlow >=99; this is {tf.__version__}." in done.out
    assert "1 op · 1 case · 0 pairs: 1 skipped" in done.out
    assert command("run", "later.yaml", "now.yaml").code == 0
    assert command("run", "later.yaml", "now.yaml", "--strict").code == 3
    assert command("run", "now.yaml", "--strict").code == 0


@pytest.mark.parametrize("key", ["tensorflow: '<2.17'", "needs: [not_there]", "needs: [not_there.inside]"])
def test_a_case_that_a_baseline_has_and_that_is_skipped_now_is_weakened(command, tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tf, "__version__", "2.21.0")
    (tmp_path / "now.yaml").write_text(SPECS["now"])
    (tmp_path / "other.yaml").write_text("{op: other, op_type: Tanh, inputs: {x: {shape: [2]}}}")
    assert command("run", ".", "--update-baseline", "a.lock").code == 0
    (tmp_path / "now.yaml").write_text(SPECS["now"].replace('tensorflow: ">=2.16"', key))
    done = command("run", ".", "--baseline", "a.lock")
    assert done.code == 1
    assert "  WEAKENED GC505  now · dy/dx\n    was passed, and is skipped now\n" in done.out


@pytest.mark.usefixtures("specs")
def test_what_is_not_covered_is_an_error_that_names_what_was_seen(command):
    done = command("run", "uncovered.yaml", "--format", "json")
    assert done.code == 3
    (case,) = json.loads(done.out)["cases"]
    assert (case["status"], case["error"]["kind"], case["pairs"]) == ("error", "covers", [])
    assert (
        "of Tanh must be seen to run in the backward pass, but wasn't; those seen were Identity."
        in (case["error"]["message"])
    )
