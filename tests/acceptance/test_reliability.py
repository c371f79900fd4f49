"""What real pipes, devices, signals and disks do to a command, each in a process of its own."""

import json
import os
import shutil
import signal
import sys
import time

import numpy as np
import pytest

from tests.support import processes

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(sys.platform != "linux", reason="devices as Linux has them"),
]

CODE = """
import asyncio
import sys
import tensorflow as tf

class Own(BaseException):
    pass

class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")

@tf.custom_gradient
def wrong(x):
    return x * x, lambda upstream: 3 * x * upstream

def right(x):
    return x * x

def cancelled(x):
    raise asyncio.CancelledError("stopped")

def closed(x):
    raise GeneratorExit

def own(x):
    raise Own("mine")

def silent(x):
    raise Silent

class Loud:
    def write(self, text):
        return len(text)
    def flush(self):
        raise RuntimeError("no flush")

def loud(x):
    sys.stdout = Loud()
    return x * x

@tf.custom_gradient
def gradient_of_its_own(x):
    def gradient(upstream):
        raise Own("in the gradient")
    return x * x, gradient

def slow(x):
    def wait(value):
        import time
        time.sleep(0.02)
        return value
    return tf.py_function(wait, [x], tf.float64) * 0 + x * x
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "code_here.py").write_text(CODE)
    for name in ("wrong", "right"):
        spec = {"op": name, "forward": f"code_here:{name}", "inputs": {"x": {"shape": [2]}}}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(spec))
    return tmp_path


@pytest.fixture
def shell(folder):
    """Return a function that runs a line of bash, in which `gradcheck` is ours, in the folder."""

    def run(line, timeout=400, **variables):
        program = f'gradcheck() {{ "{sys.executable}" -m gradcheck_cli "$@"; }}\n{line}\n'
        return processes.run("/bin/bash", "-c", program, cwd=folder, timeout=timeout, **variables)

    return run


# Standard output.

LOST = [
    ("gradcheck --help >&-", 3, "standard output can't be written to: it is closed"),
    ("gradcheck --help >/dev/full", 3, "standard output can't be written to: No space left on device"),
    ("gradcheck run --help >/dev/full", 3, "No space left on device"),
    ("gradcheck --version >/dev/full", 3, "No space left on device"),
    ("gradcheck schema >/dev/full", 3, "No space left on device"),
    ("gradcheck validate right.yaml >&-", 3, "it is closed"),
    ("gradcheck completion bash >/dev/full", 3, "No space left on device"),
    ("gradcheck schema | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}", None, ""),
    ("gradcheck validate nowhere.yaml 2>/dev/full", 2, ""),
    ("gradcheck validate right.yaml 2>&-", 0, ""),
    ("gradcheck validate nowhere.yaml >&- 2>&-", 2, ""),
]


@pytest.mark.parametrize(("line", "code", "words"), LOST, ids=[row[0] for row in LOST])
def test_output_that_is_lost_is_one_line_and_an_exit_code(shell, line, code, words):
    done = shell(line)
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) <= 1
    assert done.returncode in ((0, 141) if code is None else (code,))


def test_reports_are_written_though_nobody_reads_the_table(shell, folder):
    commands = (
        "run -j 0 wrong.yaml --report json=r1.json >/dev/full",
        "merge r1.json --report json=r2.json >&-",
    )
    for command in (*commands, "merge r2.json --report json=r3.json | head -1"):
        done = shell(f"gradcheck {command}; exit ${{PIPESTATUS[0]}}")
        assert done.returncode == 1, done.stderr
    for name in ("r1", "r2", "r3"):
        assert json.loads((folder / f"{name}.json").read_text())["summary"]["mismatched"] == 1


def test_a_report_can_go_to_the_pipe_that_standard_output_is(shell):
    done = shell(
        "gradcheck run -j 0 -q right.yaml --report json=/dev/stdout --report junit=/dev/fd/5 5>five | cat"
    )
    assert '"schema_version": 1' in done.stdout
    assert shell("head -c 5 five").stdout == "<?xml"


def test_what_was_found_comes_before_a_report_that_cant_be_written(shell):
    done = shell("gradcheck run -j 0 wrong.yaml --report json=/proc/r.json --update-baseline /proc/x.lock")
    assert done.returncode == 1
    assert done.stderr.count("can't write") == 2
    long = "n" * 300
    done = shell(f"gradcheck run right.yaml --report json={long}.json")
    assert (done.returncode, "File name too long" in done.stderr) == (2, True)
    name = "n" * 250
    assert shell(f"gradcheck merge r.json --report json={name}").returncode == 2  # there's no r.json


# What isn't a plain file.

ODD_FILES = [
    "mkfifo a.yaml; timeout 60 gradcheck_ validate a.yaml",
    "mkfifo a.yaml; timeout 60 gradcheck_ validate .",
    "timeout 60 gradcheck_ validate /dev/zero",
    "mkfifo r.json; timeout 60 gradcheck_ merge r.json",
    "timeout 60 gradcheck_ merge /dev/zero",
    "mkfifo g.lock; timeout 60 gradcheck_ run right.yaml --baseline g.lock",
    "timeout 60 gradcheck_ run right.yaml --baseline /dev/zero",
]


@pytest.mark.parametrize("line", ODD_FILES)
def test_what_is_no_plain_file_is_said_at_once(shell, line):
    line = line.replace("gradcheck_", f"{sys.executable} -m gradcheck_cli")
    done = shell(f"ulimit -v 4000000; {line}")
    assert (done.returncode, "must be a plain file, but is a" in done.stderr) == (2, True), done.stderr


def test_a_cache_that_is_no_plain_file_is_none(shell):
    program = f"timeout 60 {sys.executable} -m gradcheck_cli"
    for make in ("mkfifo c/history.json", "ln -sf /dev/zero c/history.json"):
        line = (
            f"rm -rf c; mkdir c; {make}; {program} run right.yaml --collect-only --last-failed --cache-dir c"
        )
        assert shell(line).returncode == 0


def test_a_spec_can_still_come_from_a_pipe_that_the_shell_opened(shell):
    done = shell("gradcheck validate <(cat right.yaml); cat right.yaml | gradcheck validate /dev/stdin")
    assert done.stdout == "1 spec, 1 case: ok\n" * 2


def test_a_large_array_isnt_read_to_see_that_its_shape_is_another(shell, folder):
    with (folder / "large.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(
            stream, {"descr": "<f8", "fortran_order": False, "shape": (2**25,)}
        )
        stream.truncate(2**28 + 128)  # 256 MiB, none of which is on the disk
    for shape, code in (("[2]", 2), (f"[{2**25}]", 0)):
        spec = f"{{op: a, forward: 'code_here:right', inputs: {{x: {{shape: {shape}, file: large.npy}}}}}}"
        (folder / "large.yaml").write_text(spec)
        # NumPy itself maps some 100 MiB of libraries, and its threads' stacks.
        done = shell("export OPENBLAS_NUM_THREADS=1; ulimit -v 700000; gradcheck validate large.yaml")
        assert done.returncode == code, done.stderr


# Code under test that raises what it likes.

RAISING = [
    ("cancelled", "CancelledError: stopped", "error"),
    ("closed", "GeneratorExit", "error"),
    ("own", "Own: mine", "error"),
    ("silent", "Silent: (it has no text: its __str__ raised RuntimeError)", "error"),
    ("gradient_of_its_own", "Own: in the gradient", "error"),
    ("loud", "", "passed"),
]


def test_whatever_code_raises_is_its_own(shell, folder):
    ops = [
        {"op": name, "forward": f"code_here:{name}", "modes": ["graph", "eager"]} for name, _, _ in RAISING
    ]
    (folder / "raising.yaml").write_text(
        json.dumps({"defaults": {"inputs": {"x": {"shape": [2]}}}, "ops": ops})
    )
    done = shell("gradcheck run -j 1 raising.yaml --format json")
    cases = json.loads(done.stdout)["cases"]
    for name, words, status in RAISING:
        for case in [case for case in cases if case["op"] == name]:
            error = case["error"] or {"kind": "", "message": "", "traceback": []}
            assert (case["status"], words in error["message"]) == (status, True), case
            assert error["kind"] in ("", "forward", "gradient")
            assert status == "passed" or "code_here.py" in "".join(error["traceback"]), case


# CI services.


def test_a_ci_service_obeys_nothing_that_isnt_ours(shell, folder):
    (folder / "ci.yaml").write_text(
        "op: a\nforward: 'code_here:wrong'\ninputs: {x: {shape: [2]}}\nexpect: mismatch\n"
        f"reason: '{'word ' * 12}::stop-commands::x ##[error]no ##vso[task.complete]'\n"
    )
    done = shell("gradcheck run -j 0 ci.yaml --report github", GITHUB_ACTIONS="true", CI="true")
    printed = (done.stdout + done.stderr).splitlines()
    assert not [
        line for line in printed if line.strip().startswith("::") or "##[" in line or "##vso[" in line
    ]
    done = shell("gradcheck run -j 0 wrong.yaml --report github", GITHUB_ACTIONS="true")
    assert [line for line in done.stdout.splitlines() if line.startswith("::error ")]


# Two at once, stopped, interrupted.


def test_two_updates_of_one_lock_keep_each_others_pairs(shell, folder):
    (folder / "other.yaml").write_text((folder / "right.yaml").read_text().replace('"right"', '"other"', 1))
    line = "gradcheck run -j 0 {}.yaml --update-baseline g.lock"
    done = shell(f"{line.format('right')} & {line.format('other')} & wait", timeout=300)
    lock = (folder / "g.lock").read_text()
    assert ('"op": "right"' in lock, '"op": "other"' in lock) == (True, True), done.stderr


def _run(folder, *arguments):
    return processes.start(sys.executable, "-m", "gradcheck_cli", *arguments, cwd=folder)


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as stream:  # noqa: PTH123 (one line)
        return [int(word) for word in stream.read().split()]


def test_a_machine_that_was_paused_times_nothing_out(folder):
    spec = {"op": "slow", "forward": "code_here:slow", "inputs": {"x": {"shape": [1]}}, "samples": 1}
    (folder / "slow.yaml").write_text(json.dumps(spec))
    run = _run(folder, "run", "-j", "1", "--timeout", "20", "slow.yaml", "--format", "json")
    tree = []
    deadline = time.monotonic() + 150
    while len(tree) < 2 and time.monotonic() < deadline:  # the fork server, and the process of the case
        time.sleep(0.1)
        servers = _children(run.pid)
        tree = [*servers, *(child for server in servers for child in _children(server))]
    for pid in (run.pid, *tree):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(21)
    for pid in (*tree, run.pid):
        os.kill(pid, signal.SIGCONT)
    out, err = run.communicate(timeout=300)
    (case,) = json.loads(out)["cases"]
    assert case["error"] is None, (case, err)


INTERRUPTED = """
import builtins, os, signal, sys
original = builtins.__import__

