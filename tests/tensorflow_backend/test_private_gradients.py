"""Each private part by which a backward pass is followed: a TensorFlow that breaks one says so here."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs


def in_graph(function):
    """Run a function of a scalar while a graph is built; return what it returns."""
    kept = []

    def body(x):
        kept.append(function(x))
        return x

    tf.compat.v1.wrap_function(body, [tf.TensorSpec([], tf.float64)])
    return kept[0]


def logged(function):
    def body(x):
        y = function(x)
        with private_gradients.backward_log() as visits:
            tf.compat.v1.gradients([y], [x])
        return visits

    return in_graph(body)


@tf.custom_gradient
def square(x):
    def square_grad(upstream):
        return 2 * x * upstream

    return x * x, square_grad


@tf.custom_gradient
def by_its_own_gradients(x):
    """A custom gradient that differentiates something in its turn."""
    return tf.sin(x), lambda upstream: upstream * tf.compat.v1.gradients([tf.exp(tf.tanh(x))], [x])[0]


def test_the_log_has_each_op_once_from_the_output_on():
    visits = logged(lambda x: tf.exp(tf.sin(x)))
    assert [visit.op.type for visit in visits] == ["Exp", "Sin"]
    first, second = visits
    assert first.gradients[0] is second.upstreams[0]


def test_the_log_steps_over_a_custom_gradients_forward():
    assert [visit.op.type for visit in logged(lambda x: tf.exp(square(x)))] == ["Exp", "IdentityN"]


def test_what_a_gradient_differentiates_itself_is_not_in_the_log():
    assert [visit.op.type for visit in logged(by_its_own_gradients)] == ["IdentityN"]


def test_what_is_in_a_loops_body_is_not_in_the_log():
    loop = logged(lambda x: tf.while_loop(lambda value: value < 10.0, tf.exp, [x])[0])
    assert [visit.op.type for visit in loop] in (["StatelessWhile"], ["While"])


def test_the_log_ends_with_its_context():
    before = logged(tf.sin)
    in_graph(lambda x: tf.compat.v1.gradients([tf.cos(x)], [x]))
    assert len(before) == 1


def test_an_op_without_a_gradient_is_not_in_the_log():
    assert [visit.op.type for visit in logged(lambda x: tf.exp(tf.stop_gradient(x)))] == ["Exp"]


def test_a_custom_gradients_function_is_the_users():
    op = in_graph(square).op
    assert private_gradients.has_own_gradient(op)
    assert private_gradients.gradient_function(op).__name__ == "square_grad"
    assert private_graphs.custom_gradient_of(op).results == 1


def test_recompute_grad_is_a_custom_gradient_too_but_one_that_is_walked_through():
    op = in_graph(tf.recompute_grad(tf.sin)).op
    assert private_graphs.custom_gradient_of(op).results == 1
    assert private_graphs.custom_gradient_results(op) == 0


def test_an_overridden_ops_function_is_the_registered_one():
    @tf.RegisterGradient("OfATestOfPrivateGradients")
    def registered(op, upstream):
        return tf.cos(op.inputs[0]) * upstream

    def overridden(x):
        with tf.compat.v1.get_default_graph().gradient_override_map({"Sin": "OfATestOfPrivateGradients"}):
            return tf.sin(x)

    op = in_graph(overridden).op
    assert private_gradients.gradient_function(op) is registered
    assert private_gradients.overriding_function("OfATestOfPrivateGradients") is registered
    assert private_gradients.overriding_function("NoSuchName") is None


def test_a_registered_ops_function_and_one_that_has_none():
    assert private_gradients.gradient_function(in_graph(tf.sin).op).__name__ == "_SinGrad"
    assert private_gradients.gradient_function(in_graph(tf.stop_gradient).op) is None
    assert not private_gradients.has_own_gradient(in_graph(tf.sin).op)


def test_a_defuns_function_is_its_python_gradient():
    def its_gradient(op, upstream):
        return tf.cos(op.inputs[0]) * upstream

    def body(y):
        return tf.sin(y)

    def called(x):
        return private_graphs.call_defun("of_a_test_of_private_gradients", body, its_gradient, [x])

    assert private_gradients.gradient_function(in_graph(called).op) is its_gradient


def converted(x):
    if tf.reduce_sum(x) > 0:
        x = tf.sin(x)

    def inner(value):
        return value

    return inner


def test_a_line_that_autograph_made_is_traced_to_its_source():
    inner = in_graph(lambda x: private_graphs.call_with_autograph(converted, [x], {}))
    code = inner.__code__
    assert "__autograph_generated_file" in code.co_filename
    expected = converted.__code__.co_firstlineno + 4
    assert private_gradients.source_place(code.co_filename, code.co_firstlineno) == (__file__, expected)


def test_other_lines_are_left_alone():
    assert private_gradients.source_place(__file__, 3) is None
    assert private_gradients.source_place("__autograph_generated_file_of_nobody.py", 3) is None


def counted(function, anew=contextlib.nullcontext):
    """Return the gradients that are called for a function, in a graph."""

    def body(x):
        y = function(x)
        seen = Counter()
        with private_gradients.count_gradients(seen), anew():
            tf.compat.v1.gradients([y], [x])
        return dict(seen)

    return in_graph(body)


def test_each_call_of_a_registered_gradient_is_counted():
    assert counted(lambda x: tf.exp(tf.sin(tf.sin(x)))) == {"Exp": 1, "Sin": 2}


@pytest.mark.parametrize(
    ("function", "seen"),
    [
        (lambda x: tf.while_loop(lambda v: v < 10.0, tf.exp, [x])[0], {"StatelessWhile": 1, "Exp": 1}),
        (lambda x: tf.cond(x > 0, lambda: tf.exp(x), lambda: x), {"StatelessIf": 1, "Exp": 1}),
        (
            lambda x: tf.switch_case(tf.constant(0), [lambda: tf.exp(x), lambda: x]),
            {"StatelessCase": 1, "Exp": 1},
        ),
        (tf.function(tf.exp), {"Exp": 1}),
        (tf.function(tf.function(tf.exp), jit_compile=True), {"Exp": 1}),
    ],
)
def test_what_is_differentiated_in_bodies_is_counted(function, seen):
    found = counted(function)
    assert {name: found.get(name) for name in seen} == seen


def test_names_that_are_made_at_run_time_are_not_counted():
    assert counted(square) == {}
    assert "Sin" not in counted(lambda x: tf.stop_gradient(tf.sin(x)) * x)


def test_an_override_counts_under_its_own_name():
    @tf.RegisterGradient("CountedInATestOfPrivateGradients")
    def _(op, upstream):
        return tf.cos(op.inputs[0]) * upstream

    def overridden(x):
        with tf.compat.v1.get_default_graph().gradient_override_map(
            {"Sin": "CountedInATestOfPrivateGradients"}
        ):
            return tf.sin(x)

    assert counted(overridden) == {"CountedInATestOfPrivateGradients": 1}


def test_gradients_under_a_tape_are_counted():
    x, seen = tf.constant(1.0), Counter()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.exp(tf.sin(x))
    with private_gradients.count_gradients(seen):
        tape.gradient(y, x)
    assert seen == {"Exp": 1, "Sin": 1}


def test_nothing_is_counted_afterwards():
    seen = Counter()
    with private_gradients.count_gradients(seen):
        pass
    logged(tf.sin)
    assert not seen


@pytest.mark.parametrize("ready_made", [False, True])
def test_a_functions_gradient_is_built_once_but_can_be_built_anew(ready_made):
    function = tf.function(tf.exp)
    if ready_made:
        function = function.get_concrete_function(tf.TensorSpec([], tf.float64))
    assert counted(function)["Exp"] == 1
    assert "Exp" not in counted(function)
    assert counted(function, private_gradients.differentiate_functions_anew)["Exp"] == 1
    assert "Exp" not in counted(function)


def test_registered_gradients_are_listed_and_found():
    names = private_gradients.names_of_gradients()
    assert "MatMul" in names
    assert private_graphs.registered_gradient("MatMul").__name__ == "_MatMulGrad"
    assert private_graphs.registered_gradient("Floor") is not None
    assert private_graphs.registered_gradient("Shape") is None  # not differentiable


def test_what_custom_gradient_returns_is_known():
    assert private_gradients.custom_gradient_under(tf.custom_gradient(lambda x: (x, lambda u: u)))
    assert private_gradients.custom_gradient_under(tf.identity) is None
