"""Which pairs a report should have, by what its run was asked for."""

import pytest

from gradcheck_cli.features.baseline.lock import LockedPair, expected_in
from gradcheck_cli.features.watch.merge_command import merge
from gradcheck_cli.gate import Selection
from gradcheck_cli.results import Report, Status
from tests.support.flat_results import make_case, make_pair


def entry(op="huber", mode="graph", spec="specs/huber.yaml"):
    return LockedPair(op, "default", "float64", mode, "dy/dx", spec, Status.PASSED, True, 0.0, 0.0, 1.0)  # noqa: FBT003


def report(selection, *ops):
    pair = make_pair("dy/dx", "y", "x", Status.PASSED)
    cases = [
        make_case(
            op, "default", f"specs/{op}.yaml:1", "graph", "float64", Status.PASSED, 0.1, "", pairs=(pair,)
        )
        for op in ops
    ]
    return Report("0.1.0", "2.21.0", "3.11.7", 0, tuple(cases), selection=selection)


@pytest.mark.parametrize(
    ("selection", "asked", "expected"),
    [
        (None, entry(), True),  # an older report doesn't say: it counts as of everything
        (Selection(("specs",)), entry(), True),
        (Selection(("specs",)), entry(spec="others/huber.yaml"), False),
        (Selection(("specs/huber.yaml",)), entry(), True),
        (Selection(("specs",), left_out=(("huber", "default", "float64"),)), entry(), False),
        (Selection(("specs",), modes=("graph",)), entry(mode="xla"), False),
        (Selection(("specs",), modes=("graph",)), entry(mode="graph"), True),
    ],
)
def test_what_should_be_there(selection, asked, expected):
    assert expected_in(report(selection))(asked) is expected


def test_reports_that_are_joined_leave_out_what_none_of_them_has():
    def part(op, *others):
        left_out = tuple((one, "default", "float64") for one in others)
        return report(Selection(("specs",), ("--shard 1/2",), left_out=left_out), op)

    parts = {"a.json": part("huber", "conv", "tanh"), "b.json": part("conv", "huber", "tanh")}
    found = merge(parts).selection
    assert found == Selection(("specs",), left_out=(("tanh", "default", "float64"),))