def importing(name, *rest):
    if name == {name!r}:
        os.kill(os.getpid(), signal.SIGINT)
    return original(name, *rest)

from gradcheck_cli.__main__ import main
builtins.__import__ = importing
sys.argv[1:] = ["validate", "right.yaml"]
main()
"""


@pytest.mark.parametrize("name", ["click", "gradcheck_cli.cli.main", "yaml", "gradcheck_cli.spec.load"])
def test_an_interrupt_in_the_first_moments_is_no_traceback(folder, name):
    done = processes.run(sys.executable, "-c", INTERRUPTED.format(name=name), cwd=folder, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


def test_a_working_folder_that_is_gone_is_said(shell):
    done = shell(
        "mkdir gone; cd gone; rmdir ../gone; gradcheck validate; echo $?; gradcheck schema | head -c 1"
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.split()[0] == "2"
    assert "working folder" in done.stderr


def test_modules_beside_it_are_none_of_pythons(shell, folder):
    for name in ("json", "click", "typing", "dataclasses"):
        (folder / f"{name}.py").write_text("raise SystemExit('a namesake was imported')")
    done = shell("gradcheck validate right.yaml")
    assert (done.returncode, done.stdout) == (0, "1 spec, 1 case: ok\n"), done.stderr


# Settings.


def test_a_lock_in_conflict_says_how_to_go_on(shell, folder):
    shutil.rmtree(folder / ".gradcheck_cache", ignore_errors=True)
    (folder / "g.lock").write_text('{"gradcheck_baseline": 1}\n<<<<<<< HEAD\n=======\n>>>>>>> b\n')
    done = shell("gradcheck run right.yaml --baseline g.lock")
    assert (done.returncode, "g.lock:2: holds git's marks of a conflict" in done.stderr) == (2, True)
