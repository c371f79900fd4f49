"""What a backward pass visits, and what flows through it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.tensorflow_backend.backward_walk import Walk
from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, GraphMode

X = {"x": {"value": [0.5, -1.0], "shape": [2]}}
U = np.array([1.0, 2.0])


@pytest.fixture
def walked(case_of):
    """Return a function that walks from the first output to all inputs of a spec."""

    def make(forward, inputs=None, **spec):
        source = CaseOpener(
            GraphMode(), CaseState(case_of(forward=forward, inputs=inputs or X, **spec))
        ).open(Opening())
        return Walk.of(source, 0, source.traced.at.differentiable)

    return make


def types(found):
    return [step.op.type for step in found.steps if not step.passes_on]


@tf.custom_gradient
def square(x):
    return tf.square(x), lambda upstream: 2 * x * upstream


def test_what_flows_in_and_out_of_each_op(walked):
    found = walked(lambda x: tf.exp(tf.sin(x)))
    passes, (gradient,) = found.passes(U)
    assert [one.place.type for one in passes if one.place.type != "Identity"] == ["Exp", "Sin"]
    x = np.array([0.5, -1.0])
    np.testing.assert_allclose(gradient, U * np.exp(np.sin(x)) * np.cos(x))
    (exp, sin) = [one for one in passes if one.place.type != "Identity"]
    assert exp.upstreams[0][0] == 0
    np.testing.assert_allclose(exp.upstreams[0][1], U)
    np.testing.assert_allclose(sin.upstreams[0][1], U * np.exp(np.sin(x)))


def test_a_custom_gradients_arguments_are_counted_from_0(walked):
    passes, _ = walked(lambda x: tf.exp(square(x))).passes(U)
    unit = next(one for one in passes if one.place.type == "IdentityN")
    assert [number for number, _ in unit.gradients] == [0]


def test_a_tf_function_is_walked_through(walked):
    @tf.function
    def inner(x):
        return tf.tanh(square(x))

    assert types(walked(lambda x: tf.exp(inner(x)))) == ["Exp", "Tanh", "IdentityN"]


def test_one_that_writes_to_a_variable_is_opened_too(walked):
    counter = tf.Variable(0.0, dtype=tf.float64)

    @tf.function
    def inner(x):
        counter.assign_add(1.0)
        return tf.tanh(x) * counter

    found = walked(lambda x: tf.exp(inner(x)), checks={"repeat": False, "retrace": False})
    assert types(found) == ["Exp", "Mul", "Tanh"]


def test_a_loop_is_one_op(walked):
    found = walked(lambda x: tf.while_loop(lambda k, _: k < 3, lambda k, y: (k + 1, tf.sin(y)), [0, x])[1])
    assert types(found) in (["StatelessWhile"], ["While"])
    assert found.passes(U)[1][0].shape == (2,)


def test_a_sparse_gradient_is_made_dense(walked):
    table = {"table": {"shape": [3, 2]}}
    found = walked(lambda table: tf.gather(tf.sin(table), [0, 2, 2]), table)
    passes, (gradient,) = found.passes(np.ones((3, 2)))
    gather = next(one for one in passes if one.place.type.startswith(("Gather", "ResourceGather")))
    assert dict(gather.gradients)[0].shape == (3, 2)
    assert gradient.shape == (3, 2)


def test_only_inputs_that_move_are_followed(walked):
    found = walked(lambda x: x * tf.constant([2.0, 3.0], tf.float64))
    (step,) = [step for step in found.steps if step.op.type == "Mul"]
    assert len(step.gradients) == 1


def test_several_outputs_of_an_op_have_an_upstream_each_where_one_flows(walked):
    def forward(x):
        first, second = tf.split(x, 2)
        return tf.exp(first) + second

    (split,) = [step for step in walked(forward).steps if step.op.type == "Split"]
    assert sorted(split.upstreams) == [0, 1]

    (split,) = [step for step in walked(lambda x: tf.split(x, 2)[1]).steps if step.op.type == "Split"]
    assert list(split.upstreams) == [1]


def test_an_op_without_a_gradient_function_ends_the_way_and_is_on_it(walked):
    found = walked(lambda x: tf.exp(tf.floor(x) + tf.sin(x)))
    assert "Floor" in types(found)
    cut = walked(lambda x: tf.exp(tf.numpy_function(np.sin, [x], tf.float64)))
    last = cut.steps[-1]
    assert last.op.type in ("PyFunc", "EagerPyFunc", "PyFuncStateless")
    assert last.gradients == {0: None}
    assert cut.gradients == [None]


def test_a_stop_gradient_is_held_and_no_op_of_the_way(walked):
    found = walked(lambda x: tf.sin(x) * tf.stop_gradient(tf.exp(x)))
    assert types(found) == ["Mul", "Sin"]
    (stop,) = found.held.stops
    moved = found.values({0: np.array([9.0, 9.0])})
    product = moved[id(found.steps[0].op.outputs[0])]
    np.testing.assert_allclose(product, np.sin(9.0) * np.exp([0.5, -1.0]))
    assert stop.op.type == "StopGradient"


def test_a_draw_is_the_cases_own(case_of):
    case = case_of(forward=lambda x: x * tf.random.normal([2], dtype=tf.float64), inputs=X)
    opener = CaseOpener(GraphMode(), CaseState(case))
    source = opener.open(Opening())
    found = Walk.of(source, 0, [0])
    drawn = found.values({})[id(found.steps[-1].op.outputs[0])] / np.array([0.5, -1.0])
    np.testing.assert_allclose(source.base_values[0] / np.array([0.5, -1.0]), drawn)
    np.testing.assert_allclose(found.passes(np.ones(2))[1][0], drawn)
    assert len(found.held.draws) == 1


def test_a_draw_in_a_loop_is_the_cases_own(case_of):
    def forward(x):
        def body(k, y):
            return k + 1, y * tf.random.normal([], dtype=tf.float64)

        return tf.while_loop(lambda k, _: k < 2, body, [0, x], maximum_iterations=2)[1]

    source = CaseOpener(GraphMode(), CaseState(case_of(forward=forward, inputs=X))).open(Opening())
    found = Walk.of(source, 0, [0])
    gradient = found.passes(np.ones(2))[1][0]
    np.testing.assert_allclose(gradient, source.base_values[0] / np.array([0.5, -1.0]))


def test_of_a_float32_case_the_float64_op_can_be_walked(case_of):
    opener = CaseOpener(
        GraphMode(), CaseState(case_of(forward=tf.sin, inputs={"x": {"shape": [2], "dtype": "float32"}}))
    )
    wide = opener.in_float64(opener.open(Opening()))
    found = Walk.of(wide, 0, [0])
    assert found.base[id(found.result)].dtype == np.float64
