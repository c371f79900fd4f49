"""Values, slopes and bends that are 0 at a point or close to it: losses at their margins, roots, knots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def own(forward: Callable[[Any], Any], gradient: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Return a function with a gradient of its own."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return forward(x), lambda upstream: gradient(upstream, x)

    return function


def _at(*values: float, dtype: str = "float64") -> dict[str, Any]:
    return {"x": {"shape": [len(values)], "value": list(values), "dtype": dtype}}


def _hinge(x: Any) -> Any:
    return tf.maximum(1 - x, 0)


def _margins() -> Iterator[Row]:
    """Kinks, and gradients that are wrong at one point only, where the value is 0."""
    for factor in (100.0, -1.0, 1.01, 1.0):

        def gradient(u: Any, x: Any, factor: float = factor) -> Any:
            return -factor * u * tf.cast(x <= 1, x.dtype)

        truth = "right" if factor == 1 else "wrong"
        yield Row(f"hinge_{factor:g}", own(_hinge, gradient), None, _at(1.0), truth)
        yield Row(f"hinge_beside_{factor:g}", own(_hinge, gradient), None, _at(1.0, 0.3, 2.0), truth)
    for sign in (1.0, -1.0):

        def step(u: Any, x: Any, sign: float = sign) -> Any:
            return sign * u * tf.cast(x >= 2, x.dtype)

        yield Row(
            f"relu_{sign:g}",
            own(lambda x: tf.nn.relu(x - 2), step),
            None,
            _at(2.0),
            "right" if sign > 0 else "wrong",
        )
    for name, forward, slope in (
        ("line", lambda x: x - 2, tf.ones_like),
        ("square", lambda x: (x - 2) ** 2, lambda x: 2 * (x - 2)),
        ("sine", lambda x: tf.sin(x - 2), lambda x: tf.cos(x - 2)),
    ):

        def lifted(u: Any, x: Any, slope: Any = slope) -> Any:
            return u * (slope(x) + tf.cast(x <= 2, x.dtype))

        yield Row(f"{name}_lifted", own(forward, lifted), None, _at(2.0), "wrong")
        yield Row(f"{name}_right", forward, None, _at(2.0), "right")


def _half_sinh(x: Any) -> Any:
    """2 sinh(x / 2), by a root of what cancels: 0 at 0, where TensorFlow's gradient of it is 0, too."""
    is_zero = x == 0
    safe = tf.where(is_zero, tf.ones_like(x), x)
    return tf.where(is_zero, tf.zeros_like(x), tf.sign(safe) * tf.sqrt(2 * (tf.cosh(safe) - 1)))


def _angle(x: Any) -> Any:
    """The same of an angle by its cosine."""
    is_zero = x == 0
    cosine = tf.where(is_zero, tf.ones_like(x) / 2, 1 - x * x / 2)
    return tf.where(is_zero, tf.zeros_like(x), tf.sign(x) * tf.acos(cosine))


def _roots() -> Iterator[Row]:
    """Functions that are bitwise flat next to a point at which their slope is 1."""
    slopes = {
        "sinh": (_half_sinh, lambda x: tf.cosh(x / 2)),
        "angle": (_angle, lambda x: 1 / tf.sqrt(1 - x * x / 4)),
    }
    for dtype in ("float64", "float32"):
        for name, (forward, slope) in slopes.items():
            label = f"{name}_{dtype}"
            yield Row(label, forward, None, _at(0.0, 0.5, dtype=dtype), "not green")

            def offset(x: Any, forward: Any = forward) -> Any:
                return forward(x) + 3

            def moved(x: Any, forward: Any = forward) -> Any:
                return forward(x - 1)

            for factor, truth in ((1.0, "right"), (0.0, "not green"), (2.0, "wrong")):

                def at_zero(u: Any, x: Any, factor: float = factor, slope: Any = slope) -> Any:
                    return u * slope(x) * (1 + (factor - 1) * tf.cast(x == 0, x.dtype))

                def at_one(u: Any, x: Any, at_zero: Any = at_zero) -> Any:
                    return at_zero(u, x - 1)

                yield Row(
                    f"{label}_{factor:g}", own(forward, at_zero), None, _at(0.0, 0.5, dtype=dtype), truth
                )
                yield Row(
                    f"{label}_offset_{factor:g}",
                    own(offset, at_zero),
                    None,
                    _at(0.0, 0.5, dtype=dtype),
                    truth,
                )
                yield Row(
                    f"{label}_moved_{factor:g}", own(moved, at_one), None, _at(1.0, 0.5, dtype=dtype), truth
                )


# Losses with one derivative, and their knots; TensorFlow's gradients of them are right.
_KNOTS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "squared_hinge": (lambda x: tf.nn.relu(1 - x) ** 2, 1.0),
    "relu_squared": (lambda x: tf.nn.relu(x) ** 2, 0.0),
    "softshrink_squared": (lambda x: tf.nn.relu(tf.abs(x) - 0.5) ** 2, 0.5),
    "huber": (lambda x: tf.where(tf.abs(x) <= 1, x * x / 2, tf.abs(x) - 0.5), 1.0),
}


def _knots() -> Iterator[Row]:
    for dtype, distances in (("float64", (3e-8, 1e-8, 1e-9)), ("float32", (1e-4, 1e-6))):
        for name, (forward, knot) in _KNOTS.items():
            for distance in distances:
                for d in (distance, -distance):

                    def total(x: Any, forward: Any = forward) -> Any:
                        return tf.reduce_sum(forward(x))

                    inputs = _at(knot + d, 0.3, dtype=dtype)
                    label = f"{name}_{dtype}_{d:g}"
                    # What is left of the slope may be below the rounding of the rest.
                    truth = "undecidable" if name in {"relu_squared", "softshrink_squared"} else "right"
                    yield Row(label, total, None, inputs, truth)

                    def doubled(u: Any, x: Any, total: Any = total) -> Any:
                        with tf.GradientTape() as tape:
                            tape.watch(x)
                            y = total(x)
                        return u * (tape.gradient(y, x) + tf.constant([0.01, 0.0], x.dtype))

                    yield Row(f"{label}_wrong", own(total, doubled), None, inputs, "wrong")


ROWS = marked(
    (*_margins(), *_roots(), *_knots()),
    "hinge_-1",
    "hinge_beside_1.01",
    "relu_squared_float64_-3e-08_wrong",
    "relu_squared_float64_3e-08",
    "sinh_float32_2",
    "softshrink_squared_float64_-1e-08",
    "softshrink_squared_float64_-1e-08_wrong",
    "softshrink_squared_float64_-3e-08",
    "softshrink_squared_float64_1e-09",
    "squared_hinge_float64_1e-08",
)
