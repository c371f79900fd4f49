"""Gradients that cast their upstream to bfloat16, most in float16; right ones that lose bits elsewhere."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.row import Row, marked


def of(*shape: int, **keys: Any) -> dict[str, Any]:
    """Return a float16 input of a shape."""
    return {"x": {"shape": list(shape), "dtype": "float16", **keys}}


def scaled(x: Any) -> Any:
    """Normalise rows."""
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    return centred * tf.math.rsqrt(tf.reduce_mean(centred**2, -1, keepdims=True) + tf.constant(1e-3, x.dtype))


FORWARDS = {
    "sine": (tf.sin, of(4)),
    "square": (tf.square, of(4)),
    "tanh": (tf.tanh, of(3)),
    "exponential": (tf.exp, of(3)),
    "rows": (scaled, of(2, 6)),
    "sum": (lambda x: tf.reduce_sum(x * x), of(5)),
    "mean": (lambda x: tf.reduce_mean(tf.sin(x), 0), of(4, 3)),
    "gelu": (tf.nn.gelu, of(4)),
    "log_sum": (lambda x: tf.reduce_logsumexp(x, -1), of(3, 4)),
    "quotient": (lambda x: 1 / (1 + x * x), of(4)),
    "cumulated": (lambda x: tf.cumsum(tf.sin(x)), of(6)),
    "one_element": (tf.sin, of(1)),
    "chain": (lambda x: tf.tanh(tf.sin(tf.exp(x) * x) * x) * x, of(1)),
    "relu": (tf.nn.relu, of(6)),
    "large": (lambda x: x * 100, of(4)),
    "cross_entropy": (lambda x: -tf.reduce_sum(tf.nn.log_softmax(x)[:, 0]), of(4, 5)),
    "direction": (lambda x: x / tf.norm(x), of(4)),
    "many": (lambda x: tf.sin(x) * x, of(40, 30)),
}
# Right ones that lose what the upstream's last bits change.
LOSSY = {
    "softmax": (tf.nn.softmax, of(2, 5)),
    "softmax_near_one": (tf.nn.softmax, of(2, value=[7.62, 0.0])),
    "softmax_nearly_one": (tf.nn.softmax, of(2, value=[7.0, 0.0])),
    "softmax_saturated": (tf.nn.softmax, of(3, value=[9.0, 0.0, 1.0])),
    "sigmoid_saturated": (tf.sigmoid, of(3, value=[7.5, 7.7, 8.0])),
    "tanh_saturated": (tf.tanh, of(3, value=[3.5, 4.0, -4.2])),
    "rows_far_off": (scaled, of(2, 6, uniform={"low": 30, "high": 31})),
    "square_root": (tf.sqrt, of(4, uniform={"low": 1e-3, "high": 60})),
    "variance": (lambda x: tf.math.reduce_variance(x, -1), of(3, 4)),
    "small": (lambda x: x * 1e-3, of(4)),
    "tiny": (lambda x: x * 1e-7, of(4)),
    "matrix": (lambda x: tf.matmul(x, x, transpose_b=True), of(3, 3)),
}


def cast(upstream: Any) -> Any:
    """Return what bfloat16 keeps of an upstream."""
    return tf.cast(tf.cast(upstream, tf.bfloat16), upstream.dtype)


def own(forward: Any, use: Any) -> Any:
    """Return a function whose gradient is TensorFlow's, of what `use` makes of its upstream."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return forward(x), lambda upstream: tf.gradients(forward(x), x, use(upstream))[0]

    return function


def remainder(big: float) -> Any:
    """Return 0.01 x with a gradient that is the difference of two large terms."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        return 0.015625 * x, lambda upstream: upstream * (big + 0.015625) - upstream * big

    return function


# Beyond float16: TensorFlow's own gradients, which are what is left of terms that cancel.
CANCELLING = {
    "less_its_sine": lambda x: x - tf.sin(x),
    "less_its_tanh": lambda x: x - tf.tanh(x),
    "sum_less_sines": lambda x: tf.reduce_sum(x - tf.sin(x)),
}
SMALL = {"float64": (3e-8, 1e-7, 1e-5), "float32": (1e-4, 1e-3, 1e-2, 0.1)}


def cancelling() -> Any:
    for name, forward in CANCELLING.items():
        for dtype, values in SMALL.items():
            for value in values:
                inputs = {"x": {"value": [value, -value, 2 * value, 3 * value], "dtype": dtype}}
                where = f"{name}_at_{value:g}_{dtype}"
                is_shown = value == values[-1]  # else few digits are left, or none
                yield Row(f"{where}_right", forward, None, inputs, "right" if is_shown else "undecidable")
                if is_shown and dtype == "float32":
                    yield Row(f"{where}_cast", own(forward, cast), None, inputs, "wrong")


def lost() -> Any:
    """Yield slopes of 0 that are -0.003: in bfloat16 the terms, of 100 each, leave nothing, or an eighth."""
    inputs = {"x": {"value": [0.01, -0.02, 0.03], "dtype": "bfloat16"}}
    for name, forward in {
        "of_elements": lambda x: tf.sin(x) / x,
        "of_a_sum": lambda x: tf.reduce_sum(tf.sin(x) / x),
    }.items():
        yield Row(f"lost_{name}", forward, None, inputs, "undecidable")
        yield Row(f"lost_{name}_doubled", own(forward, lambda u: u * u), None, inputs, "not green")


def rows() -> Any:
    yield from lost()
    yield from cancelling()
    for name, (forward, inputs) in FORWARDS.items():
        yield Row(f"{name}_cast", own(forward, cast), None, inputs, "wrong")
        yield Row(f"{name}_right", own(forward, tf.identity), None, inputs, "right")
    for name, (forward, inputs) in LOSSY.items():
        yield Row(f"{name}_right", own(forward, tf.identity), None, inputs, "undecidable")
    for big in (0.25, 1.0, 4.0):
        yield Row(f"remainder_of_{big:g}", remainder(big), None, of(3), "undecidable")


ROWS = marked(
    tuple(rows()),
    "less_its_sine_at_0.01_float32_right",
    "many_cast",
    "matrix_right",
    "sigmoid_saturated_right",
)
