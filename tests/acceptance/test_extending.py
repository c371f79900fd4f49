"""The example of docs/extending.md, installed as a package: each of its parts does what the page says."""

import os
import sys
from pathlib import Path

import pytest

from tests.acceptance.documented import blocks
from tests.support import processes
from tests.support.processes import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.once
PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
SPEC = """\
op: steep
forward: ops:steep
inputs: {x: {shape: [2], uniform: {low: 1, high: 2}}}
---
op: flat
forward: ops:flat
inputs: {x: {shape: [2], uniform: {low: 1, high: 2}}}
---
op: drawn
forward: ops:flat
inputs: {x: {shape: [2], generator: heavy_tailed}}
---
op: unknown
forward: ops:flat
inputs: {x: {shape: [2], generator: nowhere}}
"""


@pytest.fixture
def installed(tmp_path):
    """Lay the page's package out as an installer does, and return its folder."""
    files = {block.title: block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.title}
    site = tmp_path / "site"
    info = site / "my_checks-1.dist-info"
    info.mkdir(parents=True)
    (site / "my_checks.py").write_text(files["my_checks.py"])
    project = tomllib.loads(files["pyproject.toml"])["project"]
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items())])
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups) + "\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n")
    (tmp_path / "ops.py").write_text(
        "def steep(x):\n    return 5000.0 * x\n\n\ndef flat(x):\n    return 2.0 * x\n"
    )
    (tmp_path / "steep.yaml").write_text(SPEC)
    return site


def test_the_example_checks_and_reports(installed, tmp_path):
    line = (sys.executable, "-m", "gradcheck_cli", "run", "steep.yaml", "--report", "csv=run.csv")
    done = processes.run(*line, cwd=tmp_path, PYTHONPATH=f"{installed}{os.pathsep}{ROOT}")
    assert done.returncode == 1, done.stderr
    assert (
        "check bounded  MISMATCH GC115\n    dy/dx is larger than 1000 for an upstream of ones" in done.stdout
    )
    assert done.stdout.count("check bounded") == 2  # under its table, and in the list at the end
    rows = (tmp_path / "run.csv").read_text().splitlines()
    assert [row.split(",")[:3] for row in rows] == [
        [op, "dy/dx", "passed"] for op in ("steep", "flat", "drawn")
    ]
    told = " ".join(done.stdout.split())
    assert "no installed package brings a generator 'nowhere'" in told
    assert "there are: heavy_tailed" in told
