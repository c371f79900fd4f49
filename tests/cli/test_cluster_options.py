"""`--on` and what excludes it, as far as no cluster is needed to tell."""

import sys

import pytest

pytestmark = pytest.mark.feature

SPEC = "op: a\nforward: m:f\ninputs: {x: {shape: [2]}}\n"


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(SPEC)
    return str(file)


@pytest.mark.parametrize("command", ["run", "mutate"])
@pytest.mark.parametrize("where", ["tcp://host:8786", "host:8786", "dask://host", "dask://host:port", "dask"])
def test_what_names_no_cluster_is_bad_usage(invoke, spec, command, where):
    result = invoke(command, spec, "--on", where)
    assert result.code == 2
    assert f"must be dask://HOST:PORT, but got '{where}'" in " ".join(result.err.split())


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("-j", "2", "--on", "dask://host:8786"), "--jobs is what a cluster has"),
        (("-j", "0", "--on", "dask://host:8786"), "--on need processes: choose -j 1 or more"),
    ],
)
def test_jobs_are_the_clusters_own(invoke, spec, more, told):
    result = invoke("mutate", spec, *more)
    assert (result.code, result.out) == (2, "")
    assert told in " ".join(result.err.split())


def test_without_dask_the_extra_is_named(invoke, spec, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "gradcheck_cli.features.cluster.dask_workers", raising=False)
    result = invoke("mutate", spec, "--on", "dask://127.0.0.1:1")
    assert (result.code, result.out) == (2, "")
    told = '--on needs distributed, which isn\'t installed: pip install "gradcheck-cli[dask]"\n'
    assert result.err == told
