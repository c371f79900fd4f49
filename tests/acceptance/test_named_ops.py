"""Which op `blame` names: in half precision, for other upstreams, and behind variables and tokens."""

import sys
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.features.blame.blaming import blame_case
from gradcheck_cli.features.blame.path_blame import exit_code_of
from gradcheck_cli.spec.load import load_mapping

RNG = np.random.default_rng(8)
TABLE = tf.Variable(RNG.normal(size=(5, 3)), dtype=tf.float64, name="table")
W = tf.Variable(RNG.normal(size=(3, 2)), dtype=tf.float64, name="w")
B = tf.Variable([0.5, -0.25], dtype=tf.float64, name="b")
TABLE32 = tf.Variable(RNG.normal(size=(5, 3)), dtype=tf.float32, name="table32")
W32 = tf.Variable(RNG.normal(size=(3, 2)), dtype=tf.float32, name="w32")
X = {"x": {"shape": [4]}}
ROWS = {"x": {"shape": [4, 3]}}
TOKENS = {"t": {"shape": [4], "dtype": "int32", "integers": {"low": 0, "high": 5}}}


def many(count, dtype="bfloat16"):
    """Return inputs whose bias gets the gradients of `count` rows."""
    return {"x": {"shape": [count, 3], "dtype": dtype}, "b": {"shape": [3], "dtype": dtype}}


def square(of_right):
    """Return x^2 with a gradient that is made of an upstream and of the right factor."""

    @tf.custom_gradient
    def squared(x):
        def own_grad(u):
            return of_right(u, 2 * x)

        return x * x, own_grad

    return squared


RIGHT = square(lambda u, factor: u * factor)
DOUBLED = square(lambda u, factor: 2 * u * factor)
CLIPPED = square(lambda u, factor: tf.clip_by_value(u * factor, -100.0, 100.0))
SIGNED = square(lambda u, factor: tf.sign(u) * factor)
POSITIVE = square(lambda u, factor: tf.nn.relu(u) * factor)


def own_bias(total):
    """Return x + b whose gradient for the bias is made by `total`."""

    @tf.custom_gradient
    def biased(x, b):
        return x + b, lambda u: (u, total(u))

    return biased


CUMULATED = own_bias(lambda u: tf.cumsum(u)[-1])
SUMMED = own_bias(lambda u: tf.reduce_sum(u, 0))


def own_dense(factor):
    """Return x w with a gradient for the variable."""

    @tf.custom_gradient
    def dense(x):
        def own_grad(u, variables=None):
            assert len(variables) == 1
            return tf.matmul(u, W, transpose_b=True), [factor * tf.matmul(x, u, transpose_a=True)]

        return tf.matmul(x, W), own_grad

    return dense


def own_lookup(factor):
    """Return rows of the table, with a gradient for it."""

    @tf.custom_gradient
    def lookup(table, tokens):
        of_table = lambda u: factor * tf.math.unsorted_segment_sum(u, tokens, 5)  # noqa: E731 (one line)
        return tf.gather(table, tokens), lambda u: (of_table(u), None)

    return lambda tokens: lookup(TABLE.read_value(), tokens)


def embed(tokens):
    return tf.nn.embedding_lookup(TABLE, tokens)


def embed32(tokens):
    return tf.gather(TABLE32, tokens)


V = {"variables": True}
# name -> forward, inputs, keys
NAMED = {
    "bias of 600 rows in a chain": (
        lambda x, b: tf.sin(tf.nn.bias_add(tf.sin(x), tf.tanh(b))),
        many(600),
        {},
    ),
    "bias of 100 rows": (lambda x, b: tf.nn.bias_add(tf.exp(x), tf.sin(b)), many(100), {}),
    "cumulated": (lambda x, b: CUMULATED(tf.sin(x), tf.sin(b)), many(600), {}),
    "clipped": (lambda x: tf.exp(CLIPPED(tf.sin(x))), X, {}),
    "clipped in float32": (lambda x: tf.exp(CLIPPED(tf.sin(x))), {"x": {**X["x"], "dtype": "float32"}}, {}),
    "its sign": (lambda x: SIGNED(tf.sin(x)), X, {}),
    "its positive part": (lambda x: tf.tanh(POSITIVE(tf.sin(x))), X, {}),
    "one of two": (lambda x: CLIPPED(RIGHT(x)), X, {}),
    "tokens, before a sine": (lambda t: tf.sin(tf.matmul(DOUBLED(embed(t)), W)), TOKENS, V),
    "tokens in float32": (lambda t: tf.matmul(DOUBLED(embed32(t)), W32), TOKENS, V),
    "a table's own gradient": (lambda t: tf.matmul(own_lookup(2.0)(t), W), TOKENS, V),
    "a weight's own gradient": (lambda x: tf.sin(own_dense(2.0)(x)), ROWS, V),
    "an argument and weights": (lambda x: tf.matmul(DOUBLED(x), W) + B, ROWS, V),
    "weights alone": (lambda x: DOUBLED(W) + tf.stop_gradient(x)[:3, :2], ROWS, V),
}
RIGHT_ONES = {
    "a bias in float32": (lambda x, b: tf.sin(tf.nn.bias_add(tf.sin(x), b)), many(600, "float32"), {}),
    "its own sum": (lambda x, b: tf.sin(SUMMED(x, tf.sin(b))), many(200), {}),
    "tokens": (lambda t: tf.sin(RIGHT(tf.matmul(embed(t), W) + B)), TOKENS, V),
    "a table's own gradient": (lambda t: tf.matmul(own_lookup(1.0)(t), W), TOKENS, V),
    "a weight's own gradient": (lambda x: tf.sin(own_dense(1.0)(x)), ROWS, V),
    "a constant branch": (lambda x: tf.where(x > 0, tf.sin(x), 1.0), X, {}),
    "a constant branch, large": (lambda x: tf.where(x > 5, x * 1e6, tf.sin(x)), X, {}),
}


def ask(forward, inputs, keys):
    """Return what `blame` finds, and its exit code."""
    sys.modules["named_ops"] = module = ModuleType("named_ops")
    module.forward = forward
    (case,) = load_mapping({"op": "named", "forward": "named_ops:forward", "inputs": inputs, **keys})
    paths = blame_case(case)
    return paths, exit_code_of(paths)


@pytest.mark.on_change("bias of 100 rows", "clipped in float32", "its sign", "weights alone")
@pytest.mark.parametrize("name", NAMED)
def test_the_op_at_fault_is_named_and_no_other(name):
    paths, code = ask(*NAMED[name])
    types = {"BiasAdd" if name.startswith("bias") else "IdentityN"}
    assert code == 1, [path.blame for path in paths]
    assert {op.place.type for path in paths for op in path.blame.named} == types
    assert all(len(path.blame.named) == 1 for path in paths)


@pytest.mark.on_change(
    "its own sum", "a table's own gradient", "a constant branch", "a constant branch, large"
)
@pytest.mark.parametrize("name", RIGHT_ONES)
def test_no_op_is_named_where_all_are_right(name):
    paths, code = ask(*RIGHT_ONES[name])
    assert code == 0, [path.blame for path in paths]
