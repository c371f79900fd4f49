"""What the gradients of reads of variables refuse, though the reads don't."""

from __future__ import annotations

import pytest
import tensorflow as tf


@pytest.fixture
def table():
    return tf.Variable([[1.0, 2.0], [3.0, 4.0]])


def test_one_element_of_a_variable_has_no_gradient(table):
    with tf.GradientTape() as tape:
        y = tf.gather_nd(table, [1, 0])
    assert float(y) == 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="Updates shape must have rank at least one"):
        tape.gradient(y, table)


def test_the_whole_of_a_variable_has_none(table):
    with tf.GradientTape() as tape:
        y = tf.gather_nd(table, tf.zeros([1, 0], tf.int32))
    assert y.shape == [1, 2, 2]
    with pytest.raises(tf.errors.InvalidArgumentError, match="specified for empty output shape"):
        tape.gradient(y, table)


def test_a_batched_gather_by_the_raw_op_has_none(table):
    with tf.GradientTape() as tape:
        table.read_value()
        tape.watch(table.handle)
        y = tf.raw_ops.ResourceGather(
            resource=table.handle, indices=[[1], [0]], batch_dims=1, dtype=tf.float32
        )
    assert y.numpy().tolist() == [[2], [3]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input to reshape is a tensor with 2 values"):
        tape.gradient(y, table.handle)
