"""The pre-commit hooks, by pre-commit itself in a scratch repository."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import processes
from tests.support.processes import ROOT

pytestmark = pytest.mark.once

GOOD = "op: {name}\nforward: functions:{name}\ninputs: {{x: {{shape: [2]}}}}\n"
CODE = """
import tensorflow as tf

def square(x):
    return x * x

@tf.custom_gradient
def cube(x):
    return x ** 3, lambda upstream: {factor} * upstream * x ** 2
"""


HOOKS = ("gradcheck-validate", "gradcheck-run")


class Repository:
    """A git repository with the hooks, and commands in it."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        for line in ("init -q", "config user.name somebody", "config user.email somebody@example.org"):
            self.run("git", *line.split())

    def run(self, *command):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        home = str(self.folder.parent / "pre-commit")
        own = {"PATH": path, "PRE_COMMIT_HOME": home, "GIT_CONFIG_GLOBAL": os.devnull}
        return processes.run(*command, cwd=self.folder, **own)

    def commit(self):
        self.run("git", "add", "-A")
        return self.run("git", "commit", "-m", "a change")


@pytest.fixture
def repository(tmp_path):
    hooks = Repository(tmp_path / "hooks")
    shutil.copy2(ROOT / ".pre-commit-hooks.yaml", hooks.folder)
    hooks.commit()
    revision = hooks.run("git", "rev-parse", "HEAD").stdout.strip()
    made = Repository(tmp_path / "project")
    wanted = {"repo": str(hooks.folder), "rev": revision, "hooks": [{"id": one} for one in HOOKS]}
    (made.folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [wanted]}))
    (made.folder / "specs").mkdir()
    # What Python compiles while the hook runs is no change of the hook's.
    (made.folder / ".gitignore").write_text("__pycache__/\n")
    (made.folder / "functions.py").write_text(CODE.format(factor=3))
    for name in ("square", "cube"):
        (made.folder / "specs" / f"{name}.yaml").write_text(GOOD.format(name=name))
    assert made.commit().returncode == 0
    done = made.run("pre-commit", "install")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_a_fault_in_a_spec_stops_a_commit(repository):
    spec = repository.folder / "specs" / "square.yaml"
    spec.write_text(spec.read_text().replace("forward", "forwrd"))
    done = repository.commit()
    assert done.returncode == 1
    assert "specs/square.yaml:2: forwrd: unknown key. Did you mean 'forward'?" in done.stderr


def test_a_wrong_gradient_stops_a_commit_and_only_what_changed_is_checked(repository):
    (repository.folder / "functions.py").write_text(CODE.format(factor=2))
    done = repository.commit()
    assert done.returncode == 1
    assert "MISMATCH" in done.stderr
    assert "2 ops" in done.stderr  # both import the module
    (repository.folder / "functions.py").write_text(CODE.format(factor=3))
    spec = repository.folder / "specs" / "square.yaml"
    spec.write_text(spec.read_text().replace("[2]", "[3]"))
    done = repository.commit()
    assert done.returncode == 0, done.stderr


def test_what_has_nothing_to_do_with_gradients_is_let_through(repository):
    (repository.folder / "notes.txt").write_text("nothing")
    done = repository.commit()
    assert done.returncode == 0
    assert done.stderr.count("Skipped") == len(HOOKS)
