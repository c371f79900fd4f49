"""What each mode finds that the others don't, what it can't have, and what it leaves alone."""

from __future__ import annotations

import keras
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


def smooth(x, w):
    return tf.tanh(tf.matmul(x, w)), tf.reduce_sum(x)


@tf.custom_gradient
def own_tanh(x):
    y = tf.tanh(x)
    return y, lambda upstream: upstream * (1 - y**2)


def looping(x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x), maximum_iterations=3)[1]


@tf.function
def python_branches(x):
    if tf.reduce_sum(x) > 1e3:
        return x
    return x * x


RIGHT = {
    "a matrix product": (smooth, {"x": {"shape": [3, 4]}, "w": {"shape": [4, 2]}}),
    "float32": (
        smooth,
        {"x": {"shape": [3, 4], "dtype": "float32"}, "w": {"shape": [4, 2], "dtype": "float32"}},
    ),
    "a custom gradient": (own_tanh, X),
    "a loop": (looping, X),
    "a tf.function": (python_branches, X),
    "a softmax": (tf.nn.softmax, X),
    "integers beside": (
        lambda x, i: tf.gather(x, i) ** 2,
        {"x": {"shape": [5, 2]}, "i": {"shape": [3], "dtype": "int32", "integers": {"low": 0, "high": 5}}},
    ),
    "complex": (lambda x: tf.math.conj(x) * x * x, {"x": {"shape": [3], "dtype": "complex128"}}),
    "a scalar": (tf.exp, {"x": {"shape": []}}),
    "rows that are counted": (lambda x: tf.reduce_sum(x**2) / tf.cast(tf.shape(x)[0], x.dtype), X),
}


@pytest.mark.on_change("float32", "a tf.function", "complex", "a scalar")
@pytest.mark.parametrize(("forward", "inputs"), RIGHT.values(), ids=RIGHT)
def test_a_right_gradient_passes_in_every_mode(run_in, forward, inputs):
    results = run_in(ALL, forward=forward, inputs=inputs, samples=1)
    assert {mode: (result.status, failed(result)) for mode, result in results.items()} == dict.fromkeys(
        ALL, (Status.PASSED, {})
    )
    for mode in ALL[1:]:
        assert "modes" in {check.name for check in results[mode].checks}


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


