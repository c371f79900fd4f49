"""Graham's sparse convolution: only sites that differ from a ground state are stored and computed.

A sparse image is a matrix of values, one row per active site and one column per channel; the sites' integer
rows and columns; and a ground state, one value per channel, that every other site has. Q, the matrix of
everything that lies under the filter, is built in NumPy, so its gradient is attached by hand.

References:
    Benjamin Graham, Spatially-sparse convolutional neural networks, 2014, arXiv:1409.6070.
"""

# An op's inputs are its arguments, however many there are.
# ruff: noqa: PLR0913, PLR0917

import functools
import math
import uuid
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class Meetings(NamedTuple):
    """Where active input sites lie under the filter; one entry per meeting of a site and a filter place.

    Attributes:
        sites: rows and columns of the active output sites, shape (outputs, 2).
        output: number of the output site that the filter belongs to.
        place: place under the filter, row-major: 0 to f * f - 1.
        source: number of the active input site.
    """

    sites: np.ndarray
    output: np.ndarray
    place: np.ndarray
    source: np.ndarray


@functools.lru_cache(maxsize=128)
def meet(sites: tuple[tuple[int, int], ...], size: tuple[int, int], f: int) -> Meetings:
    """Slide a filter over the active sites.

    An output site is active when any active input site lies under its filter; output sites are numbered in
    the order in which they are first met.

    Args:
        sites: row and column of each active input site.
        size: height and width of the input.
        f: height and width of the filter.
    """
    numbers: dict[tuple[int, int], int] = {}
    meetings = []
    for source, (row, col) in enumerate(sites):
        for out_row in range(max(0, row - f + 1), min(row, size[0] - f) + 1):
            for out_col in range(max(0, col - f + 1), min(col, size[1] - f) + 1):
                output = numbers.setdefault((out_row, out_col), len(numbers))
                meetings.append((output, (row - out_row) * f + (col - out_col), source))
    columns = np.array(meetings, dtype=np.intp).reshape(-1, 3).T
    return Meetings(np.array(list(numbers), dtype=np.int32).reshape(-1, 2), *columns)


def _meetings(sites: np.ndarray, size: np.ndarray, f: np.ndarray) -> Meetings:
    return meet(tuple(map(tuple, sites.tolist())), tuple(size.tolist()), int(f))


def _output_sites(sites, size, f):
    return _meetings(sites, size, f).sites


def _fill(values, ground, sites, size, f):
    """Build Q: one row per active output site; columns by filter row, then filter column, then channel."""
    meetings = _meetings(sites, size, f)
    q = np.tile(ground, (len(meetings.sites), f * f, 1))
    q[meetings.output, meetings.place] = values[meetings.source]
    return q.reshape(len(q), -1)


def _fill_grad(upstream, values, sites, size, f):
    """Give each value the upstream of every place where Q took it, and the ground state all the others."""
    meetings = _meetings(sites, size, f)
    upstream = upstream.reshape(len(meetings.sites), f * f, -1).copy()
    grad_values = np.zeros_like(values)
    np.add.at(grad_values, meetings.source, upstream[meetings.output, meetings.place])
    upstream[meetings.output, meetings.place] = 0
    return grad_values, upstream.sum(axis=(0, 1))


# The registry is global and refuses a name twice: a name of its own for every import of this module.
FILL_GRADIENT = f"SparseConvFill-{uuid.uuid4().hex}"


@tf.RegisterGradient(FILL_GRADIENT)
def _fill_op_grad(op, upstream):
    values, ground, sites, size, f = op.inputs
    grads = tf.numpy_function(
        _fill_grad, [upstream, values, sites, size, f], [values.dtype, ground.dtype], stateful=False
    )
    for grad, primal in zip(grads, (values, ground), strict=True):
        grad.set_shape(primal.shape)
    return *grads, None, None, None


