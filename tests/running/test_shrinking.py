"""A point that is wrong is shrunk to fewer and simpler numbers, and stays wrong and allowed."""

import numpy as np

from gradcheck_cli.features.search.exploring import shrink

START = np.random.default_rng(0).standard_normal(20) * 3


def shrunk(is_wrong, inside=lambda points: points):
    start = START.copy()
    start[7] = 5.123456
    assert is_wrong(start)
    found = shrink(start, np.zeros(20), is_wrong, inside)
    assert is_wrong(found)
    return found


def test_what_plays_no_part_becomes_zero():
    found = shrunk(lambda x: x[7] > 4.7)
    assert np.flatnonzero(found).tolist() == [7]
    assert found[7] == 5.0


def test_bounds_are_kept():
    found = shrunk(lambda x: x[7] > 4.7, lambda points: np.clip(points, 0.25, None))
    assert set(found) == {0.25, 5.0}  # the nearest that are allowed


def test_what_is_left_is_as_near_as_it_can_be():
    home = np.full(3, 0.4)
    found = shrink(START[:3] + 40.0, home, lambda x: x[1] > 4.7, lambda points: points)
    assert found.tolist() == [0.4, 5.0, 0.4]
