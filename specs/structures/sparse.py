"""Forwards of SparseTensors, RaggedTensors and IndexedSlices, and lookups in tables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

Tensor = Any


def product(a: tf.SparseTensor, b: Tensor) -> Tensor:
    """Multiply a sparse matrix by a dense one."""
    return tf.sparse.sparse_dense_matmul(a, b)


def softened(a: tf.SparseTensor) -> tf.SparseTensor:
    """Return another sparse tensor, with the same nonzeros."""
    return tf.sparse.softmax(tf.sparse.map_values(tf.multiply, a, 2.0))


@tf.custom_gradient
def _row_sums(indices: Tensor, values: Tensor, rows: Tensor) -> tuple[Tensor, Any]:
    def gradient(upstream: Tensor) -> tuple[None, Tensor, None]:
        return None, tf.gather(upstream, indices[:, 0]), None

    return tf.math.unsorted_segment_sum(values, indices[:, 0], rows), gradient


def row_sums(a: tf.SparseTensor) -> Tensor:
    """Add up the rows of a sparse matrix, with a gradient of its own."""
    return _row_sums(a.indices, a.values, a.dense_shape[0])


def squared(rows: tf.RaggedTensor) -> tf.RaggedTensor:
    """Square every element of ragged rows, and add up none."""
    return tf.ragged.map_flat_values(tf.square, rows)


def pooled(rows: tf.RaggedTensor, weights: Tensor) -> dict[str, Tensor]:
    """Reduce ragged rows of vectors."""
    return {"mean": tf.reduce_sum(rows * weights, axis=1), "dense": rows.to_tensor(0.0)}


def deep(rows: tf.RaggedTensor) -> Tensor:
    """Reduce rows of rows."""
    return tf.reduce_sum(tf.reduce_sum(tf.exp(rows), axis=2) ** 2, axis=1)


def lookup(table: Tensor, ids: Tensor) -> Tensor:
    """Look rows up in a table; rows asked for twice get the sum of both gradients, in IndexedSlices."""
    return tf.nn.embedding_lookup(table, ids)


def lookup_and_use(table: Tensor, ids: Tensor) -> Tensor:
    """Use a table as a whole too: IndexedSlices and a dense gradient meet."""
    return tf.matmul(tf.nn.embedding_lookup(table, ids), table, transpose_b=True)


def lookup_bags(table: Tensor, ids: tf.SparseTensor, weights: tf.SparseTensor) -> Tensor:
    """Look up weighted bags of rows."""
    return tf.nn.safe_embedding_lookup_sparse(table, ids, weights, combiner="sum")


def lookup_ragged(table: Tensor, ids: tf.RaggedTensor) -> Tensor:
    """Look up ragged rows of ids."""
    return tf.reduce_sum(tf.nn.embedding_lookup(table, ids), axis=1)


def slices(x: Tensor, rows: Tensor) -> tf.IndexedSlices:
    """Return IndexedSlices, as a gradient of a lookup is."""
    return tf.IndexedSlices(tf.sin(x), rows, tf.constant([9, 2], tf.int64))


@tf.custom_gradient
def gathered(table: Tensor, ids: Tensor) -> tuple[Tensor, Any]:
    """Gather rows, with a gradient of IndexedSlices."""

    def gradient(upstream: Tensor) -> tuple[tf.IndexedSlices, None]:
        return tf.IndexedSlices(upstream, ids, tf.shape(table, tf.int64)), None

    return tf.gather(table, ids), gradient
