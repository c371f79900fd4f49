"""Forwards of structures, loops and branches: wrong in one part alone, and right ones that look wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf


@tf.custom_gradient
def bad_square(x):
    def bad_square_grad(upstream):
        return 2.02 * x * upstream

    return tf.square(x), bad_square_grad


# --- one part of a structure ---


def layer(x, params):
    return tf.tanh(tf.matmul(x, params["w"]) + params["b"])


def layer_grad(op, upstream):
    x, w, _ = op.inputs  # in the spec's order
    inner = upstream * (1 - op.outputs[0] ** 2)
    return (
        tf.matmul(inner, w, transpose_b=True),
        tf.matmul(x, inner, transpose_a=True),
        tf.reduce_sum(inner, axis=0),
    )


def layer_grad_of_b_wrong(op, upstream):
    x, w, b = layer_grad(op, upstream)
    return x, w, b / tf.cast(tf.shape(op.inputs[0])[0], b.dtype)


def layer_grad_of_w_none(op, upstream):
    x, _, b = layer_grad(op, upstream)
    return x, None, b


def two_results(x):
    return {"loss": tf.reduce_sum(tf.sin(x)), "parts": [tf.exp(x), bad_square(x)]}


@dataclass
class State:
    hidden: Any
    cell: Any


class Pair(NamedTuple):
    first: Any
    second: Any


class Boxed(tf.experimental.ExtensionType):
    low: tf.Tensor
    high: tf.Tensor


def step(state):
    return State(hidden=tf.sin(state.hidden), cell=state.hidden * tf.exp(state.cell))


def step_grad(op, along_hidden, along_cell):
    hidden, cell = op.inputs
    # op.outputs are the forward's, in the order of the dataclass: hidden, cell.
    return (tf.cos(hidden) * along_hidden + tf.exp(cell) * along_cell, hidden * tf.exp(cell) * along_cell)


def step_grad_swapped(op, along_hidden, along_cell):
    return step_grad(op, along_hidden, along_cell)[::-1]


def by_keyword(x, *, weight, bias):
    return x * weight + tf.exp(bias)


def by_keyword_grad(op, upstream):
    x, weight, bias = op.inputs
    return upstream * weight, upstream * x, upstream * tf.exp(bias)


def by_keyword_grad_swapped(op, upstream):
    x, weight, bias = by_keyword_grad(op, upstream)
    return x, bias, weight


@tf.custom_gradient
def _sorted_wrongly(x):
    """The values in order, and where they stood; the gradient forgets to undo that."""
    order = tf.argsort(x)
    return (tf.gather(x, order), order), lambda upstream, _: upstream


def with_places(x):
    values, places = _sorted_wrongly(x)
    return {"values": values, "places": places, "count": tf.size(x)}


# --- sparse and ragged ---


def _dense_of(indices, values, shape):
    return tf.scatter_nd(indices, values, shape)


def _sparse_product(transposed, *, by_count=False):
    """Sparse times dense, with a gradient of its own for the sparse one's values."""

    @tf.custom_gradient
    def product(indices, values, shape, dense):
        whole = _dense_of(indices, values, shape)

        def gradient(upstream):
            of_whole = tf.matmul(upstream, dense, transpose_b=True)
            places = indices[:, ::-1] if transposed else indices
            of_values = tf.gather_nd(of_whole, places)
            if by_count:
                of_values /= values.shape[0] or 1.0  # cancels below, unless the number isn't known
                of_values *= tf.cast(tf.size(values), values.dtype)
            return None, of_values, None, tf.matmul(whole, upstream, transpose_a=True)

        return tf.matmul(whole, dense), gradient

    return lambda a, dense: product(a.indices, a.values, a.dense_shape, dense)


right_sparse_product = _sparse_product(transposed=False)
transposed_sparse_product = _sparse_product(transposed=True)
counted_sparse_product = _sparse_product(transposed=False, by_count=True)


@tf.custom_gradient
def _row_means(values, splits):
    lengths = tf.cast(splits[1:] - splits[:-1], values.dtype)
    rows = tf.ragged.row_splits_to_segment_ids(splits)
    sums = tf.math.unsorted_segment_sum(values, rows, tf.size(lengths))

    def gradient(upstream):
        # Every row divided by the longest one's length.
        return tf.gather(upstream, rows) / tf.reduce_max(lengths), None

    return tf.math.divide_no_nan(sums, lengths), gradient


def ragged_means(rows):
    return _row_means(rows.values, rows.row_splits)


