import itertools

import pytest

from tests.benchmarks.measuring import geometric_mean, in_turn, log_slope, shown_ratio, shown_seconds, table


def test_sides_take_turns_and_the_first_round_is_not_counted():
    called = []

    def side(name, times):
        remaining = iter(times)

        def measure():
            called.append(name)
            return next(remaining)

        return measure

    found = in_turn({"a": side("a", [9, 1, 5, 2]), "b": side("b", [9, 4, 3, 8])}, rounds=3)
    assert found == {"a": 2, "b": 4}
    assert called == ["a", "b"] * 4


def test_without_warming_up_every_round_counts():
    counter = itertools.count(1)
    assert in_turn({"a": lambda: next(counter)}, rounds=3, warm=False) == {"a": 2}


def test_geometric_mean_and_slope():
    assert geometric_mean([0.5, 8]) == pytest.approx(2)
    assert log_slope([1e2, 1e3, 1e4], [1, 10, 100]) == pytest.approx(1)
    assert log_slope([1e2, 1e3, 1e4], [5, 5, 5]) == pytest.approx(0)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.00054, "0.54 ms"), (0.0123, "12.3 ms"), (0.123, "123 ms"), (1.234, "1.23 s"), (123.4, "123 s")],
)
def test_seconds_are_shown_to_three_digits(seconds, shown):
    assert shown_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [(0.00038, "0.00038"), (0.256, "0.26"), (1.0, "1"), (12.64, "12.6"), (1260, "1,260")],
)
def test_ratios_are_shown_with_what_matters(ratio, shown):
    assert shown_ratio(ratio) == shown


def test_a_table_is_aligned_markdown():
    assert table(["what", "ratio"], [["matmul", "8"], ["lstm", "12.5"]]).splitlines() == [
        "| what   | ratio |",
        "|--------|------:|",
        "| matmul |     8 |",
        "| lstm   |  12.5 |",
    ]
