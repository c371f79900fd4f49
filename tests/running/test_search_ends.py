"""A search ends in its time, by a clock that only the calls of the graph and of the judge move on.

At its end it asks what a run asks.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck_cli import clock as clocks
from gradcheck_cli.features.search import exploring, other_points
from gradcheck_cli.features.search.branches.point_field import PointField
from gradcheck_cli.running import session
from gradcheck_cli.spec.case import Wanted
from gradcheck_cli.spec.load import load_mapping


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(clocks, "now", made)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return made


@pytest.mark.parametrize(
    ("point", "judgement", "seconds"),
    [
        (0.05, 0.5, 20.0),  # 256 points would take 13 seconds, and to steer 1,000
        (1.0, 3.0, 30.0),
        (2.0, 200.0, 30.0),  # one judgement takes longer
    ],
)
def test_a_slow_forward_does_not_make_it_late(monkeypatch, clock, point, judgement, seconds):
    look, judge, search = PointField._call, exploring.check_at, other_points.search
    calls = []

    def slow_look(self, points, upstreams):
        calls.append(len(upstreams[0]))
        clock.now += point * calls[-1]
        return look(self, points, upstreams)

    def slow_judge(*arguments):
        clock.now += judgement
        return judge(*arguments)

    def timed(*arguments):
        began = clock.now
        search(*arguments[:-1], 2 * judgement)
        assert clock.now - began <= seconds + judgement

    monkeypatch.setattr(PointField, "_call", slow_look)
    monkeypatch.setattr(exploring, "check_at", slow_judge)
    monkeypatch.setattr(other_points, "search", timed)
    (case,) = load_mapping({"op": "op", "forward": "search_functions:rare", "inputs": {"x": {"shape": [4]}}})
    findings = session.check(replace(case, wanted=Wanted(search=seconds)))
    assert findings.search.points > 1
    assert 1 < max(calls) < 256


def test_one_row_is_tried_with_the_variables_of_the_case(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    (case,) = load_mapping(
        {
            "op": "op",
            "forward": "search_functions:scaled_rows",
            "variables": True,
            "inputs": {"x": {"shape": [4, 2]}},
        }
    )
    result = session.run_case(replace(case, wanted=Wanted(search=5.0)))
    assert "where the first dimension is 1" in str(result.pairs)
