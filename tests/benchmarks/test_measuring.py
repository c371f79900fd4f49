import itertools

import pytest

from tests.benchmarks.measuring import geometric_mean, in_turn, log_slope, shown_ratio, shown_seconds, table


def test_sides_take_turns_and_the_first_round_is_not_counted_unless_there_is_none():
    called, remaining = [], {"a": iter([9, 1, 5, 2]), "b": iter([9, 4, 3, 8])}
    sides = {name: lambda name=name: called.append(name) or next(remaining[name]) for name in remaining}
    assert in_turn(sides, rounds=3) == {"a": 2, "b": 4}
    assert called == ["a", "b"] * 4
    counter = itertools.count(1)
    assert in_turn({"a": lambda: next(counter)}, rounds=3, warm=False) == {"a": 2}


def test_geometric_mean_and_slope():
    assert geometric_mean([0.5, 8]) == pytest.approx(2)
    assert log_slope([1e2, 1e3, 1e4], [1, 10, 100]) == pytest.approx(1)


def test_how_numbers_are_shown():
    seconds = [shown_seconds(one) for one in (0.00054, 0.0123, 1.234, 123.4)]
    assert seconds == ["0.54 ms", "12.3 ms", "1.23 s", "123 s"]
    assert [shown_ratio(one) for one in (0.00038, 0.256, 12.64, 1260)] == ["0.00038", "0.26", "12.6", "1,260"]
    assert table(["what", "ratio"], [["matmul", "8"]]).splitlines()[1:] == [
        "|--------|------:|",
        "| matmul |     8 |",
    ]
