"""Each cause has a page with all its facts, and the lists of causes are made of these pages."""

import re
from importlib.metadata import version as installed
from importlib.util import find_spec
from pathlib import Path

import pytest
from causes import FINDINGS, KINDS, ORDERS, ROOT, ROWS, SEVERITIES, causes, written

CAUSES = {cause.path.stem: cause for cause in causes()}


@pytest.mark.parametrize("name", CAUSES)
def test_a_page_says_all_that_a_maintainer_asks(name):
    cause = CAUSES[name]
    kind, severity, order = cause.facts["kind"].split(", ")
    assert (kind in KINDS, severity in SEVERITIES, order in ORDERS) == (True, True, True)
    assert list(cause.facts) == [row for row in ROWS if row in cause.facts]
    if kind == "fault":
        assert list(cause.facts) == list(ROWS)
        assert cause.program
        assert "Expected:" in cause.path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", [name for name, cause in CAUSES.items() if ".py:" in cause.facts.get("where", "")]
)
def test_the_guilty_line_is_there(name):
    version = re.search(r"TensorFlow (\d+\.\d+\.\d+)", CAUSES[name].facts["tried"])[1]
    path, line, function = re.match(r"`([\w/.]+):(\d+)`, `(\w+)`", CAUSES[name].facts["where"]).groups()
    package = find_spec(path.split("/")[0])
    if package is None or not _is_version(version):
        pytest.skip("another version's lines, or the package isn't installed")
    lines = (Path(package.origin).parents[1] / path).read_text(encoding="utf-8").splitlines()
    assert function in lines[int(line) - 1]


def _is_version(version):
    return installed("tensorflow") == version


def test_names_are_of_one_cause_each():
    paths = list(FINDINGS.glob("*/*.md"))
    assert len({path.stem for path in paths}) == len(paths)


def test_the_lists_are_of_the_pages():
    for path, text in written().items():
        assert path.read_text(encoding="utf-8") == text, "run python tests/audit/causes.py"


def test_the_readme_counts_them():
    faults = sum(cause.kind == "fault" for cause in CAUSES.values())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (
        f"[{len(CAUSES)} causes](docs/gradcheck_findings.md), of which {faults} are silent faults" in readme
    )