def test_inner_dimensions_may_have_to_be_known(run_in):
    def halves(x):
        return tf.reshape(x, [-1, x.shape[1] // 2, 2]) ** 2

    assert run_in(["dynamic"], forward=halves)["dynamic"].status is Status.PASSED


def test_what_fails_anyway_is_no_matter_of_unknown_dimensions(run_in):
    def fails(_x):
        raise ValueError("no such thing")

    message = run_in(["dynamic"], forward=fails)["dynamic"].error.message
    assert message == "the forward raised ValueError: no such thing"


def test_functions_that_differ_between_modes_are_told(run_in):
    results = run_in(["graph", "eager"], forward=lambda x: 2 * x if tf.executing_eagerly() else x * x)
    assert [result.pairs[0].status for result in results.values()] == [Status.PASSED, Status.PASSED]
    message = failed(results["eager"])["modes"]
    assert message.startswith("dy/dx differs: ")
    assert message.endswith("at x[0, 0]. So does y itself: the forward is another function there.")


def test_none_in_one_mode_alone(run_in):
    @tf.custom_gradient
    def forward(x):
        return x * 2, lambda upstream: None if tf.executing_eagerly() else 2 * upstream

    assert failed(run_in(["graph", "eager"], forward=forward)["eager"])["modes"] == (
        "dy/dx is None in mode eager and a tensor in mode graph."
    )


@pytest.mark.parametrize("modes", [["graph", "eager"], ["eager", "graph"], ["xla", "graph"]])
def test_the_comparison_can_be_turned_off(run_in, modes):
    def forward(x):
        return x * (2 if tf.executing_eagerly() else 3)

    results = run_in(modes, forward=forward, checks={"modes": False})
    assert {result.status for result in results.values()} == {Status.PASSED}


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


RENAMED = {
    "Squeeze": {"attrs": {"squeeze_dims": [1]}, "inputs": {"input": {"shape": [2, 1]}}},
    "SplitV": {
        "attrs": {"num_split": 2},
        "inputs": {
            "value": {"shape": [3]},
            "size_splits": {"value": [1, 2], "dtype": "int32"},
            "split_dim": {"value": 0, "dtype": "int32"},
        },
    },
    "Select": {
        "inputs": {
            "condition": {"value": [True, False], "dtype": "bool"},
            "t": {"shape": [2]},
            "e": {"shape": [2]},
        }
    },
}


@pytest.mark.parametrize("op_type", RENAMED)
def test_raw_ops_are_called_eagerly_by_the_names_of_their_python_functions(run_in, op_type):
    result = run_in(["eager"], op_type=op_type, **RENAMED[op_type])["eager"]
    assert (result.status, result.error) == (Status.PASSED, None)


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


def dropped(x):
    return tf.nn.dropout(tf.sin(x) if float(x.numpy().sum()) else x, 0.5)


def rounded(x):
    return x + tf.stop_gradient(tf.round(x) - x if float(x.numpy().sum()) else x)


UNTRACED = {
    "a draw": (dropped, {}, Status.PASSED),
    "a stop that is meant": (rounded, {"freeze": True}, Status.PASSED),
    "a stop": (rounded, {}, Status.INCONCLUSIVE),
}


@pytest.mark.parametrize(("forward", "more", "status"), UNTRACED.values(), ids=UNTRACED)
def test_what_can_not_be_traced_keeps_its_draws_and_stops_eagerly(run_in, forward, more, status):
    result = run_in(["eager"], forward=forward, inputs={"x": {"value": [0.3, 1.2]}}, **more)["eager"]
    assert (result.status, result.error) == (status, None)


def test_a_numpy_forward_is_no_matter_of_modes(run_in):
    message = run_in(["graph"], forward=lambda x: np.sort(x))["graph"].error.message  # noqa: PLW0108 (a frame)
    assert "modes" not in message
    assert "use binding: py_func" in message


# The eager op, where it isn't like a graph.


def test_a_float32_layer_is_judged_in_float64_eagerly(run_in):
    layer = keras.layers.Dense(3, activation="tanh")
    layer.build((None, 4))
    result = run_in(["eager"], forward=layer, inputs={"x": {"shape": [2, 4], "dtype": "float32"}})["eager"]
    assert (result.status, result.how.numeric_dtype) == (Status.PASSED, "float64")


FORM = {
    "shape": (lambda upstream: upstream[:1], Status.MISMATCHED),
    "dtype": (lambda upstream: tf.cast(2 * upstream, tf.float32), Status.MISMATCHED),
    "count": (lambda upstream: (upstream, upstream), Status.ERROR),
    "raises": (lambda upstream: upstream[17], Status.ERROR),
}


@pytest.mark.parametrize(("gradient", "status"), FORM.values(), ids=FORM)
def test_gradients_of_wrong_form_are_found_eagerly(run_in, gradient, status):
    @tf.custom_gradient
    def forward(x):
        return 2 * x, gradient

    assert run_in(["eager"], forward=forward)["eager"].status is status


def test_what_draws_from_numpy_is_inconclusive_eagerly(run_in):
    generator = np.random.default_rng(0)
    result = run_in(["eager"], forward=lambda x: x * generator.normal(size=(3, 4)))["eager"]
    assert result.status is Status.INCONCLUSIVE
    assert "draws random numbers (from Python or NumPy)" in failed(result)["deterministic"]


def test_a_gamma_sampler_is_inconclusive_eagerly(run_in):
    result = run_in(
        ["eager"],
        forward=lambda x: tf.random.stateless_gamma([3, 4], [1, 2], x, dtype=tf.float64),
        inputs={"x": {"shape": [3, 4], "uniform": {"low": 1, "high": 2}}},
    )["eager"]
    assert "the parameters of a draw move with the inputs" in failed(result)["deterministic"]


def test_the_process_keeps_its_own_seed(run_in):
    tf.random.set_seed(7)
    first = tf.random.uniform([]).numpy()
    tf.random.set_seed(7)
    run_in(["eager"], forward=lambda x: tf.nn.dropout(x, 0.5))
    assert tf.random.uniform([]).numpy() == first


def test_a_function_that_an_earlier_call_traced_is_held_all_the_same(run_in):
    @tf.function
    def straight_through(x):
        return x + tf.stop_gradient(tf.round(x) - x)

    straight_through(tf.zeros([3, 4], tf.float64))
    result = run_in(["eager"], forward=straight_through, freeze=True)["eager"]
    assert result.status is Status.PASSED


@pytest.mark.once  # every mode, and seconds in each
def test_a_ready_made_function_with_a_stop_gradient_is_inconclusive(run_in):
    function = tf.function(lambda x: x + tf.stop_gradient(tf.round(x) - x))
    ready = function.get_concrete_function(tf.TensorSpec([2], tf.float64))
    spec = {"forward": ready, "inputs": {"x": {"shape": [2]}}, "samples": 1}
    for result in run_in(["graph", "eager"], **spec).values():
        assert result.status is Status.INCONCLUSIVE
    for result in run_in(["graph", "eager"], **spec, freeze=True).values():
        assert result.status is Status.INCONCLUSIVE
        assert "nothing can hold it there: a ready-made function" in failed(result)["frozen"]


def test_a_ready_made_function_in_float32_is_judged_as_such(run_in):
    ready = tf.function(lambda x: tf.cast(tf.tanh(tf.cast(x, tf.float32)), tf.float64)).get_concrete_function(
        tf.TensorSpec([3, 4], tf.float64)
    )
    for result in run_in(["graph", "eager"], forward=ready).values():
        assert result.status is Status.PASSED


def test_a_forward_that_refuses_points_nearby_is_not_gradchecks_fault(run_in):
    def forward(x):
        if float(tf.reduce_min(x)) < 1.0:
            raise ValueError("below 1")
        return tf.sqrt(x - 1)

    result = run_in(["eager"], forward=forward, inputs={"x": {"value": [1.0, 2.0]}})["eager"]
    assert result.error is None
    assert result.status is Status.INCONCLUSIVE


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


def test_a_stop_gradient_inside_a_custom_gradient_is_not_held_eagerly(run_in):
    @tf.custom_gradient
    def forward(x):
        return x * tf.stop_gradient(x), lambda upstream: 2 * x * upstream

    results = run_in(["graph", "eager"], forward=forward)
    assert {result.status for result in results.values()} == {Status.PASSED}


# Devices.


def test_a_device_that_is_not_there_is_skipped_with_the_reason(run_in):
    result = run_in(["graph"], forward=tf.tanh, device="GPU:7")["graph"]
    assert result.status is Status.SKIPPED
    (check,) = result.checks
    assert (check.name, check.status) == ("device", Status.SKIPPED)
    assert check.message.startswith("TensorFlow finds no GPU:7 on this machine; it has CPU:0")


@pytest.mark.parametrize("mode", ALL)
def test_a_device_that_is_there_runs_the_case(run_in, mode):
    assert run_in([mode], forward=tf.tanh, device="CPU:0")[mode].status is Status.PASSED


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


LARGE = {
    "whole": (tf.cumsum, 800, "probe"),
    "of independent classes": (lambda x: x, 2000, "central"),
}


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
