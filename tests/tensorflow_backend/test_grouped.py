"""Convolutions in groups: what takes their place in a float64 twin has the values of TensorFlow's own."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import gradcheck_cli
from gradcheck_cli.tensorflow_backend.twin.grouped import without_groups


@pytest.mark.parametrize(
    ("inside", "channels", "strides", "padding"),
    [
        (1, 4, 1, "SAME"),
        (1, 8, 2, "SAME"),
        (2, 6, 1, "VALID"),
        (2, 4, 2, [[0, 0], [1, 0], [2, 1], [0, 0]]),
    ],
)
def test_values_and_gradients(inside, channels, strides, padding):
    draw = np.random.default_rng(0).standard_normal
    image, filters = tf.constant(draw((2, 7, 6, 4))), tf.constant(draw((3, 2, inside, channels)))

    def convolve(image, filters):
        return tf.nn.conv2d(image, filters, strides, padding)

    @tf.function(jit_compile=True)  # without XLA, TensorFlow has no gradient of it in float64
    def pull_back(image, filters):
        with tf.GradientTape() as tape:
            tape.watch([image, filters])
            output = convolve(image, filters)
        return [output, *tape.gradient(output, [image, filters], tf.sin(output))]

    with tf.Graph().as_default() as graph:
        tensors = tf.zeros(image.shape), tf.zeros(filters.shape)
        tf.gradients(convolve(*tensors), tensors)
    convolution, *gradients = (op for op in graph.get_operations() if op.type.startswith("Conv2D"))
    to_image, to_filters = sorted(gradients, key=lambda op: op.type, reverse=True)
    expected = pull_back(image, filters)
    output = without_groups(convolution)(image, filters)
    flow = tf.sin(output)
    of_image = without_groups(to_image)(tf.shape(image), filters, flow)
    of_filters = without_groups(to_filters)(image, tf.shape(filters), flow)
    for actual, other in zip((output, of_image, of_filters), expected, strict=True):
        np.testing.assert_allclose(actual, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "more"),
    [
        ([3, 3, 4, 4], {}),  # one group
        ([3, 3, 1, 4], {"dilations": 2}),
        ([3, 3, 1, 4], {"strides": [1, 2]}),
    ],
)
def test_others_stay(shape, more):
    with tf.Graph().as_default():
        image, filters = tf.zeros([1, 7, 7, 4]), tf.zeros(shape)
        output = tf.nn.conv2d(image, filters, **{"strides": 1, "padding": "SAME", **more})
    assert without_groups(output.op if output.op.type == "Conv2D" else output.op.inputs[0].op) is None


def convolve(x, w):
    return tf.nn.conv2d(x, w, 1, "SAME")


def test_where_sizes_are_unknown_it_says_why_it_is_judged_in_float32():
    report = gradcheck_cli.check(
        {
            "op": "grouped",
            "forward": f"{__name__}:convolve",
            "modes": ["dynamic"],
            "samples": 1,
            "inputs": {
                "x": {"shape": [1, 3, 3, 4], "dtype": "float32"},
                "w": {"shape": [2, 2, 2, 4], "dtype": "float32"},
            },
        }
    )
    for pair in report.cases[0].pairs:
        reason = pair.judged_by.not_float64
        assert reason.startswith(
            "its graph can't be run in float64: the gradient raised InvalidArgumentError: "
        )
        assert "filter_size does not have enough elements" in reason or "grouped convolutions" in reason
