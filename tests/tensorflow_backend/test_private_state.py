"""What is relied on of TensorFlow about state: which ops write, and in which order a graph's ops run."""

from __future__ import annotations

import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private import private_graphs, private_state
from gradcheck_cli.tensorflow_backend.traces.state import State, find_written, restoring_call


@pytest.fixture
def count():
    return tf.Variable(1.0)


def traced(forward, *, in_order=True):
    def call(x):
        order = private_state.Order(tf.compat.v1.get_default_graph()) if in_order else None
        result = tf.identity(forward(x))
        if order is not None:
            order.add()
        return result

    return tf.compat.v1.wrap_function(call, [tf.TensorSpec([], tf.float32)])


def run(function, value=3.0):
    return tf.nest.flatten(private_graphs.call_flat(function, [tf.constant(value)]))[0].numpy()


@pytest.mark.parametrize(
    ("op_type", "is_write"),
    {
        "AssignVariableOp": True,
        "ResourceScatterAdd": True,
        "LookupTableInsertV2": True,
        "RngReadAndSkip": True,
        "ReadVariableOp": False,
        "ResourceGather": False,
        "LookupTableFindV2": False,
        "StatefulPartitionedCall": False,
        "While": False,
        "MatMul": False,
    }.items(),
)
def test_ops_that_write_are_known(op_type, is_write):
    assert private_state.is_write(op_type) is is_write


def test_wrap_function_alone_orders_nothing(count):
    def forward(x):
        count.assign_add(1.0)
        return x * count

    functions = [traced(forward, in_order=in_order) for in_order in (False, True)]
    reads = [
        [op for op in function.graph.get_operations() if op.type == "ReadVariableOp"][-1]
        for function in functions
    ]
    assert [[before.type for before in op.control_inputs] for op in reads] == [[], ["AssignAddVariableOp"]]
    assert run(functions[1]) == 6.0
    assert count.numpy() == 2.0


def test_a_write_comes_after_earlier_reads(count):
    def forward(x):
        before = count + 0.0
        count.assign(x)
        return 10.0 * before + count

    assert run(traced(forward)) == 13.0


def test_bodies_of_branches_are_in_order(count):
    def forward(x):
        def branch():
            count.assign_add(1.0)
            return x * count

        return tf.cond(x > 0.0, branch, lambda: x)

    assert run(traced(forward)) == 6.0


def test_python_is_called_in_order():
    seen = []

    def forward(x):
        tf.numpy_function(lambda value: seen.append("first") or value, [x], tf.float32)
        return tf.numpy_function(lambda value: seen.append("second") or value, [x], tf.float32)

    function = traced(forward)
    seen.clear()
    run(function)
    assert seen == ["first", "second"]


def test_python_inside_a_function_counts(count):
    @tf.function
    def inner(x):
        return tf.numpy_function(lambda value: value, [x], tf.float32)

    @tf.function
    def other(x):
        count.assign_add(x)
        return x

    graph = traced(lambda x: inner(x) + other(x)).graph
    calls = [op for op in graph.get_operations() if op.type == "StatefulPartitionedCall"]
    assert [private_state.calls_python(op) for op in calls] == [True, False]


@pytest.mark.parametrize("has_python", [True, False])
def test_python_inside_a_defun_counts(has_python):
    def body(x):
        value = tf.numpy_function(lambda value: value, [x], tf.float32) if has_python else tf.identity(x)
        return tf.ensure_shape(value, [])

    name = f"defun_{has_python}"
    graph = traced(lambda x: private_graphs.call_defun(name, body, None, [x])).graph
    assert any(map(private_state.calls_python, graph.get_operations())) is has_python


def test_what_is_written_is_found_and_put_back(count):
    other = tf.Variable(5.0)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default_value=0.0)

    def forward(x):
        table.insert(tf.constant([1], tf.int64), [x])
        count.assign_add(table.lookup(tf.constant([1], tf.int64))[0])
        return count * other

    function = traced(forward)
    assert {id(resource.handle) for resource in find_written(function)} == {
        id(count.handle),
        id(table.resource_handle),
    }
    results = [tf.nest.flatten(restoring_call(function)([tf.constant(3.0)]))[0].numpy() for _ in range(2)]
    assert results == [20.0, 20.0]
    assert (count.numpy(), table.size().numpy()) == (1.0, 0)


def test_state_is_restored_at_the_end(count):
    state = State()
    (resource,) = find_written(traced(count.assign_add))
    with state.restore_at_end():
        state.record(resource)
        count.assign(7.0)
        state.record(resource)
    assert count.numpy() == 1.0
    assert resource.handle not in state
