"""Which sides of branches a case's points take, in the forward and in the gradient, with their lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.case import in_each_mode
from gradcheck_cli.spec.load import load_mapping

MODULE = "branch_functions"
NORMAL = {"shape": [4]}
FEW = {"shape": [4], "value": [0.1, -0.2, 0.3, -0.4]}
BOTH = {"shape": [2], "value": [4.0, 0.5]}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def branches(target, x=NORMAL, **changes):
    spec = {"op": "op", "forward": f"{MODULE}:{target}", "inputs": {"x": x}, **changes}
    (case,) = in_each_mode(load_mapping(spec), (), None)
    result = run_case(case)
    assert result.error is None, result.error
    return result.seen.branches


def seen(target, x=NORMAL, **changes):
    return [(one.text, one.part, one.seen, one.unseen) for one in branches(target, x, **changes)]


@pytest.mark.on_change(
    "hidden-x0-expected0",
    "hidden-x1-expected1",
    "clipped_upstream-x2-expected2",
    "where_in_where-x11-expected11",
)
@pytest.mark.parametrize(
    ("target", "x", "expected"),
    [
        (
            "hidden",
            NORMAL,
            [  # a chosen point saw it, and the gradient was wrong there
                ("x > 3.5", "forward", ("true", "false"), ()),
                ("x > 3.5", "gradient", ("true", "false"), ()),
            ],
        ),
        (
            "hidden",
            BOTH,
            [("x > 3.5", "forward", ("true", "false"), ()), ("x > 3.5", "gradient", ("true", "false"), ())],
        ),
        # The upstream is drawn, too.
        ("clipped_upstream", NORMAL, [("dy > 0", "gradient", ("true", "false"), ())]),
        ("masked", FEW, [("x < -9", "forward", ("false",), ("true",))]),
        (
            "functions",
            BOTH,
            [
                ("maximum(x, 0.1)", "forward", ("first larger",), ("second larger",)),
                ("relu(x - 10)", "forward", ("< 0",), ("> 0",)),
                ("abs(x)", "forward", ("> 0",), ("< 0",)),
                ("relu6(x)", "forward", ("inside",), ("< 0", "> 6")),
            ],
        ),
        (
            "clipped",
            BOTH,
            [
                ("minimum(x, 0.5)", "forward", ("first larger",), ("second larger",)),
                ("maximum(minimum(x, 0.5), -9)", "forward", ("first larger",), ("second larger",)),
            ],
        ),
        ("conditional", FEW, [("sum(x, 0) > 100", "forward", ("false",), ("true",))]),
        # A loop branches if its number of rounds changes from point to point.
        ("loop", BOTH, []),
        ("loop", NORMAL, [("loop", "forward", ("no round", "one round", "more rounds"), ())]),
        (
            "switched",
            {"shape": [2], "value": [7.5, 0.0]},
            [("stridedslice(x, 0, 1, 1)", "forward", ("branch 2",), ("branch 0", "branch 1"))],
        ),
        # Inside a selection, only the elements count that this one takes.
        (
            "where_in_where",
            {"shape": [2], "value": [0.5, -2.0]},
            [("x > 3.5", "forward", ("false",), ("true",)), ("x > 1", "forward", ("false",), ("true",))],
        ),
        (
            "where_in_where",
            {"shape": [2], "value": [4.0, -2.0]},
            [("x > 3.5", "forward", ("true", "false"), ()), ("x > 1", "forward", ("true", "false"), ())],
        ),
        ("guarded", BOTH, [("x > 1", "forward", ("true", "false"), ())] * 2),
        # No finite values take the other side of a guard against others.
        ("log_sum", FEW, []),
        ("own_guard", FEW, []),
        ("by_shape", NORMAL, []),
        ("dead", NORMAL, []),
        ("tensorflows_own", NORMAL, []),
    ],
)
def test_sides(target, x, expected):
    assert seen(target, x) == expected


@pytest.mark.parametrize(
    ("target", "shown", "closed"),
    [
        ("in_loop", [], "while"),
        ("in_data_loop", [], "while"),
        ("in_branch", ["sum(x, 0) > 0"], "cond"),
        ("in_function", [], "PartitionedCall"),
        ("counted_in_loop", [], "while"),
        ("in_compiled", [], ""),
        ("entered_twice", [], ""),
        ("never_entered", ["loop"], ""),
    ],
)
def test_of_bodies_with_branches_the_report_says_that_nobody_looked(target, shown, closed):
    (case,) = load_mapping({"op": "op", "forward": f"{MODULE}:{target}", "inputs": {"x": FEW}})
    result = run_case(case)
    assert [one.text for one in result.seen.branches] == shown
    assert result.seen.sides_unknown.startswith("not looked at inside ") is bool(closed)
    assert closed in result.seen.sides_unknown


def test_each_has_its_line():
    lines = [one.place.rpartition("/")[2] for one in branches("hidden")]
    assert lines == [f"{MODULE}.py:8", f"{MODULE}.py:11"]


EXCUSES = {"x > 3.5 true*": "x is a sine"}


def test_an_excuse_takes_a_side_out():
    found = branches("hidden", FEW, unreached=EXCUSES)
    assert [(one.unseen, one.excused) for one in found] == [((), (("true", "x is a sine"),))] * 2
    # A side that is taken needs none.
    assert [one.excused for one in branches("hidden", BOTH, unreached=EXCUSES)] == [(), ()]


@pytest.mark.parametrize(
    ("x", "excuse", "fault"),
    [
        ({"shape": [4], "uniform": {"low": -1, "high": 1}}, "x > 3.5 true*", ""),
        (FEW, "x > 3.5 true*", ""),
        (NORMAL, "x > 3.5 true*", "inputs take x > 3.5 true"),  # one of 4,000 draws does
        (BOTH, "x > 3.5 true*", "inputs take x > 3.5 true"),
        (FEW, "x > 35 true", "no branch has such a side"),
    ],
)
def test_an_excuse_must_be_true(x, excuse, fault):
    spec = {"op": "op", "forward": f"{MODULE}:hidden", "inputs": {"x": x}, "unreached": {excuse: "a sine"}}
    (case,) = load_mapping(spec)
    told = [check.message for check in run_case(case).checks if check.name == "unreached"]
    assert [fault in message for message in told] == ([True] if fault else [])


@pytest.mark.parametrize(
    ("modes", "told"),
    [
        (["graph"], [""]),
        (["eager"], ["not looked at in mode eager: add mode graph"]),
        (["xla"], ["not looked at in mode xla: add mode graph"]),
        (["eager", "graph"], ["", ""]),
    ],
)
def test_a_case_without_a_graph_says_that_nobody_looked(modes, told):
    spec = {"op": "op", "forward": f"{MODULE}:hidden", "inputs": {"x": NORMAL}, "modes": modes}
    assert [run_case(case).seen.sides_unknown for case in in_each_mode(load_mapping(spec), (), None)] == told


def test_conditions_in_numpy_code():
    found = branches(
        "numpy_forward",
        {"shape": [2], "value": [1.0, 2.0]},
        gradient={"numpy": f"{MODULE}:numpy_gradient"},
        binding="py_func",
        outputs={"y": {"dtype": "float64"}},
    )
    # Python 3.10 knows the line of a condition alone.
    texts = [re.sub(r"^(if|while) |:$", "", one.text) for one in found]
    assert [(text, one.part, one.seen, one.unseen) for text, one in zip(texts, found, strict=True)] == [
        ("total > 100.0", "python", ("false",), ("true",)),
        ("total > -100.0", "python", ("true",), ("false",)),
        ("total < 50.0", "python", ("true", "false"), ()),
        ("x.sum() > 100.0", "python", ("false",), ("true",)),
    ]
