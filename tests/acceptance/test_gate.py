"""A change to a gradient, as its author and its reviewer see the gate: in a scratch repository."""

import json
import re
import shlex
import shutil
import sys
import time
from types import SimpleNamespace

import pytest
import yaml

from tests.support import processes
from tests.support.processes import ROOT, git

pytestmark = pytest.mark.once

OPS = """import tensorflow as tf


def cube(x):
    return x * x * x


def cube_grad(op, upstream):
    x = op.inputs[0]
    return upstream * 3.0 * x * x


@tf.custom_gradient
def soft_sign(x):
    y = x / (1.0 + tf.abs(x))

    def backward(upstream):
        return upstream / tf.square(1.0 + tf.abs(x))

    return y, backward
"""
CUBE = """op: cube
forward: losses.ops:cube
gradient: losses.ops:cube_grad
inputs: {x: {shape: [4]}}
"""
SOFT_SIGN = """op: soft_sign
forward: losses.ops:soft_sign
inputs: {x: {shape: [3, 2], away_from: [0]}}
"""
FILES = {
    "losses/__init__.py": "",
    "losses/ops.py": OPS,
    "specs/cube.yaml": CUBE,
    "specs/soft_sign.yaml": SOFT_SIGN,
    "pyproject.toml": "[project]\nname = 'losses'\nversion = '1'\n\n[tool.gradcheck]\n"
    "specs = 'specs'\ncov = ['losses']\n",
}


def workflow():
    """The workflow that docs/ci.md gives."""
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"<!-- the acceptance test runs [^>]*-->\n```yaml\n(.*?)```", page, re.DOTALL)
    return text


def gate():
    """The arguments of the command that the workflow runs."""
    steps = yaml.safe_load(workflow())["jobs"]["gradcheck"]["steps"]
    words = shlex.split(steps[-1]["run"])
    assert words[0] == "gradcheck"
    return words[1:]


@pytest.fixture(scope="module")
def main_branch(tmp_path_factory):
    """A repository with a package, specs, a workflow, and a lock file of all of it."""
    folder = tmp_path_factory.mktemp("repository")
    for name, text in {**FILES, ".github/workflows/gradients.yml": workflow()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    done = processes.gradcheck("run", "-j", "1", "--update-baseline", "gradients.lock", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "gradients.lock: 2 new\n")
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text(".gradcheck_cache/\n__pycache__/\n", encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "start")
    return folder


@pytest.fixture
def repository(main_branch, tmp_path, monkeypatch, command):
    """Return a checkout of its own, with `change` (file, old, new), `gate` and `run`."""
    folder = tmp_path / "checkout"
    shutil.copytree(main_branch, folder)
    summary = tmp_path / "summary.md"
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "losses"]:
        monkeypatch.delitem(sys.modules, name)

    def change(name, old, new):
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    def check():
        done = command(*gate())
        annotations = [line for line in done.out.splitlines() if line.startswith("::")]
        text = summary.read_text(encoding="utf-8")
        return SimpleNamespace(
            code=done.code, out=done.out, err=done.err, annotations=annotations, summary=text
        )

    return SimpleNamespace(folder=folder, change=change, gate=check, run=command)


def test_a_harmless_refactor_passes_in_silence(repository):
    repository.change(
        "losses/ops.py", "return upstream * 3.0 * x * x", "return tf.square(x) * (3.0 * upstream)"
    )
    repository.change("losses/ops.py", "return x * x * x", "return tf.pow(x, 3)")
    result = repository.gate()
    assert (result.code, result.annotations) == (0, [])
    assert "since the baseline" not in result.out
    assert result.summary.startswith("### ✅ gradcheck: all right")


def test_a_sign_error_is_found_and_shown_at_its_line(repository):
    repository.change("losses/ops.py", "return upstream / tf.square", "return -upstream / tf.square")
    result = repository.gate()
    assert result.code == 1
    annotation, uncovered = result.annotations
    assert "losses.ops:soft_sign: not covered: dy/dx of soft_sign ran it, and is mismatched" in uncovered
    assert annotation.startswith(
        "::error file=losses/ops.py,line=17,"
        "title=gradcheck%3A soft_sign%3A dy/dx mismatched%3A 6 of 36 elements (GC101)::"
    )
    assert "diagnosis: the sign is flipped" in annotation
    assert (
        "reproduce: gradcheck run specs/soft_sign.yaml --op soft_sign --case default --seed 0" in annotation
    )
    assert result.summary.startswith("### ❌ gradcheck: exit code 1")
    assert "| ❌ | soft\\_sign | dy/dx mismatched: 6 of 36 elements (GC101) |" in result.summary
    assert "losses/ops.py:17 |" in result.summary


