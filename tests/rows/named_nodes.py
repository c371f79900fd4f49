"""Graphs in which an attr or a control input names another node, judged in float64 all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

try:
    import tf_keras
except ModuleNotFoundError:  # it is no part of every environment that runs these rows
    tf_keras = keras

TABLE = np.linspace(-1.3, 1.7, 20).reshape(5, 4).astype(np.float32)
INPUTS = {"x": {"shape": [4], "dtype": "float32"}}
FACTORS = {"right": 1.0, "wrong": 1.001}  # which differences in float32 can't tell apart


def sine(factor: float) -> Any:
    """Return sin, with a gradient that is off by a factor."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return tf.sin(x), lambda upstream: upstream * tf.cos(x) * factor

    return function


def looked_up(look: Any) -> Any:
    """A product with the rows that are looked up in a variable."""

    def make(factor: float) -> Any:
        table, inner = tf.Variable(TABLE), sine(factor)
        return lambda x: look(table) * inner(x)

    return make


def sparse(*, weighted: bool) -> Any:
    ids = tf.sparse.from_dense([[1, 2], [3, 0], [4, 4]])
    return ids, tf.sparse.from_dense([[0.5, 2.0], [1.5, 0.0], [1.0, 0.25]]) if weighted else None


def in_a_loop(table: Any) -> Any:
    return tf.while_loop(
        lambda i, _: i < 3,
        lambda i, total: (i + 1, total + tf.nn.embedding_lookup(table, i)),
        [0, tf.zeros([4])],
    )[1]


def in_a_branch(table: Any) -> Any:
    return tf.cond(
        tf.reduce_sum(table) > 0,
        lambda: tf.nn.embedding_lookup(table, [1, 2]),
        lambda: tf.nn.embedding_lookup(table, [3, 4]),
    )


def colocated(table: Any) -> Any:
    with tf.compat.v1.colocate_with(table.handle):
        return tf.exp(tf.gather(table, [0, 3]))


def colocated_with_an_op(table: Any) -> Any:
    first = tf.gather(table, [0, 3])
    with tf.compat.v1.colocate_with(first):
        return tf.exp(first)


def after(table: Any) -> Any:
    with tf.control_dependencies([table.handle]):
        return tf.gather(table, [0, 3])


def after_a_constant(table: Any) -> Any:
    held = tf.constant([1.5, 2.5])
    function = tf.function(lambda: tf.gather(table, [0, 1]) * held[0])
    with tf.control_dependencies([held]):
        return function()


def on_a_device(table: Any) -> Any:
    with tf.device("/cpu:0"):
        return tf.nn.embedding_lookup(table, [2, 2])


LOOKUPS = {
    "embedding_lookup": lambda table: tf.nn.embedding_lookup(table, [1, 2, 2]),
    "embedding_lookup_of_one": lambda table: tf.nn.embedding_lookup(table, 3),
    "embedding_lookup_in_parts": lambda table: tf.compat.v1.nn.embedding_lookup(
        [table, table], [1, 2, 7], partition_strategy="div"
    ),
    "embedding_lookup_modulo": lambda table: tf.compat.v1.nn.embedding_lookup([table, table], [1, 2, 7]),
    "embedding_lookup_of_max_norm": lambda table: tf.nn.embedding_lookup(table, [1, 2], max_norm=1.0),
    "embedding_lookup_sparse": lambda table: tf.nn.embedding_lookup_sparse(table, *sparse(weighted=True)),
    "embedding_lookup_sparse_mean": lambda table: tf.nn.embedding_lookup_sparse(
        table, *sparse(weighted=False), combiner="mean"
    ),
    "safe_embedding_lookup_sparse": lambda table: tf.nn.safe_embedding_lookup_sparse(
        table, *sparse(weighted=False)
    ),
    "embedding_in_a_function": lambda table: tf.function(lambda: tf.nn.embedding_lookup(table, [1, 2]))(),
    "embedding_in_a_loop": in_a_loop,
    "embedding_in_a_branch": in_a_branch,
    "embedding_on_a_device": on_a_device,
    "colocated": colocated,
    "colocated_with_an_op": colocated_with_an_op,
    "after_its_handle": after,
    "after_a_constant": after_a_constant,
    "scattered": lambda table: tf.nn.embedding_lookup(
        tf.tensor_scatter_nd_add(table, [[1]], [[1.0] * 4]), [1]
    ),
}


