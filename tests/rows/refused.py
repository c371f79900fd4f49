"""Outputs that aren't numbers or whose size depends on values, and forwards that refuse points."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

FACTORS = {"right": 1.0, "wrong": 1.01}
DTYPES = ("float64", "float32", "bfloat16")
TABLE = np.sin(np.arange(10.0))


def sine(factor: float) -> Any:
    """Return sin, with a gradient that is off by a factor."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return tf.sin(x), lambda upstream: upstream * tf.cos(x) * tf.cast(factor, x.dtype)

    return function


def named(factor: float) -> Any:
    """Both outputs come from one custom gradient."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return (tf.sin(x), tf.as_string(x)), lambda upstream, _: upstream * tf.cos(x) * factor

    return function


# What stands beside a floating output.
BESIDE = {
    "texts": tf.strings.as_string,
    "text": lambda _: tf.constant("abc"),
    "integers": lambda x: tf.cast(10 * x, tf.int32),
    "booleans": lambda x: x > 0,
    "parts": lambda x: tf.strings.split(tf.strings.as_string(x), ".").flat_values,
}
# Whose size depends on the values of x, or of whole numbers.
SIZED = {
    "boolean_mask": lambda y, x, _: tf.boolean_mask(y, x > 0),
    "where": lambda y, x, _: tf.gather(y, tf.where(x > 0)),
    "cut": lambda y, _, n: y[: n[0]],
    "pad": lambda y, _, n: tf.pad(y, [[n[0], n[1]]]),
    "repeat": lambda y, _, n: tf.repeat(y, n),
    "tile": lambda y, _, n: tf.tile(y, n[:1]),
    "partition": lambda y, x, _: tf.dynamic_partition(y, tf.cast(x > 0, tf.int32), 2)[0],
    "sequence": lambda y, _, n: tf.sequence_mask(n, dtype=y.dtype) * y[:, None],
}


def looked_up(factor: float) -> Any:
    """A table, with straight lines between its entries: outside of it, `gather` raises."""
    table = tf.constant(TABLE)

    @tf.custom_gradient
    def function(x: Any) -> Any:
        index = tf.cast(tf.floor(x), tf.int32)
        low, high = (tf.cast(tf.gather(table, index + step), x.dtype) for step in (0, 1))
        return low + (high - low) * (x - tf.floor(x)), lambda upstream: upstream * (high - low) * factor

    return function


def asserted(factor: float) -> Any:
    def function(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(x, tf.cast(9.0, x.dtype))]):
            return sine(factor)(x)

    return function


def raising(factor: float) -> Any:
    def positive(x: Any) -> Any:
        if (x < 0).any():
            raise ValueError("must be positive")
        return np.sin(x)

    @tf.custom_gradient
    def function(x: Any) -> Any:
        values = tf.numpy_function(positive, [x], x.dtype)
        return tf.ensure_shape(values, x.shape), lambda upstream: upstream * tf.cos(x) * factor

    return function


REFUSING = {"looked_up": looked_up, "asserted": asserted, "raising": raising}


MODES = ("graph", "dynamic", "eager")


def rows() -> Any:
    for truth, factor in FACTORS.items():
        for index, (name, beside) in enumerate(BESIDE.items()):
            dtype, keys = DTYPES[index % 3], {"modes": [MODES[index % 2]]}
            inputs = {"x": {"shape": [5], "dtype": dtype}}
            far = 1 + 30 * (factor - 1)  # which bfloat16 can tell
            yield f"{name}-{truth}", truth, inputs, lambda x, f=far, b=beside: (sine(f)(x), b(x)), keys
        plain = {"x": {"shape": [4]}}
        counted = {**plain, "n": {"shape": [4], "dtype": "int32", "integers": {"low": 1, "high": 4}}}
        for index, (name, sized) in enumerate(SIZED.items()):
            for mode in (MODES[0], MODES[1 + index % 2]):

                def forward(x: Any, n: Any, factor: float = factor, sized: Any = sized) -> Any:
                    return sized(sine(factor)(x), x, n)

                yield f"{name}-{truth}-{mode}", truth, counted, forward, {"modes": [mode]}
        for mode in MODES:
            yield f"named-{truth}-{mode}", truth, plain, named(factor), {"modes": [mode]}
        for name, refusing in REFUSING.items():
            for mode in ("graph", "eager"):
                inputs = {"x": {"shape": [3], "uniform": {"low": 0.05, "high": 8.95}}}
                yield f"{name}-{truth}-{mode}", truth, inputs, refusing(factor), {"modes": [mode]}
        near = {"x": {"shape": [4], "value": [1.0, 1e-3, -1e-4, 2.0]}}
        yield f"mask-near-{truth}", truth, near, lambda x, f=factor: tf.boolean_mask(sine(f)(x), x > 0), {}
        within = {"x": {"shape": [3], "value": [0.5, 3.5, 8.5]}}
        both = lambda x, f=factor: (looked_up(f)(x), tf.as_string(x))  # noqa: E731 (a forward)
        yield f"beside-looked_up-{truth}", truth, within, both, {}


ROWS = marked(
    tuple(
        Row(name, forward, None, inputs, truth, keys=keys) for name, truth, inputs, forward, keys in rows()
    ),
    "cut-wrong-dynamic",
    "integers-right",
    "integers-wrong",
    "mask-near-wrong",
    "named-right-eager",
    "text-right",
    "partition-right-dynamic",
    "sequence-right-graph",
)
