"""Variables as inputs: which there are, under which names, and what is found about their gradients."""

from __future__ import annotations

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.results import Status
from gradcheck_cli.running.session import run_case
from gradcheck_cli.spec.case import in_each_mode
from tests.planted.faults_of_modes import affine

GRAPH_AND_EAGER = ["graph", "eager"]
ALL = ["graph", "dynamic", "eager", "xla"]
X = {"x": {"shape": [4, 3]}}


@pytest.fixture
def run_in(case_of):
    """Return a function that checks a spec in modes, and returns the results by mode."""

    def run(modes, **spec):
        cases = in_each_mode([case_of(**{"inputs": X, "variables": True, **spec})], modes)
        return {case.mode: run_case(case) for case in cases}

    return run


def statuses(result):
    return {pair.label: str(pair.status) for pair in result.pairs}


def failed(result):
    return {check.name: check.message for check in result.checks if check.status is not Status.PASSED}


def variable(*values, **settings):
    return tf.Variable(list(values), dtype=tf.float64, **settings)


def closure():
    weight, shift = variable(1.0, 2.0, 0.5, name="weight"), variable(0.25, 0.5, 1.0)
    return lambda x: tf.tanh(weight * x) + shift


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.kernel = variable(1.0, -2.0, 0.5)
        self.inner = [variable(0.5, 0.25, 1.0), variable(2.0, name="own")]

    def __call__(self, x):
        return tf.sin(x * self.kernel) * self.inner[0] + self.inner[1]

    def method(self, x):
        return self(x) * self.kernel


def in_a_loop():
    weight = variable(1.0, 0.5, 0.25, name="weight")

    def forward(x):
        return tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(weight * y)), (0, x), maximum_iterations=3
        )[1]

    return forward


def recomputed():
    return tf.recompute_grad(closure())


def looked_up():
    table = tf.Variable(np.arange(6.0).reshape(3, 2) / 7, name="table")
    return lambda x: tf.nn.embedding_lookup(table, [0, 2, 2]) * x[0, 0]


def complex_weight():
    weight = tf.Variable([1 + 2j, 0.5j], name="weight", dtype=tf.complex128)
    return lambda x: weight * weight * tf.cast(x[0, :2], tf.complex128)


def dense():
    return keras.layers.Dense(2, activation="tanh", dtype="float64")


def two_layers():
    return keras.Sequential([dense(), dense()])


def reads_in_a_loop():
    weight = variable(1.0, 2.0, 0.5, name="weight")
    return lambda x: tf.while_loop(
        lambda _: True,
        lambda y: [tf.cond(tf.reduce_sum(y) > 0, lambda: y * weight, lambda: tf.tanh(y + weight))],
        [x],
        maximum_iterations=3,
    )[0]


FOUND = {
    "a closure": (closure, ["weight", "shift"]),
    "a method": (lambda: Module().method, ["kernel", "inner.0", "own"]),
    "a loop": (in_a_loop, ["weight"]),
    "reads in a branch in a loop": (reads_in_a_loop, ["weight"]),
    "recompute_grad": (recomputed, ["weight", "shift"]),
    "a table": (looked_up, ["table"]),
    "complex": (complex_weight, ["weight"]),
    "a layer": (dense, ["kernel", "bias"]),
    "two layers": (two_layers, ["dense.kernel", "dense.bias", "dense_1.kernel", "dense_1.bias"]),
}


@pytest.mark.on_change("a loop", "complex")
@pytest.mark.parametrize(("make", "names"), FOUND.values(), ids=FOUND)
def test_every_trainable_variable_is_an_input_under_its_name(run_in, make, names):
    results = run_in(GRAPH_AND_EAGER, forward=make, build={})
    expected = {f"dy/d{name}": "passed" for name in ["x", *names]}
    assert {mode: (statuses(result), failed(result)) for mode, result in results.items()} == dict.fromkeys(
        GRAPH_AND_EAGER, (expected, {})
    )


def test_a_layer_has_the_same_names_however_many_were_made_before(run_in):
    dense(), dense()
    assert "dy/ddense_1.kernel" in statuses(run_in(["graph"], forward=two_layers, build={})["graph"])
    name = dense().name
    assert int(name.rpartition("_")[2]) >= 2  # Keras counts on as if nothing had been


def test_a_layers_first_weights_depend_on_the_seed_alone(run_in):
    def value(seed):
        seen = []

        def make():
            layer = dense()
            seen.append(layer)
            return layer

        run_in(["graph"], forward=make, build={}, seed=seed)
        return seen[0].kernel.numpy().tolist()

    assert value(0) == value(0) != value(1)


def test_variables_that_are_not_trainable_or_not_floating_are_no_inputs(run_in):
    weight, count = variable(2.0, name="weight"), tf.Variable(3, name="count")
    fixed = variable(0.5, name="fixed", trainable=False)
    result = run_in(["graph"], forward=lambda x: x * weight * fixed * tf.cast(count, tf.float64))["graph"]
    assert statuses(result) == {"dy/dx": "passed", "dy/dweight": "passed"}


