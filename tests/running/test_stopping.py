from __future__ import annotations

import pytest

from gradcheck_cli.results import Status
from gradcheck_cli.running import run_loop
from gradcheck_cli.running.run_loop import Stopper
from tests.support.flat_results import make_case


def a_result(status):
    return make_case("a", "default", "a.yaml:1", "graph", "float64", status, 1.0, "")


def is_failure(result):
    return result.status is not Status.PASSED


@pytest.mark.parametrize("failures", [1, 2])
def test_it_stops_after_so_many_failures(failures):
    stopper = Stopper(is_failure, max_failures=failures)
    for _ in range(failures):
        stopper.count(a_result(Status.PASSED))
        assert not stopper.is_time()
        stopper.count(a_result(Status.ERROR))
    assert stopper.is_time()
    plural = "" if failures == 1 else "s"
    assert stopper.describe_unchecked(9, 4) == (
        f"stopped after {failures} failed case{plural}: 5 of 9 cases weren't checked",
    )


def test_it_stops_after_so_long(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(run_loop.time, "monotonic", lambda: now[0])
    stopper = Stopper(is_failure, max_time=60)
    now[0] = 159.9
    assert not stopper.is_time()
    now[0] = 160.0
    assert stopper.is_time()
    assert stopper.describe_unchecked(2, 1) == (
        "stopped after --max-time 60 s: 1 of 2 cases weren't checked",
    )


def test_nothing_is_left_out_where_all_was_done():
    stopper = Stopper(is_failure, max_failures=1)
    stopper.count(a_result(Status.ERROR))
    assert stopper.is_time()
    assert stopper.describe_unchecked(1, 1) == ()


def test_it_never_stops_unasked():
    stopper = Stopper()
    stopper.count(a_result(Status.ERROR))
    assert not stopper.is_time()
