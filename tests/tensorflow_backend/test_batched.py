"""The check `batched`: whether `tf.vectorized_map` and `tape.jacobian` can vectorise a gradient."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli import assert_gradients, check_function
from gradcheck_cli.results import Status

X = np.array([0.3, -0.7, 1.2])
ON = {"batched": True}


@tf.custom_gradient
def through_python(x):
    def gradient(u):
        pulled = tf.py_function(lambda flow: 2.0 * flow, [u], u.dtype)
        pulled.set_shape(u.shape)
        return pulled

    return 2.0 * x, gradient


@tf.custom_gradient
def forward_in_python(x):
    y = tf.numpy_function(np.sin, [x], x.dtype)
    y.set_shape(x.shape)
    return y, lambda u: u * tf.cos(x)


@tf.custom_gradient
def sine(x):
    return tf.sin(x), lambda u: u * tf.cos(x)


def two_outputs(x, w):
    return tf.matmul(x[None], w)[0], tf.reduce_sum(x**2)


def batched(function, *arguments, **options):
    report = check_function(function, *arguments, checks=ON, **options)
    return [check for case in report.cases for check in case.checks if check.name == "batched"]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (sine, [X]),
        (two_outputs, [X, np.eye(3)]),
        (forward_in_python, [X]),
        (lambda x: tf.nn.dropout(x, 0.5, seed=1), [X]),
        (tf.nn.softmax, [X.astype("float32")]),
        (lambda x: tf.gather(x, [0, 2, 0]), [X]),
        (lambda x: x * tf.cast(x, tf.complex128), [X + 1j * X]),
    ],
)
def test_a_gradient_that_can_be_vectorised_passes(function, arguments):
    (check,) = batched(function, *arguments, modes=["graph"])
    assert check.status is Status.PASSED, check.message


def test_what_has_no_vectorised_form_is_named_with_its_line():
    (check,) = batched(through_python, X, modes=["graph"])
    assert check.status is Status.MISMATCHED
    assert re.fullmatch(
        r"tf.vectorized_map can't vectorise the gradient's EagerPyFunc "
        r"\(.*EagerPyFunc, .*test_batched.py:\d+\): it and tape.jacobian run that op in a loop, once for "
        r"each upstream. Compute it with other ops of TensorFlow's; or leave the check 'batched' out.",
        check.message,
    )


def test_it_is_asked_for():
    report = check_function(through_python, X, modes=["graph"])
    assert "batched" not in {check.name for check in report.cases[0].checks}
    assert report.cases[0].how.checks_off == ()
    with pytest.raises(AssertionError, match="batched"):
        assert_gradients(through_python, X, modes=["graph"], checks=ON)


@pytest.mark.parametrize(
    ("modes", "status"), [(["graph", "eager"], Status.SKIPPED), (["eager"], Status.INCONCLUSIVE)]
)
def test_another_mode_says_why_it_is_not_looked_at(modes, status):
    check = batched(sine, X, modes=modes)[-1]
    assert check.status is status
    assert check.message == (
        "mode graph alone asks whether tf.vectorized_map can vectorise the gradient: add it to 'modes'."
    )


def test_a_gradient_that_mixes_what_is_vectorised_is_found(monkeypatch):
    # TensorFlow's own forms are right in this release: one that adds the rows up stands for one that isn't.
    def adds_up(pull, stacks, **_):
        return [tf.stack([row] * 3) for row in pull([tf.reduce_sum(stack, axis=0) for stack in stacks])]

    monkeypatch.setattr(tf, "vectorized_map", adds_up)
    (check,) = batched(sine, X, modes=["graph"])
    assert check.status is Status.MISMATCHED
    assert "differs under tf.vectorized_map: element 0 was" in check.message
