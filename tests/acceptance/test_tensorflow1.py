"""Code that begins with `tf.disable_v2_behavior()`, by each command, beside code of TensorFlow 2."""

import json
import sys

import pytest

import gradcheck_cli
from tests.support import processes
from tests.support.processes import ROOT

pytestmark = pytest.mark.once

OLD = """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()

@tf.RegisterGradient("HalfOfAcceptance")
def half(op, grad):
    assert op.inputs[0].shape[0].value == 3
    return grad * op.inputs[0]

def square(x):
    with tf.get_default_graph().gradient_override_map({"Square": "HalfOfAcceptance"}):
        return tf.square(x)

@tf.custom_gradient
def cube(x):
    return x ** 3, lambda grad: 3 * x ** 2 * grad
"""
NEW = """
import tensorflow as tf
TWO = tf.constant(2.0).numpy()

def double(x):
    return x * float(TWO)
"""
SPEC = """
defaults: {inputs: {x: {shape: [3], dtype: float32}}}
ops:
  - {op: square, forward: 'old_code:square'}
  - {op: double, forward: 'new_code:double', modes: [graph, eager]}
  - {op: cube, forward: 'old_code:cube', modes: [graph, dynamic, eager, xla]}
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "old_code.py").write_text(OLD)
    (tmp_path / "new_code.py").write_text(NEW)
    (tmp_path / "ops.yaml").write_text(SPEC)
    (tmp_path / "ops.gradcheck.yaml").write_text(SPEC)
    return tmp_path


def statuses(report):
    return {(case["op"], case["mode"]): case["status"] for case in report["cases"]}


EXPECTED = {
    ("square", "graph"): "mismatched",
    ("double", "graph"): "passed",
    ("double", "eager"): "passed",
    ("cube", "graph"): "passed",
    ("cube", "dynamic"): "passed",
    ("cube", "eager"): "skipped",
    ("cube", "xla"): "passed",
}


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_document_of_both_is_checked(project, process, workers):
    done = process("run", "ops.yaml", "-j", workers, "--format", "json", cwd=project)
    assert statuses(json.loads(done.stdout)) == EXPECTED, done.stdout + done.stderr
    assert done.returncode == 1
    (skipped,) = [case for case in json.loads(done.stdout)["cases"] if case["status"] == "skipped"]
    assert "turns eager execution off" in skipped["checks"][0]["message"]


COMMANDS = [
    (("blame", "ops.yaml"), 1, "gradient half at old_code.py"),
    (("trace", "ops.yaml"), 0, "half at old_code.py"),
    (("show", "ops.yaml", "--pair", "dy/dx"), 0, "dy/dx"),
    (("mutate", "ops.yaml", "-k", "square or double"), 3, "called a mismatch"),  # square is wrong as it is
    (("list", "HalfOf*", "--import", "old_code"), 0, "old_code.py"),
    (("init", "old_code:cube"), 0, "wrote specs/cube.yaml"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), COMMANDS, ids=[row[0][0] for row in COMMANDS])
def test_each_command_takes_it(project, warm, arguments, code, words):
    done = warm(*arguments, cwd=project)
    assert "Traceback" not in done.stderr
    assert "internal" not in done.stdout + done.stderr
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


def test_pytest_takes_it(project):
    options = ("--gradcheck", "-p", "no:cacheprovider", "-q", "ops.gradcheck.yaml")
    done = processes.run(sys.executable, "-m", "pytest", *options, cwd=project, PYTEST_ADDOPTS="")
    assert "1 failed" in done.stdout, done.stdout
    assert "internal" not in done.stdout


def test_the_library_takes_it_from_a_program_of_tensorflow_1(project):
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
x = tf.placeholder(tf.float32)
import gradcheck_cli
report = gradcheck_cli.check("ops.yaml")
print({{(case.op, case.mode): str(case.status) for case in report.cases}})
assert not tf.executing_eagerly() and x.graph is tf.get_default_graph()
"""
    done = processes.run(sys.executable, "-c", program, cwd=project)
    # Its own switch holds for all that it imports: no constant has a value there, which `double` asks for.
    expected = {**EXPECTED, ("double", "graph"): "error", ("double", "eager"): "error"}
    assert done.returncode == 0, done.stderr
    assert str(expected) in done.stdout


def test_the_library_leaves_the_process_as_it_was(project, monkeypatch):
    import tensorflow as tf

    monkeypatch.chdir(project)
    gradcheck_cli.check("ops.yaml")
    assert tf.executing_eagerly()
    assert tf.constant([1.0]).shape[0] == 1
