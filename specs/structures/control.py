"""Forwards of loops, branches, functions within functions, and Python that runs as the graph does."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

Tensor = Any


def branches(x: Tensor) -> Tensor:
    """Take one branch or the other by the sign of the sum."""
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x), lambda: x**3)


def branch_of_several(x: Tensor, which: Tensor) -> Tensor:
    """Take one branch of three."""
    return tf.switch_case(which, [lambda: tf.sin(x), lambda: x**2, lambda: tf.exp(-x)])


def powers(x: Tensor, count: Tensor) -> Tensor:
    """Multiply in a loop whose length is an input."""
    return tf.while_loop(
        lambda i, _: i < count,
        lambda i, y: (i + 1, y * tf.tanh(x) + x),
        (tf.constant(0), tf.ones_like(x)),
        maximum_iterations=8,
    )[1]


@tf.function
def python_loop(x: Tensor) -> Tensor:
    """Loop and branch in Python, which AutoGraph converts."""
    y = x
    for i in tf.range(3):
        if i % 2 == 0:  # noqa: SIM108 (what is to be converted is the statement)
            y = tf.sin(y) * x
        else:
            y = y + tf.square(x)
    return y


def scanned(x: Tensor, start: Tensor) -> Tensor:
    """Run a recurrence over rows."""
    return tf.scan(lambda state, row: tf.tanh(state + row), x, initializer=start)


def collected(x: Tensor) -> dict[str, Tensor]:
    """Write to a TensorArray, read from it, and stack it."""
    array = tf.TensorArray(x.dtype, size=3, clear_after_read=False, element_shape=x.shape[1:])
    array = array.write(0, x[0]).write(1, tf.exp(x[1]))
    array = array.write(2, array.read(0) * array.read(1))
    return {"stacked": array.stack(), "last": array.read(2) ** 2}


def mapped(x: Tensor, scale: Tensor) -> Tensor:
    """Map a function over rows."""
    return tf.map_fn(lambda row: tf.reduce_sum(tf.sin(scale * row)), x, fn_output_signature=x.dtype)


def mapped_structure(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """Map a function of structures over rows."""
    spec = {"sum": rows["a"].dtype, "product": rows["a"].dtype}
    return tf.map_fn(
        lambda row: {"sum": row["a"] + row["b"] ** 2, "product": row["a"] * row["b"]},
        rows,
        fn_output_signature=spec,
    )


def in_python(x: Tensor) -> Tensor:
    """Run eagerly what TensorFlow differentiates."""
    y = tf.py_function(lambda value: tf.reduce_sum(tf.square(value), axis=1), [x], x.dtype)
    return tf.ensure_shape(y, [None])


@tf.function
def _inner(x: Tensor, scale: Tensor) -> Tensor:
    return tf.tanh(scale * x)


@tf.function
def _middle(x: Tensor, scale: Tensor) -> Tensor:
    return _inner(x, scale) + _inner(x, 2 * scale)


@tf.function
def nested(x: Tensor, scale: Tensor) -> Tensor:
    """Call functions within functions."""
    return _middle(x, scale) * x


def standardized(x: Tensor) -> Tensor:
    """Take every size from the tensor as it runs."""
    rows = tf.cast(tf.shape(x)[0], x.dtype)
    mean = tf.reduce_sum(x, axis=0) / rows
    kept = tf.boolean_mask(x, tf.range(tf.shape(x)[0]) % 2 == 0)
    return tf.reduce_sum((kept - mean) ** 2, axis=0)


@tf.custom_gradient
def row_means(x: Tensor) -> tuple[Tensor, Any]:
    """Average rows of any number, by a gradient that asks for it as it runs."""

    def gradient(upstream: Tensor) -> Tensor:
        return tf.broadcast_to(upstream, tf.shape(x)) / tf.cast(tf.shape(x)[0], x.dtype)

    return tf.reduce_mean(x, axis=0), gradient
