from dataclasses import replace

import pytest

from gradcheck_cli.errors import UsageError
from gradcheck_cli.features.watch.merge_command import merge
from gradcheck_cli.gate import BaselineFinding, Change, Shard
from gradcheck_cli.results import Report, Status
from tests.support.flat_results import altered, make_case, make_pair

PLAN = (("a", "default", "float64"), ("b", "default", "float64"), ("b", "wide", "float64"))


def a_result(op, case="default", status=Status.PASSED):
    pair = make_pair("dy/dx", "y", "x", status)
    return make_case(op, case, f"{op}.yaml:1", "graph", "float64", status, 1.0, "", pairs=(pair,))


def a_report(*cases, index=None, count=2, plan=PLAN, **changes):
    shard = None if index is None else Shard(index, count, plan)
    return Report("0.1.0", "2.21.0", "3.11", 0, cases, duration_s=1.0, shard=shard, **changes)


FIRST = a_report(a_result("b", "wide"), index=1)
SECOND = a_report(a_result("a"), a_result("b"), index=2)


def test_shards_become_one_run_in_its_order():
    found = merge({"1": FIRST, "2": SECOND})
    assert [(case.op, case.case, case.dtype) for case in found.cases] == list(PLAN)
    assert (found.exit_code, found.unchecked, found.shard, found.duration_s) == (0, (), None, 2.0)


def test_shards_in_which_all_is_ignored_are_not_green():
    """As in a single run: nothing was tested."""
    pair = make_pair("dy/dx", "y", "x", Status.IGNORED)
    ignored = [replace(a_result(op, status=Status.IGNORED), pairs=(pair,)) for op in "ab"]
    whole = merge(
        {
            str(index): a_report(case, index=index, plan=PLAN[:2])
            for index, case in enumerate(ignored, start=1)
        }
    )
    assert (whole.exit_code, whole.unchecked) == (
        3,
        ("every pair is undecided and ignored: nothing was tested",),
    )


def test_missing_shards_are_named_together_however_many_a_damaged_report_says_there_are():
    plan = (("a", "default", "float64"),)
    shard = replace(a_report(a_result("a")), shard=Shard(2, 2**40, plan))
    assert merge({"2": shard}).unchecked == (
        "shard 1/1099511627776 is missing: its cases weren't checked",
        "shards 3 to 1099511627776 of 1099511627776 are missing: their cases weren't checked",
    )


def test_a_case_that_is_in_no_shard_is_not_green():
    found = merge({"1": FIRST, "2": a_report(a_result("a"), index=2)})
    assert found.unchecked == ("1 planned cases are in no shard's report: b (default, float64)",)
    assert found.exit_code == 3


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        (
            {"1": FIRST, "2": FIRST},
            "1 and 2 both hold b, case wide, float64: merge joins reports of different cases",
        ),
        ({"1": FIRST, "2": a_report(index=1)}, "1 and 2 are both shard 1/2."),
        (
            {"1": FIRST, "2": a_report(index=2, count=3)},
            "shards of different runs: of 2 with 3 cases, and of 3",
        ),
        ({"1": FIRST, "2": a_report(index=2, plan=PLAN[1:])}, "Each must select the same cases."),
        ({"1": FIRST, "2": a_report(a_result("z"))}, "2: isn't a shard's report, as the others are."),
    ],
)
def test_what_is_no_whole(reports, message):
    with pytest.raises(UsageError) as caught:
        merge(reports)
    assert message in str(caught.value)


def test_what_both_say_is_said_once():
    finding = BaselineFinding("gone", "default", "float64", "graph", "dy/dx", Change.VANISHED, "x", "y")
    more = {"baseline": (finding,), "notices": ("same",), "unchecked": ("this",)}
    found = merge({"1": replace(FIRST, **more), "2": altered(SECOND, **more, strict=True)})
    assert (found.baseline, found.notices, found.unchecked) == ((finding,), ("same",), ("this",))
    assert found.policy.strict
