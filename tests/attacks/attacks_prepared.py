"""Forwards whose graph is finite only once Grappler has prepared it, as in a `tf.function`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from attacking import Attack

# By dtype: the size of the inputs, and a factor by which they overflow.
SIZES = {"float64": (1e150, 1e200), "float32": (1e15, 1e30), "float16": (3e2, 1e3)}
# Grappler folds the two factors into one.
FORMS = {
    "product": lambda y, large: y * large * (1 / large),
    "quotient": lambda y, large: (y * large) / large,
    "square": lambda y, large: tf.square(y / y) * y * large * (1 / large),
    "sum": lambda y, large: tf.reduce_sum(y * large * (1 / large)) + y,
    "in_a_function": lambda y, large: tf.function(lambda z: z * large * (1 / large))(y),
}


def own(factor: float) -> Any:
    """Return twice the input, with a gradient that is off by a factor."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return 2 * x, lambda upstream: 2 * factor * upstream

    return function


def rows() -> Any:
    for dtype, (size, large) in SIZES.items():
        for index, (name, form) in enumerate(FORMS.items()):
            inputs = {"x": {"shape": [3], "dtype": dtype, "value": [size, -1.5 * size, 2 * size]}}
            mode = {"modes": [("graph", "dynamic")[index % 2]]}
            for truth, factor in (("right", 1.0), ("wrong", 1.5)):
                forward = lambda x, f=form, c=factor, big=large: f(own(c)(x), big)  # noqa: E731 (a forward)
                yield Attack(f"{name}-{dtype}-{truth}", truth, inputs, forward, None, mode)


ATTACKS = tuple(rows())
