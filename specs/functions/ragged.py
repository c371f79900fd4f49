"""Functions of TensorFlow's that take ragged tensors, as functions of the flat values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SPLITS = (0, 2, 2, 3, 6)  # four rows, the second of which is empty


def on_rows(
    function: str, splits: Sequence[int] = SPLITS, **arguments: Any
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function of the values of a ragged tensor, with what it gives as flat values.

    Args:
        function: its name below `tf`.
        splits: where rows begin and end.
        arguments: further arguments by name.
    """
    call = tf
    for part in function.split("."):
        call = getattr(call, part)

    def called(values: tf.Tensor) -> tf.Tensor:
        return flat(call(tf.RaggedTensor.from_row_splits(values, splits), **arguments))

    return called


def flat(result: Any) -> tf.Tensor:
    """Return the values of a ragged tensor, and a dense one as it is."""
    return result.flat_values if isinstance(result, tf.RaggedTensor) else result


def concat(values: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Return rows beside rows."""
    rows = tf.RaggedTensor.from_row_splits(values, SPLITS)
    return flat(tf.concat([rows, tf.RaggedTensor.from_row_splits(others, [0, 1, 2, 2, 3])], axis=1))


def matmul(values: tf.Tensor, matrices: tf.Tensor) -> tf.Tensor:
    """Return a batch of matrices with different numbers of rows times as many matrices."""
    return flat(tf.matmul(tf.RaggedTensor.from_row_splits(values, SPLITS), matrices))


def where(values: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Return the larger of two ragged tensors' elements, by a choice."""
    rows, beside = (tf.RaggedTensor.from_row_splits(one, SPLITS) for one in (values, others))
    return flat(tf.where(rows > beside, rows, beside))


def broadcast(values: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """Return rows times one number each."""
    return flat(tf.RaggedTensor.from_row_splits(values, SPLITS) * row)


def gather(values: tf.Tensor) -> tf.Tensor:
    """Return rows, the empty one and one of them twice."""
    return flat(tf.gather(tf.RaggedTensor.from_row_splits(values, SPLITS), [3, 0, 3, 1]))


def padded(values: tf.Tensor, default: tf.Tensor) -> tf.Tensor:
    """Return the rows as a matrix, filled up with a value."""
    return tf.RaggedTensor.from_row_splits(values, SPLITS).to_tensor(default)


def cut(values: tf.Tensor) -> tf.Tensor:
    """Return the rows as a matrix that is narrower than the longest."""
    return tf.RaggedTensor.from_row_splits(values, SPLITS).to_tensor(shape=[None, 2])


def from_tensor(values: tf.Tensor) -> tf.Tensor:
    """Return the first elements of the rows of a matrix."""
    return flat(tf.RaggedTensor.from_tensor(values, lengths=[1, 0, 2]))


def to_sparse(values: tf.Tensor) -> tf.Tensor:
    """Return the values of the rows as a sparse tensor."""
    return tf.RaggedTensor.from_row_splits(values, SPLITS).to_sparse().values


def merged(values: tf.Tensor) -> tf.Tensor:
    """Return sums over the rows of a tensor that is ragged twice, after its two levels are merged."""
    inner = tf.RaggedTensor.from_row_splits(values, SPLITS)
    rows = tf.RaggedTensor.from_row_splits(inner, [0, 1, 4])
    return tf.reduce_sum(rows.merge_dims(1, 2), axis=1)
