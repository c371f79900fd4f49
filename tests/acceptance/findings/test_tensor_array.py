"""That the TensorArrays of TensorFlow 1 have no second order."""

import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture
def graph():
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            yield graph
    finally:
        v1.enable_control_flow_v2()


def test_the_gradient_of_the_gradient_raises(graph):
    x = tf.constant([1.0, 2.0])
    y = tf.TensorArray(x.dtype, size=2, element_shape=[]).unstack(x).stack()
    first = v1.gradients(y * y, x)[0]
    second = v1.gradients(first, x)[0]
    with v1.Session(graph=graph) as session:
        assert session.run(first).tolist() == [2, 4]
        with pytest.raises(tf.errors.InvalidArgumentError, match="Wrong input container"):
            session.run(second)
