"""What the gradients of tensors packed into variants refuse."""

from __future__ import annotations

import pytest
import tensorflow as tf


def test_an_optional_that_holds_integers_too_has_no_gradient_in_a_graph():
    @tf.function
    def function(x):
        packed = tf.experimental.Optional.from_value((x, tf.constant([1, 2])))
        y = packed.get_value()[0] ** 2
        return tf.gradients(y, x)

    with pytest.raises(TypeError, match="NOT CONVERTIBLE TO TENSOR"):
        function(tf.constant([1.0, 2.0]))


def test_a_tape_has_it():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.experimental.Optional.from_value((x, tf.constant([1, 2]))).get_value()[0] ** 2
    assert tape.gradient(y, x).numpy().tolist() == [2, 4]
