"""What is wrong with gradients of neural network ops, against derivatives by hand and in many digits."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

LABELS, LOGITS = np.array([[0.5, 0.5, 0.0]]), np.array([[0.1, 0.2, 0.3]])


def gradient(function, *inputs):
    tensors = [tf.convert_to_tensor(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
    found = tape.gradient(y, tensors)
    return found[0] if len(inputs) == 1 else found


def windows(rows, length, stride):
    """Return the rows of each window, with padding SAME; (TensorFlow's own definition of it)."""
    count = -(-rows // stride)
    above = max((count - 1) * stride + length - rows, 0) // 2
    return [
        [row for row in range(start - above, start - above + length) if 0 <= row < rows]
        for start in range(0, count * stride, stride)
    ]


@pytest.mark.parametrize(
    ("rows", "length", "stride", "is_right"),
    [(4, 4, 1, True), (4, 5, 1, False), (4, 6, 1, True), (5, 6, 2, False), (6, 8, 1, False)],
)
def test_average_pooling_by_a_window_longer_than_the_input(rows, length, stride, is_right):
    x = np.linspace(-1, 2, rows).reshape(1, rows, 1, 1)
    exact = np.zeros((len(windows(rows, length, stride)), rows))
    for number, window in enumerate(windows(rows, length, stride)):
        exact[number, window] = 1 / len(window)

    def pool(x):
        return tf.reshape(tf.nn.avg_pool2d(x, [length, 1], [stride, 1], "SAME"), [-1])

    np.testing.assert_allclose(pool(tf.constant(x)), exact @ x.ravel())
    found = [np.ravel(gradient(lambda x, n=number: pool(x)[n], x)) for number in range(len(exact))]
    assert np.allclose(found, exact) == is_right


def by_labels(cross_entropy):
    """Return how the gradient for the first logit moves with the labels."""

    def first(labels):
        logits = tf.constant(LOGITS)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = cross_entropy(labels, logits)
        return tape.gradient(loss, logits)[0, 0]

    return gradient(first, LABELS)


def test_cross_entropy_of_softmax_forgets_the_labels_in_its_second_order():
    found = by_labels(tf.nn.softmax_cross_entropy_with_logits)
    np.testing.assert_array_equal(found, [[0, 0, 0]])
    softmax = np.exp(LOGITS) / np.exp(LOGITS).sum()
    exact = softmax[0, 0] - np.array([1, 0, 0])  # of softmax[0] * sum(labels) - labels[0]
    np.testing.assert_allclose(exact, [-0.69939039, 0.30060961, 0.30060961], atol=1e-8)
    plain = by_labels(lambda labels, z: -tf.reduce_sum(labels * tf.nn.log_softmax(z), axis=-1))
    np.testing.assert_allclose(plain[0], exact)


def test_cross_entropy_of_softmax_has_a_gradient_where_labels_are_zero():
    def loss(z):
        return tf.nn.softmax_cross_entropy_with_logits(tf.zeros_like(z), z)

    assert float(loss(tf.constant(LOGITS))[0]) == float(loss(tf.constant(7 * LOGITS))[0]) == 0
    np.testing.assert_allclose(gradient(loss, LOGITS), np.exp(LOGITS) / np.exp(LOGITS).sum())


def test_cross_entropy_of_softmax_doesnt_sum_what_it_broadcast():
    def loss(labels):
        return tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=np.repeat(LOGITS, 4, 0), labels=labels).loss

    assert loss(tf.constant(LABELS)).shape == (4,)
    assert gradient(loss, LABELS).shape == (4, 3)  # the labels' is (1, 3)


X = np.array([[0.3], [-1.2], [0.8]], np.float32)


def normalized(x, *, is_training=True, **moments):
    ones = tf.ones([1])
    return tf.compat.v1.nn.fused_batch_norm(
        x[:, None, None], ones, 0 * ones, is_training=is_training, epsilon=1e-3, **moments
    )


def test_the_moments_of_a_fused_batch_norm_have_no_gradient():
    y, mean, variance = (lambda x, number=number: normalized(x)[number] for number in range(3))
    np.testing.assert_allclose(mean(tf.constant(X)), X.mean(0), rtol=1e-5)
    np.testing.assert_allclose(variance(tf.constant(X)), X.var(0, ddof=1), rtol=1e-5)
    assert np.any(gradient(lambda x: y(x) ** 3, X))
    np.testing.assert_array_equal(gradient(mean, X), np.zeros((3, 1)))  # exact: 1/3 each
    np.testing.assert_array_equal(gradient(variance, X), np.zeros((3, 1)))  # exact: x - mean


def test_the_moments_given_to_a_fused_batch_norm_have_none_either():
    def y(mean, variance):
        return normalized(tf.constant(X), is_training=False, mean=mean, variance=variance)[0]

    moments = np.float32([0.5]), np.float32([2.0])
    moved = y(moments[0] + np.float32(0.25), moments[1]) - y(*moments)
    np.testing.assert_allclose(np.ravel(moved), -0.25 / np.sqrt(2.001), rtol=1e-5)
    assert gradient(y, *moments) == [None, None]


def exact_third(order):
    mpmath = pytest.importorskip("mpmath")

    def loss(*x):
        mean = sum(x) / 3
        scale = mpmath.sqrt(sum((value - mean) ** 2 for value in x) / 3 + mpmath.mpf("1e-3"))
        return sum(c * (value - mean) / scale for c, value in zip((1, -2, 0.5), x, strict=True))

    with mpmath.workdps(40):
        return float(mpmath.diff(loss, tuple(map(float, X[:, 0])), order))


def nested(x, path):
    """Return the derivatives of the loss by the elements in `path`, one after another."""
    if not path:
        return tf.reduce_sum([[1.0], [-2.0], [0.5]] * normalized(x)[0][:, 0, 0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = nested(x, path[:-1])
    return tape.gradient(y, x)[path[-1], 0]


@pytest.mark.parametrize(("path", "order"), [((0, 0), (2, 0, 0)), ((0, 1), (1, 1, 0)), ((1, 1), (0, 2, 0))])
def test_the_second_order_of_a_fused_batch_norm_is_right(path, order):
    np.testing.assert_allclose(nested(tf.constant(X), path), exact_third(order), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("path", "order"),
    [((0, 0, 0), (3, 0, 0)), ((0, 0, 1), (2, 1, 0)), ((1, 0, 0), (2, 1, 0)), ((2, 2, 2), (0, 0, 3))],
)
def test_the_third_order_of_a_fused_batch_norm_is_not(path, order):
    assert abs(float(nested(tf.constant(X), path)) - exact_third(order)) > 0.04


def test_that_third_order_depends_on_the_order_of_its_elements():
    assert abs(nested(tf.constant(X), (0, 0, 1)) - nested(tf.constant(X), (1, 0, 0))) > 0.5


def test_top_k_with_indices_of_int64_has_no_gradient():
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected to be a int64 tensor"):
        gradient(lambda x: tf.math.top_k(x, 2, index_type=tf.int64).values, LOGITS)


def test_approximate_top_k_that_is_not_aggregated_has_no_gradient_in_a_graph():
    def taken(x):
        return gradient(lambda x: tf.math.approx_max_k(x, 2, aggregate_to_topk=False)[0], x)

    x = tf.constant(np.float32([[1, 5, 3, 4]]))
    np.testing.assert_array_equal(taken(x), [[0, 1, 0, 1]])
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        tf.function(taken)(x)


def test_isotonic_regression_of_nothing_has_no_gradient():
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_split"):
        gradient(lambda x: tf.nn.isotonic_regression(x)[0], np.zeros((0, 3)))


def test_max_pooling_with_explicit_paddings_has_no_second_order():
    def slope(x):
        paddings = [[0, 0], [1, 0], [1, 0], [0, 0]]
        return gradient(lambda x: tf.nn.max_pool2d(x, 2, 2, paddings) ** 2, x)

    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="EXPLICIT"):
        gradient(slope, np.arange(9.0).reshape(1, 3, 3, 1))


def test_the_gradient_of_a_depthwise_convolution_of_nothing_is_what_stood_in_memory():
    shape, dtype = [3, 3, 64, 1], "float64"  # that of float16 is oneDNN's on most CPUs, which writes zeros
    images, filters = tf.zeros([0, 5, 5, 64], dtype), tf.zeros(shape, dtype)
    found = []
    for _ in range(20):
        pieces = [tf.fill(shape, tf.constant(1234.5, dtype)) for _ in range(20)]
        del pieces  # and a kernel that writes nothing is given their memory
        found.append(gradient(lambda w: tf.nn.depthwise_conv2d(images, w, [1, 1, 1, 1], "VALID"), filters))
    assert not all((one.numpy() == 0).all() for one in found)


def test_the_weighted_cross_entropy_of_a_logit_of_0():
    labels, weight = np.array([1.0, 0.0, 0.2]), 2.0

    def loss(logits):
        return tf.nn.weighted_cross_entropy_with_logits(labels, logits, weight)

    def exact(logit):  # of (1 - z) x + (1 + (q - 1) z) log(1 + exp(-x))
        return 1 - labels - (1 + (weight - 1) * labels) / (1 + np.exp(logit))

    np.testing.assert_allclose(gradient(loss, np.full(3, 0.1)), exact(0.1))
    np.testing.assert_allclose(gradient(loss, np.zeros(3)), 1 - labels)
