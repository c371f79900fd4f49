"""What is released: an sdist, a wheel built from it, and a command that runs where the source tree isn't."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from types import SimpleNamespace

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.once

CODE = """
import tensorflow as tf

@tf.custom_gradient
def cube(x):
    return x ** 3, lambda upstream: {factor} * upstream * x ** 2
"""
SPEC = "forward: cubes:cube\ninputs: {x: {shape: [3]}}\n"


def run(*command, folder, **variables):
    left_out = ("PYTHONPATH", "GRADCHECK_", "PYTEST_", "COLUMNS")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def build(kind, source, target):
    done = run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target, folder=source)
    assert done.returncode == 0, done.stderr
    (made,) = target.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return made


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Build an sdist of a copy of the tree, a wheel from the sdist, and install it without its dependencies.

    Those come from the environment that the tests run in: a fresh TensorFlow is half a gigabyte.
    """
    folder = tmp_path_factory.mktemp("release")
    tree = folder / "tree"
    ignored = shutil.ignore_patterns(
        ".git", ".venv*", "__pycache__", "*_cache", "site", "dist", "build", ".hypothesis"
    )
    shutil.copytree(ROOT, tree, ignore=ignored)
    sdist = build("sdist", tree, folder / "dist")
    shutil.rmtree(tree)
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder / "unpacked", filter="data")
        else:
            archive.extractall(folder / "unpacked")  # noqa: S202 (our own)
    (unpacked,) = (folder / "unpacked").iterdir()
    wheel = build("wheel", unpacked, folder / "wheels")
    shutil.rmtree(folder / "unpacked")
    home = folder / "venv"
    done = run(sys.executable, "-m", "venv", "--without-pip", home, folder=folder)
    assert done.returncode == 0, done.stderr
    python = home / "bin" / "python"
    install = ["install", "--quiet", "--no-index", "--no-deps", wheel]
    done = run(sys.executable, "-m", "pip", "--python", python, *install, folder=folder)
    assert done.returncode == 0, done.stderr
    # By a .pth file, which follows none of the .pth files there: no link to an editable source tree.
    own = next((home / "lib").glob("python*/site-packages"))
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return SimpleNamespace(
        names=names, wheel=wheel, bin=home / "bin", packages=own, root=sdist.name[: -len(".tar.gz")]
    )


@pytest.fixture
def project(tmp_path):
    (tmp_path / "cubes.py").write_text(CODE.format(factor=3))
    (tmp_path / "cube.gradcheck.yaml").write_text(SPEC)
    return tmp_path


def test_the_sdist_has_all_that_the_tests_need(released):
    for name in (
        "README.md",
        "pyproject.toml",
        ".mkdocs.yml",
        ".pre-commit-hooks.yaml",
        "gradcheck_cli/py.typed",
        "docs/tutorial.md",
        "specs/seeds/chain.yaml",
        "tests/acceptance/test_release.py",
    ):
        assert f"{released.root}/{name}" in released.names


def test_the_wheel_has_the_package_its_types_and_nothing_else(released):
    names = zipfile.ZipFile(released.wheel).namelist()
    assert "gradcheck_cli/py.typed" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"gradcheck_cli"}
    modules = [file.relative_to(ROOT).as_posix() for file in (ROOT / "gradcheck_cli").rglob("*.py")]
    assert set(modules) - set(names) == set()


def test_it_runs_where_the_source_tree_is_not(released, project):
    where = run(
        released.bin / "python", "-c", "import gradcheck_cli; print(gradcheck_cli.__file__)", folder=project
    )
    assert where.stdout.strip() == str(released.packages / "gradcheck_cli" / "__init__.py"), where.stderr
    right = run(released.bin / "gradcheck", "run", ".", folder=project)
    assert right.returncode == 0, right.stdout + right.stderr
    assert "1 op · 1 case · 1 pair: 1 passed" in right.stdout
    (project / "cubes.py").write_text(CODE.format(factor=2))
    wrong = run(released.bin / "gradcheck", "run", ".", folder=project)
    assert wrong.returncode == 1
    assert "the gradient is 2/3 times the derivative" in wrong.stdout


def test_its_pytest_plugin_is_found(released, project):
    options = ["--gradcheck", "-q", "-p", "no:cacheprovider", "cube.gradcheck.yaml"]
    done = run(released.bin / "python", "-m", "pytest", *options, folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
