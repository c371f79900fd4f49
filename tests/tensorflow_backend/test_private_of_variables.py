"""What is relied on of TensorFlow's private parts, and of Keras', about variables."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private import private_graphs, private_state


@pytest.fixture
def weights():
    return [tf.Variable([1.0], name=name) for name in ("b", "a", "c")]


def traced(function):
    return tf.compat.v1.wrap_function(function, [tf.TensorSpec([1])])


def test_a_traced_function_tells_its_variables(weights):
    fixed = tf.Variable([1.0], trainable=False)
    function = traced(tf.function(lambda x: x * weights[2] * weights[0] * fixed))
    assert [variable.name for variable in private_state.in_order_of_creation(function.graph.variables)] == [
        "b:0",
        "c:0",
    ]


def test_a_variables_handle_is_captured_as_a_tensor_of_the_graph(weights):
    function = traced(lambda x: x * weights[0])
    inner = private_state.captured_handles(function)[id(weights[0].handle)]
    assert [op.type for op in inner.consumers()] == ["ReadVariableOp"]
    assert id(weights[1].handle) not in private_state.captured_handles(function)


def test_handles_are_found_of_variables_that_are_only_written_to(weights):
    def forward(x):
        weights[0].assign(x)
        return x

    ((handle, _),) = [pair for pair in traced(forward).graph.captures if pair[0].dtype == tf.resource]
    assert handle is weights[0].handle
    assert private_state.dtype_of_variable(handle) == tf.float32


def test_a_table_is_no_variable():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2.0]), 0.0)
    assert private_state.dtype_of_variable(table.resource_handle) is None


def test_a_module_tells_where_its_variables_are(weights):
    module = tf.Module()
    module.first, module.rest = weights[0], {"two": weights[1:]}
    assert private_state.attribute_paths(module) == {
        id(weights[0]): "first",
        id(weights[1]): "rest.two.0",
        id(weights[2]): "rest.two.1",
    }


def test_a_keras_layer_tells_its_variables_paths():
    layer = keras.layers.Dense(2, name="own")
    layer.build((None, 3))
    assert sorted(private_state.keras_paths(layer).values()) == ["own/bias", "own/kernel"]
    assert set(private_state.keras_paths(layer)) == {id(one.value) for one in layer.variables}
    assert private_state.keras_paths(tf.tanh) == {}


def test_keras_names_start_anew_and_go_on():
    before = keras.layers.Dense(2).name
    with private_state.reset_keras_names():
        assert keras.layers.Dense(2).name == "dense"
    after = keras.layers.Dense(2).name
    number = int((before.partition("_")[2]) or 0)
    assert after == f"dense_{number + 1}"


def ordered(weights, seen, *, recompute=False):
    def gradient(upstream, variables=None):
        seen.append([variable.name for variable in variables])
        return upstream, [tf.ones([1]) for _ in variables]

    def forward(x):
        for weight in weights:
            x += weight
        return x

    if recompute:
        return tf.recompute_grad(forward)
    return tf.custom_gradient(lambda x: (forward(x), gradient))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("eager", [False, True])
def test_the_order_of_variables_is_by_name_or_reversed(weights, reverse, eager):
    seen, told = [], []
    function = ordered(weights, seen)

    def note(variables):
        told.append([variable.name for variable in variables])

    def differentiate(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    with private_state.order_of_variables(note, reverse=reverse):
        differentiate(tf.ones([1])) if eager else traced(differentiate)
    names = ["a:0", "b:0", "c:0"]
    assert seen == told == [names[::-1] if reverse else names]
    if not eager:
        return
    with private_state.order_of_variables(note):  # nothing of it is left behind
        pass
    differentiate(tf.ones([1]))
    assert sorted(seen[-1]) == names


def test_recompute_grad_is_not_told_of(weights):
    told = []
    with private_state.order_of_variables(told.append):
        ordered(weights, [], recompute=True)(tf.ones([1]))
    assert told == []


def test_a_graph_tells_a_custom_gradients_variables(weights):
    function = ordered(weights, [])

    def nodes(function):
        graph = traced(function).graph.as_graph_def()
        inner = [node for body in graph.library.function for node in body.node_def]
        return [
            variable.name
            for node in [*graph.node, *inner]
            if (unit := private_graphs.custom_gradient_in(node)) is not None and unit.is_stepped_over
            for variable in unit.variables
        ]

    assert nodes(function) == nodes(tf.function(function)) == ["a:0", "b:0", "c:0"]
    assert nodes(ordered(weights, [], recompute=True)) == []
    assert nodes(tf.tanh) == []


def test_the_order_of_variables_may_be_asked_for_within_itself(weights):
    seen = []
    function = ordered(weights, seen)
    with private_state.order_of_variables(lambda _: None, reverse=True):
        with private_state.order_of_variables(lambda _: None):
            pass
        with tf.GradientTape() as tape:
            y = function(tf.ones([1]))
        tape.gradient(y, weights)
    assert seen == [["c:0", "b:0", "a:0"]]


def test_what_bodies_read_is_read_in_the_graph_around_them(weights):
    def forward(x):
        def body(y):
            return [tf.cond(y[0] > 0, lambda: y * weights[0], lambda: y + weights[0])]

        return tf.while_loop(lambda _: True, body, [x * weights[1]], maximum_iterations=2)[0]

    with private_state.read_outside_bodies() as read:
        function = traced(forward)
    assert [id(handle) for handle in read] == [id(weights[0].handle)]
    inner = private_state.captured_handles(function)
    assert [op.type for op in inner[id(weights[0].handle)].consumers()] == ["ReadVariableOp"]
    value = function(tf.constant([3.0]))
    weights[0].assign([2.0])
    assert (value.numpy(), function(tf.constant([3.0])).numpy()) == ([3.0], [12.0])


def test_a_custom_gradient_in_a_body_is_told_its_variables(weights):
    told = []

    @tf.custom_gradient
    def scale(x):
        def gradient(u, variables):
            told.extend(variables)
            return u * weights[0], [u * x for _ in variables]

        return x * weights[0], gradient

    def forward(x):
        body = lambda y: [scale(y + weights[0])]  # noqa: E731 (it is read before)
        return tf.gradients(tf.while_loop(lambda _: True, body, [x], maximum_iterations=2), [x])

    with private_state.read_outside_bodies():
        traced(forward)
    assert told[0] is weights[0]
