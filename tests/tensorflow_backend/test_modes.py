"""What each mode finds that the others don't, what it can't have, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.results import Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.case import in_each_mode

ALL = ["graph", "dynamic", "eager", "xla"]
X = {"x": {"shape": [3, 4]}}


@pytest.fixture
def run_in(case_of):
    """Return a function that checks a spec in modes, and returns the results by mode."""

    def run(modes, **spec):
        cases = in_each_mode([case_of(**{"inputs": X, **spec})], modes)
        return {case.mode: run_case(case) for case in cases}

    return run


def failed(result):
    return {check.name: check.message for check in result.checks if check.status is not Status.PASSED}


@tf.custom_gradient
def own_tanh(x):
    y = tf.tanh(x)
    return y, lambda upstream: upstream * (1 - y**2)


def test_a_gradient_that_takes_the_batch_for_known_fails_where_it_is_not(run_in):
    @tf.custom_gradient
    def mean(x):
        rows = float(x.shape[0])
        return tf.reduce_mean(x**2, axis=0), lambda upstream: 2 * x * upstream / rows

    results = run_in(["graph", "dynamic"], forward=mean)
    assert results["graph"].status is Status.PASSED
    assert results["dynamic"].status is Status.ERROR
    assert results["dynamic"].error.message.endswith(
        "This also happens if the first dimension of every input is unknown (None), as in mode dynamic, "
        "but not if all are known: take sizes from tf.shape(x)."
    )


def test_functions_that_differ_between_modes_are_told(run_in):
    results = run_in(["graph", "eager"], forward=lambda x: 2 * x if tf.executing_eagerly() else x * x)
    assert [result.pairs[0].status for result in results.values()] == [Status.PASSED, Status.PASSED]
    message = failed(results["eager"])["modes"]
    assert message.startswith("dy/dx differs: ")
    assert message.endswith("at x[0, 0]. So does y itself: the forward is another function there.")


def test_other_draws_can_not_be_compared(run_in):
    results = run_in(["graph", "dynamic", "eager", "xla"], forward=lambda x: tf.nn.dropout(x, 0.5))
    assert {result.status for result in results.values()} == {Status.PASSED}
    (check,) = [check for check in results["eager"].checks if check.name == "modes"]
    assert check.status is Status.SKIPPED
    assert check.message.startswith("the forward draws other random numbers in mode graph than in mode eager")


# What a mode can't have.

SQUARE = {
    "forward": np.square,
    "gradient": {"numpy": lambda u, x: 2 * x * u},
    "outputs": {"y": {"dtype": "float64"}},
}
LACKING = {
    "strings under XLA": (
        "xla",
        {
            "forward": lambda x, _: x * x,
            "inputs": {"x": {"shape": [2]}, "text": {"value": "a", "dtype": "string"}},
        },
        "XLA doesn't support strings, which the forward uses.",
    ),
    "py_func under XLA": ("xla", {**SQUARE, "binding": "py_func"}, "XLA compiles no Python: binding py_func"),
    "a NumPy gradient under XLA": (
        "xla",
        {**SQUARE, "forward": tf.square},
        "XLA compiles no Python: the gradient is a NumPy function",
    ),
    "an op without a kernel": (
        "xla",
        {"forward": lambda x: tf.numpy_function(np.square, [x], tf.float64)},
        "XLA compiles no PyFunc, which the forward uses.",
    ),
    "a gradient's op without a kernel": (
        "xla",
        {
            "forward": tf.square,
            "gradient": lambda op, u: tf.ensure_shape(
                tf.numpy_function(lambda u, x: 2 * u * x, [u, op.inputs[0]], tf.float64), [3, 4]
            ),
        },
        "XLA compiles no PyFunc, which the gradient uses.",
    ),
    "an override in eager mode": (
        "eager",
        {"op_type": "Square", "gradient": lambda op, u: 2 * op.inputs[0] * u},
        "binding override attaches the gradient by an override, which eager mode ignores",
    ),
    "py_func in eager mode": ("eager", {**SQUARE, "binding": "py_func"}, "binding py_func attaches the"),
    "a Defun in eager mode": ("eager", {**SQUARE, "binding": "defun"}, "a Defun is a graph's function"),
}


@pytest.mark.on_change(
    "py_func under XLA",
    "a NumPy gradient under XLA",
    "a gradient's op without a kernel",
    "an override in eager mode",
    "py_func in eager mode",
    "a Defun in eager mode",
)
@pytest.mark.parametrize(("mode", "spec", "reason"), LACKING.values(), ids=LACKING)
def test_a_mode_that_a_case_can_not_have_is_skipped_with_the_reason(run_in, mode, spec, reason):
    result = run_in([mode], **spec)[mode]
    assert (result.status, result.pairs) == (Status.SKIPPED, ())
    (check,) = result.checks
    assert (check.name, check.status) == ("mode", Status.SKIPPED)
    assert check.message.startswith(reason)


def eager_only(x):
    return x * x if float(tf.reduce_sum(x).numpy()) > 0 else 3 * x


def test_a_forward_that_works_only_eagerly_fails_the_default_mode_with_the_advice(run_in):
    results = run_in(["graph", "eager"], forward=eager_only)
    assert results["eager"].status is Status.PASSED
    assert results["graph"].error.message.endswith(
        "has no attribute 'numpy'. In a graph, a tensor has no value: compute with TensorFlow's functions. "
        "It works where it is called eagerly: say 'modes: [eager]' "
        "(or --mode eager) to check it there."
    )


# The eager op, where it isn't like a graph.


def test_what_draws_from_numpy_is_inconclusive_eagerly(run_in):
    generator = np.random.default_rng(0)
    result = run_in(["eager"], forward=lambda x: x * generator.normal(size=(3, 4)))["eager"]
    assert result.status is Status.INCONCLUSIVE
    assert "draws random numbers (from Python or NumPy)" in failed(result)["deterministic"]


def test_the_process_keeps_its_own_seed(run_in):
    tf.random.set_seed(7)
    first = tf.random.uniform([]).numpy()
    tf.random.set_seed(7)
    run_in(["eager"], forward=lambda x: tf.nn.dropout(x, 0.5))
    assert tf.random.uniform([]).numpy() == first


@pytest.mark.on_change("0.0--1e-30")
@pytest.mark.parametrize("value", [1e-14, -1e-30, 2.0])
@pytest.mark.parametrize("share", [0.01, 0.0])
def test_modes_are_compared_at_the_scale_that_the_spec_states(run_in, value, share):
    def forward(x):
        return 1 + x * (1 + share if tf.executing_eagerly() else 1.0)

    inputs = {"x": {"value": [value], "scale": 1.0}}
    results = run_in(["graph", "eager"], forward=forward, inputs=inputs)
    message = failed(results["eager"]).get("modes", "")
    assert message.startswith("dy/dx differs: ") == bool(share), message


# Devices.


def test_a_device_that_is_not_there_is_skipped_with_the_reason(run_in):
    result = run_in(["graph"], forward=tf.tanh, device="GPU:7")["graph"]
    assert result.status is Status.SKIPPED
    (check,) = result.checks
    assert (check.name, check.status) == ("device", Status.SKIPPED)
    assert check.message.startswith("TensorFlow finds no GPU:7 on this machine; it has CPU:0")


def test_tf32_is_off_while_checking(run_in):
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled
    seen = []

    def forward(x):
        seen.append(tf32())
        return x * x

    run_in(["graph", "eager"], forward=forward)
    assert set(seen) == {False}


@tf.custom_gradient
def wrong_tanh(x):
    return tf.tanh(x), lambda upstream: 2 * upstream * (1 - tf.tanh(x) ** 2)


def test_an_op_is_blamed_in_a_graph_alone(run_in):
    results = run_in(ALL, forward=lambda x: tf.exp(0.5 * wrong_tanh(x)))
    blamed = {
        mode: [line for pair in result.pairs for line in pair.cause.diagnosis if line.startswith("blame: ")]
        for mode, result in results.items()
    }
    assert {str(result.status) for result in results.values()} == {"mismatched"}
    assert {mode: len(lines) for mode, lines in blamed.items()} == {
        "graph": 1,
        "dynamic": 0,
        "eager": 0,
        "xla": 0,
    }
    assert "wrong_tanh" in blamed["graph"][0]


@tf.custom_gradient
def twice_eagerly(x):
    """Have a right gradient in each mode, of another function eagerly."""
    factor = 2.0 if tf.executing_eagerly() else 1.0
    return factor * tf.tanh(x), lambda upstream: factor * upstream * (1 - tf.tanh(x) ** 2)


LARGE = {"whole": (tf.cumsum, 800, "probe"), "of independent classes": (lambda x: x, 2000, "central")}


@pytest.mark.parametrize(("mix", "size", "method"), LARGE.values(), ids=LARGE)
def test_large_jacobians_are_compared_too(run_in, mix, size, method):
    inputs = {"x": {"shape": [size]}}
    right = run_in(ALL, forward=lambda x: mix(own_tanh(x)), inputs=inputs)
    assert {mode: (str(one.status), failed(one)) for mode, one in right.items()} == dict.fromkeys(
        ALL, ("passed", {})
    )
    assert {one.pairs[0].judged_by.method for one in right.values()} == {method}
    assert {mode: "modes" in {check.name for check in one.checks} for mode, one in right.items()} == {
        mode: mode != "graph" for mode in ALL
    }
    other = run_in(["graph", "eager"], forward=lambda x: mix(twice_eagerly(x)), inputs=inputs)
    assert [str(pair.status) for one in other.values() for pair in one.pairs] == ["passed", "passed"]
    message = failed(other["eager"])["modes"]
    assert message.startswith("dy/dx differs: ")
    assert message.endswith("So does y itself: the forward is another function there.")


def test_none_in_one_mode_alone(run_in):
    @tf.custom_gradient
    def forward(x):
        return x * 2, lambda upstream: None if tf.executing_eagerly() else 2 * upstream

    assert failed(run_in(["graph", "eager"], forward=forward)["eager"])["modes"] == (
        "dy/dx is None in mode eager and a tensor in mode graph."
    )
