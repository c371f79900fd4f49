"""The walk through whatever leads on."""

from gradcheck_cli.reach import reached

LEADS_TO = {1: [2, 3], 2: [4], 3: [4], 4: [1], 5: [5]}


def test_each_place_is_reached_once_circles_included():
    assert sorted(reached([1], LEADS_TO.get)) == [1, 2, 3, 4]
    assert list(reached([5], LEADS_TO.get)) == [5]
    assert reached([], LEADS_TO.get) == {}


def test_what_is_closed_is_not_entered_not_even_as_a_start():
    assert sorted(reached([1], LEADS_TO.get, closed=[4])) == [1, 2, 3]
    assert reached([1], LEADS_TO.get, closed=[1]) == {}


def test_a_key_tells_places_apart():
    assert reached([[1], [1]], lambda place: [], key=len) == {1: [1]}
