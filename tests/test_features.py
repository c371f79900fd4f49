"""Features beside the core: deleting their folders costs their commands, and nothing of the core's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gradcheck_cli
from gradcheck_cli import hooks

PACKAGE = Path(gradcheck_cli.__file__).parent
ROOT = PACKAGE.parent
# The core's layers that need no whole command, and the command line.
CORE = ("spec", "numerics", "checking", "cli", "reporting", "running")


@pytest.fixture
def copy(tmp_path):
    """Return a function that copies parts of the tree, deletes a folder of the package, and runs Python."""

    def run(*arguments, without, parts=(PACKAGE.name,)):
        for name in parts:
            target = tmp_path / name
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, target)
        shutil.rmtree(tmp_path / PACKAGE.name / without)
        return subprocess.run(
            [sys.executable, *arguments],  # `-m` imports from the working folder first
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_each_folder_is_in_the_list():
    folders = {file.parent.name for file in (PACKAGE / "features").glob("*/__init__.py")}
    assert folders == set(hooks.DEFAULT_FEATURES)


def test_each_function_of_a_feature_is_a_hook():
    hooked = {name for name in vars(hooks) if not name.startswith("_")} | set(hooks.AFTER_VERDICT)
    hooked |= {"COMMANDS", "FORMATS", "run_options", "point_recorder"}
    for feature in hooks.features():
        own = {
            name
            for name, value in vars(feature).items()
            if getattr(value, "__module__", "") == feature.__name__ and not name.startswith("_")
        }
        assert own <= hooked, feature.__name__


@pytest.mark.parametrize("feature", hooks.DEFAULT_FEATURES)
def test_without_one_the_others_are_there(copy, feature):
    words = set(copy("-m", "gradcheck_cli", "--help", without=f"features/{feature}").stdout.split())
    own = set(getattr(hooks.features()[hooks.DEFAULT_FEATURES.index(feature)], "COMMANDS", {}))
    assert set(hooks.commands()) - words == own


@pytest.mark.once
def test_the_core_stands_alone(copy):
    """The core's tests pass without any feature."""
    tests = [f"tests/{folder}" for folder in CORE]
    options = ["-q", "-p", "no:gradcheck", "-m", "not once and not feature", "-n", "2", *tests]
    parts = (PACKAGE.name, "tests", "specs", "docs", "pyproject.toml", "README.md")
    done = copy("-m", "pytest", *options, without="features", parts=parts)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
