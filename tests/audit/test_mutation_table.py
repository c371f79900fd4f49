"""Which ops mutations are tried on, and how their outcomes are counted."""

import json

from gradcheck_cli.spec.load import load
from tests.audit.audit_table import ROOT
from tests.audit.mutation_table import every_tenth, rows


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
