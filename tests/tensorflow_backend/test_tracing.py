"""What a run makes of what it traces: control flow, wrong counts, what is kept from an earlier trace."""

from __future__ import annotations

import re

import pytest
import tensorflow as tf

from gradcheck_cli.results import Status

X = {"inputs": {"x": {"shape": [3]}}}


def test_a_dynamic_gradient_of_another_shape_is_found_as_it_runs(run):
    def gradient(upstream):
        return tf.boolean_mask(2 * upstream, upstream > -(10.0**9))[
            : tf.cast(tf.size(upstream), tf.int32) - 1
        ]

    @tf.custom_gradient
    def forward(x):
        return x * 2, gradient

    result = run(forward=forward, **X)
    (pair,) = result.pairs
    assert pair.status is Status.MISMATCHED
    assert (
        pair.message == "the gradient for x must have shape [3], as its input has, but has [2] when it runs."
    )


SCALE = tf.Variable(2.0, dtype=tf.float64)


def with_variables(returns):
    @tf.custom_gradient
    def forward(x):
        def grad(upstream, variables=None):
            return returns(upstream)

        return x * SCALE, grad

    return forward


def without_variables(returns):
    return tf.custom_gradient(lambda x: (2 * x, returns))


def of_two(returns):
    return lambda x: tf.custom_gradient(lambda a, b: (a * b, returns))(x, x)


ONE = "must return 1 gradient, one (or None) for each argument, but returned 2."
VARIABLE = "must return (gradients of its arguments, [gradients of its 1 variable]), but returned "


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize(
    ("make", "returns", "said"),
    [
        (without_variables, lambda u: (u, u), ONE),
        (of_two, lambda u: u, "must return 2 gradients, one (or None) for each argument, but returned 1."),
        (with_variables, lambda u: ([u, u], [u]), ONE),
        (with_variables, lambda u: u, VARIABLE + "1 value."),
        (with_variables, lambda u: (u, [u], u), VARIABLE + "3 values."),
        (with_variables, lambda u: (u, []), VARIABLE + "0 gradients of variables."),
        (with_variables, lambda u: (u, u), VARIABLE + "no list of those of variables."),
    ],
)
def test_a_wrong_count_of_gradients_says_both_counts_and_the_line(run, mode, make, returns, said):
    result = run(forward=make(returns), modes=[mode], inputs={"x": {"shape": [2]}})
    assert (result.status, result.error.kind) == (Status.ERROR, "gradient_count")
    message = result.error.message
    assert re.match(r"a custom gradient at \S+test_tracing.py:\d+ ", message), message
    assert said in message
    assert "TensorFlow's own code" not in message


def test_a_type_without_a_registered_gradient_says_what_to_do(run):
    result = run(
        forward=lambda x: tf.raw_ops.IgammaGradA(a=x, x=x), inputs={"x": {"value": 0.5, "shape": [2]}}
    )
    assert (result.status, result.error.kind) == (Status.ERROR, "gradient")
    assert "IgammaGradA" in result.error.message
    assert result.error.message.endswith(
        "Register one with tf.RegisterGradient, or give the spec a 'gradient'."
    )


KEPT = []


def keeps_a_tensor(op, upstream):
    KEPT.append(op.inputs[0])
    return 2 * KEPT[0] * upstream


def test_a_tensor_kept_from_an_earlier_trace_is_said_so(run):
    KEPT.clear()
    result = run(forward=tf.square, gradient=keeps_a_tensor, inputs={"x": {"shape": [2]}}, samples=2)
    assert (result.status, result.error.kind) == (Status.ERROR, "gradient")
    assert "of an earlier trace; don't keep tensors between calls" in result.error.message


def test_a_forward_that_keeps_a_tensor_is_said_so(run):
    kept = []

    def forward(x):
        kept.append(x * 1)
        return x * kept[0]

    result = run(forward=forward, **X)
    assert (result.status, result.error.kind) == (Status.ERROR, "forward")
    assert "'mul:0' of an earlier trace; don't keep tensors between calls" in result.error.message


def kept_by(make):
    """Return a function that makes something on its first call, and keeps it."""
    kept = []

    def forward(x):
        if not kept:
            kept.append(make())
        return x * x * (kept[0](x) if callable(kept[0]) else kept[0])

    return forward


WIDTHS = tf.constant([2.0, 3.0], tf.float64)


def make_table():
    keys = tf.constant([0, 1], tf.int64)
    entries = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([0.5, 1.5], tf.float64))
    table = tf.lookup.StaticHashTable(entries, 0.25)
    return lambda x: table.lookup(tf.cast(tf.sign(x), tf.int64))


@pytest.mark.parametrize("mode", ["graph", "dynamic", "eager"])
@pytest.mark.parametrize(
    "make",
    [
        make_table,
        lambda: tf.constant(3.0, tf.float64),
        lambda: tf.sin(2 * tf.range(2.0, 4.0, dtype=tf.float64)),
        lambda: tf.sin(WIDTHS),
        lambda: tf.Variable([2.0, 3.0], dtype=tf.float64),
    ],
    ids=["table", "constant", "computed", "captured", "variable"],
)
def test_what_a_forward_makes_on_its_first_call_is_kept(run, make, mode):
    result = run(forward=kept_by(make), inputs={"x": {"value": [0.7, -1.3]}}, modes=[mode])
    assert result.status is Status.PASSED, result


def test_numbers_that_a_forward_drew_on_its_first_call_are_not_kept(run):
    result = run(forward=kept_by(lambda: tf.random.normal([2], dtype=tf.float64)), **X)
    assert (result.status, result.error.kind) == (Status.ERROR, "forward")


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["y", "z"], "the forward returns 1 output, but the spec names 2: y, z."),
        ({"y": {"dtype": "float32"}}, "output y of the forward must be float32 by the spec, but is float64."),
        ({"y": {"shape": [4]}}, "output y must have shape [4] by the spec, but has [3]."),
        ({"y": {"shape": [3, 1]}}, "output y must have shape [3, 1] by the spec, but has [3]."),
    ],
)
def test_outputs_are_held_to_the_spec(run, outputs, message):
    result = run(forward=tf.tanh, outputs=outputs, **X)
    assert (result.error.kind, result.error.message) == ("outputs", message)
