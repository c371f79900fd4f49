"""What is wrong with gradients of array ops, each against where the forward puts its elements."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf


def gradient(function, x, upstream=None):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    upstream = None if upstream is None else tf.constant(upstream, y.dtype)
    return tf.convert_to_tensor(tape.gradient(y, x, output_gradients=upstream)).numpy()


# Diagonals that are shorter than the longest: V2 has them to the left, which the gradient doesn't know.

BAND = {"k": [-1, 1], "padding_value": np.float64(0)}


def left_aligned(rows):
    """Return, for each place of a band of a square matrix, the element that it stands for, or None."""
    return [
        [(max(0, -d) + i, max(0, d) + i) if i < rows - abs(d) else None for i in range(rows)]
        for d in (1, 0, -1)
    ]


def test_the_band_that_matrix_diag_v2_sets_is_not_the_one_whose_gradient_it_gives():
    def forward(x):
        return tf.raw_ops.MatrixDiagV2(diagonal=x, num_rows=-1, num_cols=-1, **BAND)

    upstream = np.arange(1.0, 17.0).reshape(4, 4)
    places = left_aligned(4)
    exact = np.array([[0.0 if place is None else upstream[place] for place in row] for row in places])
    x = np.arange(1.0, 13.0).reshape(3, 4)
    assert forward(x).numpy()[0, 1] == x[0, 0]
    assert forward(x).numpy()[3, 2] == x[2, 2]
    np.testing.assert_array_equal(exact[0], [2, 7, 12, 0])
    np.testing.assert_array_equal(gradient(forward, x, upstream)[0], [0, 2, 7, 12])


def test_nor_is_that_of_matrix_set_diag_v2():
    def forward(x):
        return tf.raw_ops.MatrixSetDiagV2(input=np.zeros((4, 4)), diagonal=x, k=[-1, 1])

    upstream = np.arange(1.0, 17.0).reshape(4, 4)
    x = np.arange(1.0, 13.0).reshape(3, 4)
    assert forward(x).numpy()[0, 1] == x[0, 0]
    np.testing.assert_array_equal(gradient(forward, x, upstream)[0], [0, 2, 7, 12])


def test_nor_is_that_of_matrix_diag_part_v2():
    upstream = np.arange(1.0, 13.0).reshape(3, 4)
    exact = np.zeros((4, 4))
    for row, places in enumerate(left_aligned(4)):
        for column, place in enumerate(places):
            if place is not None:
                exact[place] = upstream[row, column]

    def forward(x):
        return tf.raw_ops.MatrixDiagPartV2(input=x, **BAND)

    x = np.arange(1.0, 17.0).reshape(4, 4)
    assert forward(x).numpy()[0, 0] == x[0, 1]
    found = gradient(forward, x, upstream)
    assert (exact[0, 1], found[0, 1]) == (1, 2)


def test_an_update_that_another_one_overwrites_gets_a_gradient_all_the_same():
    def forward(updates):
        return tf.tensor_scatter_nd_update(tf.zeros([4], tf.float64), [[1], [1], [0]], updates)

    np.testing.assert_array_equal(forward(tf.constant([5.0, 7.0, 9.0], tf.float64)), [9, 7, 0, 0])
    # y = [u2, u1, 0, 0]: u0 is nowhere in it.
    np.testing.assert_array_equal(gradient(forward, np.ones(3), [1.0, 2.0, 3.0, 4.0]), [2, 2, 1])


def test_patches_of_an_image_with_more_than_2_to_the_24_pixels():
    width, step = 2**24 + 8, 2**24 + 1
    # The patches are pixels 0 and 2**24 + 1. The gradient counts pixels in float32, where 2**24 + 1 is none.
    found = gradient(
        lambda x: tf.image.extract_patches(x, [1, 1, 1, 1], [1, 1, step, 1], [1, 1, 1, 1], "VALID"),
        np.zeros((1, 1, width, 1), np.float32),
    )
    assert np.flatnonzero(found).tolist() == [0, 2**24 - 1]


@pytest.mark.parametrize(("dtype", "count", "found"), [("bfloat16", 1000, 256), ("float16", 5000, 2048)])
def test_an_element_gathered_often_has_the_gradient_of_a_sum_that_stops_growing(dtype, count, found):
    params = np.zeros(2, tf.as_dtype(dtype).as_numpy_dtype)
    assert gradient(lambda x: tf.gather(x, np.zeros(count, np.int32)), params)[0] == found
    assert gradient(lambda x: tf.fill([count], x[0]), params)[0] == count


# Forwards that run, and gradients that raise.

RAISES = {
    "gather_nd of one element": (lambda x: tf.gather_nd(x, [1, 0]), (3, 2)),
    "gather_nd of the whole": (lambda x: tf.gather_nd(x, np.zeros((2, 0), np.int32)), (3,)),
    "gather_nd that ignores indices": (
        lambda x: tf.gather_nd(x, [[0], [7]], bad_indices_policy="IGNORE"),
        (4,),
    ),
    "scatter_nd that ignores indices": (
        lambda x: tf.scatter_nd([[0], [7]], x, [4], bad_indices_policy="IGNORE"),
        (2,),
    ),
    "tensor_scatter_nd_add that ignores indices": (
        lambda x: tf.tensor_scatter_nd_add(x, [[0], [7]], x[:2], bad_indices_policy="IGNORE"),
        (4,),
    ),
    "TensorScatterUpdate that ignores indices": (
        lambda x: tf.raw_ops.TensorScatterUpdate(
            tensor=x, indices=[[0], [7]], updates=x[:2], bad_indices_policy="IGNORE"
        ),
        (4,),
    ),
    "a mirrored empty batch": (lambda x: tf.pad(x, [[0, 0], [1, 1]], "SYMMETRIC"), (0, 3)),
    "patches of an empty batch": (
        lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID"),
        (0, 3, 3, 2),
    ),
    "volume patches of an empty batch": (
        lambda x: tf.extract_volume_patches(x, [1, 2, 2, 2, 1], [1, 1, 1, 1, 1], "VALID"),
        (0, 3, 3, 3, 2),
    ),
    "a transpose to a negative axis": (lambda x: tf.transpose(x, [-1, 0]), (3, 2)),
}
VERSION = tuple(int(part) for part in tf.__version__.split(".")[:2])


@pytest.mark.parametrize("name", RAISES)
def test_gradients_that_raise(name):
    function, shape = RAISES[name]
    if VERSION < (2, 21) and ("ignores" in name or "negative" in name):
        pytest.skip("older forwards know no policy for indices, and end the process for a negative axis")
    function(tf.ones(shape, tf.float64))
    with pytest.raises(tf.errors.InvalidArgumentError):
        gradient(function, np.ones(shape))


def test_a_graph_with_an_int64_axis_of_a_concatenation_has_no_gradient():
    @tf.function
    def graph(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.concat([x, x], tf.constant(0, tf.int64))
        return tape.gradient(y, x)

    with pytest.raises(TypeError, match="FloorMod"):
        graph(tf.ones([2, 3]))


def test_slices_sent_back_to_matrix_set_diag_raise():
    def rows(x):
        return tf.gather(tf.raw_ops.MatrixSetDiag(input=x, diagonal=x[0]), [0, 0])

    with pytest.raises(AttributeError, match="get_shape"):
        gradient(rows, np.ones((3, 3)))
