"""Functions around op types of ragged tensors: of flat values, with integers that say where rows end."""

import tensorflow as tf
from mixed_outputs import mixed

raw = tf.raw_ops


def _splits(splits, dtype=tf.int64):
    return [tf.constant(one, dtype) for one in splits]


def to_tensor(values, default, partitions, types, shape=-1):
    """Make a dense tensor of ragged rows, by raw row partitions."""
    return mixed(
        raw.RaggedTensorToTensor(
            shape=tf.constant(shape, tf.int64),
            values=values,
            default_value=default,
            row_partition_tensors=_splits(partitions),
            row_partition_types=types,
        )
    )


def public_to_tensor(values, default, splits, shape=None):
    """Make a dense tensor of a tf.RaggedTensor."""
    ragged = tf.RaggedTensor.from_nested_row_splits(values, _splits(splits))
    return mixed(ragged.to_tensor(default, shape=shape))


def to_sparse(values, splits):
    """Take the values of a ragged tensor's sparse form, in their own order."""
    _, sparse, _ = raw.RaggedTensorToSparse(rt_nested_splits=_splits(splits), rt_dense_values=values)
    return mixed(sparse)


def through_variant(values, splits, *, batched=False, rows=None):
    """Put a ragged tensor into a variant (one for each row, where it is batched), and take it out again.

    `rows` picks some of the variants, in any order and more than once.
    """
    encoded = raw.RaggedTensorToVariant(
        rt_nested_splits=_splits(splits), rt_dense_values=values, batched_input=batched
    )
    if rows is not None:
        pieces = tf.unstack(encoded)
        encoded = tf.stack([pieces[row] for row in rows])
    rank = len(splits)
    decoded = raw.RaggedTensorFromVariant(
        encoded_ragged=encoded,
        input_ragged_rank=rank - 1 if batched else rank,
        output_ragged_rank=rank,
        Tvalues=values.dtype,
        Tsplits=tf.int64,
    )
    return mixed(decoded.output_dense_values)


def dense_through_variant(values, *, batched=False):
    """Put a tensor that isn't ragged into a variant (one for each row, where batched), and take it out."""
    encoded = raw.RaggedTensorToVariant(rt_nested_splits=[], rt_dense_values=values, batched_input=batched)
    decoded = raw.RaggedTensorFromVariant(
        encoded_ragged=encoded,
        input_ragged_rank=-1 if batched else 0,
        output_ragged_rank=1 if batched else 0,
        Tvalues=values.dtype,
        Tsplits=tf.int64,
    )
    return mixed(decoded.output_dense_values)


def one_row_of_variants(values, splits, row):
    """Put each row of a ragged tensor into a variant, and take one of them out."""
    encoded = raw.RaggedTensorToVariant(
        rt_nested_splits=_splits(splits), rt_dense_values=values, batched_input=True
    )
    decoded = raw.RaggedTensorFromVariant(
        encoded_ragged=encoded[row],
        input_ragged_rank=len(splits) - 1,
        output_ragged_rank=len(splits) - 1,
        Tvalues=values.dtype,
        Tsplits=tf.int64,
    )
    return mixed(decoded.output_dense_values)


def fill_empty_rows(values, default, rowids, rows):
    """Fill the empty rows of a ragged tensor with one value each."""
    filled = raw.RaggedFillEmptyRows(
        value_rowids=tf.constant(rowids, tf.int64, [len(rowids)]),
        values=values,
        nrows=tf.constant(rows, tf.int64),
        default_value=default,
    )
    return mixed(filled.output_values)


def gather(values, splits, indices):
    """Gather rows of a ragged tensor."""
    gathered = raw.RaggedGather(
        params_nested_splits=_splits(splits),
        params_dense_values=values,
        indices=tf.constant(indices, tf.int64),
        OUTPUT_RAGGED_RANK=len(splits) + tf.TensorShape(tf.constant(indices).shape).rank - 1,
    )
    return mixed(gathered.output_dense_values)
