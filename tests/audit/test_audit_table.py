"""The audit's table: what is counted, and that what is committed agrees with the specs as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradcheck_cli.reporting.exchange.json_report import to_json
from gradcheck_cli.results import Report, Status
from gradcheck_cli.spec.load import load
from tests.audit.audit_table import BEGIN, END, PAGE, ROOT, main, put, table, written
from tests.support.flat_results import make_case, make_pair

SPEC = """
{defaults: {inputs: {x: {shape: [2]}}}, ops: [
  {op: tanh, op_type: Tanh, dtypes: [float32, float64], second_order: true},
  {op: loop, forward: "m:f", covers: [StatelessWhile, Exp], modes: [graph, eager]},
  {op: later, op_type: Sin, tensorflow: ">=99"}]}
"""
EXCEPTIONS = "exceptions: {NcclReduce: {kind: gpu, reason: needs two of them}}"


@pytest.fixture
def specs(tmp_path, monkeypatch):
    folder = tmp_path / "specs" / "tensorflow"
    folder.mkdir(parents=True)
    (folder / "math.yaml").write_text(SPEC)
    (folder / "exceptions.yaml").write_text(EXCEPTIONS)
    monkeypatch.setattr("tests.audit.audit_table.SPECS", folder)
    return folder


def result(specs, op, status, *orders, seen=()):
    pairs = tuple(
        make_pair(f"{number}", "y", "x", status, order=order) for number, order in enumerate(orders)
    )
    (spec, *_) = [case.spec for case in load([specs]).cases if case.op == op]
    return make_case(
        op, "default", spec, "graph", "float64", status, 0.1, "", pairs=pairs, gradients_seen=dict(seen)
    )


@pytest.fixture
def report(specs):
    cases = (
        result(specs, "tanh", Status.PASSED, 1, 2, 2),
        result(specs, "loop", Status.EXPECTED_MISMATCH, 1),
    )
    return Report("0.1.0", "2.21.0", "3.11.7", 0, cases)


def test_what_is_counted(report):
    assert table(report).splitlines() == [
        (
            "TensorFlow 2.21.0, on its CPU. Excepted by name: 1 (why: `specs/tensorflow/exceptions.yaml`). "
            "Pairs: 3 passed, 1 expected mismatch."
        ),
        "",
        "| family | op types | cases | pairs | second order | findings |",
        "|---|--:|--:|--:|--:|---|",
        "| math | 3 | 5 | 4 | 1 | 1: loop |",
        "| **all** | **3** | **5** | **4** | **1** | **1** |",
    ]


def test_it_is_put_between_its_marks(report, tmp_path, monkeypatch):
    page = tmp_path / "audit.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    monkeypatch.setattr("tests.audit.audit_table.PAGE", page)
    monkeypatch.setattr("tests.audit.audit_table.ROOT", tmp_path)
    (tmp_path / "report.json").write_text(to_json(report))
    main([str(tmp_path / "report.json"), "--write"])
    inside = table(report)
    assert page.read_text() == f"before\n{BEGIN}\n{inside}\n{END}\nafter\n"
    assert put(page.read_text(), inside) == page.read_text()


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
