"""What is wrong with gradients of images, against sampling written out as a matrix, and colours by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

VERSION = tuple(int(part) for part in tf.__version__.split(".")[:2])


def gradient(function, x, upstream=None):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    found = tape.gradient(y, x, output_gradients=None if upstream is None else tf.cast(upstream, y.dtype))
    return None if found is None else found.numpy()


def test_a_channel_of_0_gets_no_share_of_the_saturation():
    # saturation = (max - min) / max, so its derivative with respect to the least channel is -1 / max.
    pixel = np.array([[0.0, 0.4, 0.7]])
    found = gradient(lambda x: tf.image.rgb_to_hsv(x)[..., 1], pixel)
    assert found[0, 0] == 0
    saturation = [tf.image.rgb_to_hsv(tf.constant([[red, 0.4, 0.7]], tf.float64))[0, 1] for red in (0, 1e-6)]
    assert float(saturation[1] - saturation[0]) / 1e-6 == pytest.approx(-1 / 0.7, rel=1e-4)
    # Next to it, the gradient is right.
    near = gradient(lambda x: tf.image.rgb_to_hsv(x)[..., 1], pixel + np.array([[1e-9, 0, 0]]))
    assert near[0, 0] == pytest.approx(-1 / 0.7)


def test_slices_sent_back_to_rgb_to_hsv_raise():
    with pytest.raises(TypeError, match="not subscriptable"):
        gradient(lambda x: tf.gather(tf.image.rgb_to_hsv(x), [0, 0]), np.full((2, 3), 0.5))


def warp_matrix(size, transform, *, nearest=False, wrap=None):
    """Return the matrix of a warp of a size x size image, by the documented mapping of places.

    Args:
        size: of the image, in pixels.
        transform: its eight numbers.
        nearest: whether it takes the nearest pixel, instead of interpolating.
        wrap: what a row or column beyond the image becomes; None leaves it out.
    """
    a0, a1, a2, b0, b1, b2, c0, c1 = transform
    matrix = np.zeros((size * size, size * size))
    for y in range(size):
        for x in range(size):
            k = c0 * x + c1 * y + 1
            column, row = (a0 * x + a1 * y + a2) / k, (b0 * x + b1 * y + b2) / k
            if wrap is not None:
                column, row = wrap(column), wrap(row)
            corners = [(int(np.rint(row)), int(np.rint(column)), 1.0)]
            if not nearest:
                top, left = int(np.floor(row)), int(np.floor(column))
                corners = [
                    (i, j, (1 - abs(row - i)) * (1 - abs(column - j)))
                    for i in (top, top + 1)
                    for j in (left, left + 1)
                ]
            for i, j, weight in corners:
                if 0 <= i < size and 0 <= j < size:
                    matrix[y * size + x, i * size + j] += weight
    return matrix


ZOOM = [0.5, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0]
TURN = [0.8, -0.6, 1.0, 0.6, 0.8, 0.0, 0.0, 0.0]
SHIFT = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
WARPS = {
    "zoomed": (ZOOM, {}, {}),
    "turned": (TURN, {}, {}),
    "reflected": (
        SHIFT,
        {"fill_mode": "REFLECT"},
        {"wrap": lambda place: 2 * 4 - 1 - place if place > 4 - 0.5 else place},
    ),
    "edge": (SHIFT, {"fill_mode": "NEAREST"}, {"wrap": lambda place: min(max(place, 0), 3)}),
}


def warp(transform, **options):
    return lambda x: tf.raw_ops.ImageProjectiveTransformV3(
        images=x,
        transforms=[transform],
        output_shape=[4, 4],
        fill_value=0.0,
        interpolation="BILINEAR",
        **options,
    )


@pytest.mark.parametrize("name", WARPS)
def test_a_warp_has_the_inverse_warp_for_its_gradient_instead_of_the_transposed_one(name):
    transform, options, places = WARPS[name]
    matrix = warp_matrix(4, transform, **places)
    rng = np.random.default_rng(0)
    image, upstream = rng.normal(size=(2, 1, 4, 4, 1))
    forward = warp(transform, **options)
    np.testing.assert_allclose(forward(image).numpy().ravel(), matrix @ image.ravel(), atol=1e-6)
    exact = matrix.T @ upstream.ravel()
    found = gradient(forward, image, upstream).ravel()
    assert np.max(np.abs(found - exact)) > 0.1


def test_a_shift_by_whole_pixels_has_the_right_gradient():
    matrix = warp_matrix(4, SHIFT)
    upstream = np.random.default_rng(0).normal(size=(1, 4, 4, 1))
    found = gradient(warp(SHIFT), np.zeros((1, 4, 4, 1)), upstream)
    np.testing.assert_allclose(found.ravel(), matrix.T @ upstream.ravel(), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_bicubic_resize_has_no_gradient_in_half_precision(dtype):
    image = np.ones((1, 3, 3, 1), tf.as_dtype(dtype).as_numpy_dtype)

    def mean(x):
        return tf.reduce_mean(tf.image.resize(x, [5, 5], "bicubic"))

    assert gradient(mean, image) is None
    # The weights of each output sum to 1, so the image's gradient does too.
    assert np.sum(gradient(mean, np.ones((1, 3, 3, 1), np.float32))) == pytest.approx(1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_a_resize_with_antialias_has_a_gradient_in_float32_only(dtype):
    image = np.ones((1, 3, 3, 1), tf.as_dtype(dtype).as_numpy_dtype)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ScaleAndTranslateGrad"):
        gradient(lambda x: tf.image.resize(x, [2, 2], antialias=True), image)


def test_a_warp_in_bfloat16_has_no_gradient():
    image = np.ones((1, 4, 4, 1), tf.bfloat16.as_numpy_dtype)
    with pytest.raises(TypeError, match="Invalid dtype"):
        gradient(warp(SHIFT), image)


def test_the_gradient_of_a_bilinear_resize_has_none_of_its_own():
    image = tf.constant(np.random.default_rng(0).normal(size=(1, 3, 3, 1)), tf.float32)
    with tf.GradientTape() as outer:
        outer.watch(image)
        with tf.GradientTape() as inner:
            inner.watch(image)
            loss = tf.reduce_sum(tf.image.resize(image, [5, 5]) ** 2)
        penalty = tf.reduce_sum(inner.gradient(loss, image) ** 2)
    # With y = A x the penalty is |2 A'A x|^2, whose gradient is 8 (A'A)^2 x: not zero.
    columns = [tf.image.resize(tf.reshape(unit, [1, 3, 3, 1]), [5, 5]).numpy().ravel() for unit in np.eye(9)]
    gram = np.array(columns) @ np.array(columns).T
    assert np.linalg.norm(8 * gram @ gram @ image.numpy().ravel()) > 1
    if VERSION < (2, 21):
        with pytest.raises(LookupError):
            outer.gradient(penalty, image)
    else:
        assert outer.gradient(penalty, image) is None


def test_the_similarity_of_unlike_images_is_constant_and_has_no_finite_gradient():
    image = (np.sin(np.arange(64.0)) / 2 + 0.5).reshape(1, 8, 8, 1)

    def similarity(x):
        return tf.image.ssim_multiscale(x, 1 - image, 1.0, power_factors=(0.5, 0.5), filter_size=3)

    near = [image, image + 0.01 * np.cos(np.arange(64.0)).reshape(image.shape)]
    assert [float(similarity(tf.constant(x))[0]) for x in near] == [0, 0]
    assert not np.isfinite(gradient(similarity, image)).any()