def test_a_tolerance_loosened_to_hide_a_wrong_gradient_is_seen(repository):
    repository.change("losses/ops.py", "upstream * 3.0 * x * x", "upstream * 3.03 * x * x")
    repository.change("specs/cube.yaml", "inputs:", "tolerance: {rtol: 0.1}\ninputs:")
    result = repository.gate()
    assert "mismatched" not in result.out
    assert result.code == 1
    loosened = [line for line in result.annotations if "loosened" in line]
    assert len(loosened) == 1
    assert loosened[0].startswith(
        "::error file=specs/cube.yaml,line=1,title=gradcheck%3A cube · dy/dx%3A loosened (GC502)::"
    )
    assert loosened[0].endswith("cube · dy/dx: rtol 1.0e-06 -> 1.0e-01")
    changed = [line for line in result.annotations if "gradient changed" in line]
    assert changed[0].startswith("::error file=losses/ops.py,line=8,")
    assert "cube · dy/dx: loosened" in result.summary


def test_a_check_turned_off_to_hide_a_fault_is_seen(repository):
    repository.change("losses/ops.py", "upstream * 3.0", "tf.clip_by_value(upstream, -9.0, 9.0) * 3.0")
    assert "check linearity" in repository.gate().out
    repository.change("specs/cube.yaml", "inputs:", "checks: {linearity: false}\ninputs:")
    result = repository.gate()
    assert "1 weakened" in result.out
    assert result.code == 1
    assert "check linearity is turned off now" in "".join(result.annotations)


def test_a_drift_within_the_tolerance_fails(repository):
    repository.change("losses/ops.py", "upstream * 3.0 * x * x", "upstream * 3.0000006 * x * x")
    result = repository.gate()
    assert "2 passed" in result.summary
    assert result.code == 1
    drift = [line for line in result.annotations if "drifted" in line]
    assert len(drift) == 1
    assert drift[0].startswith("::error file=losses/ops.py,line=8,title=gradcheck%3A cube · dy/dx%3A ")
    assert re.search(r"error \d\.\de-1[0-9] -> \d\.\de-0[678], still within the tolerance of ", drift[0])
    assert "still within the tolerance of" in result.summary


def test_forward_and_gradient_changed_together_pass_and_are_listed(repository):
    repository.change("losses/ops.py", "return x * x * x", "return 2.0 * x * x * x")
    repository.change("losses/ops.py", "upstream * 3.0 * x * x", "upstream * 6.0 * x * x")
    result = repository.gate()
    assert (result.code, result.annotations) == (0, [])
    assert "  both changed GC507  cube · dy/dx\n    the forward and the gradient have changed" in result.out
    assert "since the baseline: 1 both changed" in result.out
    assert "- cube · dy/dx: the forward and the gradient have changed" in result.summary


def test_an_accepted_change_is_one_line_of_the_lock_file(repository):
    repository.change("losses/ops.py", "return x * x * x", "return 2.0 * x * x * x")
    repository.change("losses/ops.py", "upstream * 3.0 * x * x", "upstream * 6.0 * x * x")
    done = repository.run("run", "--update-baseline", "gradients.lock")
    assert (done.code, done.err) == (0, "gradients.lock: 1 changed, 1 as they were\n")
    lines = git(repository.folder, "diff", "-U0", "gradients.lock").splitlines()
    removed, added = (line for line in lines if re.match(r"[-+]\{", line))
    assert json.loads(removed[1:])["pair"] == json.loads(added[1:])["pair"] == "dy/dx"
    assert repository.gate().code == 0


def test_a_run_ends_when_its_time_is_over_and_is_not_green(process, tmp_path):
    (tmp_path / "slow.py").write_text("import time\n\ndef f(x):\n    time.sleep(300)\n    return x\n")
    (tmp_path / "quick.py").write_text("def f(x):\n    return x * x\n")
    for name in ("quick", "slow"):
        spec = f"op: {name}\nforward: {name}:f\ninputs: {{x: {{shape: [2]}}}}\n"
        (tmp_path / f"{name}.yaml").write_text(spec)
    began = time.monotonic()
    done = process("run", "-j", "1", "--max-time", "20", "quick.yaml", "slow.yaml")
    assert time.monotonic() - began < 60
    assert done.returncode == 3
    assert "stopped after --max-time 20 s: 1 of 2 cases weren't checked" in done.stdout
    assert "1 op · 1 case · 1 pair: 1 passed" in done.stdout
