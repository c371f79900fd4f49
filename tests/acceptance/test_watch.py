"""`gradcheck run --watch`: files are saved, verdicts come, Ctrl-C ends it."""

import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from tests.support import processes

pytestmark = pytest.mark.once

CODE = """
import tensorflow as tf
from helper_watched import factor

@tf.custom_gradient
def cube(x):
    return x ** 3, lambda upstream: factor * upstream * x ** 2
"""
SPEC = "op: {op}\nforward: {module}:{op}\ninputs: {{x: {{shape: [2]}}}}\n"
SECONDS = 240  # TensorFlow's import on a busy machine


class Watching:
    """The command in a folder, and what it has written."""

    def __init__(self, folder, *options):
        self.folder, self.text = folder, ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gradcheck_cli", "run", "--watch", "-j", "1", *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # As Python does by default, whatever this test's own environment says: it may keep bytecode.
            env={key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
        )
        os.set_blocking(self.process.stdout.fileno(), False)

    def until(self, pattern):
        """Return what has been written since the last call, once the pattern is in it."""
        end = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, f"{pattern!r} wasn't written, but {self.text!r}"
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                self.text += (os.read(self.process.stdout.fileno(), 65536) or b"").decode()
        seen, self.text = self.text[: found.end()], self.text[found.end() :]
        return seen

    def write(self, name, text):
        new = self.folder / f"{name}.new"
        new.write_text(text)
        new.replace(self.folder / name)  # as editors do

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code


@pytest.fixture
def watching(tmp_path):
    (tmp_path / "specs").mkdir()
    (tmp_path / "helper_watched.py").write_text("factor = 3\n")
    (tmp_path / "watched.py").write_text(CODE)
    (tmp_path / "other.py").write_text("def square(x):\n    return x * x\n")
    (tmp_path / "specs" / "cube.yaml").write_text(SPEC.format(op="cube", module="watched"))
    (tmp_path / "specs" / "square.yaml").write_text(SPEC.format(op="square", module="other"))
    made = Watching(tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    made.process.stdout.close()


def test_two_saves_within_a_second_are_two(watching):
    watching.until(r"2 checked in .*")
    second = 10**9 * (time.time_ns() // 10**9)
    for place, (factor, verdict) in enumerate([(2, "1 of 2 not right"), (3, "all 2 right")]):
        new = watching.folder / "helper.new"
        new.write_text(f"factor = {factor}\n")  # of one size, and of one second
        os.utime(new, ns=(second + place, second + place))
        new.replace(watching.folder / "helper_watched.py")
        assert verdict in watching.until(r"checked in .*")


def test_what_changed_is_checked_again_and_nothing_else(watching):
    first = watching.until(r"2 checked in .*")
    assert "all 2 right; watching 5 files (Ctrl-C ends)" in first
    watching.write("helper_watched.py", "factor = 2\n")  # what the module imports counts as well
    second = watching.until(r"checked in .*")
    assert "-- helper_watched.py changed" in second
    assert "MISMATCH" in second
    assert "specs/square.yaml" not in second
    assert "1 checked in" in second
    assert "1 of 2 not right" in second
    watching.write("specs/cube.yaml", "op: cube\nforwrd: watched:cube\n")
    third = watching.until(r"unknown key[^\n]*\n")
    assert "specs/cube.yaml:2: forwrd: unknown key" in third
    watching.write("specs/cube.yaml", SPEC.format(op="cube", module="watched"))
    watching.write("helper_watched.py", "factor = 3\n")
    assert "all 2 right" in watching.until(r"all 2 right")
    watching.write("specs/third.yaml", SPEC.format(op="double", module="other"))
    assert "has no attribute 'double'" in " ".join(watching.until(r"1 of 3 not right").split())
    (watching.folder / "specs" / "third.yaml").unlink()
    watching.until(r"0 checked in .*all 2 right")
    assert watching.stop() == 0


@pytest.mark.parametrize(
    "option", [("-x",), ("--format", "json"), ("-j", "0"), ("--report", "json=a.json"), ("--search", "9")]
)
def test_options_that_have_an_end_in_mind_are_refused(tmp_path, option):
    done = processes.run(sys.executable, "-m", "gradcheck_cli", "run", "--watch", *option, cwd=tmp_path)
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
