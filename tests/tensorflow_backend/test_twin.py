"""The float64 twin of a traced graph computes what the graph computes, in float64 throughout."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.twin.float64_twin import BackwardEnds, Twin, WideVariables
from gradcheck_cli.tensorflow_backend.twin.widening import wide_dtype


def traced(function, *specs):
    return tf.compat.v1.wrap_function(function, [tf.TensorSpec(*spec) for spec in specs])


def twin_with_gradient(narrow):
    """Return the twin of a graph whose second output is the first one's gradient."""
    value, gradient = narrow.outputs
    ends = BackwardEnds(narrow.inputs, [value], [(narrow.inputs[0], gradient)])
    return Twin(narrow, WideVariables(), backward=ends)


def twin_and_values(function, *arrays, dtype=tf.float32):
    """Return which ops keep their dtypes, what the twin computes, and what the graph itself computes."""
    narrow = traced(function, *[(array.shape, dtype) for array in arrays])
    twin = Twin(narrow, WideVariables())
    wide = twin.function(narrow)
    own = tf.nest.flatten(narrow(*[tf.constant(array, dtype) for array in arrays]))
    rounded = [tf.cast(tf.constant(array, dtype), wide_dtype(dtype)) for array in arrays]
    found = [one.numpy() for one in private_graphs.call_flat(wide, rounded)]
    kept = twin.narrow_ops_between(twin.tensors(narrow.inputs), twin.tensors(narrow.outputs))
    return kept, found, [one.numpy() for one in own]


X = np.array([[0.3, -0.8, 1.1], [0.7, 0.2, -1.3], [0.9, 0.4, 0.6]])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_a_gradients_constant_counts_as_rounded_to_no_fewer_bits_than_the_forwards(dtype):
    narrow = traced(
        lambda x: (tf.cast(x, tf.float16), x * tf.cast(tf.constant(0.7, dtype), tf.float32)),
        (X.shape, tf.float32),
    )
    units = twin_with_gradient(narrow).units.values()
    assert list(units) == ([2.0**-11] if dtype == tf.float16 else [])


def test_an_op_with_a_fixed_float_argument_keeps_that():
    def boxes(x):
        image = tf.reshape(x, [1, 3, 3, 1])
        return tf.image.crop_and_resize(image, [[0.0, 0.0, 0.9, 0.7]], [0], [2, 2]) * 2.0

    kept, (wide,), (own,) = twin_and_values(boxes, X)
    np.testing.assert_allclose(wide, own, rtol=1e-6)
    assert [op.op_type for op in kept] == ["CropAndResize"]


def test_what_keeps_its_dtype_inside_a_function_counts_where_that_is_called():
    lossy = tf.function(lambda x: tf.nn.lrn(x[None, None])[0, 0])
    narrow = traced(lambda x: (lossy(x), x * 2), (X.shape, tf.float32))
    twin = Twin(narrow, WideVariables())
    inputs = twin.tensors(narrow.inputs[:1])
    kept = [twin.narrow_ops_between(inputs, [output]) for output in twin.tensors(narrow.outputs)]
    assert [[op.op_type for op in some] for some in kept] == [["LRN"], []]
