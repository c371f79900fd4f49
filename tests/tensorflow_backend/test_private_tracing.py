"""The private parts of TensorFlow that freezing relies on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private import private_graphs


def graph_of(function, *values, context=None):
    """Trace a function into a graph; return the traced function and its results."""

    def forward(*tensors):
        if context is None:
            return function(*tensors)
        with context:
            return function(*tensors)

    specs = [tf.TensorSpec(np.shape(value), tf.float64) for value in values]
    traced = tf.compat.v1.wrap_function(forward, specs)
    return traced, traced(*[tf.constant(value, tf.float64) for value in values])


def types(traced):
    return {op.type for op in traced.graph.get_operations()}


def doubled(x, times=2):
    return times * x


class Holder:
    @tf.function
    def method(self, x):
        return self.inner(x) + 1

    @tf.function(input_signature=[tf.TensorSpec([], tf.float64), tf.TensorSpec([], tf.float64)])
    def signature(self, x, y):
        return x * y

    @tf.function
    def inner(self, x):
        if x > 0:
            return x * 2
        return x


HOLDER = Holder()
CALLS = [
    tf.function(doubled),
    lambda x: tf.function(doubled)(x, times=2),
    tf.function(tf.function(doubled)),
    tf.function(lambda y: tf.function(doubled)(y) * 1),
    tf.function(doubled, autograph=False),
    lambda x: HOLDER.method(x) - 1,
    HOLDER.inner,
    lambda x: HOLDER.signature(x, 2),
    lambda x: tf.function(lambda y: (y, np.float64(2)))(x)[1] * x,
    lambda x: tf.function(lambda y, z: y * z)(x, np.float64(2)),
]


@pytest.mark.parametrize("function", CALLS)
def test_functions_are_inlined(function):
    plain, expected = graph_of(function, 3.0)
    inlined, found = graph_of(function, 3.0, context=private_graphs.inline_functions())
    assert types(plain) & {"PartitionedCall", "StatefulPartitionedCall"}
    assert not types(inlined) & {"PartitionedCall", "StatefulPartitionedCall"}
    assert float(found) == float(expected) == 6.0


def test_they_are_functions_again_afterwards():
    with private_graphs.inline_functions():
        pass
    assert "PartitionedCall" in types(graph_of(tf.function(doubled), 3.0)[0])


def test_eager_calls_are_left_alone():
    with private_graphs.inline_functions():
        assert float(tf.function(doubled)(tf.constant(3.0))) == 6.0


def test_a_ready_made_function_stays_closed():
    concrete = tf.function(doubled).get_concrete_function(tf.TensorSpec([], tf.float64))
    assert "PartitionedCall" in types(graph_of(concrete, 3.0, context=private_graphs.inline_functions())[0])


def test_no_override_enters_an_inlined_function():
    def forward(x):
        with tf.compat.v1.get_default_graph().gradient_override_map({"Square": "Sign"}):
            return tf.square(x) + tf.function(tf.square)(x)

    traced, _ = graph_of(forward, 3.0, context=private_graphs.inline_functions())
    squares = [op for op in traced.graph.get_operations() if op.type == "Square"]
    assert ["_gradient_op_type" in op.node_def.attr for op in squares] == [True, False]


def test_an_ops_outputs_are_replaced():
    seen = []

    def prepare(op_type, arguments):
        seen.append(op_type)
        return arguments

    def replace(op, outputs):
        return [outputs[0] + 1] if op.type == "Sin" else outputs

    _, found = graph_of(tf.sin, 0.0, context=private_graphs.replace_outputs(prepare, replace))
    assert float(found) == 1.0
    assert "Sin" in seen
    assert float(graph_of(tf.sin, 0.0)[1]) == 0.0


def test_loops_then_run_round_by_round():
    def rounds(node):
        return node.attr["parallel_iterations"].i

    def loop(x):
        return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y + x), (0, x))[1]

    def same(_, outputs):
        return outputs

    kept = private_graphs.replace_outputs(lambda _, arguments: arguments, same)
    for context, expected in ((None, 10), (kept, 1)):
        traced, _ = graph_of(loop, 1.0, context=context)
        (found,) = [op for op in traced.graph.get_operations() if "While" in op.type]
        assert rounds(found.node_def) == expected


def test_bodies_are_told_from_other_graphs():
    seen = {}

    def note(key, x):
        seen[key] = tf.compat.v1.get_default_graph()
        return x

    def forward(x):
        note("outside", x)
        tf.cond(x > 0, lambda: note("branch", x), lambda: x)
        tf.while_loop(lambda i: i < 1, lambda i: note("loop", i) + 1, [0])
        tf.function(lambda y: note("function", y))(x)
        private_graphs.call_defun("defun_of_a_test", lambda y: note("defun", y) + 1, lambda _, u: u, [x])
        return x

    graph_of(forward, 1.0)
    assert {key for key, graph in seen.items() if private_graphs.is_body(graph)} == {
        "branch",
        "loop",
        "defun",
    }
    assert {key for key, graph in seen.items() if private_graphs.is_defun_body(graph)} == {"defun"}


@tf.custom_gradient
def two(x, y):
    return (x * y, x + y, x - y), lambda *upstream: (upstream[0], None)


def test_a_custom_gradients_results_come_first():
    traced, _ = graph_of(lambda x, y: two(x, y)[1], 1.0, 2.0)
    (op,) = [op for op in traced.graph.get_operations() if op.type == "IdentityN"]
    assert private_graphs.custom_gradient_results(op) == 3
    assert len(op.inputs) == 5


def test_recompute_grad_is_no_step_over():
    traced, _ = graph_of(tf.recompute_grad(tf.square), 1.0)
    found = [op for op in traced.graph.get_operations() if op.type == "IdentityN"]
    assert found
    assert {private_graphs.custom_gradient_results(op) for op in found} == {0}


def test_nor_is_an_override_or_any_other_op():
    def forward(x):
        with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": "Identity"}):
            return tf.identity_n([x, tf.sin(x)])[0]

    traced, _ = graph_of(forward, 1.0)
    assert {private_graphs.custom_gradient_results(op) for op in traced.graph.get_operations()} == {0}


@pytest.mark.parametrize(
    ("op_type", "expected"),
    [("RandomGamma", True), ("RandomUniform", False), ("RandomPoissonV2", False), ("Sin", True)],
)
def test_which_ops_have_a_gradient(op_type, expected):
    assert private_graphs.has_gradient(op_type) is expected


def test_a_mark_stays_when_a_function_is_made():
    def branch(x):
        y = tf.sin(x)
        private_graphs.mark(y.op, "_a_mark")
        return y

    traced, _ = graph_of(lambda x: tf.cond(x > 0, lambda: branch(x), lambda: x), 1.0)
    nodes = [node for function in traced.graph.as_graph_def().library.function for node in function.node_def]
    assert ["_a_mark" in node.attr for node in nodes if node.op == "Sin"] == [True]
