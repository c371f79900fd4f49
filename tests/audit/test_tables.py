"""The tables of the audit's page, and the numbers that other pages give of them, are those of the specs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gradcheck_cli.spec.load import load
from tests.audit import function_table, test_functions
from tests.audit.audit_table import BEGIN, END, PAGE, ROOT, written
from tests.audit.mutation_table import every_tenth, rows
from tests.audit.op_inputs_table import TABLE, lines

ROW = re.compile(r"\| (?P<name>\w+) \| (?P<op_types>[\d,]+) \| (?P<cases>[\d,]+) \|")


@pytest.mark.once
def test_what_is_committed_agrees_with_the_specs():
    inside = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    if not inside.strip():
        pytest.skip("no run of all families has been written down yet: audit_table.py --write does so")
    version = re.search(r"TensorFlow ([\w.]+), on its CPU", inside)
    found = {
        match["name"]: (int(match["op_types"].replace(",", "")), int(match["cases"].replace(",", "")))
        for match in ROW.finditer(inside)
    }
    assert version, f"{PAGE.name} has no table"
    families, exceptions = written(version[1])
    assert found == {name: (len(family.op_types), family.cases) for name, family in families.items()}, (
        f"{PAGE.name}: run gradcheck run specs/tensorflow --report json=audit.json, "
        "then python -m tests.audit.audit_table audit.json --write"
    )
    assert f"Excepted by name: {len(exceptions)} (" in inside


def test_links_lead_somewhere():
    inside = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    for target in re.findall(r"\]\(([^)]+)\)", inside):
        assert Path(PAGE.parent, target).exists(), target
    assert ROOT.is_dir()


def test_nothing_is_missing():
    assert "missing" in function_table.HEADING
    assert not sum(family.names["missing"] for family in function_table.families().values())


@pytest.mark.once  # it counts what the newest TensorFlow offers
def test_the_table_of_functions_agrees_with_the_specs():
    page = PAGE.read_text(encoding="utf-8")
    assert function_table.written(page) == page, "run python -m tests.audit.function_table"


README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.once  # it counts what the newest TensorFlow offers
def test_public_functions():
    found = function_table.families()
    covered = sum(found[module].names["covered"] for module in test_functions.MODULES)
    for text in (README, PAGE.read_text(encoding="utf-8")):
        assert f"{covered} public functions" in text


def test_op_types():
    inside = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    (op_types,) = re.findall(r"\| \*\*all\*\* \| \*\*([\d,]+)\*\*", inside)
    assert f"{op_types} op types" in README


# A fixed dtype that a later version makes the default of an attr is the same to a spec.
_DEFAULT = re.compile(r":\w*=")


def by_op_type(text):
    return {line.split()[0]: _DEFAULT.sub(":=", line) for line in text}


def test_the_table_is_what_tensorflow_defines():
    # Another version may have other op types, and none that both have may differ.
    known, here = by_op_type(TABLE.read_text(encoding="utf-8").splitlines()), by_op_type(lines())
    both = known.keys() & here.keys()
    assert len(both) > 400
    assert {name: here[name] for name in both} == {name: known[name] for name in both}


def test_every_tenth_op_is_named():
    ops = {case.op for case in load([ROOT / "specs" / "keras"]).cases}
    words = every_tenth("keras").split()
    assert set(words[::2]) == {"--op"}
    assert len(words[1::2]) == -(-len(ops) // 10)
    assert set(words[1::2]) <= ops


def test_outcomes_are_added_up(tmp_path):
    counts = {"caught": 3, "undecided": 2, "missed": 1, "out of sight": 4}
    report = {"summary": {"cases": 5, **counts}, "kinds": {"sign": counts}}
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        path.write_text(json.dumps(report))
    assert list(rows(paths))[2:] == [
        "| `specs/a` | 5 | 6 | 3 | 2 | 1 | 4 |",
        "| `specs/b` | 5 | 6 | 3 | 2 | 1 | 4 |",
        "| sign |  | 12 | 6 | 4 | 2 | 8 |",
    ]
