"""Which workers of a cluster may be used, for what, and what is said where none may."""

import pytest

pytest.importorskip("distributed", reason='it needs the extra dask: pip install "gradcheck-cli[dask]"')

from distributed.versions import get_versions

from gradcheck_cli.features.cluster.dask_workers import PACKAGES, Fleet

NAMES = {"Python": "python", "gradcheck": "gradcheck-cli", "NumPy": "numpy", "TensorFlow": "tensorflow"}


def worker(name, **resources):
    return {"name": name, "host": "h", "nthreads": 1, "resources": resources}


def told(**changes):
    """Return what a worker tells that has other versions, or none, of these packages."""
    packages = get_versions(PACKAGES)["packages"]
    return {"packages": packages | {NAMES[name]: version for name, version in changes.items()}}


def fleet(*, allows_skew=False, **changes):
    """Return two workers, the second with other versions."""
    found = Fleet(allows_skew)
    assert found.update({"a:1": worker("w1", GPU=1), "b:2": worker("w2")}) == (["a:1", "b:2"], [])
    found.learn("a:1", told())
    found.learn("b:2", told(**changes))
    return found


@pytest.mark.parametrize(("name", "fits"), [("NumPy", True), ("TensorFlow", True), ("gradcheck", False)])
def test_versions_may_differ_where_that_is_said_but_not_gradchecks(name, fits):
    found = fleet(allows_skew=True, **{name: "9.9"})
    assert (found.able(()) == ["a:1", "b:2"], found.avoided == {}) == (fits, fits)


def test_what_needs_a_resource_goes_to_workers_that_offer_it_and_to_any_if_none_ever_has():
    found = fleet()
    assert found.able({"GPU"}) == ["a:1"]
    assert found.able({"TPU"}) == ["a:1", "b:2"]
    found.update({"b:2": worker("w2")})  # the one with the GPU is gone
    assert found.able({"GPU"}) == []
    assert found.why_nobody({"GPU"}) == "no worker that offers GPU is left"
    found.update({"b:2": worker("w2"), "d:4": worker("w4", GPU=1)})
    found.learn("d:4", told())
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
