from __future__ import annotations

import os
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import gradcheck_cli
from gradcheck_cli import tensorflow_backend
from gradcheck_cli.plain_files import is_users
from gradcheck_cli.tensorflow_backend import frames

HERE = Path(__file__)


def code_at(line):
    return HERE.read_text().splitlines()[line - 1].strip()


def parsed(lines):
    """(file, line, function, code) of each frame shown."""
    found = []
    for line in lines:
        if line.startswith("    "):
            found[-1] = (*found[-1][:3], line.strip())
            continue
        place, _, function = line.partition(": in ")
        file, _, number = place.rpartition(":")
        found.append((file, int(number), function, ""))
    return found


def inner():
    raise ValueError("no")


def outer():
    np.apply_along_axis(lambda _: inner(), 0, np.zeros(1))


def test_only_the_users_frames_are_shown_outermost_first():
    with pytest.raises(ValueError, match="no") as caught:
        outer()
    found = parsed(frames.user_frames(caught.value))
    assert [function for _, _, function, _ in found][1:] == ["outer", "<lambda>", "inner"]
    assert all(HERE.name in file and code == code_at(line) for file, line, _, code in found)
    assert found[-1][3] == 'raise ValueError("no")'


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (__file__, True),
        (gradcheck_cli.__file__, False),
        (f"{Path(gradcheck_cli.__file__).parent}_checks/ops.py", True),
        (tf.__file__, False),
        (np.__file__, False),
        (textwrap.__file__, False),
        ("<string>", False),
        ("/tmp/__autograph_generated_filex1.py", False),  # noqa: S108 (AutoGraph's own place)
    ],
)
def test_whose_a_file_is(file, expected):
    assert is_users(file) is expected


def helper(x):
    if x[0] > 0:
        x = x * 2
    raise KeyError("weights")


def forward(x):
    return helper(x)


def test_autographs_generated_code_is_mapped_back(run):
    result = run(forward=forward, inputs={"x": {"shape": [2]}})
    found = parsed(result.error.traceback)
    assert [function for _, _, function, _ in found][-2:] == ["forward", "helper"]
    assert found[-1][3] == code_at(found[-1][1]) == 'raise KeyError("weights")'
    assert all(HERE.name in file for file, *_ in found)
    assert result.error.message == "the forward raised KeyError: 'weights'"


def raises_as_it_runs(x):
    return np.linalg.inv(x)


def test_a_numpy_functions_frames_as_the_graph_runs(run):
    result = run(
        forward=raises_as_it_runs,
        gradient=lambda _, u: u,
        binding="py_func",
        inputs={"x": {"value": 0.0, "shape": [2, 2]}},
        outputs={"y": {"shape": [2, 2], "dtype": "float64"}},
    )
    assert (result.error.kind, result.error.message) == (
        "forward",
        "the forward raised LinAlgError: Singular matrix",
    )
    last = parsed(result.error.traceback)[-1]
    assert last[2:] == ("raises_as_it_runs", "return np.linalg.inv(x)")
    assert last[3] == code_at(last[1])


TRACEBACK = """ZeroDivisionError: division by zero
Traceback (most recent call last):

  File "/lib/python3/site-packages/tensorflow/script_ops.py", line 272, in __call__
    ret = func(*args)

  File "{own}", line 7, in body
    result = function(*arrays)

  File "{here}", line 11, in square
    return 1 / 0


\t [[{{{{node PyFunc}}}}]]"""


def test_frames_in_a_run_time_message():
    message = TRACEBACK.format(own=gradcheck_cli.__file__, here="/home/me/ops.py")
    found = [frame for frame in parsed(frames.runtime_frames(message)) if "site-packages" not in frame[0]]
    assert found == [(os.path.relpath("/home/me/ops.py"), 11, "square", "return 1 / 0")]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError(""), "ValueError: no message"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError("ValueError: told already"), "ValueError: told already"),
        (
            ValueError("in user code:\n\n    File x\n\n    ValueError: the real one"),
            "ValueError: the real one",
        ),
        (
            TypeError("outer_factory.<locals>.inner_factory.<locals>.tf__f() takes 1"),
            "TypeError: f() takes 1",
        ),
        (ValueError("{{node a/b}} wrong"), "ValueError: wrong"),
        (
            AttributeError(
                "Exception encountered when calling LSTM.call().\n\n\x1b[1mno shape\x1b[0m\n\nArguments:"
            ),
            "AttributeError: no shape (LSTM.call())",
        ),
    ],
)
def test_the_line_that_tells(error, line):
    assert frames.first_line(error) == line


def test_a_fault_of_ours_has_its_place():
    from gradcheck_cli.results import case_status

    with pytest.raises(AttributeError) as caught:
        case_status(((None),), ())
    assert frames.own_place(caught.value).startswith("results.py:")
    assert frames.own_place(ValueError()) == "unknown"


def test_gradchecks_own_lines_are_no_branch_where_it_is_installed(monkeypatch):
    backend = Path(tensorflow_backend.__file__).parent
    op = SimpleNamespace(
        traceback=[
            SimpleNamespace(filename=f"{backend}/traces/trace_faults.py", lineno=1),
            SimpleNamespace(filename=f"{backend}/dtypes.py", lineno=2),
            SimpleNamespace(filename="/lib/site-packages/tensorflow/python/ops/math_ops.py", lineno=3),
        ]
    )
    monkeypatch.setattr(frames, "PACKAGES", frozenset({"site-packages", "gradcheck_cli"}))
    assert frames.place_of_branch(op) == ""
    op.traceback[1] = SimpleNamespace(filename="/lib/site-packages/keras/src/layer.py", lineno=2)
    assert frames.place_of_branch(op) == "keras/src/layer.py:2"
