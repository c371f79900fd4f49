"""The composite action: its own script, run as a runner runs it."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import processes
from tests.support.processes import ROOT

pytestmark = pytest.mark.once

BASH = shutil.which("bash") or "/bin/bash"
ACTION = yaml.safe_load((ROOT / ".github/actions/gradcheck/action.yml").read_text())
SPEC = "op: cube\nforward: functions:cube\ninputs: {x: {shape: [2]}}\n"
CODE = """
import tensorflow as tf

@tf.custom_gradient
def cube(x):
    return x ** 3, lambda upstream: 3 * upstream * x ** 2
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the step that checks, with inputs."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "functions.py").write_text(CODE)
    (tmp_path / "specs" / "cube.yaml").write_text(SPEC)
    (step,) = [one for one in ACTION["runs"]["steps"] if one.get("id") == "run"]

    def step_with(**inputs):
        output = tmp_path / "output"
        output.write_text("")
        given = {name: inputs.get(name, one["default"]) for name, one in ACTION["inputs"].items()}
        environment = {
            **{name: given[text.split("inputs.")[1].split(" ")[0]] for name, text in step["env"].items()},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        }
        bash = [BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return processes.run(*bash, cwd=tmp_path, **environment), output.read_text()

    return step_with


def test_a_right_gradient_passes_and_reports_are_written(run, tmp_path):
    done, output = run()
    assert (done.returncode, output) == (0, "exit-code=0\n"), done.stderr
    assert (tmp_path / "gradcheck.xml").exists()
    assert (tmp_path / "gradcheck.sarif").exists()
    assert "cube" in (tmp_path / "summary.md").read_text()


def test_a_wrong_one_fails_with_an_annotation(run, tmp_path):
    (tmp_path / "functions.py").write_text(CODE.replace("3 * upstream", "2 * upstream"))
    done, output = run(args="--strict", paths="specs/cube.yaml")
    assert (done.returncode, output) == (1, "exit-code=1\n")
    assert "::error file=functions.py" in done.stdout
    assert "$(" not in done.stdout


def test_what_an_input_holds_is_no_code(run, tmp_path):
    done, _ = run(baseline="$(touch hacked).lock")
    assert done.returncode == 2
    assert not (tmp_path / "hacked").exists()
