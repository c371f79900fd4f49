"""What is wrong with gradients of functions that are no single op, against derivatives by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

keras = pytest.importorskip("keras")


def keras_op(name):
    """Return a function that calls one of Keras', and skips the test where this Keras hasn't it."""

    def call(*arguments):
        if not hasattr(keras.ops, name):
            pytest.skip(f"Keras {keras.__version__} has no ops.{name}")
        return getattr(keras.ops, name)(*arguments)

    return call


def gradient(function, *inputs):
    tensors = [tf.constant(x, tf.float64) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
    found = [np.asarray(tf.convert_to_tensor(one)) for one in tape.gradient(y, tensors)]
    return found[0] if len(found) == 1 else found


def test_eigenvalues_of_a_tridiagonal_matrix():
    alpha, beta = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 0.3, 0.2])
    matrix = np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1)
    values, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(tf.linalg.eigh_tridiagonal(alpha, beta), values, rtol=1e-6)
    # d lambda / d alpha[i] of a simple eigenvalue is the square of its vector's element i.
    found = gradient(lambda a: tf.linalg.eigh_tridiagonal(a, tf.constant(beta))[0], alpha)
    assert not np.allclose(found, vectors[:, 0] ** 2, atol=0.05)


def test_second_order_of_convolution():
    x, kernel = tf.ones([1, 3, 3, 1]), tf.ones([2, 2, 1, 1])

    def twice(convolve):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(convolve(x) ** 2)
            first = inner.gradient(y, x)
        return outer.gradient(first, x)

    assert twice(lambda x: tf.nn.conv2d(x, kernel, 1, "SAME")).shape == x.shape
    with pytest.raises(AttributeError, match="decode"):
        twice(lambda x: tf.nn.convolution(x, kernel, padding="SAME"))


@pytest.mark.parametrize(
    "function",
    [
        tf.experimental.numpy.logaddexp,
        tf.experimental.numpy.logaddexp2,
        keras_op("logaddexp"),
        keras_op("logaddexp2"),
    ],
    ids=["numpy", "numpy2", "keras", "keras2"],
)
def test_logaddexp_of_equal_numbers(function):
    # By symmetry, and since adding t to both adds t to the result, each has a half.
    assert not np.allclose(gradient(function, 1.0, 1.0), [0.5, 0.5])
    np.testing.assert_allclose(np.sum(gradient(function, 1.0, 0.9)), 1.0)


@pytest.mark.parametrize(
    "function",
    [
        tf.norm,
        lambda x: tf.linalg.global_norm([x]),
        tf.math.reduce_euclidean_norm,
        keras_op("norm"),
        lambda x: tf.experimental.numpy.hypot(x[0], x[1]),
        lambda x: keras_op("cdist")(x[None], x[None] * 0)[0, 0],
    ],
    ids=["norm", "global_norm", "reduce_euclidean_norm", "keras_norm", "hypot", "cdist"],
)
def test_norms_of_zero(function):
    assert np.isnan(gradient(function, [0.0, 0.0])).all()


@pytest.mark.parametrize("function", [tf.math.reduce_std, keras_op("std")], ids=["tensorflow", "keras"])
def test_deviation_of_equal_numbers(function):
    assert np.isnan(gradient(function, [1.0, 1.0])).all()


@pytest.mark.parametrize(
    "function",
    [keras_op("sinc"), tf.experimental.numpy.sinc, keras_op("vander"), tf.experimental.numpy.vander],
    ids=["keras_sinc", "numpy_sinc", "keras_vander", "numpy_vander"],
)
def test_smooth_functions_at_zero(function):
    assert np.isnan(gradient(function, [0.0, 0.5])[0])
    assert np.isfinite(gradient(function, [0.1, 0.5])).all()


def test_celu_at_zero():
    # Its slope is 1 on both sides: it is what celu is for.
    slopes = gradient(keras_op("celu"), [-1e-9, 0.0, 1e-9])
    np.testing.assert_allclose(slopes, [1.0, 2.0, 1.0])


def test_hue_to_colours():
    x = tf.constant([[0.2, 0.5, 0.7]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.image.hsv_to_rgb(x)
    assert tape.gradient(y, x) is None
    assert not np.allclose(y, tf.image.hsv_to_rgb(x * [1.0, 1.0, 0.9]))


@pytest.mark.parametrize(
    "function",
    [lambda x: keras_op("moments")(x, [-1])[1][0], lambda x: keras_op("layer_normalization")(x)[0, 0]],
    ids=["moments", "layer_normalization"],
)
def test_hessians_through_moments(function):
    point = np.array([[0.3, -1.2, 0.7, 2.0]])

    def slope(x):
        return gradient(function, x)[0]

    x = tf.constant(point)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = function(x)
        first = inner.gradient(y, x)[0, 0]
    second = outer.gradient(first, x).numpy()[0]
    step = 1e-5 * np.eye(4)
    exact = [(slope(point + move)[0] - slope(point - move)[0]) / 2e-5 for move in step]
    assert not np.allclose(second, exact, rtol=1e-3)


def test_an_update_of_a_slice_has_no_gradient():
    with pytest.raises(LookupError, match="XlaDynamicUpdateSlice"):
        gradient(lambda x: keras_op("slice_update")(x, [0], tf.zeros([1], tf.float64)), [1.0, 2.0])


def test_sparse_tensors_put_together_have_no_gradient():
    values = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(values)
        sparse = tf.SparseTensor([[0, 0], [1, 1]], values, [2, 2])
        y = tf.sparse.concat(0, [sparse, sparse])
    np.testing.assert_allclose(y.values, [1.0, 2.0, 1.0, 2.0])
    assert tape.gradient(y.values, values) is None


def test_a_second_derivative_of_hypot_on_an_axis():
    # sqrt(x^2 + y^2) has the second derivative y^2 / hypot^3 by x: 1 / |y| at x = 0.
    def second(at):
        x = tf.constant(at, tf.float64)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                z = keras_op("hypot")(x, tf.constant(2.0, tf.float64))
            slope = inner.gradient(z, x)
        return float(outer.gradient(slope, x))

    assert second(0.0) == 0
    assert second(1e-3) == pytest.approx(4 / (1e-6 + 4) ** 1.5)


def test_fmod_of_0():
    # Between -2 and 2 the remainder towards zero is x itself.
    x = np.array([-1e-3, 0.0, 1e-3])
    np.testing.assert_array_equal(keras_op("fmod")(x, 2.0), x)
    np.testing.assert_array_equal(gradient(lambda x: keras_op("fmod")(x, 2.0), x), [1.0, 0.0, 1.0])


def test_the_pseudo_inverse_of_a_multiple_of_the_identity():
    # Next to a regular matrix it is the inverse: -A^-1 dA A^-1, so y[0, 1] moves with x[0, 1] alone, by -1/4.
    x = 2 * np.eye(2)
    exact = [[0.0, -0.25], [0.0, 0.0]]
    np.testing.assert_allclose(gradient(lambda x: tf.linalg.inv(x)[0, 1], x), exact, atol=1e-12)
    np.testing.assert_allclose(gradient(lambda x: tf.linalg.pinv(x)[0, 1], x), np.zeros((2, 2)), atol=1e-12)


@pytest.mark.parametrize("shape", [(5,), (2, 2, 3)])
def test_isotonic_regression_of_ranks_other_than_2(shape):
    x, weights = np.random.default_rng(0).normal(size=(2, *shape))

    def weighted(x):
        return tf.reduce_sum(weights * tf.nn.isotonic_regression(x)[0])

    found = gradient(weighted, x)
    step = 1e-6
    differences = np.zeros(shape)
    for place in np.ndindex(*shape):
        move = np.zeros(shape)
        move[place] = step
        differences[place] = (weighted(x + move) - weighted(x - move)) / (2 * step)
    assert not np.allclose(found.ravel(), differences.ravel(), atol=1e-3)


def test_silu_of_complex_numbers():
    z = 1 + 2j
    s = 1 / (1 + np.exp(-z))
    x = tf.constant(z, tf.complex128)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.math.real(tf.nn.silu(x))
    np.testing.assert_allclose(tape.gradient(y, x), s * (1 + z * (1 - s)))  # exact: the conjugate


def test_the_length_of_equal_numbers():
    x, y = np.array([3.0, 3.0]), np.array([3.0, 4.0])
    by_x, by_y = gradient(keras_op("hypot"), x, y)
    length = np.hypot(x, y)
    np.testing.assert_allclose([by_x[1], by_y[1]], [x[1] / length[1], y[1] / length[1]])
    np.testing.assert_allclose([by_x[0], by_y[0]], [2 * x[0] / length[0], 0], atol=1e-12)
