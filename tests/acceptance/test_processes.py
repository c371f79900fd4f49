"""The command as a shell runs it: exit codes, streams, nothing of TensorFlow's."""

import json

import pytest

pytestmark = pytest.mark.once

CODE = """
import sys
import tensorflow as tf

print("imported")
print("a user's warning", file=sys.stderr)

def right(x):
    return tf.tanh(x)

@tf.custom_gradient
def wrong(x):
    return tf.tanh(x), lambda u: 1.001 * u * (1 - tf.tanh(x) ** 2)
"""
SPEC = "op: {name}\nforward: process_ops:{name}\ninputs: {{x: {{shape: [3]}}}}\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "process_ops.py").write_text(CODE)
    for name in ("right", "wrong", "missing"):
        (tmp_path / f"{name}.yaml").write_text(SPEC.format(name=name))
    return tmp_path


@pytest.mark.parametrize("options", [["-j", "0"], ["-j", "2"]])
def test_results_go_to_standard_output_and_all_else_to_standard_error(process, folder, options):
    done = process("run", "right.yaml", "wrong.yaml", "missing.yaml", "--format", "json", *options)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert [case["status"] for case in report["cases"]] == ["passed", "mismatched", "error"]
    assert report["exit_code"] == 1
    # The user's own words, and none of TensorFlow's.
    words = ["imported", "a user's warning"]
    if options == ["-j", "0"]:
        assert done.stderr.splitlines() == words
    else:  # in a process of its own: shown with the case that failed
        assert done.stderr == ""
        assert report["cases"][1]["output"] == {"lines": words, "file": None}
        assert report["cases"][0]["output"] is None


def test_faults_of_a_spec_cost_no_tensorflow(process, folder):
    (folder / "right.yaml").write_text(
        "op: right\nforward: m:f\ninptus: {x: {shape: [3]}}\ninputs: {x: {shape: [3]}}\n"
    )
    done = process("run", "right.yaml", TF_CPP_MIN_LOG_LEVEL="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("right.yaml:3: inptus: unknown key. Did you mean 'inputs'?")
