"""`--on` and what excludes it, as far as no cluster is needed to tell."""

import io
import sys

import pytest

from gradcheck_cli.cli import console

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


class Workers:
    """Workers that say something of themselves, and do nothing."""

    def status(self):
        return "3 workers, 2 busy, longest conv on w1 (12 s)"


def test_the_bar_shows_what_workers_say_of_themselves(monkeypatch):
    shown = io.StringIO()
    shown.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    with console.progress_bar(4, Workers().status) as bar:
        bar.update(advance=1)
    assert "1/4" in shown.getvalue()
    assert "3 workers, 2 busy, longest conv on w1 (12 s)" in shown.getvalue()
