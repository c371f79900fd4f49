"""`--on dask://...` against real clusters: the same report, and nothing lost where processes die."""

import json
import re
import shutil
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed", reason='it needs the extra dask: pip install "gradcheck-cli[dask]"')

from tests.acceptance.dask_cluster import Cluster, environment, parent, without_times
from tests.support import processes

FUNCTIONS = """
import os, signal, time
from pathlib import Path
import tensorflow as tf

def cube(x):
    return x * x * x

@tf.custom_gradient
def halved(x):
    print(*range(30), sep="\\n")
    return x * x, lambda upstream: upstream * x

def reads(x):
    return x * float(Path("specs/factor.txt").read_text())

def crashes(x):
    os.kill(os.getpid(), signal.SIGSEGV)

def sleeps(x):
    time.sleep(60)
    return x

def kills_its_worker(x):
    Path("{log}").open("a").write("killed ")
    server = os.getppid()
    worker = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
    time.sleep(60)

def stops_its_worker_once(x):
    log = Path("{log}")
    if not log.exists():
        log.write_text("stopped")
        worker = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(worker, signal.SIGSTOP)
        time.sleep(600)
    return x * x

def imports(x):
    import mpmath
    return x * float(mpmath.mpf(2))
"""
pytestmark = pytest.mark.once

