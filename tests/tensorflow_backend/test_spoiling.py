"""A kernel that writes nothing must be seen to write nothing, whatever memory it is given."""

from __future__ import annotations

import pytest
import tensorflow as tf

from gradcheck_cli.results import Status
from gradcheck_cli.tensorflow_backend.graph import graph_runs

INPUTS = {"images": {"shape": [0, 4, 4, 16]}, "filters": {"shape": [3, 3, 16, 1]}}


def depthwise(images, filters):
    return tf.nn.depthwise_conv2d(images, filters, [1, 1, 1, 1], "VALID")


def convolution(images, filters):
    return tf.nn.conv2d(images, filters, 1, "VALID")


@pytest.mark.parametrize("mode", ["graph", "eager", "dynamic"])
def test_a_gradient_that_is_what_stood_in_memory_is_found(run, mode):
    result = run(forward=depthwise, inputs=INPUTS, modes=[mode])
    failed = {check.name for check in result.checks if check.status is Status.MISMATCHED}
    assert "zero_upstream" in failed


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_one_that_is_computed_is_right(run, mode):
    result = run(forward=convolution, inputs=INPUTS, modes=[mode])
    (zeros,) = [check for check in result.checks if check.name == "zero_upstream"]
    assert (zeros.status, result.status) == (Status.PASSED, Status.PASSED)  # a run asks for another case with elements


def test_a_large_table_is_not_copied_a_hundred_times(run, monkeypatch):
    monkeypatch.setattr(graph_runs, "_filler", lambda *_: pytest.fail("64 MiB are the most"))
    inputs = {"table": {"shape": [1000, 200]}, "rows": {"shape": [0], "dtype": "int32", "choice": [0]}}
    result = run(forward=tf.gather, inputs=inputs)
    assert {pair.status for pair in result.pairs} == {Status.PASSED}