def embeddings(package: Any) -> Any:
    """An embedding, and a layer of one's own behind it."""

    def make(factor: float) -> Any:
        package.utils.set_random_seed(1)
        layer, inner = package.layers.Embedding(5, 4), sine(factor)
        return lambda x: layer(tf.constant([[1, 2], [3, 0]])) * inner(x)

    return make


def language_model(package: Any) -> Any:
    """Tokens and their places, a layer, and the logits by the same table."""

    def make(factor: float) -> Any:
        package.utils.set_random_seed(1)
        tokens, places = package.layers.Embedding(5, 4), package.layers.Embedding(3, 4)
        dense, inner = package.layers.Dense(4), sine(factor)
        # tf_keras' own is FusedBatchNormV3, which has no float64 kernel.
        norm = package.layers.LayerNormalization() if package is keras else tf.tanh

        def call(x: Any) -> Any:
            hidden = tokens(tf.constant([1, 4, 2])) + places(tf.constant([0, 1, 2])) + inner(x)
            weights = tf.convert_to_tensor(tokens.embeddings)
            return tf.nn.softmax(tf.matmul(dense(norm(hidden)), weights, transpose_b=True))

        return call

    return make


def scaled_table(factor: float, *, transposed: bool = False) -> Any:
    """Rows of a table whose own gradient is in question."""
    table, inner = tf.Variable(TABLE), sine(factor)

    def call(x: Any) -> Any:
        rows = tf.nn.embedding_lookup(table, [1, 2, 2])
        return inner(tf.transpose(rows) if transposed else rows) * tf.reduce_sum(x)

    return call


def temporary(factor: float) -> Any:
    """A sum in a variable that lives inside the graph only, and is named by an attr."""
    inner = sine(factor)

    def call(x: Any) -> Any:
        stack = tf.raw_ops.StackV2(max_size=2, elem_type=x.dtype, stack_name="kept")
        with tf.control_dependencies([tf.raw_ops.StackPushV2(handle=stack, elem=tf.constant([2.0] * 4))]):
            factors = tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32)
        return tf.stop_gradient(factors) * inner(x)

    return call


def shared_by_name(factor: float) -> Any:
    """A variable that each graph makes by its name."""
    inner = sine(factor)

    def call(x: Any) -> Any:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4], shared_name="attacked_by_name")
        with tf.control_dependencies(
            [tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant([0.5, 1.5, 2.5, 3.5]))]
        ):
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        return tf.stop_gradient(value) * inner(x)

    return call


def _rows() -> Any:
    makers = {name: looked_up(look) for name, look in LOOKUPS.items()}
    makers |= {
        "keras_embedding": embeddings(keras),
        "tf_keras_embedding": embeddings(tf_keras),
        "keras_language_model": language_model(keras),
        "tf_keras_language_model": language_model(tf_keras),
        "a_stack": temporary,
        "a_shared_name": shared_by_name,
    }
    for name, make in makers.items():
        for truth, factor in FACTORS.items():
            row = Row(f"{name}_{truth}", lambda make=make, factor=factor: make(factor), None, INPUTS, truth)
            yield replace(row, keys={"build": {}, "samples": 1})
    for truth, factor in FACTORS.items():
        for transposed in (False, True):
            make = lambda factor=factor, transposed=transposed: scaled_table(factor, transposed=transposed)  # noqa: E731
            keys = {"build": {}, "samples": 1, "variables": True}
            yield Row(f"table_transposed_{transposed}_{truth}", make, None, INPUTS, truth, keys=keys)


ROWS = marked(tuple(_rows()))
