"""What is relied on of TensorFlow's private parts for code of TensorFlow 1."""

from __future__ import annotations

import pytest
import tensorflow as tf
from tensorflow.python.framework import function

from gradcheck_cli.features.tensorflow1 import private_v1
from gradcheck_cli.tensorflow_backend.graph_view import value_of

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _as_before():
    switches, scene = private_v1.switches(), private_v1.scene()
    yield
    private_v1.set_switches(switches)
    private_v1.set_scene(scene)


def test_tensorflow_2_starts_with_the_switches_that_are_our_own():
    assert private_v1.switches() == private_v1.OWN


SWITCHED = [
    (
        v1.disable_v2_behavior,
        {"v2", "eager", "tensor_shape", "resource_variables", "tensor_equality", "control_flow"},
    ),
    (v1.disable_eager_execution, {"eager"}),
    (v1.disable_v2_tensorshape, {"tensor_shape"}),
    (v1.disable_resource_variables, {"resource_variables"}),
    (v1.disable_tensor_equality, {"tensor_equality"}),
    (v1.disable_control_flow_v2, {"control_flow"}),
    (lambda: tf.config.run_functions_eagerly(run_eagerly=True), {"functions_eagerly"}),
]


@pytest.mark.parametrize(
    ("switch", "names"), SWITCHED, ids=["-".join(sorted(names)) for _, names in SWITCHED]
)
def test_each_switch_is_seen_and_put_back(switch, names):
    scene = private_v1.scene()
    switch()
    now = private_v1.switches()
    assert {name for name, value in now.items() if value != private_v1.OWN[name]} == names
    private_v1.set_switches(private_v1.OWN)
    private_v1.set_scene(scene)
    assert private_v1.switches() == private_v1.OWN
    tensor = tf.constant([1.0])
    assert tf.executing_eagerly()
    assert (tensor.shape[0], type(tensor.shape[0])) == (1, int)
    assert bool(tensor == tensor)  # noqa: PLR0124 (by value, and not by identity)
    assert tf.data.Dataset is v1.data.Dataset.__base__ or tf.data.Dataset.__name__ == "DatasetV2"


def test_a_scene_is_left_though_its_contexts_stay_open():
    before = private_v1.scene()
    v1.disable_eager_execution()
    session = v1.InteractiveSession()
    with session.graph.as_default():
        v1.placeholder(tf.float32)
    assert private_v1.scene() != before
    private_v1.set_switches(private_v1.OWN)
    private_v1.set_scene(before)
    assert tf.executing_eagerly()
    assert v1.get_default_session() is None

    @tf.function
    def lifted():
        with tf.init_scope():
            assert tf.executing_eagerly()
        return tf.constant(1.0)

    assert lifted().numpy() == 1
    session._closed = True


def test_a_session_is_the_default_where_its_scene_is_entered():
    v1.disable_eager_execution()
    session = v1.InteractiveSession()
    after = private_v1.scene()
    private_v1.set_switches(private_v1.OWN)
    private_v1.set_scene(private_v1.own_scene())
    private_v1.set_scene(private_v1.graph_scene(after))
    assert not tf.executing_eagerly()
    assert v1.get_default_session() is session
    assert v1.get_default_graph() is session.graph
    session._closed = True


def traced(body):
    return v1.wrap_function(body, [tf.TensorSpec([3])])


def test_a_tensor_of_a_plain_graph_is_captured_as_its_value():
    with tf.Graph().as_default():
        outer = tf.constant([1.0, 2.0, 3.0])
    with private_v1.capture_values(lambda _: tf.constant([5.0, 5.0, 5.0])):
        function = traced(lambda x: tf.cond(x[0] > 0, lambda: x * outer, lambda: x))
    assert function(tf.ones(3)).numpy().tolist() == [5, 5, 5]


@tf.RegisterGradient("OfPrivateV1")
def _wrong(op, upstream):
    return 7 * upstream * op.inputs[0]


def test_a_modules_graph_stands_for_the_one_that_is_traced():
    graph = tf.Graph()

    def forward_and_gradient(x):
        with graph.as_default(), graph.gradient_override_map({"Square": "OfPrivateV1"}):
            return v1.gradients(tf.square(x), x)

    with private_v1.redirect_default_graph(graph):
        assert traced(forward_and_gradient)(tf.ones(3))[0].numpy().tolist() == [7, 7, 7]
        with graph.as_default():  # out of a trace it is itself
            assert v1.get_default_graph() is graph


def test_a_name_that_each_trace_registers_is_each_traces_own():
    def forward_and_gradient(factor):
        def body(x):
            tf.RegisterGradient("EachTraceOfPrivateV1")(lambda op, upstream: factor * upstream * op.inputs[0])
            with v1.get_default_graph().gradient_override_map({"Square": "EachTraceOfPrivateV1"}):
                return v1.gradients(tf.square(x), x)

        return body

    for factor in (3.0, 5.0):
        with private_v1.register_anew():
            function = traced(forward_and_gradient(factor))
        assert function(tf.ones(3))[0].numpy().tolist() == [factor] * 3
    with pytest.raises(KeyError), private_v1.register_anew():
        tf.RegisterGradient("Square")(lambda _, upstream: upstream)  # an op type's own is no name of theirs


@pytest.mark.parametrize(("inherits", "expected"), [(False, 2), (True, 7)])
def test_a_branch_takes_overrides_only_where_it_is_let(inherits, expected):
    def forward_and_gradient(x):
        with v1.get_default_graph().gradient_override_map({"Square": "OfPrivateV1"}):
            y = tf.cond(x[0] > 0, lambda: tf.square(x), lambda: x)
        return v1.gradients(y, x)

    if inherits:
        with private_v1.pass_overrides_to_bodies():
            traced_function = traced(forward_and_gradient)
    else:
        traced_function = traced(forward_and_gradient)
    assert traced_function(tf.ones(3))[0].numpy().tolist() == [expected] * 3


def test_the_gradient_of_a_defun_is_built_op_by_op():
    @function.Defun(tf.float32, tf.float32)
    def gradient(x, upstream):
        return 9.0 * x * upstream

    @function.Defun(tf.float32, grad_func=gradient)
    def with_own(x):
        return x * x

    @function.Defun(tf.float32)
    def without(x):
        return x * x * x

    for defined, expected in ((with_own, 9), (without, 3)):
        with private_v1.differentiate_defuns():
            whole = traced(lambda x, defined=defined: v1.gradients(defined(x), x))
        assert whole(tf.ones(3))[0].numpy().tolist() == [expected] * 3


def test_a_tensor_of_a_function_that_is_being_traced_has_a_value():
    seen = []

    def body(x):
        drawn = tf.constant([2.0]) * 3
        assert private_v1.is_function_tensor(drawn)
        seen.append(value_of(drawn).numpy().tolist())
        return x

    traced(body)
    assert seen == [[6.0]]
    assert not private_v1.is_function_tensor(tf.constant(1.0))


def test_a_new_session_has_variables_at_their_initial_values():
    graph = tf.Graph()
    with graph.as_default():
        first = v1.get_variable("first", initializer=[1.0, 2.0], use_resource=False)
        second = v1.get_variable("second", initializer=lambda: first * 2, use_resource=True)
        read = second + 0.0
    assert private_v1.new_session(graph).run(read).tolist() == [2, 4]
    assert private_v1.variable_of_handle(second.handle) is second
    assert private_v1.is_session(private_v1.new_session(graph))
    assert not private_v1.is_session(graph)