SPEC = "op: {name}\nforward: functions:{name}\ninputs: {{x: {{shape: [2]}}}}\n"
FOLDERS = {
    "specs": ("cube", "halved", "reads", "crashes"),
    "sleeping": ("cube", "sleeps"),
    "killing": ("kills_its_worker", "cube", "halved"),
    "stopping": ("stops_its_worker_once", "cube", "halved"),
    "importing": ("imports",),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start a cluster of two workers, in a folder where no code lies; the second offers a device."""
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=1) as found:
        found.add_worker(options=("--resources", "CPU=1"))
        found.wait_for(2)
        yield found


@pytest.fixture
def project(tmp_path):
    """Write a project, and return what runs commands there."""
    for folder, names in FOLDERS.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "functions.py").write_text(FUNCTIONS.replace("{log}", str(tmp_path / "killed")))
        for number, name in enumerate(names):
            (tmp_path / folder / f"{number}.yaml").write_text(SPEC.format(name=name))
    (tmp_path / "specs/factor.txt").write_text("3")

    def start(*arguments):
        return processes.start(sys.executable, "-m", "gradcheck_cli", *arguments, cwd=tmp_path)

    def run(*arguments):
        return processes.gradcheck(*arguments, cwd=tmp_path)

    def report(*arguments):
        done = run("run", *arguments, "--report", "json=report.json")
        return done.returncode, json.loads((tmp_path / "report.json").read_text())

    return SimpleNamespace(folder=tmp_path, start=start, run=run, report=report)


def statuses(report):
    return {case["op"]: case["status"] for case in report["cases"]}


def test_the_report_is_the_same_but_for_times_and_hosts(project, cluster):
    here = project.report("specs", "-j", "2", "--update-baseline", "here.lock")
    there = project.report("specs", "--on", cluster.address, "--update-baseline", "there.lock")
    assert here[0] == there[0] == 1
    assert without_times(there[1]) == without_times(here[1])
    assert {case["worker"] for case in there[1]["cases"]} <= {"w1", "w2"}
    assert all(case["host"] for case in there[1]["cases"])
    assert {(case["host"], case["worker"]) for case in here[1]["cases"]} == {(None, None)}
    printed = there[1]["cases"][1]["output"]["file"]
    assert (project.folder / printed).read_text() == (project.folder / "report.output").joinpath(
        "halved.default.float64.txt"
    ).read_text()
    assert (project.folder / "there.lock").read_bytes() == (project.folder / "here.lock").read_bytes()


def test_a_search_runs_there_too(project, cluster):
    options = ("--seconds", "1", "--format", "json", "--on", cluster.address)
    done = project.run("search", "specs/0.yaml", "specs/1.yaml", *options)
    report = json.loads(done.stdout)
    assert (done.returncode, statuses(report)) == (1, {"cube": "passed", "halved": "mismatched"})
    cube, halved = (case["search"] for case in report["cases"])
    assert (cube["points"] > 0, cube["found"], cube["refused"]) == (True, None, "")
    assert halved["refused"] == "it is wrong at a point of the spec already"
    assert all(case["host"] for case in report["cases"])


def test_a_device_is_asked_of_the_workers_that_offer_it(project, cluster):
    code, report = project.report("specs", "--device", "CPU:0", "--on", cluster.address, "--isolate")
    assert (code, {case["worker"] for case in report["cases"]}) == (1, {"w2"})
    code, report = project.report("specs", "--op", "cube", "--device", "GPU:7", "--on", cluster.address)
    assert (code, statuses(report)) == (3, {"cube": "skipped"})  # nobody offers one: TensorFlow says why
    assert "TensorFlow finds no GPU:7" in report["cases"][0]["checks"][0]["message"]


def test_corruptions_are_tried_there_as_here(project, cluster):
    arguments = ("mutate", "specs", "--op", "cube", "--format", "json")
    here, there = project.run(*arguments, "-j", "1"), project.run(*arguments, "--on", cluster.address)
    assert (here.returncode, there.returncode) == (0, 0)
    mutants = json.loads(there.stdout)["mutants"]
    assert mutants == json.loads(here.stdout)["mutants"]
    assert [mutant["outcome"] for mutant in mutants].count("caught") >= 5


def test_a_document_that_loses_its_worker_again_and_again_is_an_error_that_names_it(project, cluster):
    code, report = project.report("killing", "--on", cluster.address)
    assert code == 1
    assert statuses(report) == {"kills_its_worker": "error", "cube": "passed", "halved": "mismatched"}
    error = report["cases"][0]["error"]
    assert error["kind"] == "worker"
    assert (project.folder / "killed").read_text().split() == ["killed"] * 3
    assert re.search(r"lost, 3 times of 3: w\d on \S+, w\d on \S+, w\d on ", error["message"])


def test_a_worker_that_hangs_is_given_up_and_its_documents_run_elsewhere(project, tmp_path):
    with Cluster(tmp_path / "cluster", workers=2, SCHEDULER__WORKER_TTL="5s") as cluster:
        code, report = project.report("stopping", "--on", cluster.address)
    assert (project.folder / "killed").read_text() == "stopped"
    assert code == 1
    assert statuses(report) == {"stops_its_worker_once": "passed", "cube": "passed", "halved": "mismatched"}
    assert len({case["worker"] for case in report["cases"]}) == 1  # the other one


def test_an_interrupt_cancels_what_runs_there(project, cluster):
    with project.start("run", "sleeping", "--on", cluster.address) as process:
        first = process.stdout.readline()  # cube has ended, and sleeps doesn't
        wait_for_task(process, cluster)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "sleeping/0.yaml · cube" in first
    assert "1 case" in out
    assert not left_after(cluster, 30)


def wait_for_task(process, cluster):
    """Wait until a case of a run has begun."""
    while not any_task(cluster):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def left_after(cluster, seconds):
    """Return what runs there still, after so many seconds at most."""
    end = time.monotonic() + seconds
    while (left := any_task(cluster)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def any_task(cluster):
    """Return processes that a fork server has forked."""
    servers = cluster.left("fork_server")
    return [pid for pid in servers if parent(pid) in servers]


def test_the_end_of_the_scheduler_ends_the_run_with_what_was_done(project, tmp_path):
    with Cluster(tmp_path / "cluster", workers=2) as cluster:
        with project.start(
            "run", "sleeping", "--on", cluster.address, "--report", "json=cut.json"
        ) as process:
            process.stdout.readline()
            cluster.scheduler.kill()
            out, err = process.communicate(timeout=60)
        assert process.returncode == 3, err
        assert "is gone" in out
        assert "1 of 2 cases weren't checked" in " ".join(out.split())
        assert statuses(json.loads((project.folder / "cut.json").read_text())) == {"cube": "passed"}
        assert not cluster.wait_until_gone("fork_server", 60)  # the workers end too, and what is below them
        code, refused = project.report("specs", "--on", cluster.address)
        assert (code, refused["cases"]) == (3, [])
        where = cluster.address.removeprefix("dask://")
        assert f"no Dask scheduler answers at {where}" in refused["unchecked"][0]


def test_workers_that_lack_something_or_differ_are_refused_before_anything_runs(project, tmp_path):
    settings = {"options": ("--no-nanny",), "python": [sys.executable, "-S"]}
    with Cluster(tmp_path / "cluster") as cluster:
        lacking = environment(tmp_path / "lacking", without=("tensorflow",))
        process = cluster.add_worker(**settings, PYTHONPATH=lacking)
        strange = environment(tmp_path / "strange", without=("gradcheck_cli",))
        other = cluster.add_worker(**settings, PYTHONPATH=strange)
        cluster.wait_for(2)
        code, report = project.report("importing", "--on", cluster.address, "--allow-version-skew")
        assert (code, report["cases"]) == (3, [])
        (reason,) = report["unchecked"]
        assert re.search(r"w1 on \S+: it has no TensorFlow", reason)
        assert re.search(r"w2 on \S+: it has no gradcheck", reason)
        assert "1 of 1 cases weren't checked" in reason
        process.kill()
        other.kill()

        older = environment(tmp_path / "older", without=("mpmath",), numpy="1.0")
        cluster.wait_for(0)
        cluster.add_worker(**settings, PYTHONPATH=older)
        cluster.wait_for(1)
        code, report = project.report("importing", "--on", cluster.address)
        assert code == 3
        assert re.search(r"w3 on \S+: it has NumPy 1\.0 instead of ", report["unchecked"][0])
        assert "--allow-version-skew" in report["unchecked"][0]

        code, report = project.report("importing", "--on", cluster.address, "--allow-version-skew")
        (case,) = report["cases"]
        assert (code, case["error"]["kind"]) == (3, "forward")
        assert "No module named 'mpmath'" in case["error"]["message"]
        assert case["error"]["message"].endswith(
            f"w3 on {case['host']}, which has an environment of its own."
        )


def test_a_worker_that_cant_write_is_avoided_and_named(project, tmp_path):
    with Cluster(tmp_path / "cluster", workers=2) as cluster:
        sick = next((tmp_path / "cluster" / "w1").glob("**/worker-*/"))
        (sick / "gradcheck").write_text("a file, where the worker would make a folder")
        code, report = project.report("specs", "--on", cluster.address, "--isolate")
        assert (code, set(statuses(report).values())) == (1, {"passed", "mismatched", "error"})
        assert [case["error"]["kind"] for case in report["cases"] if case["error"]] == ["crash"]
        assert {case["worker"] for case in report["cases"]} == {"w2"}
        assert re.match(r"Dask worker w1 on \S+ wasn't used any more: FileExists", report["notices"][0])

        healthy = next((tmp_path / "cluster" / "w2").glob("**/worker-*/"))
        shutil.rmtree(healthy / "gradcheck")
        (healthy / "gradcheck").touch()
        code, report = project.report("stopping", "--op", "cube", "--on", cluster.address)
    assert (code, report["cases"]) == (3, [])
    (reason,) = report["unchecked"]
    assert re.match(
        r"no worker can run them: w[12] on \S+: FileExistsError: .*; w[12] on \S+: FileEx", reason
    )
    assert "1 of 1 cases weren't checked" in reason
    assert str(tmp_path) not in reason


def test_what_only_a_lost_worker_could_run_isnt_checked_and_the_rest_is(project, tmp_path):
    with Cluster(tmp_path / "cluster", workers=1) as cluster:
        owner = cluster.add_worker(options=("--no-nanny", "--resources", "CPU=1"))
        cluster.wait_for(2)
        spec = project.folder / "sleeping" / "0.yaml"
        spec.write_text(spec.read_text().replace("cube}", "cube, device: CPU:0}"))
        (project.folder / "sleeping" / "1.yaml").write_text(
            SPEC.format(name="sleeps").replace("inputs", "device: CPU:0\ninputs")
        )
        with project.start("run", "sleeping", "--on", cluster.address, "--report", "json=r.json") as process:
            wait_for_task(process, cluster)
            owner.kill()
            _, err = process.communicate(timeout=200)
        assert process.returncode == 3, err
    report = json.loads((project.folder / "r.json").read_text())
    assert "no worker that offers CPU is left" in report["unchecked"][0]


def test_a_client_that_is_killed_leaves_nothing_running(project, cluster):
    with project.start("run", "sleeping", "--on", cluster.address) as process:
        wait_for_task(process, cluster)
        process.kill()
        process.communicate(timeout=60)
    assert not left_after(cluster, 60)


def test_a_scheduler_that_dies_while_workers_are_awaited_ends_the_run_with_a_report(project, tmp_path):
    with Cluster(tmp_path / "cluster") as cluster:
        with project.start("run", "specs", "--on", cluster.address, "--report", "json=r.json") as process:
            with cluster.client() as client:
                while len(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.clients))) < 3:
                    time.sleep(0.1)
            cluster.scheduler.kill()
            _, err = process.communicate(timeout=200)
        assert process.returncode == 3, err
        report = json.loads((project.folder / "r.json").read_text())
        assert "4 of 4 cases weren't checked" in report["unchecked"][0]


def test_a_slow_network_changes_nothing(project, cluster):
    host, _, port = cluster.address.removeprefix("dask://").partition(":")
    with slow_proxy((host, int(port)), delay=0.05) as slow:
        code, report = project.report("specs", "--on", f"dask://127.0.0.1:{slow}")
    assert code == 1
    assert list(statuses(report).values()) == ["passed", "mismatched", "passed", "error"]


@contextmanager
def slow_proxy(target, *, delay):
    """Pass connections on to a target, each piece after a delay, and yield the port that they come to."""

    def passed_on(source, sink):
        with suppress(OSError), source:
            while piece := source.recv(65536):
                time.sleep(delay)
                sink.sendall(piece)
        with suppress(OSError), sink:
            sink.shutdown(socket.SHUT_RDWR)

    def accept(server):
        with suppress(OSError):
            while True:
                ours, _ = server.accept()
                theirs = socket.create_connection(target)
                for ends in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=passed_on, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
