"""What runs the rows says what is untrue, and what differs between two runs; mutants change what they say."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import mutants, rows
from tests.support.row import Row, Said, marked

POINT = np.array([0.5, 2.0])


def squares(factor, truth, **more):
    gradient = np.diag(factor * 2 * POINT)
    return Row(f"times {factor}", lambda x: x * x, gradient, POINT, truth, table="squares", **more)


@pytest.mark.parametrize(("factor", "truth"), [(1.0, "right"), (1.01, "wrong"), (1.01, "not green")])
def test_what_is_true_is_no_fault(factor, truth):
    row = squares(factor, truth)
    assert row.fault(row.say()) == ""


def test_what_is_untrue_is_named():
    row = squares(1.01, "right")
    assert row.fault(row.say()).startswith("squares-times 1.01 is right, but mismatched:\n")
    explained = squares(1.01, "right", why="2 x")
    assert explained.fault(row.say()).startswith("squares-times 1.01 is right (2 x), but mismatched:\n")


def test_the_place_of_a_fault_is_part_of_the_truth():
    assert squares(1.01, "wrong", at="diagonal").fault(squares(1.01, "wrong").say()) == ""
    fault = squares(1.01, "wrong", at="0,1").fault(squares(1.01, "wrong").say())
    assert "but mismatched (0,1: passed)" in fault


def test_a_table_marks_rows_that_are_there():
    assert [row.on_change for row in marked([squares(1, "right"), squares(2, "wrong")], "times 2")] == [
        False,
        True,
    ]
    with pytest.raises(ValueError, match=r"no row is named \['times 3'\]"):
        marked([squares(1, "right")], "times 3")
    with pytest.raises(ValueError, match=r"two rows are named \['times 1'\]"):
        marked([squares(1, "right"), squares(1, "wrong")])


def test_a_run_counts_and_prints_what_is_untrue(capsys):
    kept, untrue = rows.run([squares(1.0, "right"), squares(1.01, "right")])
    assert (untrue, list(kept)) == (1, ["squares-times 1.0", "squares-times 1.01"])
    assert "squares                  right            2      1" in capsys.readouterr().out


def test_two_runs_differ_in_verdict_rule_or_time():
    before = rows.as_json(Said(frozenset({"passed"}), {"dy/dx": "passed"}, "first pass", seconds=0.1))
    now = rows.as_json(Said(frozenset({"mismatched"}), {"dy/dx": "mismatched"}, "kink", seconds=9.0))
    assert list(rows.differences(before, before)) == []
    assert list(rows.differences(now, before)) == [
        "passed -> mismatched",
        "dy/dx: passed -> mismatched",
        "decided by first pass -> kink",
        "0.10 s -> 9.00 s",
    ]


SOURCE = """
def decide(error, bound, is_known):
    if not is_known and error - bound > 8.0:
        return 0.5
    return 3.0
"""
# A mutant, arguments, and what is decided without it and with it.
MUTANTS = {
    "Not left out": (20.0, 1.0, 0.5, 3.0),
    "and -> or": (2.0, 1.0, 3.0, 0.5),
    "Sub -> Add": (6.0, 3.0, 3.0, 0.5),
    "Gt -> GtE": (9.0, 1.0, 3.0, 0.5),
    "Gt -> LtE": (20.0, 1.0, 0.5, 3.0),
    "3:40 x0.25": (6.0, 1.0, 3.0, 0.5),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_a_mutant_that_is_on_changes_what_is_decided(tmp_path, what):
    error, bound, before, after = MUTANTS[what]
    (tmp_path / "a.py").write_text(SOURCE)
    scope = {}
    exec(compile(SOURCE, str(tmp_path / "a.py"), "exec"), scope)  # noqa: S102 (text from above)
    source = mutants.Source(tmp_path / "a.py", "a.py")
    assert len(source.edits) == 11
    (label,) = [label for label in source.edits if what in label.partition(" | ")[0]]
    for _ in range(2):
        assert scope["decide"](error, bound, is_known=False) == before
        with source.edited(label):
            assert scope["decide"](error, bound, is_known=False) == after
    assert scope["decide"](error, bound, is_known=False) == before
