"""What is released: an sdist that holds all, and a wheel built from it; the walk runs a wheel."""

import shutil
import sys
import tarfile
import zipfile

import pytest

from tests.support import processes
from tests.support.processes import ROOT


def build(kind, source, target):
    done = processes.run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target, cwd=source)
    assert done.returncode == 0, done.stderr
    (made,) = target.iterdir()
    return made


@pytest.mark.once
def test_the_sdist_has_all_that_the_tests_need_and_the_wheel_of_it_the_package_and_nothing_else(tmp_path):
    built = (".git", ".venv*", "__pycache__", "*_cache", "site", "dist", "build", ".hypothesis")
    shutil.copytree(ROOT, tmp_path / "tree", ignore=shutil.ignore_patterns(*built))
    sdist = build("sdist", tmp_path / "tree", tmp_path / "dist")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path / "unpacked", filter="data")
    top = {"README.md", "pyproject.toml", ".mkdocs.yml", ".pre-commit-hooks.yaml"}
    below = {"docs/tutorial.md", "specs/seeds/chain.yaml", "tests/acceptance/test_release.py"}
    assert top | below <= names
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    held = zipfile.ZipFile(build("wheel", unpacked, tmp_path / "wheels")).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in held} == {"gradcheck_cli"}
    files = [file for file in (ROOT / "gradcheck_cli").rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert {file.relative_to(ROOT).as_posix() for file in files} <= set(held)
