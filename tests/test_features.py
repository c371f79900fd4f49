"""Features beside the core: deleting their folders costs their commands, and nothing of the core's."""

import ast
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
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


def test_what_a_feature_names_for_a_hook_is_there():
    hooked = {*hooks.OF_A_RUN, *hooks.AT_A_CASE, *hooks.AFTER_VERDICT}
    for feature in hooks.features():
        for hook, target in getattr(feature, "HOOKS", {}).items():
            assert hook in hooked
            module, _, name = target.partition(":")
            assert name in names_in(Path(find_spec(f"{feature.__name__}.{module}".rstrip(".")).origin)), (
                target
            )


def names_in(file):
    """Return what a module defines, without importing it."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        yield from [node.name] if hasattr(node, "name") else []
        yield from [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]


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
