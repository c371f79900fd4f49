"""TensorFlow's chatter stays off the terminal, and what the user's code prints doesn't."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import startup

pytestmark = pytest.mark.once

QUIET = "from gradcheck_cli.tensorflow_backend import startup; startup.start()\n"
USE = "import tensorflow as tf; float(tf.function(lambda x: x * 2)(tf.constant(1.0)))\n"
MAP = """
import tensorflow as tf
with startup.settings():
    tf.map_fn(lambda x: tf.linalg.svd(x, compute_uv=False), tf.ones([3, 2, 2]))
    try:
        tf.vectorized_map(lambda x: tf.unique(x)[0], tf.ones([3, 2]), fallback_to_while_loop=False)
    except ValueError:
        pass
"""


def python(code, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**environment, **variables},
    )


def test_nothing_of_tensorflows_is_printed():
    done = python(QUIET + USE + MAP)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_plain_tensorflow_is_not_so_quiet():
    # The test above can fail: TensorFlow does write to standard error as it starts.
    done = python(USE)
    assert done.returncode == 0
    assert done.stderr != ""


def test_what_the_user_prints_survives():
    code = """
import sys, os
print("user's output")
print("user's error", file=sys.stderr)
os.write(2, b"to the descriptor\\n")
import warnings; warnings.warn("user's warning")
"""
    done = python(QUIET + USE + code)
    assert done.stdout == "user's output\n"
    lines = done.stderr.splitlines()
    assert lines[:2] == ["user's error", "to the descriptor"]
    assert any("user's warning" in line for line in lines)


def test_an_import_that_fails_plays_back_what_was_held(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os, sys\nos.write(2, b'a library is missing\\n')\nraise ImportError('libcuda is not there')\n"
    )
    done = python(QUIET, PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert done.returncode == 1
    assert "a library is missing\n" in done.stderr
    assert "ImportError: libcuda is not there" in done.stderr


def test_the_users_own_log_level_is_kept():
    done = python(QUIET + "import os; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])", TF_CPP_MIN_LOG_LEVEL="0")
    assert done.stdout == "0\n"


@pytest.mark.parametrize("raises", [False, True])
def test_settings_are_ours_for_the_time_being(raises):
    def found():
        return tf.get_logger().level, tf.config.optimizer.get_experimental_options().get(
            "disable_meta_optimizer"
        )

    # The tests run under these settings; the level stands for what a notebook has set.
    tf.get_logger().setLevel(17)
    before = found()
    with suppress(ZeroDivisionError), startup.settings():
        assert found()[1] is True
        assert found()[0] > 40
        assert not raises or 1 / 0
    assert found() == before
