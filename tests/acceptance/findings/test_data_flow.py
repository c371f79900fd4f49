"""What is wrong with the gradients of data flow: of what is overwritten, of bounds that cross."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf


def test_a_stitched_row_that_is_overwritten_gets_a_gradient():
    first, second = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    with tf.GradientTape() as tape:
        y = tf.dynamic_stitch([[0, 1], [1, 2]], [first, second])
    np.testing.assert_array_equal(y, [1, 3, 4])
    found = tape.gradient(y, first, tf.constant([1.0, 10.0, 100.0]))
    np.testing.assert_array_equal(found, [1, 10])  # its second element is nowhere in y
    first[1].assign(7.0)
    np.testing.assert_array_equal(tf.dynamic_stitch([[0, 1], [1, 2]], [first, second]), y)


def test_both_of_two_crossed_bounds_get_the_gradient():
    low, high = tf.Variable(1.0), tf.Variable(-1.0)
    with tf.GradientTape() as tape:
        y = tf.raw_ops.ClipByValue(t=[0.0], clip_value_min=low, clip_value_max=high)
    found = tape.gradient(y, [low, high])
    np.testing.assert_array_equal(y, [1])
    assert [value.numpy() for value in found] == [1, 1]
    # tf.clip_by_value is made of other ops: the bound that wins has it.
    with tf.GradientTape() as tape:
        y = tf.clip_by_value([0.0], low, high)
    assert [value.numpy() for value in tape.gradient(y, [low, high])] == [1, 0]


def test_complex_numbers_clip_but_have_no_gradient():
    t = tf.Variable([1 + 2j])
    with tf.GradientTape() as tape:
        y = tf.raw_ops.ClipByValue(
            t=t, clip_value_min=tf.constant(0j, t.dtype), clip_value_max=tf.constant(2 + 0j, t.dtype)
        )
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError, TypeError)):
        tape.gradient(y, t)
