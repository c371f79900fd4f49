"""Modes and devices by the command line: tables, exit codes, processes."""

import os
import re
import sys

import pytest

from tests.support import processes
from tests.support.processes import ROOT

CODE = """
import tensorflow as tf

@tf.custom_gradient
def mean(x):
    rows = x.shape[0] or 1
    return tf.reduce_mean(x**2, axis=0), lambda upstream: 2 * x * upstream / rows

def eager_only(x):
    return x * x if float(tf.reduce_sum(x).numpy()) > 0 else 3 * x
"""
SPECS = {
    "mean": "{forward: 'functions_in_modes:mean', modes: [graph, dynamic, eager, xla]}",
    "eager_only": "{forward: 'functions_in_modes:eager_only', modes: [eager]}",
    "square": "{forward: 'numpy:square', binding: py_func, gradient: {numpy: 'gradients_in_modes:square'}, "
    "outputs: {y: {dtype: float64}}}",
}


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """Return a function that writes one spec and its code, and returns its file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "functions_in_modes.py").write_text(CODE)
    (tmp_path / "gradients_in_modes.py").write_text("def square(u, x):\n    return 2 * x * u\n")

    def write(name):
        text = SPECS[name].removesuffix("}") + ", inputs: {x: {shape: [3, 2]}}}"
        (tmp_path / f"{name}.yaml").write_text(text)
        return f"{name}.yaml"

    return write


def test_an_unknown_batch_shows_a_gradient_that_divides_by_a_known_one(command, spec):
    done = command("run", spec("mean"))
    assert done.code == 1
    assert "mean.yaml · mean · float64 · dynamic" in done.out
    assert "diagnosis: the gradient is 3 times the derivative" in done.out
    assert "  check modes  MISMATCH GC109\n" in done.out
    assert "--mode graph --mode dynamic\n" in done.out.replace(" \\\n     ", "")
    assert "1 op · 4 cases · 4 pairs: 3 passed, 1 mismatched, 1 failed check" in done.out
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_what_reproduces_it_does(command, spec):
    done = command("run", spec("mean"))
    (line,) = [line for line in done.out.replace(" \\\n", "").splitlines() if "reproduce: " in line]
    again = command(*line.split()[2:])
    assert again.code == 1
    assert "check modes  MISMATCH" in again.out


def test_a_forward_for_eager_mode_passes_there_and_fails_as_a_graph(command, spec):
    file = spec("eager_only")
    assert command("run", file).code == 0
    done = command("run", file, "--mode", "graph")
    assert done.code == 3
    assert "It works where it is called eagerly: say" in done.out


@pytest.mark.on_change("options2-3", "options3-3", "options5-0")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--mode", "graph", "--mode", "xla"], 0),
        (["--mode", "graph", "--mode", "xla", "--strict"], 3),
        (["--mode", "xla"], 3),
        (["--mode", "xla", "--mode", "eager"], 3),
        (["--device", "GPU:7"], 3),
        (["--device", "CPU:0"], 0),
    ],
)
def test_what_is_skipped_is_green_only_beside_what_was_checked(command, spec, options, code):
    done = command("run", spec("square"), *options)
    assert done.code == code
    if code == 3:
        assert re.search(r"  skip GC40[23]\n", done.out)
        assert "1 skipped" in done.out or "2 skipped" in done.out


ON_TWO_CPUS = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import gradcheck_cli
report = gradcheck_cli.check("s.yaml")
print(gradcheck_cli.render_report(report))
assert [str(case.status) for case in report.cases] == ["passed"] * 3, report

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.spec.load import load_cases
from gradcheck_cli.tensorflow_backend.startup import on_device
from gradcheck_cli.tensorflow_backend.openers import opener_of
for mode in ("graph", "xla"):
    with on_device("CPU:1"):
        op = opener_of(load_cases(["s.yaml"])[0], mode).open(Opening())
        (output,) = op.runs._forward._call([tf.constant([1.0, 2.0], tf.float64)])
    assert output.backing_device.endswith("CPU:1"), output.backing_device
"""


@pytest.mark.once  # a process with two devices
def test_ops_run_on_the_device_that_is_asked_for(tmp_path):
    """Of two processors, as TensorFlow can be told to see them, the second is used in every mode."""
    (tmp_path / "where_it_runs.py").write_text(
        "import tensorflow as tf\n"
        "def forward(x):\n"
        "    y = x * x\n"
        "    if tf.executing_eagerly():\n"
        "        assert y.device.endswith('CPU:1'), y.device\n"
        "    return y\n"
    )
    (tmp_path / "s.yaml").write_text(
        "{forward: 'where_it_runs:forward', modes: [graph, eager, xla], device: CPU:1, "
        "inputs: {x: {shape: [2]}}}"
    )
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = processes.run(sys.executable, "-c", ON_TWO_CPUS, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
