"""What is relied on of TensorFlow's private parts where it runs eagerly."""

from __future__ import annotations

import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.graph.second_order import IS_BACKPROPAGATION
from gradcheck_cli.tensorflow_backend.modes import private_eager
from gradcheck_cli.tensorflow_backend.private import private_state


@pytest.fixture
def x():
    return tf.constant([1.0, 2.0])


def test_ops_that_run_are_observed_with_what_comes_out(x):
    seen = []
    with private_eager.observe_ops(lambda *step: seen.append(step)):
        y = tf.tanh(x)
    tf.exp(x)
    ((op_type, outputs),) = seen
    assert op_type == "Tanh"
    assert [id(tensor) for tensor in outputs] == [id(y)]


def test_functions_are_run_op_by_op_and_only_within(x):
    function = tf.function(tf.tanh)
    function(x)
    seen = []
    with private_eager.observe_ops(lambda op_type, *_: seen.append(op_type)):
        with private_eager.run_functions_eagerly():
            function(x)
        assert seen == ["Tanh"]
        function(x)
    assert "Tanh" not in seen[1:]


def test_the_seed_is_given_back():
    tf.random.set_seed(3)
    expected = tf.random.uniform([]).numpy()
    tf.random.set_seed(3)
    with private_state.restore_seed():
        tf.random.set_seed(9)
        tf.random.uniform([])
    assert tf.random.uniform([]).numpy() == expected


def test_draws_are_the_same_after_the_same_seed(x):
    layer = tf.function(lambda x: tf.nn.dropout(x, 0.5))
    with private_state.restore_seed():
        draws = []
        for _ in range(2):
            tf.random.set_seed(5)
            draws.append(
                [tf.random.normal([3]).numpy().tolist(), tf.random.normal([3], seed=1).numpy().tolist()]
            )
            layer(x)
    assert draws[0] == draws[1]


def test_stop_gradients_are_replaced_and_told_whether_backpropagation_meets_them(x):
    @tf.custom_gradient
    def stepped_over(x):
        return tf.stop_gradient(x), lambda upstream: upstream

    met = []

    def replace(value, is_met):
        met.append(is_met)
        return value + 1

    recomputed = tf.recompute_grad(lambda x: tf.stop_gradient(x))  # noqa: PLW0108 (a Python function)
    with private_eager.replace_stop_gradients(replace):
        values = [function(x).numpy().tolist() for function in (tf.stop_gradient, stepped_over, recomputed)]
    assert met == [True, False, True]
    assert values == [[2.0, 3.0]] * 3
    assert tf.stop_gradient(x).numpy().tolist() == [1.0, 2.0]


WRITES = {
    "assign": lambda variable: variable.assign([3.0, 3.0]),
    "assign_add": lambda variable: variable.assign_add([1.0, 1.0]),
    "assign_sub": lambda variable: variable.assign_sub([1.0, 1.0]),
    "scatter_nd_update": lambda variable: variable.scatter_nd_update([[0]], [7.0]),
    "in a function": lambda variable: tf.function(lambda: variable.assign_add([1.0, 1.0]))(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_are_noted_before_they_happen(write):
    variable = tf.Variable([1.0, 2.0])
    noted = []
    with (
        private_eager.run_functions_eagerly(),
        private_eager.note_writes(
            lambda handle, dtypes: noted.append(
                (handle is variable.handle, dtypes, variable.numpy().tolist())
            )
        ),
    ):
        write(variable)
    assert noted
    assert noted[0] == (True, (tf.float32,), [1.0, 2.0])
    before = len(noted)
    write(variable)
    assert len(noted) == before


def test_writes_to_a_table_are_noted_before_they_happen():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default_value=0.0)
    noted = []
    with private_eager.note_writes(lambda *what: noted.append((*what, table.size().numpy()))):
        table.insert(tf.constant([1], tf.int64), [2.0])
        table.remove(tf.constant([1], tf.int64))
    handle = table.resource_handle
    assert noted == [(handle, (tf.int64, tf.float32), 0), (handle, (tf.int64, tf.float32), 1)]


def test_draws_of_a_generator_are_noted_before_they_happen():
    generator = tf.random.Generator.from_seed(1)
    before, noted = generator.state.numpy().tolist(), []
    with private_eager.note_writes(lambda *what: noted.append((*what, generator.state.numpy().tolist()))):
        generator.normal([2])
    assert noted == [(generator.state.handle, (tf.int64,), before)]
    assert generator.state.numpy().tolist() != before


@tf.custom_gradient
def tripled(x):
    return 3.0 * tf.stop_gradient(x), lambda upstream: 7.0 * tf.stop_gradient(upstream)


def test_custom_gradients_are_noted_but_not_recompute_grads():
    noted = []
    with private_eager.replace_stop_gradients(lambda value, _: value, lambda _: noted.append(1)):
        tripled(tf.constant(1.0))
        tf.recompute_grad(tf.sin)(tf.constant(1.0))
    assert noted == [1]


def test_stop_gradients_of_backpropagation_count_as_not_met():
    met = []
    x = tf.constant(2.0)
    with private_eager.replace_stop_gradients(lambda value, is_met: met.append(is_met) or value):
        tf.stop_gradient(x)
        token = IS_BACKPROPAGATION.set(True)
        tf.stop_gradient(x)
        IS_BACKPROPAGATION.reset(token)
    assert met == [True, False]
