"""Each cause has a page with all its facts, and the lists of causes are made of these pages."""

import re
from collections import Counter
from importlib.metadata import version as installed
from importlib.util import find_spec
from pathlib import Path

import pytest

from gradcheck_cli.spec.load import load
from tests.audit.causes import FINDINGS, KINDS, ORDERS, ROOT, ROWS, SEVERITIES, causes, written
from tests.audit.confirmed import LATER

AUDITS = ("tensorflow", "functions", "keras", "probability")
CAUSES = {cause.path.stem: cause for cause in causes()}


@pytest.mark.parametrize("name", CAUSES)
def test_a_page_says_all_that_a_maintainer_asks(name):
    cause = CAUSES[name]
    kind, severity, order = cause.facts["kind"].split(", ")
    assert (kind in KINDS, severity in SEVERITIES, order in ORDERS) == (True, True, True)
    assert list(cause.facts) == [row for row in ROWS if row in cause.facts]
    assert cause.state == "new" or "#" in cause.facts["upstream"]
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
        assert path.read_text(encoding="utf-8") == text, "run python -m tests.audit.causes"


def test_the_readme_counts_them():
    faults = sum(cause.kind == "fault" for cause in CAUSES.values())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (
        f"[{len(CAUSES)} causes](docs/gradcheck_findings.md), of which {faults} are silent faults" in readme
    )


def expected_mismatches():
    """Return the silent kinds of mismatch that specs expect, by op and by whether the case is ordinary."""
    found = {}
    for case in load([ROOT / "specs" / folder for folder in AUDITS]).cases:
        rules = [(rule.expect, rule.kind) for rule in (*case.expected.pairs, case.expected)]
        is_ordinary = case.name == "default" and Path(case.origin.path).stem != "edges"
        # What raises has a page only if it raises by mistake.
        kinds = {kind for expect, kind in rules if expect == "mismatch" and kind != "raises"}
        found.setdefault(case.op, {True: set(), False: set()})[is_ordinary] |= kinds
    return found


def named(cause):
    """Return what a page names of the specs."""
    return set(re.findall(r"`(\w+)`", cause.facts.get("in the specs", "")))


def test_each_wrong_gradient_of_the_specs_is_on_a_page():
    expected = expected_mismatches()
    kinds = {op: found[True] | found[False] for op, found in expected.items()}
    pages = {}
    for cause in CAUSES.values():
        for name in named(cause):
            pages.setdefault(name, set()).add(cause.kind)
    assert not {op for op, found in kinds.items() if found} - pages.keys()
    # A None is a fault or, where its documentation says so, a convention (decision 67).
    assert all(pages[op] <= {"fault", "convention"} for op, found in kinds.items() if "none" in found)
    ops = {name for name in pages if name.startswith(("tf_", "tfp_", "ops_", "keras_", "edge_", "called_"))}
    assert not ops - expected.keys()


def test_the_page_counts_how_faults_were_found():
    expected = expected_mismatches()
    ordinary, chosen = ({op for op, found in expected.items() if found[which]} for which in (True, False))
    faults = {name: named(cause) for name, cause in CAUSES.items() if cause.kind == "fault"}
    shown = {
        name: "ordinary" if cases & ordinary else "chosen" if cases & chosen else "none"
        for name, cases in faults.items()
    }
    all_of_them, later = Counter(shown.values()), Counter(shown[name] for name in LATER)
    page = " ".join((ROOT / "docs" / "audit.md").read_text(encoding="utf-8").split())
    assert (
        f"Of the {len(faults)} silent faults, an ordinary case of a spec shows {all_of_them['ordinary']}, "
        f"a case that was chosen by hand {all_of_them['chosen']}, and no spec {all_of_them['none']}"
    ) in page
    assert (
        f"{len(LATER)} silent faults were found after the first list of causes: {later['ordinary']} by "
        f"an ordinary case, {later['chosen']} by a chosen one, {later['none']} without a spec"
    ) in page
