"""What cases of five kinds cost, in traces and calls, which no machine's load changes."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from gradcheck_cli import clock
from gradcheck_cli.reporting.exchange.json_report import to_json
from gradcheck_cli.reporting.report_text import closing_lines, render_report
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import Status
from gradcheck_cli.running.run_loop import run_in_workers
from gradcheck_cli.running.session import InProcess, run_case
from gradcheck_cli.spec.load import load_mapping

NUMPY = {
    "gradient": "work_functions:numpy_square_grad",
    "binding": "py_func",
    "outputs": {"y": {"dtype": "float64"}},
}
MATRICES = {"a": {"shape": [8, 6]}, "b": {"shape": [6, 8]}}
# A forward, its inputs, further keys, and the most calls: what was seen, and a quarter more. At two sample
# points: the forward, the forward with its gradient, and the latter made afresh. What is called in a loop
# inside of one op is one call, however many points; a NumPy function is called point by point. Points at
# which a tanh saturates are judged. Each case is also looked at in up to 256 mixed points, most of them at
# once: for a NumPy function, and for its gradient, they are the larger part.
KINDS = {
    "scalar": ("square", {"x": {"shape": []}}, {}, 28),
    "by hand": ("tanh_by_hand", {"x": {"shape": [40]}}, {}, 27),
    "float32": ("tanh_by_hand", {"x": {"shape": [40], "dtype": "float32"}}, {}, 69),
    "two outputs": ("two_outputs", MATRICES, {"outputs": ["y", "z"]}, 58),
    "numpy": ("numpy_square", {"x": {"shape": [5]}}, NUMPY, 850),
}


@pytest.fixture(autouse=True)
def beside_the_functions(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)


def case_of(kind):
    function, inputs, more, _ = KINDS[kind]
    forward = f"work_functions:{function}"
    return load_mapping({"op": kind.replace(" ", "_"), "forward": forward, "inputs": inputs, **more})


def work_of(kind):
    (case,) = case_of(kind)
    result = run_case(case)
    assert result.status is Status.PASSED, (result.error, result.checks, result.pairs)
    return result.ran.work


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_is_traced_three_times_and_called_seldom(kind):
    work = work_of(kind)
    assert work.traces == 3
    assert 0 < work.calls <= KINDS[kind][-1]


def test_a_block_may_evaluate_so_many_points_and_no_more():
    with clock.count_work() as outer:
        with clock.count_work(3):
            clock.add_work(points=3)
            with pytest.raises(clock.OverWorkError):
                clock.add_work(calls=1, points=1)
        clock.add_work(points=9)
    assert (outer.calls, outer.points) == (1, 13)


def test_calls_do_not_grow_with_the_elements():
    (few,), (many,) = (
        load_mapping(
            {
                "op": "in_proportion",
                "forward": "work_functions:in_proportion",
                "inputs": {"x": {"shape": [n]}},
            }
        )
        for n in (10, 300)
    )
    small, large = run_case(few).ran.work, run_case(many).ran.work
    assert large.points > 3 * small.points  # 256 of both are points beside the samples
    assert large.calls < 1.75 * small.calls  # some 25 more, for more memory in a call


def test_a_report_says_what_each_case_cost():
    report = run_in_workers(InProcess(), case_of("scalar"))
    work = report.cases[0].ran.work
    assert json.loads(to_json(report))["cases"][0]["work"] == asdict(work)
    shown = render_report(report, verbose=True)
    assert f"work: {work.traces} traces, {work.calls} calls for {work.points:,} points" in shown
    assert min(work.traces, work.calls, work.points) > 0
    assert "work:" not in render_report(report)


def test_a_report_says_which_part_of_the_time_each_part_took():
    report = run_in_workers(InProcess(), case_of("scalar"))
    parts = report.cases[0].ran.parts_s
    assert {"traces", "Jacobians", "differences", "checks", "chosen points"} <= parts.keys()
    assert min(parts.values()) >= 0
    assert sum(parts.values()) <= report.duration_s * (os.cpu_count() or 1)
    line = f"processor time {sum(parts.values()):.2f} s: {max(parts, key=parts.get)} "
    assert line in render_report(report, verbose=True)
    assert line in layout.plain(closing_lines(report, 80, durations=1))
    assert "processor time" not in render_report(report)


def test_each_moment_belongs_to_one_part_and_points_beside_keep_theirs(monkeypatch):
    times = iter(range(100))
    monkeypatch.setattr(clock, "now", lambda: float(next(times)))
    with clock.split_time() as parts:  # 0
        with clock.spend("checks"), clock.spend("traces"):  # 1, 2; 3, 4
            pass
        with clock.spend(clock.CHOSEN), clock.spend("traces"):  # 5, 6
            pass
    assert parts == {"rest": 3.0, "checks": 2.0, "traces": 1.0, clock.CHOSEN: 1.0}


def test_how_often_python_code_runs_depends_on_no_clock(monkeypatch):
    usual = work_of("numpy")
    monkeypatch.setattr(clock, "now", lambda: 0.0)  # a machine that takes no time
    assert work_of("numpy") == usual
