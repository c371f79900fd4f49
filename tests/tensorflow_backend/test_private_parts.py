"""What is relied on as a part of a traced graph is made a function: a new TensorFlow breaks it here."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import subgraph_function

X = np.array([0.5, 2.0])


def traced(function, count=1):
    """Trace a function of tensors; return it and what it has kept of its graph's tensors."""
    kept = {}

    def outer(*tensors):
        kept["inputs"] = tensors
        return function(kept, *tensors)

    return tf.compat.v1.wrap_function(outer, [tf.TensorSpec([2], tf.float64)] * count), kept


def values(function, *arguments):
    found = private_graphs.call_flat(function, [tf.constant(argument) for argument in arguments])
    return [value.numpy() for value in tf.nest.flatten(found)]


def types(function):
    return {op.type for op in function.graph.get_operations()} - {"Placeholder"}


def two_outputs(kept, x, u, v):
    kept["squares"], kept["cubes"] = x * x, tf.exp(x)
    kept["of_squares"] = tf.gradients(kept["squares"], x, u)[0]
    kept["of_cubes"] = tf.gradients(kept["cubes"], x, v)[0]
    return tf.identity(x)


def test_a_part_has_the_ops_that_its_outputs_need_and_no_others():
    whole, kept = traced(two_outputs, 3)
    x, u, v = kept["inputs"]
    first, second = (
        subgraph_function(whole, [x, u], [kept["of_squares"]]),
        subgraph_function(whole, [x, v], [kept["of_cubes"]]),
    )
    np.testing.assert_allclose(values(first, X, np.ones(2)), [2 * X])
    np.testing.assert_allclose(values(second, X, np.ones(2)), [np.exp(X)])
    assert "Exp" in types(second)
    assert "Exp" not in types(first)
    assert [tensor.shape for tensor in first.outputs] == [[2]]


def test_an_output_may_be_an_input():
    whole, kept = traced(lambda _, x: x * 2)
    part = subgraph_function(whole, kept["inputs"], kept["inputs"])
    np.testing.assert_array_equal(values(part, X), [X])


def test_what_is_fed_in_isnt_computed():
    def draws(kept, x):
        kept["draw"] = tf.random.uniform([2], dtype=tf.float64)
        return x * kept["draw"]

    whole, kept = traced(draws)
    part = subgraph_function(whole, [*kept["inputs"], kept["draw"]], whole.outputs)
    np.testing.assert_array_equal(values(part, X, np.array([3.0, 5.0])), [X * [3, 5]])
    assert "RandomUniform" not in types(part)


def test_what_must_run_first_runs_first():
    variable = tf.Variable([1.0, 1.0], dtype=tf.float64)

    def writes(kept, x):
        with tf.control_dependencies([variable.assign_add(x)]):
            kept["read"] = variable.read_value()
        return tf.identity(x)

    whole, kept = traced(writes)
    part = subgraph_function(whole, kept["inputs"], [kept["read"]])
    np.testing.assert_array_equal(values(part, X), [1 + X])
    assert [id(one) for one in part.graph.variables] == [id(variable)]


def test_captures_come_along():
    constant = tf.constant([3.0, 4.0], tf.float64)
    whole, kept = traced(lambda _, x: [x * constant, x])
    part = subgraph_function(whole, kept["inputs"], whole.outputs[:1])
    np.testing.assert_array_equal(values(part, X), [X * [3, 4]])


def loop(_, x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, value: (i + 1, value * x), (0, x))[1]


@pytest.mark.parametrize("function", [loop, lambda _, x: tf.cond(x[0] > 0, lambda: x * x, lambda: -x)])
def test_loops_and_branches(function):
    whole, kept = traced(function)
    part = subgraph_function(whole, kept["inputs"], whole.outputs)
    np.testing.assert_allclose(values(part, X), values(whole, X))


@pytest.mark.parametrize("many", [tf.vectorized_map, tf.map_fn])
def test_a_part_can_be_called_inside_another_graph(many):
    whole, kept = traced(two_outputs, 3)
    x, u, _ = kept["inputs"]
    part = subgraph_function(whole, [x, u], [kept["of_squares"]])

    def all_of(rows):
        return many(lambda row: private_graphs.call_flat(part, [row, tf.ones_like(row)])[0], rows)

    specs = [tf.TensorSpec([None, 2], tf.float64)]
    found = tf.compat.v1.wrap_function(all_of, specs)(tf.constant([X, 3 * X]))
    np.testing.assert_allclose(found, [2 * X, 6 * X])


def test_a_part_can_be_compiled():
    whole, kept = traced(two_outputs, 3)
    part = subgraph_function(whole, kept["inputs"][:2], [kept["of_squares"]])
    compiled = tf.function(lambda *tensors: private_graphs.call_flat(part, tensors), jit_compile=True)
    np.testing.assert_allclose(compiled(tf.constant(X), tf.ones([2], tf.float64)), [2 * X])