def _filter_size(weights, channels):
    """Return f, where the weights have f * f * channels rows."""
    return math.isqrt(weights.shape[0] // channels)


def fill(values, ground, sites, size, f):
    """Build Q in NumPy, as an op that has a gradient.

    Args:
        values: values of the active sites, shape (sites, channels).
        ground: ground state, shape (channels,).
        sites: integer rows and columns, shape (sites, 2).
        size: height and width of the input.
        f: height and width of the filter.

    Returns:
        Shape (active output sites, f * f * channels).
    """
    overrides = {"PyFunc": FILL_GRADIENT, "PyFuncStateless": FILL_GRADIENT}
    with tf.compat.v1.get_default_graph().gradient_override_map(overrides):
        q = tf.numpy_function(_fill, [values, ground, sites, size, f], values.dtype, stateful=False)
    q.set_shape([None, f * f * ground.shape[0]])
    return q


def layer(values, ground, weights, bias, sites, size):
    """Convolve a sparse image.

    Args:
        values: shape (sites, channels).
        ground: shape (channels,).
        weights: shape (f * f * channels, filters).
        bias: shape (filters,).
        sites: shape (sites, 2), integers.
        size: height and width of the input.

    Returns:
        The same three of the output (values, ground and sites), and its size.
    """
    f = _filter_size(weights, ground.shape[0])
    new_values = tf.matmul(fill(values, ground, sites, size, f), weights) + bias
    # A filter with nothing under it but the ground state. The values have no part in it, and no path to it.
    new_ground = tf.linalg.matvec(weights, tf.tile(ground, [f * f]), transpose_a=True) + bias
    new_sites = tf.numpy_function(_output_sites, [sites, size, f], tf.int32, stateful=False)
    new_sites.set_shape([None, 2])
    return new_values, new_ground, new_sites, [size[0] - f + 1, size[1] - f + 1]


def one_layer(values, ground, weights, bias, sites, *, size):
    """Return values and ground state after one layer."""
    new_values, new_ground, _, _ = layer(values, ground, weights, bias, sites, size)
    return new_values, new_ground


def two_layers(values, ground, weights1, bias1, weights2, bias2, sites, *, size):
    """Return values and ground state after the first layer, and after the second."""
    values1, ground1, sites1, size1 = layer(values, ground, weights1, bias1, sites, size)
    values2, ground2, _, _ = layer(values1, ground1, weights2, bias2, sites1, size1)
    return values1, ground1, values2, ground2


def _convolve(image, weights, bias):
    """Convolve one dense image (height, width, channels), without padding."""
    channels, filters = image.shape[-1], weights.shape[-1]
    f = _filter_size(weights, channels)
    kernel = tf.reshape(weights, [f, f, channels, filters])
    return tf.nn.conv2d(image[tf.newaxis], kernel, strides=1, padding="VALID")[0] + bias


def _dense_output_sites(sites, size, f):
    """Number the active output sites in order of first meeting, without a loop."""
    steps = tf.range(f - 1, -1, -1)
    offsets = tf.stack([tf.repeat(steps, f), tf.tile(steps, [f])], axis=1)
    candidates = tf.reshape(sites[:, tf.newaxis] - offsets, [-1, 2])
    limits = tf.constant([size[0] - f, size[1] - f])
    inside = tf.reduce_all((candidates >= 0) & (candidates <= limits), axis=1)
    candidates = tf.boolean_mask(candidates, inside)
    width = size[1] - f + 1
    numbers = tf.unique(candidates[:, 0] * width + candidates[:, 1]).y
    return tf.stack([numbers // width, numbers % width], axis=1)


def dense_two_layers(values, ground, weights1, bias1, weights2, bias2, sites, *, size):
    """Compute `two_layers` by `tf.nn.conv2d` on the whole image.

    A dense convolution gives an inactive site the ground state of its layer by itself, since nothing but the
    ground state lies under the filter there.
    """
    f = _filter_size(weights1, ground.shape[0])
    image = tf.tile(ground[tf.newaxis, tf.newaxis], [*size, 1])
    image = tf.tensor_scatter_nd_update(image, sites, values)
    sites1 = _dense_output_sites(sites, size, f)
    sites2 = _dense_output_sites(sites1, [size[0] - f + 1, size[1] - f + 1], f)
    dense1 = _convolve(image, weights1, bias1)
    dense2 = _convolve(dense1, weights2, bias2)
    empty1 = _convolve(tf.tile(ground[tf.newaxis, tf.newaxis], [f, f, 1]), weights1, bias1)
    empty2 = _convolve(tf.tile(empty1, [f, f, 1]), weights2, bias2)
    return tf.gather_nd(dense1, sites1), empty1[0, 0], tf.gather_nd(dense2, sites2), empty2[0, 0]
