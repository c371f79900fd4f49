"""Which workers of a cluster may be used, for what, and what is said where none may."""

from __future__ import annotations

import pytest

from gradcheck_cli.features.cluster.fleet import MISSING, NAMES, Fleet, versions


def worker(name, **resources):
    return {"name": name, "host": "h", "nthreads": 1, "resources": resources}


def fleet(*, allows_skew=False, **changes):
    """Return two workers, the second with other versions."""
    found = Fleet(allows_skew)
    assert found.update({"a:1": worker("w1", GPU=1), "b:2": worker("w2")}) == (["a:1", "b:2"], [])
    found.learn("a:1", versions())
    found.learn("b:2", versions() | changes)
    return found


def test_workers_with_the_same_versions_are_fine():
    assert fleet().complaint() == ""
    assert fleet().able(()) == ["a:1", "b:2"]
    assert set(versions()) == set(NAMES)


def test_a_worker_isnt_used_before_it_has_told_its_versions():
    found = fleet()
    found.update({"a:1": worker("w1"), "c:3": worker("w3")})
    assert found.able(()) == ["a:1"]
    found.learn("c:3", versions())
    assert found.able(()) == ["a:1", "c:3"]


@pytest.mark.parametrize("name", NAMES)
def test_a_version_that_differs_stands_marked_in_a_table_of_all(name):
    told = fleet(**{name: "9.9"}).complaint()
    here, first, second = (
        line for line in told.splitlines() if "(here)" in line or ":1" in line or ":2" in line
    )
    assert "9.9 !" in second
    assert "!" not in here + first
    assert told.startswith("Dask workers have other versions than this machine:")
    assert told.endswith("or say --allow-version-skew: results may differ then.")


def test_a_worker_of_another_version_that_joins_late_is_avoided_and_says_why():
    found = fleet(NumPy="9.9", TensorFlow="8.8")
    assert found.able(()) == ["a:1"]
    (reason,) = found.avoided.items()
    here = versions()
    assert reason == (
        "w2 on h",
        f"it has NumPy 9.9 instead of {here['NumPy']}, TensorFlow 8.8 instead of {here['TensorFlow']}",
    )


@pytest.mark.parametrize(("name", "fits"), [("NumPy", True), ("TensorFlow", True), ("gradcheck", False)])
def test_versions_may_differ_where_that_is_said_but_not_gradchecks(name, fits):
    found = fleet(allows_skew=True, **{name: "9.9"})
    assert (found.complaint() == "", found.able(()) == ["a:1", "b:2"]) == (fits, fits)
    if not fits:
        assert found.complaint().endswith("gradcheck must be the same even with --allow-version-skew.")


def test_what_is_missing_is_missed_whatever_is_said():
    told = fleet(allows_skew=True, TensorFlow=MISSING).complaint()
    assert told.startswith("Dask workers lack what a case needs:")
    assert told.endswith("Install what is missing in the environment that the workers start in.")


def test_a_worker_that_has_no_gradcheck_to_ask_is_missing_it():
    found = Fleet()
    found.update({"tcp://a:1": worker("w1")})
    found.learn("tcp://a:1", ModuleNotFoundError("gradcheck_cli"))
    row = found.complaint().splitlines()[3].split()
    assert row == ["tcp://a:1", "?", "!", "none", "!", "?", "!", "?", "!"]
    assert found.able(()) == []


def test_what_needs_a_resource_goes_to_workers_that_offer_it_and_to_any_if_none_ever_has():
    found = fleet()
    assert found.able({"GPU"}) == ["a:1"]
    assert found.able({"TPU"}) == ["a:1", "b:2"]
    found.update({"b:2": worker("w2")})  # the one with the GPU is gone
    assert found.able({"GPU"}) == []
    assert found.why_nobody({"GPU"}) == "no worker that offers GPU is left"
    found.update({"b:2": worker("w2"), "d:4": worker("w4", GPU=1)})
    found.learn("d:4", versions())
    assert found.able({"GPU"}) == ["d:4"]


def test_a_worker_that_has_failed_is_avoided_for_the_rest_of_the_run():
    found = fleet()
    found.avoid("a:1", "OSError: No space left on device")
    found.avoid("a:1", "another reason")
    assert found.able(()) == ["b:2"]
    assert found.able((), without=["b:2"]) == []
    found.avoid("b:2", "Permission denied")
    assert found.why_nobody(()) == (
        "no worker can run them: w1 on h: OSError: No space left on device; w2 on h: Permission denied"
    )
    found.update({})
    assert found.why_nobody(()) == "no worker is left"


def test_a_worker_that_cant_be_reached_isnt_one_without_gradcheck():
    found = Fleet()
    assert not found.is_known
    found.update({"a:1": worker("w1"), "b:2": worker("w2")})
    found.learn("a:1", versions())
    assert not found.is_known
    found.learn("b:2", OSError("timed out"))
    assert found.is_known
    assert (found.able(()), found.complaint()) == (["a:1"], "")
    assert found.avoided == {"w2 on h": "it can't be reached: timed out"}
