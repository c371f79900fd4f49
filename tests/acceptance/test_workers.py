"""Specs whose code harms its process, amid good ones: each costs its own case only, no process is left."""

import json
import os
import shutil
import signal
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.processes import start as start_process

pytestmark = pytest.mark.once

FUNCTIONS = Path(__file__).with_name("faulty_functions.py")
PACKAGE = Path(__file__).parents[2]
TIMEOUT = 2


def spec(name, function, more=""):
    return f"op: {name}\nforward: faulty_functions:{function}\ninputs: {{x: {{shape: [3]}}}}\n{more}"


def processes(marker):
    """Return the command lines of all processes that carry a mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile
            if marker.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes())
    return [command for command in found if command]  # a zombie has none


@pytest.fixture
def project(tmp_path):
    """Write specs into a folder, run them there, and look for what is left of the run."""
    specs = tmp_path / "specs"
    specs.mkdir()
    shutil.copy(FUNCTIONS, specs)
    (tmp_path / "here.txt").touch()
    (tmp_path / "tmp").mkdir()
    marker = f"GRADCHECK_TEST={uuid.uuid4()}"
    name, _, value = marker.partition("=")
    environment = {name: value, "TMPDIR": str(tmp_path / "tmp")}

    def write(**documents):
        for number, (stem, text) in enumerate(documents.items()):
            (specs / f"{number:02}_{stem}.yaml").write_text(text)

    def start(*arguments, **variables):
        command = ["setsid", sys.executable, "-m", "gradcheck_cli", "run", *arguments]
        return start_process(*command, cwd=tmp_path, **{**environment, **variables})

    def run(*arguments, **variables):
        with start(*arguments, **variables) as process:
            out, err = process.communicate(timeout=300)
        return SimpleNamespace(code=process.returncode, out=out, err=err, left=processes(marker))

    return SimpleNamespace(folder=tmp_path, write=write, start=start, run=run, left=lambda: processes(marker))


FAULTS = {
    # function: (kind of the error, words in its message)
    "segfault": ("crash", "signal 11 (SIGSEGV"),
    "exit_at_once": ("crash", "exit code 3"),
    "abort": ("crash", "signal 6 (SIGABRT"),
    "kill_itself": ("crash", "signal 9 (SIGKILL"),
    "spin_in_python": ("timeout", f"still running after {TIMEOUT} s"),
    "loop_in_c": ("timeout", f"still running after {TIMEOUT} s"),
    "allocate": ("memory", "The process may use 3.0 GiB (--memory)."),
    "allocate_in_tensorflow": ("memory", "The process may use 3.0 GiB (--memory)."),
    "creep": ("memory", "The process may use 3.0 GiB (--memory)."),
    "print_much_and_crash": ("crash", "exit code 4"),
    "system_exit": ("forward", "SystemExit: 7"),
    "keyboard_interrupt": ("forward", "KeyboardInterrupt"),
    "kill_its_parent": ("crash", "killed"),
    "close_everything": ("crash", "exit code"),
}
HARMLESS_TO_OTHERS = (
    "print_much",
    "fork_and_return",
    "leave_daemons",
    "change_everything",
    "delete_its_module",
)


def test_each_fault_costs_its_own_case_only(project):
    documents = {}
    for number, function in enumerate((*FAULTS, *HARMLESS_TO_OTHERS)):
        limit = 60 if FAULTS.get(function, ("",))[0] in ("", "memory") else TIMEOUT
        documents[function] = spec(function, function, f"timeout: {limit}\n")
        documents[f"good_{number}"] = spec(f"good_{number}", "sensitive")
    project.write(**documents)
    # On some processors oneDNN's allocator waits for ever for memory that it doesn't get.
    options = ("-j", "2", "--memory", "3GiB", "--format", "json")
    done = project.run(*options, TF_ENABLE_ONEDNN_OPTS="0")
    report = json.loads(done.out)
    found = {case["op"]: case for case in report["cases"]}
    assert [case["op"] for case in report["cases"]] == list(documents)
    for name, case in found.items():
        if name not in FAULTS:
            assert case["status"] == "passed", (name, case["error"])
            continue
        kind, words = FAULTS[name]
        assert case["error"] is not None, name
        assert (case["status"], case["error"]["kind"]) == ("error", kind), (name, case)
        assert words in case["error"]["message"], (name, case["error"])
    assert report["summary"]["error"] == len(FAULTS)
    assert (done.code, done.err, done.left) == (3, "", [])

    segfault = found["segfault"]
    assert any("segfault" in frame for frame in segfault["error"]["traceback"]), segfault
    assert segfault["output"]["lines"] == ["about to read address 0"]
    assert any("spin_in_python" in frame for frame in found["spin_in_python"]["error"]["traceback"])
    printed = found["print_much_and_crash"]["output"]
    assert printed["lines"][-1] == "the last words"
    assert Path(printed["file"]).stat().st_size > 100_000_000
    left = [path.name for path in (project.folder / "tmp").iterdir()]
    assert left == [Path(printed["file"]).parent.name]


def test_the_rest_of_a_document_goes_on(project):
    cases = "cases:\n- {name: crash, attrs: {how: segfault}}\n- {name: good, attrs: {how: square}}\n"
    project.write(several=spec("several", "choose", f"attrs: {{how: square}}\n{cases}"))
    for options in ([], ["--isolate"]):
        report = json.loads(project.run("-j", "1", "--format", "json", *options).out)
        found = [(case["case"], case["status"]) for case in report["cases"]]
        assert found == [("default", "passed"), ("crash", "error"), ("good", "passed")]


def test_a_case_shares_its_process_with_those_of_its_document_unless_isolated(project):
    cases = "attrs: {case: first}\ncases: [{name: again, attrs: {case: again}}]\n"
    project.write(a=spec("a", "be_alone", cases), b=spec("b", "be_alone", "attrs: {case: b}"))
    for options, shared in (([], True), (["--isolate"], False)):
        report = json.loads(project.run("-j", "2", "--format", "json", *options).out)
        statuses = [case["status"] for case in report["cases"]]
        assert statuses == ["passed", "error" if shared else "passed", "passed"]


def test_the_table_shows_what_a_failed_case_printed(project):
    project.write(bad=spec("bad", "exit_at_once"), talks=spec("talks", "talk"))
    done = project.run("-j", "1")
    assert done.code == 3
    assert "  ERROR GC315  crash: the process ended with exit code 3, as by os._exit" in done.out
    assert "      leaving\n" in done.out
    assert "all is well" not in done.out + done.err
    file = done.out.partition("(all of it: ")[2].partition(")")[0]
    assert Path(file).read_text() == "leaving\n"
    assert "      all is well\n" in project.run("-j", "1", "-v").out


def test_results_do_not_depend_on_how_many_processes_there_are(project):
    def plain(value):
        if isinstance(value, dict):
            differing = ("duration_s", "parts_s", "output")
            return {key: plain(part) for key, part in value.items() if key not in differing}
        return [plain(part) for part in value] if isinstance(value, list) else value

    # A copy: this project's settings and those of the repository are refused together.
    shutil.copytree(PACKAGE / "specs" / "seeds", project.folder / "seeds")
    files = [f"seeds/{name}.yaml" for name in ("bernoulli_attention", "matmul", "py_func_cube", "product")]
    project.write(wrong=spec("wrong", "talk_and_fail"), good=spec("good", "sensitive"))
    reports = [
        plain(json.loads(project.run("-j", jobs, "--format", "json", "specs", *files).out))
        for jobs in ("0", "1", "2")
    ]
    assert reports[0] == reports[1] == reports[2]
    assert reports[0]["summary"]["cases"] > 10


@pytest.mark.parametrize(
    ("to_group", "how"), [(True, signal.SIGINT), (False, signal.SIGINT), (False, signal.SIGTERM)]
)
def test_ctrl_c_prints_what_is_done_and_leaves_nothing(project, to_group, how):
    project.write(
        first=spec("first", "square"), hangs=spec("hangs", "sleep"), later=spec("later", "leave_a_note")
    )
    process = project.start("-j", "2", "--report", "json=report.json")
    with process:
        deadline = time.monotonic() + 120
        # Until `later` is done and waits for its turn: the run, its server, `hangs` and its child are left.
        marks = [project.folder / name for name in ("sleeping", "noted")]
        while not all(mark.exists() for mark in marks) or len(project.left()) > 4:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)  # for its result to arrive
        (os.killpg if to_group else os.kill)(process.pid, how)
        out, err = process.communicate(timeout=60)  # `hangs` takes ten minutes
    assert process.returncode == 130
    assert ("· first ·" in out, "· hangs ·" in out, "· later ·" in out) == (True, False, True)
    assert "interrupted · 2 ops" in out
    assert err == ""
    assert json.loads((project.folder / "report.json").read_text())["interrupted"]
    assert project.left() == []
    assert list((project.folder / "tmp").iterdir()) == []


def test_ctrl_c_while_tensorflow_is_imported(project):
    project.write(first=spec("first", "square"))
    with project.start() as process:
        while len(project.left()) < 2:
            time.sleep(0.01)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert project.left() == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_no_process_outlives_a_run_that_is_killed(project, how):
    project.write(hangs=spec("hangs", "sleep"))
    with project.start() as process:
        while not (project.folder / "sleeping").exists():
            time.sleep(0.05)
        process.send_signal(how)
        process.communicate(timeout=10)
    deadline = time.monotonic() + 5
    while project.left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert project.left() == []
    assert list((project.folder / "tmp").iterdir()) == []


def test_tensorflow_that_can_not_be_imported_is_said(project):
    project.write(first=spec("first", "square"))
    broken = project.folder / "broken"
    broken.mkdir()
    (broken / "tensorflow.py").write_text("raise ImportError('broken on purpose')\n")
    done = project.run(PYTHONPATH=os.pathsep.join([str(broken), str(PACKAGE)]))
    assert (done.code, done.left) == (3, [])
    assert done.err.splitlines()[-1] == "TensorFlow can't be imported: ImportError: broken on purpose."


@pytest.mark.parametrize("option", [["--isolate"], ["--timeout", "5"], ["--memory", "1G"]])
def test_what_needs_processes_says_so(project, option):
    done = project.run("-j", "0", *option)
    assert done.code == 2
    assert "need processes: choose -j 1 or more" in done.err
