"""Op types whose own gradient must be seen to run: in each mode, wherever in the forward the op is."""

from __future__ import annotations

import pytest
import tensorflow as tf

X = {"x": {"shape": [2, 2]}}
SHARED = tf.function(lambda x: tf.matmul(x, x))


def in_a_branch(x):
    return tf.cond(tf.reduce_sum(x) > -1e9, lambda: tf.matmul(x, x), lambda: x)


def in_a_loop(x):
    return tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, tf.matmul(v, v)), [0, x])[1]


def in_a_function(x):
    return SHARED(x) + x


def of_a_constant(x):
    """Uses the op on what doesn't depend on the input."""
    return tf.reduce_sum(tf.matmul(tf.ones([2, 2], x.dtype), tf.ones([2, 2], x.dtype))) * x


def differentiated_in_the_forward(x):
    """Runs the op's gradient, but not in the backward pass."""
    y = tf.matmul(tf.ones([2, 2], x.dtype), x)
    return x * tf.stop_gradient(tf.gradients(y, x)[0])


@tf.custom_gradient
def under_another_gradient(x):
    return tf.matmul(x, x), lambda u: u @ tf.transpose(x) + tf.transpose(x) @ u


@pytest.mark.on_change("in_a_loop-eager", "in_a_function-dynamic")
@pytest.mark.parametrize("mode", ["graph", "dynamic", "eager"])
@pytest.mark.parametrize("forward", [in_a_branch, in_a_loop, in_a_function])
def test_an_op_is_seen_wherever_it_is(run, forward, mode):
    for _ in range(2):  # a function's gradient is built once in a process
        found = run(forward=forward, inputs=X, covers=["MatMul"], modes=[mode])
        assert str(found.status) == "passed", found
        assert found.seen.gradients_seen["MatMul"] >= 1


@pytest.mark.parametrize(
    ("forward", "seen"),
    [
        (of_a_constant, "those seen were Mul"),
        (differentiated_in_the_forward, "those seen were Mul"),
        (under_another_gradient, "none was seen"),
    ],
)
def test_an_op_whose_gradient_does_not_run_is_an_error(run, forward, seen):
    assert str(run(forward=forward, inputs=X).status) == "passed"
    found = run(forward=forward, inputs=X, covers=["MatMul"])
    assert (str(found.status), found.error.kind) == ("error", "covers")
    assert found.error.message == (
        "the registered gradient of MatMul must be seen to run in the backward pass, but wasn't; "
        f"{seen}. Let the forward use the op, without another gradient in its place, between a "
        "differentiable input and an output, or correct covers."
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MatMull", f"TensorFlow {tf.__version__} has no op type 'MatMull'. Did you mean 'MatMul'?"),
        ("ZerosLike", "ZerosLike is registered as not differentiable: it has no gradient to be seen."),
        ("Where", "Where has no gradient function in TensorFlow's registry."),
    ],
)
def test_what_can_not_be_seen_says_why(run, name, message):
    found = run(forward=tf.tanh, inputs=X, covers=[name])
    assert (found.error.kind, found.error.message) == ("covers", message)


def test_a_case_for_other_versions_is_skipped_with_both(run):
    found = run(op_type="Tanh", inputs=X, tensorflow=">=99")
    (check,) = found.checks
    assert (check.name, str(check.status)) == ("tensorflow", "skipped")
    assert check.message == f"it is for TensorFlow >=99; this is {tf.__version__}."
    assert found.is_for_another_version
    assert str(run(op_type="Tanh", inputs=X, tensorflow=">=2.16").status) == "passed"


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_whose_gradient_runs_is_a_matter_of_the_first_order(run, mode):
    # The second order of a product takes the gradients of other ops.
    inputs = {"a": {"shape": [2, 2]}, "b": {"shape": [2, 2]}}
    found = run(op_type="MatMul", inputs=inputs, second_order=True, modes=[mode])
    assert {pair.order for pair in found.pairs} == {1, 2}
    assert "MatMul" in found.seen.gradients_seen
    assert found.error is None
