"""Gradients that round before they meet an upstream: right ones, and wrong ones just above that."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked


def custom(value, slope):
    """A function with this derivative."""

    def make(factor):
        @tf.custom_gradient
        def call(x):
            return value(x), lambda u: u * factor * slope(x)

        return call

    return make


# Each derivative is a difference of nearly equal terms, divided by a small number.
FUNCTIONS = {
    "sinc": custom(lambda x: tf.sin(x) / x, lambda x: (tf.cos(x) - tf.sin(x) / x) / x),
    "versine": custom(lambda x: (1 - tf.cos(x)) / x, lambda x: (x * tf.sin(x) - (1 - tf.cos(x))) / x**2),
    "exprel": custom(lambda x: tf.math.expm1(x) / x, lambda x: (x * tf.exp(x) - (tf.exp(x) - 1)) / x**2),
    "log1prel": custom(lambda x: tf.math.log1p(x) / x, lambda x: (x / (1 + x) - tf.math.log(1 + x)) / x**2),
    "langevin": custom(lambda x: 1 / tf.tanh(x) - 1 / x, lambda x: 1 / x**2 - 1 / tf.sinh(x) ** 2),
}
# The rounding is of 1e-16 over x or x ** 2: up to a hundredth of the slope at the first point.
POINTS = {"sinc": (1e-6, 1e-3), "versine": (1e-5, 1e-2), "exprel": (1e-5, 1e-2), "log1prel": (1e-5, 1e-2)}
POINTS["langevin"] = (1e-4, 1e-1)


def with_seam(seam, inside):
    """`log1prel` with another gradient below a seam: the jump there is no rounding."""

    @tf.custom_gradient
    def call(x):
        def gradient(u):
            is_inside = tf.abs(x) < seam
            safe = tf.where(is_inside, tf.ones_like(x), x)
            outside = (1 / (1 + safe) - tf.math.log1p(safe) / safe) / safe
            return u * tf.where(is_inside, inside(x), outside)

        return tf.math.log1p(x) / x, gradient

    return call


def beside_a_seam(factor):
    """`1 + sin(x0) cos(x1)`, with another slope in x0 where x1 is below a seam."""

    @tf.custom_gradient
    def call(x):
        def gradient(u):
            own = tf.where(tf.abs(x[1]) < SEAM, tf.constant(factor, x.dtype), tf.ones([], x.dtype))
            return u * tf.stack([tf.cos(x[0]) * tf.cos(x[1]) * own, -tf.sin(x[0]) * tf.sin(x[1])])

        return 1 + tf.sin(x[0]) * tf.cos(x[1]), gradient

    return call


SEAM = 1e-3
BELOW = {
    "right": lambda x: -0.5 + 2 * x / 3 - 0.75 * x * x + 0.8 * x**3,
    "half_a_term": lambda x: -0.5 + x / 3,
    "another_factor": lambda x: 1.5 * (-0.5 + 2 * x / 3),
}


def at(point):
    return {"x": {"value": [point, 1.0, 2.0]}}


def in_numpy(factor, at_one=1.0):
    """Return `sinc` with a gradient by NumPy, in which nobody sees what rounds; it may be another at 1."""

    def slope(x, u):
        return u * factor * np.where(x == 1.0, at_one, 1.0) * (np.cos(x) - np.sin(x) / x) / x

    @tf.custom_gradient
    def call(x):
        return tf.sin(x) / x, lambda u: tf.ensure_shape(tf.numpy_function(slope, [x, u], x.dtype), x.shape)

    return call


ROWS = marked(
    [
        *(
            Row(f"{name}_{point:g}", make(1.0), None, at(point), "right")
            for name, make in FUNCTIONS.items()
            for point in POINTS[name]
        ),
        *(
            Row(f"{name}_{point:g}_wrong_by_{error:g}", make(1.0 + error), None, at(point), "wrong")
            for name, make in FUNCTIONS.items()
            for point in POINTS[name][1:]
            for error in (1e-3, 0.5, -2.0)
        ),
        *(
            Row(f"{name}_{POINTS[name][0]:g}_sign", make(-1.0), None, at(POINTS[name][0]), "not green")
            for name, make in FUNCTIONS.items()
        ),
        *(
            Row(
                f"seam_{below}_{first:g}_{how:g}",
                with_seam(SEAM, slope),
                None,
                {"x": {"value": [first, SEAM * (1 - how), 0.5]}},
                "right" if below == "right" else "wrong",
            )
            for below, slope in BELOW.items()
            for first in (0.25, 6e-16)  # another element's scale bounds nothing here
            for how in (1e-13, 1e-9, 1e-5)
        ),
        *(
            Row(
                f"beside_a_seam_at_{first:g}_x{factor:g}",
                beside_a_seam(factor),
                None,
                {"x": {"value": [first, SEAM * (1 - 1e-9)]}},
                "right" if factor == 1 else "wrong",
            )
            for first in (0.0, 0.3)
            for factor in (1.0, 1.0004, 1.01)
        ),
        Row("in_numpy", in_numpy(1.0), None, at(1e-6), "right"),
        Row("in_numpy_a_hundredth_off", in_numpy(1.01), None, at(1e-6), "wrong"),
        Row("in_numpy_wrong_at_one", in_numpy(1.0, 2.0), None, at(0.3), "wrong"),
        Row("exprel_eagerly", FUNCTIONS["exprel"](1.0), None, at(1e-5), "right", keys={"modes": ["eager"]}),
    ],
    "beside_a_seam_at_*_*",
    "in_numpy",
    "in_numpy_*",
    "seam_*",
)