@tf.custom_gradient
def _gathered_once(table, ids):
    """A lookup whose gradient counts a row once, however often it was asked for."""

    def gradient(upstream):
        unique, first = tf.unique(ids)
        kept = tf.math.unsorted_segment_max(upstream, first, tf.size(unique))
        return tf.IndexedSlices(kept, unique, tf.shape(table, tf.int64)), None

    return tf.gather(table, ids), gradient


def lookup_of_repeated(table, ids):
    return _gathered_once(table, ids) ** 2


def slices(x, rows):
    """IndexedSlices as a result, one of the two slices of a row wrong."""
    scale = tf.constant([[1.0], [1.02], [1.0]], x.dtype)

    @tf.custom_gradient
    def scaled(value):
        return tf.sin(value), lambda upstream: scale * tf.cos(value) * upstream

    return tf.IndexedSlices(scaled(x), rows, tf.constant([5, 2]))


# --- branches, loops, functions ---


def wrong_second_branch(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x), lambda: bad_square(x) + x)


@tf.custom_gradient
def bad_at_times(x, is_bad):
    def bad_at_times_grad(upstream):
        return tf.where(is_bad, tf.constant(1.02, x.dtype), 1.0) * tf.cos(x) * upstream, None

    return tf.sin(x), bad_at_times_grad


def wrong_third_turn(x):
    def turn(i, y):
        return i + 1, bad_at_times(y, tf.equal(i, 2)) + y

    return tf.while_loop(lambda i, _: i < 4, turn, (tf.constant(0), x), maximum_iterations=4)[1]


def wrong_scan(x):
    return tf.scan(lambda state, row: bad_square(state) + row, x, initializer=tf.ones_like(x[0]))


def wrong_map(x):
    return tf.map_fn(lambda row: tf.reduce_sum(bad_square(row)), x, fn_output_signature=x.dtype)


def wrong_array(x):
    array = tf.TensorArray(x.dtype, size=2, element_shape=x.shape[1:])
    return array.write(0, tf.sin(x[0])).write(1, bad_square(x[1])).stack()


def wrong_in_python(x):
    y = tf.py_function(lambda value: bad_square(value) + 1.0, [x], x.dtype)
    return tf.exp(tf.ensure_shape(y, x.shape))


@tf.function
def _innermost(x):
    return bad_square(tf.sin(x))


@tf.function
def _between(x):
    return tf.exp(_innermost(x)) + x


@tf.function
def wrong_innermost(x):
    return tf.tanh(_between(x))


# --- right, though it looks wrong ---


def untaken(x, used, unused):
    """Eagerly, no trace of the branch that isn't taken; in a graph, zeros."""
    return tf.cond(tf.reduce_sum(x) < 1e6, lambda: x * used, lambda: x * unused)


def any_order(params):
    """Keys in no order, a tensor that is returned as it is, and one that is returned twice."""
    product = params["z"] * params["a"]
    return {"z": product, "b": product, "a": params["a"]}


def deep(tree):
    (first, (second,)), rest = tree
    return ({"sum": first + second}, [rest["k"][0] * first, Pair(first, second**2)])


def repeated_and_unsorted(a):
    """Two nonzeros in one place add up, whatever the order."""
    return tf.sparse.sparse_dense_matmul(a, tf.constant([[1.0], [2.0], [3.0]], a.dtype)) ** 2


def pruned(a):
    """A SparseTensor of other nonzeros than those that came in."""
    return tf.sparse.retain(a, a.indices[:, 0] > 0)


def concatenated(rows, more):
    """A RaggedTensor of other rows than those that came in."""
    return tf.concat([rows, more, tf.ragged.map_flat_values(tf.exp, rows)], axis=1)


def boxed(box):
    return Boxed(low=box.low * box.high, high=tf.sin(box.high))


def several_in_python(x):
    first, second = tf.py_function(lambda value: (tf.sin(value), value**2), [x], [x.dtype, x.dtype])
    first.set_shape(x.shape)
    second.set_shape(x.shape)
    return {"product": first * second, "second": second}


def backwards(x):
    return tf.scan(lambda state, row: state * tf.cos(row) + row, x, reverse=True)


def numpy_parts(pair):
    return {"total": pair["a"] + pair["b"], "product": pair["a"] * pair["b"]}


def numpy_parts_grad(op, along_product, along_total):
    a, b = op.inputs
    return b * along_product + along_total, a * along_product + along_total


def numpy_parts_grad_swapped(op, along_product, along_total):
    return numpy_parts_grad(op, along_total, along_product)


def turn_none(x, count):
    return tf.while_loop(lambda i, _: i < count, lambda i, y: (i + 1, y * x), (0, tf.exp(x)))[1]
