"""`min_gap`: far enough apart, inside the room there is, otherwise as drawn."""

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("rest", "gap", "low", "high"),
    [
        ("min_gap: 0.01", 0.01, -np.inf, np.inf),
        ("min_gap: 1", 1, -np.inf, np.inf),
        ("uniform: {low: 2, high: 3}, min_gap: 0.009", 0.009, 2, 3),
        ("uniform: {low: 0, high: 1}, min_gap: 0.01", 0.01, 0, 1),
        ("min_gap: 0.01, domain: {low: 0}", 0.01, 0, np.inf),
        ("min_gap: 0.01, domain: {high: 0}", 0.01, -np.inf, 0),
        ("min_gap: 0.01, domain: {low: -1, high: 1}, away_from: [0]", 0.01, -1, 1),
        ("normal: {mean: 1e6}, min_gap: 0.5, away_from: [1e6, 1000001]", 0.5, -np.inf, np.inf),
    ],
)
def test_min_gap(drawn, rest, gap, low, high):
    found = drawn(f"{{shape: [10, 10], {rest}}}").ravel()
    assert np.diff(np.sort(found)).min() >= gap
    assert found.min() >= low
    assert found.max() <= high
    if "away_from: [0]" in rest:
        assert np.abs(found).min() >= 0.1
