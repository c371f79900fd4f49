"""What is wrong with the gradients of ragged tensors."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

raw = tf.raw_ops
VALUES = np.arange(1.0, 7.0)
SPLITS = ([0, 2, 2, 3], [0, 2, 3, 6])  # [[[1, 2], [3]], [], [[4, 5, 6]]]


@tf.function
def last_row(values):
    encoded = raw.RaggedTensorToVariant(
        rt_nested_splits=[tf.constant(splits, tf.int64) for splits in SPLITS],
        rt_dense_values=values,
        batched_input=True,
    )
    y = raw.RaggedTensorFromVariant(
        encoded_ragged=encoded[2],
        input_ragged_rank=1,
        output_ragged_rank=1,
        Tvalues=values.dtype,
        Tsplits=tf.int64,
    ).output_dense_values
    return y, tf.gradients(y, values, tf.constant([10.0, 20.0, 30.0], tf.float64))[0]


def test_a_row_of_a_ragged_tensor_with_two_levels_gets_its_gradient_elsewhere():
    y, gradient = last_row(tf.constant(VALUES))
    np.testing.assert_allclose(y, [4, 5, 6])
    exact = np.zeros(6)
    exact[3:6] = [10, 20, 30]  # where the values of y are
    # The first row has 2 inner rows, and 3 values: zeros are made for 2. The last element is never written.
    np.testing.assert_allclose(gradient[:5], [0, 0, 10, 20, 30])
    assert not np.allclose(gradient[:5], exact[:5])


def test_the_gradient_of_a_default_value_that_is_broadcast_inside_raises():
    values, default = tf.ones([4, 2, 3]), tf.constant([[1.0], [2.0]])
    with tf.GradientTape() as tape:
        tape.watch(default)
        y = tf.RaggedTensor.from_row_splits(values, [0, 1, 4]).to_tensor(default)
    np.testing.assert_allclose(
        y[0, 1], [[1, 1, 1], [2, 2, 2]]
    )  # the forward broadcasts: its gradient is 6, 6
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input to reshape is a tensor with 6 values"):
        tape.gradient(y, default)
