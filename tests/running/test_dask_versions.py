"""Versions of Dask workers are compared with those here, and told as a table."""

from __future__ import annotations

import pytest

from gradcheck_cli.features.cluster.dask_versions import MISSING, NAMES, Fleet, versions


def fleet(**changes):
    """Return two workers, the second with other versions."""
    same = {"versions": versions(), "resources": ["GPU"]}
    return Fleet.of({"tcp://a:1": same, "tcp://b:2": {"versions": versions() | changes, "resources": []}})


def test_workers_with_the_same_versions_are_fine():
    assert fleet().complaint() == ""
    assert fleet().resources == {"GPU"}
    assert set(versions()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_version_that_differs_stands_marked_in_a_table_of_all(name):
    told = fleet(**{name: "9.9"}).complaint()
    here, first, second = (line for line in told.splitlines() if "(here)" in line or "tcp://" in line)
    assert "9.9 !" in second
    assert "!" not in here + first
    assert told.startswith("Dask workers have other versions than this machine:")
    assert told.endswith("or say --allow-version-skew: results may differ then.")


def test_versions_may_differ_where_that_is_said():
    assert fleet(NumPy="9.9").complaint(allows_skew=True) == ""


def test_what_is_missing_is_missed_whatever_is_said():
    told = fleet(TensorFlow=MISSING).complaint(allows_skew=True)
    assert told.startswith("Dask workers lack what a case needs:")
    assert told.endswith("Install what is missing in the environment that the workers start in.")


def test_a_worker_that_has_no_gradcheck_to_ask_is_missing_it():
    told = Fleet.of({"tcp://a:1": ModuleNotFoundError("gradcheck_cli")}).complaint()
    assert told.splitlines()[3].split() == ["tcp://a:1", "?", "!", "none", "!", "?", "!", "?", "!"]