@pytest.mark.parametrize("mode", ALL)
def test_a_forward_without_variables_is_told(run_in, mode):
    result = run_in([mode], forward=tf.tanh)[mode]
    assert (result.error.kind, result.error.message) == (
        "variables",
        "variables: true, but the forward uses no trainable variable of a floating dtype; leave it out.",
    )


# The gradients that a custom gradient has for variables.


by_name, by_position, one_wrong = (
    partial(affine, gradients) for gradients in ("by_name", "by_position", "one_wrong")
)


@pytest.mark.on_change("dynamic", "eager")
@pytest.mark.parametrize("mode", ALL)
def test_gradients_for_variables_by_name_and_by_position(run_in, mode):
    all_pass = {"dy/dx": "passed", "dy/dscale": "passed", "dy/dshift": "passed"}
    right, wrong, by_place = (
        run_in([mode], forward=forward, build={})[mode] for forward in (by_name, one_wrong, by_position)
    )
    assert (statuses(right), failed(right)) == (all_pass, {})
    assert "variables_order" in {check.name for check in right.checks}
    assert statuses(wrong) == {**all_pass, "dy/dshift": "mismatched"}
    assert (statuses(by_place), list(failed(by_place))) == (all_pass, ["variables_order"])
    assert failed(by_place)["variables_order"].endswith(
        "pair gradients with variables by name, not by position: TensorFlow promises no order of variables=."
    )
    assert by_place.status is Status.MISMATCHED


def test_an_order_that_changes_the_shapes_is_found(run_in):
    def make():
        scale, shift = variable(1.0, 2.0, 0.5, name="scale"), variable(0.1, name="shift")

        @tf.custom_gradient
        def forward(x):
            def gradient(upstream, variables=None):
                assert len(variables) == 2
                return upstream * scale, [
                    tf.reduce_sum(upstream * x, axis=0),
                    tf.reshape(tf.reduce_sum(upstream), [1]),
                ]

            return x * scale + shift, gradient

        return forward

    for result in run_in(GRAPH_AND_EAGER, forward=make, build={}).values():
        assert list(failed(result)) == ["variables_order"]


def test_the_check_can_be_turned_off(run_in):
    result = run_in(["graph"], forward=by_position, build={}, checks={"variables_order": False})["graph"]
    assert result.status is Status.PASSED


@pytest.mark.parametrize("mode", ALL)
def test_gradients_for_variables_that_were_not_checked_are_told(run_in, mode):
    result = run_in([mode], forward=one_wrong, build={}, variables=False)[mode]
    assert result.status is Status.PASSED
    assert failed(result) == {
        "variables": "the gradients that a custom gradient has for variables (scale, shift) weren't checked; "
        "say 'variables: true' to check them."
    }


@pytest.mark.on_change("closure")
@pytest.mark.parametrize("make", [closure, recomputed, dense])
def test_tensorflows_own_gradients_for_variables_are_no_matter_for_a_notice(run_in, make):
    for result in run_in(GRAPH_AND_EAGER, forward=make, build={}, variables=False).values():
        assert failed(result) == {}


# State.


@pytest.mark.on_change("graph", "eager")
@pytest.mark.parametrize("mode", ALL)
def test_batch_statistics_are_put_back(run_in, mode):
    layers = []

    def make():
        layer = keras.layers.BatchNormalization(dtype="float64")
        layers.append(layer)
        return lambda x: layer(x, training=True)

    result = run_in([mode], forward=make, build={})[mode]
    assert statuses(result) == dict.fromkeys(["dy/dx", "dy/dgamma", "dy/dbeta"], "passed")
    assert layers[0].moving_mean.numpy().tolist() == [0.0] * 3
    assert layers[0].moving_variance.numpy().tolist() == [1.0] * 3


@pytest.mark.parametrize("mode", GRAPH_AND_EAGER)
def test_a_variable_that_is_written_and_read_again_is_an_error_in_words(run_in, mode):
    weight = variable(2.0, name="weight")

    def forward(x):
        weight.assign(weight * 2.0)
        return x * weight

    result = run_in([mode], forward=forward)[mode]
    assert result.error.kind == "variables"
    assert result.error.message.startswith(
        "the forward writes to weight: if it reads that again, the gradient"
    )
    assert weight.numpy().tolist() == [2.0]


def test_modes_that_use_other_variables_are_told(run_in):
    first, second = variable(2.0, name="first"), variable(2.0, name="second")
    results = run_in(GRAPH_AND_EAGER, forward=lambda x: x * (first if tf.executing_eagerly() else second))
    assert failed(results["eager"])["modes"] == (
        "the forward uses other variables in each mode: the inputs are x, second in mode graph, x, first in "
        "mode eager."
    )
